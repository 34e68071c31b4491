"""Ciphers of encryption at rest, and the choice of the cipher of a resource (OPS-003).

Encrypted values have upstream's format: a prefix such as ``k8s:enc:aescbc:v1:NAME:``, then the output of the cipher.
AES-GCM also authenticates the etcd key, so a value that was copied to another etcd key cannot be decrypted.
"""

import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Protocol

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from msgspec import Struct

from apiext.kms.provider import Provider as Service
from apiext.meta import fields
from apiext.meta.names import GroupResource
from apiext.storage import envelopes, secretbox
from apiext.storage.encryption import ENCRYPTED, NOT_ENCRYPTED, PLAIN, Encryption, EncryptionError, MissingKey, Secret
from apiext.storage.envelopes import Enveloped, SecretsOfProvider
from apiext.storage.gcm import SHORT, Gcm, in_pieces
from apiext.telemetry import Family, HistogramFamily

IDENTITY, AES_CBC, AES_GCM, SECRETBOX = "identity", "aescbc", "aesgcm", "secretbox"
_NO_PREFIX = "no matching prefix found"
_BLOCK = 16
_NO_KEY = {
    AES_CBC: "no matching key was found for the provided AES transformer",
    AES_GCM: "no matching key was found for the provided AES transformer",
    SECRETBOX: "no matching key was found for the provided Secretbox transformer",
}

OPERATIONS = Family(
    "apiserver_storage_transformation_operations_total",
    "counter",
    "Number of stored values that were encrypted or decrypted, by resource, key or provider, and status.",
    ("resource", "transformation_type", "transformer_prefix", "status"),
)
SECONDS = HistogramFamily(
    "apiserver_storage_transformation_duration_seconds",
    "Latencies in seconds of the encryption and decryption of stored values.",
    ("transformation_type", "transformer_prefix"),
    [5e-6 * 2**power for power in range(25)],
)


class MaskedError(ValueError):
    """The error of a rule without effect, since an earlier rule applies to its resources."""


class Provider(Struct, frozen=True):
    """A kind of encryption and its keys.

    ``identity`` has no keys. ``kms`` has a ``service``, the key management plug-in, instead of ``keys``.
    """

    kind: str
    keys: tuple[Secret, ...] = ()
    service: Service | None = None


class Rule(Struct, frozen=True):
    """Resources, as ``plural.group`` or with ``*``, and their providers.

    The first provider encrypts new values.
    """

    resources: tuple[str, ...]
    providers: tuple[Provider, ...]


