"""Encryption at rest: values are decrypted before they are cached, and encrypted before they are stored.

Entries in memory hold plain bytes. Of an entry whose resource is sealed it is remembered by which key it was: a write
that would change nothing changes that, if it is not the first one any more.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from apiext.meta.names import GroupResource
from apiext.storage.store import Entry

ENCRYPTED = b"k8s:enc:"
NOT_ENCRYPTED = "identity transformer tried to read encrypted data"


class Unsealable(ValueError):
    """A stored value that no key opens, or a value that no key seals; the text is upstream's."""

    status = "unknown-non-grpc"
    """Its ``status`` label in metrics."""


class Lacking(Unsealable):
    """A stored value whose key a plug-in has; ``tried`` is true if the plug-in was recently called in vain."""

    def __init__(self, text: str, status: str, tried: bool) -> None:
        super().__init__(text)
        self.status = status
        self.tried = tried


class Secret(Struct, frozen=True):
    """A key with its provider and name, which stored values contain."""

    kind: str
    name: str
    value: bytes

    def __repr__(self) -> str:  # without the value
        return f"Secret({self.kind!r}, {self.name!r})"


PLAIN = Secret("identity", "", b"")
"""The key of values that are stored as plain text."""


class SealedEntry(Entry, gc=False, kw_only=True):
    """An entry with the key that its stored value is encrypted with."""

    secret: Secret


class Sealing(Protocol):
    """How the values of one resource are kept."""

    @property
    def secret(self) -> Secret:
        """The key that encrypts values from now on."""

    @property
    def secrets(self) -> Container[Secret]:
        """The keys that decrypt values."""

    @property
    def waits(self) -> bool:
        """True if a plug-in may have to be called, so that ``open`` may raise Lacking."""

    def seal(self, key: str, plain: bytes) -> bytes:
        """Return the stored form of a value under a key of etcd; raise Unsealable."""

    def open(self, key: str, value: bytes) -> tuple[bytes, Secret]:
        """Return the decrypted value and its key; raise Unsealable."""

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Ask plug-ins for the keys that these values lack, if ``waits``."""

    def well(self) -> bool:
        """True if the plug-in, if any, is healthy."""


class Sealings(Protocol):
    """How all resources are kept."""

    def of(self, resource: GroupResource) -> Sealing | None:
        """Return how a resource is kept; None for as it is."""


class Opened(NamedTuple):
    """An encrypted value with its decrypted bytes and key, or with the fault of its decryption."""

    value: bytes
    by: Sealing
    raw: bytes
    secret: Secret
    fault: ValueError | None = None


def opened(
    sealing: Sealing, prefix: str, values: Sequence[tuple[str, bytes]], decode: Callable[[bytes], bytes]
) -> list[Opened]:
    """Decrypt the values of keys below a prefix."""
    found = []
    for key, value in values:
        try:
            plain, secret = sealing.open(prefix + key, value)
            found.append(Opened(value, sealing, decode(plain), secret))
        except ValueError as fault:
            found.append(Opened(value, sealing, b"", PLAIN, fault))
    return found


class Unsealed:
    """Everything is kept as it is."""

    def of(self, resource: GroupResource) -> Sealing | None:
        """Return None."""
        return None
