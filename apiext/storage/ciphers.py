"""Ciphers of encryption at rest, and which of them a resource has (OPS-003).

Stored forms are upstream's to the byte: ``k8s:enc:aescbc:v1:NAME:``, then what the cipher makes. A key of etcd goes
into what AES-GCM authenticates, so a value that was copied to another key cannot be read.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC, GCM

from apiext.meta import fields
from apiext.meta.names import GroupResource
from apiext.storage import secretbox
from apiext.storage.sealing import ENCRYPTED, NOT_ENCRYPTED, PLAIN, Sealing, Secret, Unsealable
from apiext.telemetry import Family, HistogramFamily

IDENTITY, AES_CBC, AES_GCM, SECRETBOX = "identity", "aescbc", "aesgcm", "secretbox"
_SHORT = "the stored data was shorter than the required size"
_NO_PREFIX = "no matching prefix found"
_BLOCK, _GCM_NONCE, _GCM_TAG = 16, 12, 16
_PIECE = 64 * 1024  # bytes encrypted while no other thread can run
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


@dataclass(frozen=True, slots=True)
class Provider:
    """A way of sealing and its keys; identity has none."""

    kind: str
    keys: tuple[Secret, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """Resources, as ``plural.group`` or with a star, and their providers: the first writes."""

    resources: tuple[str, ...]
    providers: tuple[Provider, ...]


class _Part(Protocol):
    """A cipher with its key, or a choice of several."""

    secret: Secret

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Return what is stored of a value under a key of etcd."""

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        """Return the value of what is stored, and by which key it was sealed; raises Unsealable."""


class _Identity:
    secret = PLAIN

    def seal(self, plain: bytes, key: bytes) -> bytes:
        return plain

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if data.startswith(ENCRYPTED):
            raise Unsealable(NOT_ENCRYPTED)
        return data, PLAIN


def _in_pieces(turn: Callable[[bytes], bytes], data: bytes) -> Iterator[bytes]:
    return (turn(data[at : at + _PIECE]) for at in range(0, len(data), _PIECE))


class _AesGcm:
    """Nonce, then what was encrypted with its tag."""

    def __init__(self, secret: Secret) -> None:
        self.secret = secret
        self._cipher = AESGCM(secret.value)
        self._aes = AES(secret.value)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        nonce = os.urandom(_GCM_NONCE)
        if len(plain) <= _PIECE:
            return nonce + self._cipher.encrypt(nonce, plain, key)
        cipher = Cipher(self._aes, GCM(nonce)).encryptor()
        cipher.authenticate_additional_data(key)
        return b"".join((nonce, *_in_pieces(cipher.update, plain), cipher.finalize(), cipher.tag))

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if len(data) < _GCM_NONCE:
            raise Unsealable(_SHORT)
        try:
            return self._decrypted(data[:_GCM_NONCE], data[_GCM_NONCE:], key), self.secret
        except InvalidTag as error:
            raise Unsealable("cipher: message authentication failed") from error

    def _decrypted(self, nonce: bytes, sealed: bytes, key: bytes) -> bytes:
        if len(sealed) <= _PIECE:
            return self._cipher.decrypt(nonce, sealed, key)
        cipher = Cipher(self._aes, GCM(nonce, sealed[-_GCM_TAG:])).decryptor()
        cipher.authenticate_additional_data(key)
        return b"".join((*_in_pieces(cipher.update, sealed[:-_GCM_TAG]), cipher.finalize()))


class _AesCbc:
    """Initialisation vector, then what was encrypted with the padding of PKCS 7; nothing authenticates it."""

    def __init__(self, secret: Secret) -> None:
        self.secret = secret
        self._cipher = AES(secret.value)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        vector, lacking = os.urandom(_BLOCK), _BLOCK - len(plain) % _BLOCK
        cipher = Cipher(self._cipher, CBC(vector)).encryptor()
        sealed = [vector, *_in_pieces(cipher.update, plain), cipher.update(bytes((lacking,)) * lacking)]
        return b"".join((*sealed, cipher.finalize()))

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if len(data) < _BLOCK:
            raise Unsealable(_SHORT)
        if len(data) % _BLOCK:
            raise Unsealable("the stored data is not a multiple of the block size")
        cipher = Cipher(self._cipher, CBC(data[:_BLOCK])).decryptor()
        padded = b"".join((*_in_pieces(cipher.update, data[_BLOCK:]), cipher.finalize()))
        size = padded[-1] if padded else 0
        if not 0 < size <= len(padded):
            raise Unsealable("invalid PKCS7 data (empty or not padded)")
        if padded[-size:] != padded[-1:] * size:
            raise Unsealable("invalid padding on input")
        return padded[:-size], self.secret


class _Secretbox:
    """Nonce, tag, and what was encrypted."""

    def __init__(self, secret: Secret) -> None:
        self.secret = secret

    def seal(self, plain: bytes, key: bytes) -> bytes:
        nonce = os.urandom(secretbox.NONCE)
        return nonce + secretbox.seal(self.secret.value, nonce, plain)

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        if len(data) < secretbox.NONCE + secretbox.TAG:
            raise Unsealable(_SHORT)
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
        self.secret = self._parts[0][1].secret

    def seal(self, plain: bytes, key: bytes) -> bytes:
        began = perf_counter()
        prefix, part = self._parts[0]
        sealed = prefix + part.seal(plain, key)
        self._count("to_storage", prefix.decode(), began)
        return sealed

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        began = perf_counter()
        faults: list[str] = []
        for prefix, part in self._parts:
            if not data.startswith(prefix):
                continue
            try:
                opened = part.open(data[len(prefix) :], key)
            except Unsealable as fault:
                if prefix:  # without one it is the identity, which says only that another must open it
                    faults.append(str(fault))
                    self._count("from_storage", prefix.decode(), 0)
                continue
            self._count("from_storage", prefix.decode() or IDENTITY, began)
            return opened
        if not faults:
            self._count("from_storage", "unknown", 0)
        raise Unsealable(fields.aggregate(faults) if faults else self._none)

    def _count(self, what: str, prefix: str, began: float) -> None:
        """Count a turn that began then, 0 for one that failed."""
        OPERATIONS.slot(self._resource, what, prefix, "OK" if began else "unknown-non-grpc").value += 1
        if began:
            SECONDS.observe(perf_counter() - began, what, prefix)


class CipherSealing:
    """How the values of one resource are kept."""

    def __init__(self, resource: GroupResource, providers: Sequence[Provider]) -> None:
        label = str(resource)
        self._choice = _Choice(label, [_part(label, provider) for provider in providers], _NO_PREFIX)
        self.secret = self._choice.secret
        self.secrets = frozenset(secret for provider in providers for secret in provider.keys or (PLAIN,))

    def seal(self, key: str, plain: bytes) -> bytes:
        """Return what is to be stored under a key of etcd."""
        return self._choice.seal(plain, key.encode())

    def open(self, key: str, value: bytes) -> tuple[bytes, Secret]:
        """Return what a stored value holds and by which key it was sealed; raises Unsealable."""
        return self._choice.open(value, key.encode())


def _part(resource: str, provider: Provider) -> tuple[bytes, _Part]:
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
        """Return how a resource is kept; None for as it is. What the server keeps for itself is never sealed."""
        if resource.group.startswith("."):
            return None
        for rule in (resource, GroupResource(resource.group, "*"), _ANY):
            if rule in self._providers:
                return CipherSealing(resource, self._providers[rule])
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
