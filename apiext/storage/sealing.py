"""What the store knows of encryption at rest: stored values are opened before they are kept, and sealed to be stored.

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
    """What metrics say of it."""


class Lacking(Unsealable):
    """A stored value whose key a plug-in has; ``tried`` tells whether that was asked in vain, lately."""

    def __init__(self, text: str, status: str, tried: bool) -> None:
        super().__init__(text)
        self.status = status
        self.tried = tried


class Secret(Struct, frozen=True):
    """A key by its provider and name; what is stored carries both."""

    kind: str
    name: str
    value: bytes

    def __repr__(self) -> str:  # without the value
        return f"Secret({self.kind!r}, {self.name!r})"


PLAIN = Secret("identity", "", b"")
"""What values were sealed by that were not sealed."""


class SealedEntry(Entry, gc=False, kw_only=True):
    """An entry with the key that its stored value is encrypted with."""

    secret: Secret


class Sealing(Protocol):
    """How the values of one resource are kept."""

    @property
    def secret(self) -> Secret:
        """What seals values from now on."""

    @property
    def secrets(self) -> Container[Secret]:
        """What opens values."""

    @property
    def waits(self) -> bool:
        """Whether a plug-in may have to be asked, so that ``open`` may raise Lacking."""

    def seal(self, key: str, plain: bytes) -> bytes:
        """Return what is to be stored under a key of etcd; raises Unsealable."""

    def open(self, key: str, value: bytes) -> tuple[bytes, Secret]:
        """Return what a stored value holds and by which key it was sealed; raises Unsealable."""

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Ask plug-ins for the keys that these values lack, if ``waits``."""

    def well(self) -> bool:
        """Whether a plug-in, if there is any, answers as it should."""


class Sealings(Protocol):
    """How all resources are kept."""

    def of(self, resource: GroupResource) -> Sealing | None:
        """Return how a resource is kept; None for as it is."""


class Opened(NamedTuple):
    """A sealed value, what opened it, and what it holds, or why nobody can tell."""

    value: bytes
    by: Sealing
    raw: bytes
    secret: Secret
    fault: ValueError | None = None


def opened(
    sealing: Sealing, prefix: str, values: Sequence[tuple[str, bytes]], decode: Callable[[bytes], bytes]
) -> list[Opened]:
    """Return the values of keys below a prefix with what they hold."""
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
