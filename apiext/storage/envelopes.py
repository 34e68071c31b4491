"""Values under keys that a plug-in keeps: sealed at once by the key there is, opened once its key is known (OPS-003).

A value has a key of its own, made of the provider's seed and 32 random bytes in front of it, so that nonces never meet.
"""

import hmac
import os
from collections.abc import Iterable
from functools import lru_cache

from apiext.kms import limits as kms_limits
from apiext.kms import metrics
from apiext.kms.envelope import SEED, packed
from apiext.kms.provider import Provider, Unusable
from apiext.storage.gcm import SHORT, Gcm
from apiext.storage.sealing import Lacking, Secret, Unsealable

KMS = "kms"
_INFO = 32
_FIRST = b"\x01"  # HKDF counts its blocks, of which one is needed


@lru_cache(kms_limits.KMS_LABELS)
def _secret(provider: str, kind: int, key_id: str) -> Secret:
    return Secret(KMS, provider, b"%d %b" % (kind, key_id.encode()))


class OfProvider:
    """All secrets of a provider."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __contains__(self, secret: object) -> bool:
        return isinstance(secret, Secret) and secret.kind == KMS and secret.name == self._name


class Enveloped:
    """The content of a value after the prefix of its provider."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @property
    def secret(self) -> Secret:
        """The plug-in's key by which values are sealed from now on."""
        current = self.provider.current
        return _secret(self.provider.name, SEED, current.key_id if current is not None else "")

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Return the stored form of a value under a key of etcd; raise Unsealable."""
        try:
            current = self.provider.writing()
        except Unusable as error:
            raise Unsealable(str(error)) from error
        info = os.urandom(_INFO)
        cipher = Gcm(hmac.digest(current.seed, info + _FIRST, "sha256"))
        metrics.used(metrics.TO_STORAGE, self.provider.name, current.key_hash)
        return packed(info + cipher.seal(plain, key), current.tail)

    def open(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        """Return the decrypted value and its key; raise Unsealable."""
        try:
            sealed, by = self.provider.opened(data)
        except Unusable as error:
            raise Lacking(str(error), error.status, error.tried) from error
        metrics.used(metrics.FROM_STORAGE, self.provider.name, by.key_hash)
        if by.kind != SEED:
            return Gcm(by.key).opened(sealed, key), _secret(self.provider.name, by.kind, by.key_id)
        if len(sealed) < _INFO:
            raise Unsealable(SHORT)
        cipher = Gcm(hmac.digest(by.key, sealed[:_INFO] + _FIRST, "sha256"))
        return cipher.opened(sealed[_INFO:], key), _secret(self.provider.name, by.kind, by.key_id)


async def fetch(parts: Iterable[tuple[bytes, Enveloped]], values: Iterable[bytes]) -> None:
    """Ask plug-ins for the keys that values behind their prefixes lack."""
    found = list(values)
    for prefix, part in parts:
        await part.provider.fetch([value[len(prefix) :] for value in found if value.startswith(prefix)])
