"""Encryption at rest: values are decrypted for the cache and encrypted for the store.

Entries in memory have decrypted bytes. An entry of an encrypted resource also has the encryption key of its stored
value. If this is not the current key, even a write that does not change the object encrypts and stores the value again.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from apiext.meta.names import GroupResource
from apiext.storage.store import Entry

ENCRYPTED = b"k8s:enc:"
NOT_ENCRYPTED = "identity transformer tried to read encrypted data"


class EncryptionError(ValueError):
    """A value cannot be decrypted or encrypted. The message is upstream's."""

    status = "unknown-non-grpc"
    """The ``status`` label in metrics."""


class MissingKey(EncryptionError):
    """No plug-in has decrypted the data key of a stored value.

    ``tried`` is false if a call of the plug-in may still decrypt the data key.
    """

    def __init__(self, text: str, status: str, tried: bool) -> None:
        super().__init__(text)
        self.status = status
        self.tried = tried


class Secret(Struct, frozen=True):
    """An encryption key. Stored values contain its provider (``kind``) and its name."""

    kind: str
    name: str
    value: bytes

    def __repr__(self) -> str:  # omits the secret value
        return f"Secret({self.kind!r}, {self.name!r})"


PLAIN = Secret("identity", "", b"")
"""The key of values that are stored as plain text."""


class EncryptedEntry(Entry, gc=False, kw_only=True):
    """An entry, and the key that encrypted its stored value."""

    secret: Secret


class Encryption(Protocol):
    """The encryption of the values of one resource."""

    @property
    def secret(self) -> Secret:
        """The key that encrypts new values."""

    @property
    def secrets(self) -> Container[Secret]:
        """The keys that can decrypt values."""

    @property
    def waits(self) -> bool:
        """True if plug-ins have keys, so that ``decrypt`` may raise MissingKey."""

    def encrypt(self, key: str, plain: bytes) -> bytes:
        """Encrypt the value of an etcd key; raise EncryptionError."""

    def decrypt(self, key: str, value: bytes) -> tuple[bytes, Secret]:
        """Return the decrypted value of an etcd key, and the Secret that decrypted it.

        Raise EncryptionError.
        """

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Call plug-ins to decrypt the missing data keys of these values.

        Do nothing if ``waits`` is false.
        """

    def is_healthy(self) -> bool:
        """Report whether at least one plug-in is healthy; True if there is no plug-in."""


class Encryptions(Protocol):
    """The encryption of all resources."""

    def of(self, resource: GroupResource) -> Encryption | None:
        """Return the encryption of a resource, None for plain values."""


class Decrypted(NamedTuple):
    """An encrypted ``value``, and the result of its decryption ``by`` an Encryption.

    The result is the JSON ``raw`` and the key ``secret``, or the error ``fault``.
    """

    value: bytes
    by: Encryption
    raw: bytes
    secret: Secret
    fault: ValueError | None = None


def decrypt_all(
    encryption: Encryption, prefix: str, values: Sequence[tuple[str, bytes]], decode: Callable[[bytes], bytes]
) -> list[Decrypted]:
    """Decrypt and decode values.

    ``values`` are pairs of etcd key and value; the etcd keys lack the ``prefix``.
    """
    found = []
    for key, value in values:
        try:
            plain, secret = encryption.decrypt(prefix + key, value)
            found.append(Decrypted(value, encryption, decode(plain), secret))
        except ValueError as fault:
            found.append(Decrypted(value, encryption, b"", PLAIN, fault))
    return found


class NoEncryption:
    """A configuration without encryption."""

    def of(self, resource: GroupResource) -> Encryption | None:
        """Return None, since no resource is encrypted."""
        return None
