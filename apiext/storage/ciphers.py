"""Ciphers of encryption at rest, and which of them a resource has (OPS-003).

Stored forms are upstream's to the byte: ``k8s:enc:aescbc:v1:NAME:``, then the output of the cipher. A key of etcd goes
into what AES-GCM authenticates, so a value that was copied to another key cannot be read.
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
from apiext.storage.envelopes import Enveloped, OfProvider
from apiext.storage.gcm import SHORT, Gcm, in_pieces
from apiext.storage.sealing import ENCRYPTED, NOT_ENCRYPTED, PLAIN, Lacking, Sealing, Secret, Unsealable
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
    "Number of values sealed for the store and opened from it, by resource, key or provider, and status.",
    ("resource", "transformation_type", "transformer_prefix", "status"),
)
SECONDS = HistogramFamily(
    "apiserver_storage_transformation_duration_seconds",
    "Latencies in seconds of sealing and opening stored values.",
    ("transformation_type", "transformer_prefix"),
    [5e-6 * 2**power for power in range(25)],
)


class MaskedError(ValueError):
    """A rule that would never count, because an earlier one takes its resources."""


class Provider(Struct, frozen=True):
    """A way of sealing and its keys; identity has none, and of ``kms`` they are a service's."""

    kind: str
    keys: tuple[Secret, ...] = ()
    service: Service | None = None


class Rule(Struct, frozen=True):
    """Resources, as ``plural.group`` or with a star, and their providers: the first writes."""

    resources: tuple[str, ...]
    providers: tuple[Provider, ...]


class _Part(Protocol):
    """A cipher with its key, or a choice of several."""

    @property
    def secret(self) -> Secret:
        """The key that encrypts values from now on."""

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Return the stored form of a value under a key of etcd; raise Unsealable."""

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        """Return the decrypted value and its key; raise Unsealable."""


class _Identity:
    secret = PLAIN

    def seal(self, plain: bytes, key: bytes) -> bytes:
        return plain

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if data.startswith(ENCRYPTED):
            raise Unsealable(NOT_ENCRYPTED)
        return data, PLAIN


class _AesGcm(Gcm):
    def __init__(self, secret: Secret) -> None:
        super().__init__(secret.value)
        self.secret = secret

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        return self.opened(data, key), self.secret


class _AesCbc:
    """Initialisation vector, then ciphertext with the padding of PKCS 7, without authentication."""

    def __init__(self, secret: Secret) -> None:
        self.secret = secret
        self._cipher = AES(secret.value)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        vector, lacking = os.urandom(_BLOCK), _BLOCK - len(plain) % _BLOCK
        cipher = Cipher(self._cipher, CBC(vector)).encryptor()
        sealed = [vector, *in_pieces(cipher.update, plain), cipher.update(bytes((lacking,)) * lacking)]
        return b"".join((*sealed, cipher.finalize()))

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if len(data) < _BLOCK:
            raise Unsealable(SHORT)
        if len(data) % _BLOCK:
            raise Unsealable("the stored data is not a multiple of the block size")
        cipher = Cipher(self._cipher, CBC(data[:_BLOCK])).decryptor()
        padded = b"".join((*in_pieces(cipher.update, data[_BLOCK:]), cipher.finalize()))
        size = padded[-1] if padded else 0
        if not 0 < size <= len(padded):
            raise Unsealable("invalid PKCS7 data (empty or not padded)")
        if padded[-size:] != padded[-1:] * size:
            raise Unsealable("invalid padding on input")
        return padded[:-size], self.secret


class _Secretbox:
    """Nonce, tag, and ciphertext."""

    def __init__(self, secret: Secret) -> None:
        self.secret = secret

    def seal(self, plain: bytes, key: bytes) -> bytes:
        nonce = os.urandom(secretbox.NONCE)
        return nonce + secretbox.seal(self.secret.value, nonce, plain)

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if len(data) < secretbox.NONCE + secretbox.TAG:
            raise Unsealable(SHORT)
        plain = secretbox.unseal(self.secret.value, data[: secretbox.NONCE], data[secretbox.NONCE :])
        if plain is None:
            raise Unsealable("output array was not large enough for encryption")
        return plain, self.secret


_CIPHERS: Mapping[str, Callable[[Secret], _Part]] = {AES_CBC: _AesCbc, AES_GCM: _AesGcm, SECRETBOX: _Secretbox}


class _Choice:
    """Several ways, each behind its prefix: the first seals, the first that can opens."""

    def __init__(self, resource: str, parts: Sequence[tuple[bytes, _Part]], none: str) -> None:
        self._resource = resource
        self._parts = tuple(parts)
        self._none = none

    @property
    def secret(self) -> Secret:
        return self._parts[0][1].secret

    def seal(self, plain: bytes, key: bytes) -> bytes:
        began = perf_counter()
        prefix, part = self._parts[0]
        try:
            sealed = prefix + part.seal(plain, key)
        except Unsealable as fault:
            self._count("to_storage", prefix.decode(), 0, fault.status)
            raise
        self._count("to_storage", prefix.decode(), began)
        return sealed

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        began = perf_counter()
        faults: list[str] = []
        lacking: Lacking | None = None
        for prefix, part in self._parts:
            if not data.startswith(prefix):
                continue
            try:
                opened = part.open(data[len(prefix) :], key)
            except Unsealable as fault:
                if isinstance(fault, Lacking):
                    if not fault.tried:
                        raise
                    lacking = fault
                if prefix:  # without one it is the identity, which says only that another must open it
                    faults.append(str(fault))
                    self._count("from_storage", prefix.decode(), 0, fault.status)
                continue
            self._count("from_storage", prefix.decode() or IDENTITY, began)
            return opened
        if lacking is not None:
            raise lacking
        if not faults:
            self._count("from_storage", "unknown", 0)
        raise Unsealable(fields.aggregate(faults) if faults else self._none)

    def _count(self, what: str, prefix: str, began: float, status: str = Unsealable.status) -> None:
        """Count a turn that began then, 0 for one that failed."""
        OPERATIONS.slot(self._resource, what, prefix, "OK" if began else status).value += 1
        if began:
            SECONDS.observe(perf_counter() - began, what, prefix)


class _Sealing:
    def __init__(self, resource: GroupResource, providers: Sequence[Provider]) -> None:
        label = str(resource)
        self._choice = _Choice(label, [_part(label, provider) for provider in providers], _NO_PREFIX)

    def seal(self, key: str, plain: bytes) -> bytes:
        """Return the stored form of a value under a key of etcd; raise Unsealable."""
        return self._choice.seal(plain, key.encode())

    def open(self, key: str, value: bytes) -> tuple[bytes, Secret]:
        """Return the decrypted value and its key; raise Unsealable."""
        return self._choice.open(value, key.encode())


class CipherSealing(_Sealing):
    """How the values of one resource are kept, by keys of the configuration."""

    waits = False

    def __init__(self, resource: GroupResource, providers: Sequence[Provider]) -> None:
        super().__init__(resource, providers)
        self.secret = self._choice.secret
        self.secrets = frozenset(_secrets_of(providers))

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Do nothing: no plug-in has to be called."""

    def well(self) -> bool:
        """Return True: all keys are there."""
        return True


