"""AES-GCM in the stored form of kube-apiserver: nonce, ciphertext, authentication tag."""

import os
from collections.abc import Callable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from apiext.storage import limits
from apiext.storage.encryption import EncryptionError

SHORT = "the stored data was shorter than the required size"
_NONCE, _TAG = 12, 16


def in_pieces(function: Callable[[bytes], bytes], data: bytes) -> Iterator[bytes]:
    """Yield the results of a function for each piece of the data.

    A piece has limits.ENCRYPTED_AT_ONCE bytes. Other threads can run between two calls of the function.
    """
    return (function(data[at : at + limits.ENCRYPTED_AT_ONCE]) for at in range(0, len(data), limits.ENCRYPTED_AT_ONCE))


class Gcm:
    """AES-GCM with one key."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._cipher = AESGCM(value)

    def encrypt(self, plain: bytes, key: bytes) -> bytes:
        """Encrypt a value, and authenticate its etcd key."""
        nonce = os.urandom(_NONCE)
        if len(plain) <= limits.ENCRYPTED_AT_ONCE:
            return nonce + self._cipher.encrypt(nonce, plain, key)
        cipher = Cipher(AES(self._value), GCM(nonce)).encryptor()
        cipher.authenticate_additional_data(key)
        return b"".join((nonce, *in_pieces(cipher.update, plain), cipher.finalize(), cipher.tag))

    def decrypted(self, data: bytes, key: bytes) -> bytes:
        """Decrypt a value, and verify its etcd key; raise EncryptionError if this fails."""
        if len(data) < _NONCE:
            raise EncryptionError(SHORT)
        nonce, ciphertext = data[:_NONCE], data[_NONCE:]
        try:
            if len(ciphertext) <= limits.ENCRYPTED_AT_ONCE:
                return self._cipher.decrypt(nonce, ciphertext, key)
            cipher = Cipher(AES(self._value), GCM(nonce, ciphertext[-_TAG:])).decryptor()
            cipher.authenticate_additional_data(key)
            return b"".join((*in_pieces(cipher.update, ciphertext[:-_TAG]), cipher.finalize()))
        except InvalidTag as error:
            raise EncryptionError("cipher: message authentication failed") from error