class _Cipher(Protocol):
    """A cipher with its key, or several ciphers."""

    @property
    def secret(self) -> Secret:
        """The key that encrypts new values."""

    def encrypt(self, plain: bytes, key: bytes) -> bytes:
        """Return the stored form of a value under a key of etcd; raise EncryptionError."""

    def decrypt(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        """Return the decrypted value and the key that decrypted it; raise EncryptionError."""


class _Identity:
    secret = PLAIN

    def encrypt(self, plain: bytes, key: bytes) -> bytes:
        return plain

    def decrypt(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if data.startswith(ENCRYPTED):
            raise EncryptionError(NOT_ENCRYPTED)
        return data, PLAIN


class _AesGcm(Gcm):
    def __init__(self, secret: Secret) -> None:
        super().__init__(secret.value)
        self.secret = secret

    def decrypt(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        return self.decrypted(data, key), self.secret


class _AesCbc:
    """AES-CBC without authentication.

    The output is the initialisation vector, then ciphertext with PKCS 7 padding.
    """

    def __init__(self, secret: Secret) -> None:
        self.secret = secret
        self._cipher = AES(secret.value)

    def encrypt(self, plain: bytes, key: bytes) -> bytes:
        vector, lacking = os.urandom(_BLOCK), _BLOCK - len(plain) % _BLOCK
        cipher = Cipher(self._cipher, CBC(vector)).encryptor()
        ciphertext = [vector, *in_pieces(cipher.update, plain), cipher.update(bytes((lacking,)) * lacking)]
        return b"".join((*ciphertext, cipher.finalize()))

    def decrypt(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if len(data) < _BLOCK:
            raise EncryptionError(SHORT)
        if len(data) % _BLOCK:
            raise EncryptionError("the stored data is not a multiple of the block size")
        cipher = Cipher(self._cipher, CBC(data[:_BLOCK])).decryptor()
        padded = b"".join((*in_pieces(cipher.update, data[_BLOCK:]), cipher.finalize()))
        size = padded[-1] if padded else 0
        if not 0 < size <= len(padded):
            raise EncryptionError("invalid PKCS7 data (empty or not padded)")
        if padded[-size:] != padded[-1:] * size:
            raise EncryptionError("invalid padding on input")
        return padded[:-size], self.secret


class _Secretbox:
    """The secretbox cipher of NaCl.

    The output is the nonce, the authentication tag, and the ciphertext.
    """

    def __init__(self, secret: Secret) -> None:
        self.secret = secret

    def encrypt(self, plain: bytes, key: bytes) -> bytes:
        nonce = os.urandom(secretbox.NONCE)
        return nonce + secretbox.encrypt(self.secret.value, nonce, plain)

    def decrypt(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if len(data) < secretbox.NONCE + secretbox.TAG:
            raise EncryptionError(SHORT)
        plain = secretbox.decrypt(self.secret.value, data[: secretbox.NONCE], data[secretbox.NONCE :])
        if plain is None:
            raise EncryptionError("output array was not large enough for encryption")
        return plain, self.secret


_CIPHERS: Mapping[str, Callable[[Secret], _Cipher]] = {AES_CBC: _AesCbc, AES_GCM: _AesGcm, SECRETBOX: _Secretbox}


class _Choice:
    """Several ciphers, each with a prefix of its values. The first cipher encrypts.

    For a value, ``decrypt`` tries in order the ciphers whose prefix the value has, until one succeeds. A MissingKey
    whose ``tried`` is false is raised at once, since the caller must call the plug-in first.
    """

    def __init__(self, resource: str, parts: Sequence[tuple[bytes, _Cipher]], none: str) -> None:
        self._resource = resource
        self._parts = tuple(parts)
        self._none = none

    @property
    def secret(self) -> Secret:
        return self._parts[0][1].secret

    def encrypt(self, plain: bytes, key: bytes) -> bytes:
        began = perf_counter()
        prefix, part = self._parts[0]
        try:
            ciphertext = prefix + part.encrypt(plain, key)
        except EncryptionError as fault:
            self._count("to_storage", prefix.decode(), 0, fault.status)
            raise
        self._count("to_storage", prefix.decode(), began)
        return ciphertext

    def decrypt(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        began = perf_counter()
        faults: list[str] = []
        lacking: MissingKey | None = None
        for prefix, part in self._parts:
            if not data.startswith(prefix):
                continue
            try:
                decrypted = part.decrypt(data[len(prefix) :], key)
            except EncryptionError as fault:
                if isinstance(fault, MissingKey):
                    if not fault.tried:
                        raise
                    lacking = fault
                if prefix:  # identity has no prefix, and its error only says that the value is encrypted
                    faults.append(str(fault))
                    self._count("from_storage", prefix.decode(), 0, fault.status)
                continue
            self._count("from_storage", prefix.decode() or IDENTITY, began)
            return decrypted
        if lacking is not None:
            raise lacking
        if not faults:
            self._count("from_storage", "unknown", 0)
        raise EncryptionError(fields.aggregate(faults) if faults else self._none)

    def _count(self, what: str, prefix: str, began: float, status: str = EncryptionError.status) -> None:
        """Count an operation that began at ``began`` (perf_counter, 0 for a failed operation)."""
        OPERATIONS.slot(self._resource, what, prefix, "OK" if began else status).value += 1
        if began:
            SECONDS.observe(perf_counter() - began, what, prefix)


class _Encryption:
    def __init__(self, resource: GroupResource, providers: Sequence[Provider]) -> None:
        label = str(resource)
        self._choice = _Choice(label, [_part(label, provider) for provider in providers], _NO_PREFIX)

    def encrypt(self, key: str, plain: bytes) -> bytes:
        """Return the stored form of a value under a key of etcd; raise EncryptionError."""
        return self._choice.encrypt(plain, key.encode())

    def decrypt(self, key: str, value: bytes) -> tuple[bytes, Secret]:
        """Return the decrypted value and the key that decrypted it; raise EncryptionError."""
        return self._choice.decrypt(value, key.encode())


class CipherEncryption(_Encryption):
    """The encryption of the values of one resource, with static keys."""

    waits = False

    def __init__(self, resource: GroupResource, providers: Sequence[Provider]) -> None:
        super().__init__(resource, providers)
        self.secret = self._choice.secret
        self.secrets = frozenset(_secrets_of(providers))

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Do nothing, since static keys need no plug-in."""

    def is_healthy(self) -> bool:
        """Return True, since the configuration contains all keys."""
        return True


class ServiceEncryption(_Encryption):
    """The encryption of the values of one resource, with keys of plug-ins and static keys."""

    waits = True

    def __init__(self, resource: GroupResource, providers: Sequence[Provider]) -> None:
        super().__init__(resource, providers)
        self._enveloped = [(prefix, part) for prefix, part in map(_enveloped, providers) if part is not None]
        services = [SecretsOfProvider(part.provider.name) for _, part in self._enveloped]
        self.secrets: Container[Secret] = _Union([frozenset(_secrets_of(providers)), *services])

    @property
    def secret(self) -> Secret:
        """The key that encrypts new values; a plug-in may change it."""
        return self._choice.secret

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Call plug-ins for the missing keys of these values."""
        await envelopes.fetch(self._enveloped, values)

    def is_healthy(self) -> bool:
        """Report whether at least one of the plug-ins is healthy."""
        return not all(part.provider.fault for _, part in self._enveloped)


class _Union:
    def __init__(self, containers: Sequence[Container[Secret]]) -> None:
        self._containers = containers

    def __contains__(self, secret: object) -> bool:
        return any(secret in container for container in self._containers)


def _secrets_of(providers: Sequence[Provider]) -> Iterable[Secret]:
    return (secret for provider in providers if provider.service is None for secret in provider.keys or (PLAIN,))


def _enveloped(provider: Provider) -> tuple[bytes, Enveloped | None]:
    if provider.service is None:
        return b"", None
    return b"k8s:enc:kms:v2:%b:" % provider.service.name.encode(), Enveloped(provider.service)


def _part(resource: str, provider: Provider) -> tuple[bytes, _Cipher]:
    prefix, part = _enveloped(provider)
    if part is not None:
        return prefix, part
    if provider.kind == IDENTITY:
        return b"", _Identity()
    cipher = _CIPHERS[provider.kind]
    keys = [(f"{secret.name}:".encode(), cipher(secret)) for secret in provider.keys]
    return b"k8s:enc:%b:v1:" % provider.kind.encode(), _Choice(resource, keys, _NO_KEY[provider.kind])


_ANY = GroupResource("*", "*")


class CipherEncryptions:
    """The rules of a configuration.

    A rule for a resource takes precedence over a rule for its group, and this over a rule for all resources.
    """

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._providers = _by_resource(rules)

    def of(self, resource: GroupResource) -> Encryption | None:
        """Return the encryption of a resource, None for plain text.

        Objects of the server itself are never encrypted.
        """
        if resource.group.startswith("."):
            return None
        for rule in (resource, GroupResource(resource.group, "*"), _ANY):
            if rule in self._providers:
                providers = self._providers[rule]
                kind = ServiceEncryption if any(provider.service for provider in providers) else CipherEncryption
                return kind(resource, providers)
        return None


def _by_resource(rules: Sequence[Rule]) -> Mapping[GroupResource, list[Provider]]:
    found: dict[GroupResource, list[Provider]] = {}
    for rule in rules:
        for text in rule.resources:
            resource = group_resource(text)
            for earlier in (GroupResource(resource.group, "*"), _ANY):
                if earlier in found:
                    raise MaskedError(
                        f'resource "{_text_of(resource)}" is masked by earlier rule "{_text_of(earlier)}"'
                    )
            found.setdefault(resource, []).extend(rule.providers)
    return found


def group_resource(text: str) -> GroupResource:
    """Parse ``plural.group``."""
    resource, _, group = text.partition(".")
    return GroupResource(group, resource)


def _text_of(resource: GroupResource) -> str:
    return str(resource) if resource.group or resource.resource != "*" else "*."