class ServiceSealing(_Sealing):
    """The encryption of the values of one resource, with keys of plug-ins and static keys."""

    waits = True

    def __init__(self, resource: GroupResource, providers: Sequence[Provider]) -> None:
        super().__init__(resource, providers)
        self._enveloped = [(prefix, part) for prefix, part in map(_enveloped, providers) if part is not None]
        services = [OfProvider(part.provider.name) for _, part in self._enveloped]
        self.secrets: Container[Secret] = _Any([frozenset(_secrets_of(providers)), *services])

    @property
    def secret(self) -> Secret:
        """The key that encrypts values from now on; a plug-in may change it."""
        return self._choice.secret

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Ask plug-ins for the keys that these values lack."""
        await envelopes.fetch(self._enveloped, values)

    def well(self) -> bool:
        """True if the plug-in is healthy."""
        return not all(part.provider.fault for _, part in self._enveloped)


class _Any:
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


def _part(resource: str, provider: Provider) -> tuple[bytes, _Part]:
    prefix, part = _enveloped(provider)
    if part is not None:
        return prefix, part
    if provider.kind == IDENTITY:
        return b"", _Identity()
    cipher = _CIPHERS[provider.kind]
    keys = [(f"{secret.name}:".encode(), cipher(secret)) for secret in provider.keys]
    return b"k8s:enc:%b:v1:" % provider.kind.encode(), _Choice(resource, keys, _NO_KEY[provider.kind])


_ANY = GroupResource("*", "*")


class CipherSealings:
    """All rules: a resource's own first, then its group's, then the one for everything."""

    def __init__(self, rules: Sequence[Rule] = ()) -> None:
        self._providers = _by_resource(rules)

    def of(self, resource: GroupResource) -> Sealing | None:
        """Return the encryption of a resource, None for plain text. The server's own keys are never encrypted."""
        if resource.group.startswith("."):
            return None
        for rule in (resource, GroupResource(resource.group, "*"), _ANY):
            if rule in self._providers:
                providers = self._providers[rule]
                kind = ServiceSealing if any(provider.service for provider in providers) else CipherSealing
                return kind(resource, providers)
        return None


def _by_resource(rules: Sequence[Rule]) -> Mapping[GroupResource, list[Provider]]:
    found: dict[GroupResource, list[Provider]] = {}
    for rule in rules:
        for text in rule.resources:
            resource = group_resource(text)
            for earlier in (GroupResource(resource.group, "*"), _ANY):
                if earlier in found:
                    raise MaskedError(f'resource "{_shown(resource)}" is masked by earlier rule "{_shown(earlier)}"')
            found.setdefault(resource, []).extend(rule.providers)
    return found


def group_resource(text: str) -> GroupResource:
    """Return what ``plural.group`` names."""
    resource, _, group = text.partition(".")
    return GroupResource(group, resource)


def _shown(resource: GroupResource) -> str:
    return str(resource) if resource.group or resource.resource != "*" else "*."
