"""AES-GCM as upstream stores it: a nonce, then ciphertext with its tag."""

import os
from collections.abc import Callable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM

from apiext.storage import limits
from apiext.storage.sealing import Unsealable

SHORT = "the stored data was shorter than the required size"
_NONCE, _TAG = 12, 16


def in_pieces(turn: Callable[[bytes], bytes], data: bytes) -> Iterator[bytes]:
    """Yield what becomes of data, piece by piece."""
    return (turn(data[at : at + limits.ENCRYPTED_AT_ONCE]) for at in range(0, len(data), limits.ENCRYPTED_AT_ONCE))


class Gcm:
    """One key."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._cipher = AESGCM(value)

    def seal(self, plain: bytes, key: bytes) -> bytes:
        """Return the stored form of a value; the key of etcd is authenticated, too."""
        nonce = os.urandom(_NONCE)
        if len(plain) <= limits.ENCRYPTED_AT_ONCE:
            return nonce + self._cipher.encrypt(nonce, plain, key)
        cipher = Cipher(AES(self._value), GCM(nonce)).encryptor()
        cipher.authenticate_additional_data(key)
        return b"".join((nonce, *in_pieces(cipher.update, plain), cipher.finalize(), cipher.tag))

    def opened(self, data: bytes, key: bytes) -> bytes:
        """Return the value; raises Unsealable."""
        if len(data) < _NONCE:
            raise Unsealable(SHORT)
        nonce, sealed = data[:_NONCE], data[_NONCE:]
        try:
            if len(sealed) <= limits.ENCRYPTED_AT_ONCE:
                return self._cipher.decrypt(nonce, sealed, key)
            cipher = Cipher(AES(self._value), GCM(nonce, sealed[-_TAG:])).decryptor()
            cipher.authenticate_additional_data(key)
            return b"".join((*in_pieces(cipher.update, sealed[:-_TAG]), cipher.finalize()))
        except InvalidTag as error:
            raise Unsealable("cipher: message authentication failed") from error
