"""Encryption of values with keys of a KMS plug-in (OPS-003).

The data key of a provider is a seed. Each new value has its own key, which is derived from the seed and from 32 random
bytes; these bytes precede the ciphertext. So each key encrypts only one value, and no key is used twice with the same
nonce. Old versions of kube-apiserver encrypted values with the data key itself.
"""

import hmac
import os
from collections.abc import Iterable
from functools import lru_cache

from apiext.kms import limits as kms_limits
from apiext.kms import metrics
from apiext.kms.envelope import SEED, packed
from apiext.kms.provider import KeyUnavailable, Provider
from apiext.storage.encryption import EncryptionError, MissingKey, Secret
from apiext.storage.gcm import SHORT, Gcm

KMS = "kms"
_INFO = 32
_FIRST = b"\x01"  # the number of the only block of HKDF


@lru_cache(kms_limits.KMS_LABELS)
def _secret(provider: str, kind: int, key_id: str) -> Secret:
    return Secret(KMS, provider, b"%d %b" % (kind, key_id.encode()))


class SecretsOfProvider:
    """Represents all secrets of one KMS provider: ``secret in …`` is true for each of them."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __contains__(self, secret: object) -> bool:
        return isinstance(secret, Secret) and secret.kind == KMS and secret.name == self._name


class Enveloped:
    """The cipher of a KMS provider. The caller adds and removes the prefix of the provider."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @property
    def secret(self) -> Secret:
        """The identity of the key that encrypts new values.

        The identity contains the plug-in's ``key_id`` instead of key bytes.
        """
        current = self.provider.current
        return _secret(self.provider.name, SEED, current.key_id if current is not None else "")

    def encrypt(self, plain: bytes, key: bytes) -> bytes:
        """Return the stored form of a value under a key of etcd; raise EncryptionError."""
        try:
            current = self.provider.current_key()
        except KeyUnavailable as error:
            raise EncryptionError(str(error)) from error
        info = os.urandom(_INFO)
        cipher = Gcm(hmac.digest(current.seed, info + _FIRST, "sha256"))
        metrics.used(metrics.TO_STORAGE, self.provider.name, current.key_hash)
        return packed(info + cipher.encrypt(plain, key), current.tail)

    def decrypt(self, data: bytes, key: bytes) -> tuple[bytes, Secret]:
        """Return the decrypted value, and the identity of the key that decrypted it.

        Raise EncryptionError, and MissingKey if the data key is not decrypted.
        """
        try:
            ciphertext, by = self.provider.data_and_key(data)
        except KeyUnavailable as error:
            raise MissingKey(str(error), error.status, error.tried) from error
        metrics.used(metrics.FROM_STORAGE, self.provider.name, by.key_hash)
        if by.kind != SEED:
            return Gcm(by.key).decrypted(ciphertext, key), _secret(self.provider.name, by.kind, by.key_id)
        if len(ciphertext) < _INFO:
            raise EncryptionError(SHORT)
        cipher = Gcm(hmac.digest(by.key, ciphertext[:_INFO] + _FIRST, "sha256"))
        return cipher.decrypted(ciphertext[_INFO:], key), _secret(self.provider.name, by.kind, by.key_id)


async def fetch(parts: Iterable[tuple[bytes, Enveloped]], values: Iterable[bytes]) -> None:
    """Call plug-ins to decrypt the missing data keys of values.

    ``parts``: (prefix of a provider's values, its cipher).
    """
    found = list(values)
    for prefix, part in parts:
        await part.provider.fetch([value[len(prefix) :] for value in found if value.startswith(prefix)])
