"""One request as the verbs see it, and what they answer: nothing of HTTP, nothing of etcd."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from apiext.admission.chain import Chain
from apiext.audit.events import Trail
from apiext.auth.authentication import Authenticator
from apiext.auth.authorization import Authorizer, always_allow
from apiext.auth.rbac import Policy
from apiext.auth.tokens import Tokens
from apiext.auth.user import User
from apiext.catalog.converted import NeedsConversion
from apiext.catalog.served import Endpoint, LiveCatalog, ServedResource, ServedVersion
from apiext.conversion.webhook import Converter
from apiext.documents.document import Document
from apiext.documents.encoding import decode_json
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.segments import Segments
from apiext.storage.store import Entry, Guard, Made, Viewer, bytes_of, held

if TYPE_CHECKING:
    from apiext.verbs.writers import Queues


class Client(Protocol):
    """The connection of a request, as far as a write that waits for other writers needs it."""

    waiting: asyncio.Future[None] | None  # gets an exception when the client goes away


class Call(Struct):
    """A request decoded as far as its URL and headers go.

    ``namespace`` is None if the path names none (cluster scope, or all namespaces); ``name`` is empty on collections.
    ``query`` holds every value of every parameter. ``manager`` is the User-Agent up to the first slash. ``deadline``
    is loop time in seconds. ``warnings`` are added to the answer in order. ``conversions`` are a webhook's results for
    this request (verbs.ownership), ``convert`` calls it, None if there is none. ``size`` is the known size of the
    object in bytes. ``trail`` is the audit trail of the request, if any. ``exact`` if the stored object is known to be
    normalised, so that a patch needs no check of the fields that it leaves alone.
    """

    verb: str
    served: ServedVersion
    resource: ServedResource
    endpoint: Endpoint
    namespace: str | None
    name: str
    query: Mapping[str, Sequence[str]]
    user: User
    manager: str = ""
    deadline: float = 0.0
    warnings: list[str] = field(default_factory=list)
    trail: Trail | None = None
    conversions: dict[tuple[bytes, str], Document] = field(default_factory=dict)
    size: int = 0
    convert: Callable[["Call", NeedsConversion], Awaitable[None]] | None = None
    exact: bool = False
    client: Client | None = None  # None for the server's own writes

    def warn(self, notes: Iterable[str]) -> None:
        """Add notes to the warnings of the answer, each once however many there are."""
        seen = set(self.warnings)
        for note in notes:
            if note not in seen:
                seen.add(note)
                self.warnings.append(note)

    @property
    def annotations(self) -> dict[str, str]:
        """Audit annotations of admission (ADM-013): kept if this request is audited."""
        return self.trail.annotations if self.trail is not None else {}


class Body(Struct):
    """A decoded request body: the document, notes about duplicate keys, the media type, and the bytes as sent.

    ``decode(raw)`` made the document. ``beyond`` if it has a number that no float64 holds.
    """

    document: Document
    duplicates: list[str]
    media_type: str
    raw: bytes
    decode: Callable[[bytes], tuple[Document, list[str]]] = decode_json
    beyond: str = ""

    def again(self) -> "Body":
        """Return the body as it was sent: what was read of it changes on the way."""
        return replace(self, document=self.decode(self.raw)[0])


class Outcome(Struct):
    """The answer to a write.

    ``entry`` is the stored object, to be shown as ``entry.view(served.view)``; ``document`` is set instead when the
    answer is something else: a Status, a dry run, a subresource of another kind, a list of deleted objects. ``served``
    is the version that the write was decided by, when the definition may have changed on the way.
    """

    code: int
    entry: Entry | None = None
    document: Document | None = None
    served: ServedVersion | None = None


class Page(Struct):
    """The answer to a list: either ``segments`` (everything, joined bytes) or ``entries`` in key order.

    ``remaining`` is None when it is not known (a selector was given) or nothing remains. ``convert`` returns what is
    shown of entries of the segments, None when these can show it; it raises StatusError.
    """

    revision: int
    entries: Sequence[Entry] | None = None
    segments: Segments | None = None
    token: str = ""
    remaining: int | None = None
    convert: Callable[[Sequence[Entry]], Awaitable[Sequence[Made]]] | None = None

    @property
    def count(self) -> int:
        """Return the number of objects on it."""
        return self.segments.count if self.segments is not None else len(self.entries or ())

    def size(self) -> int:
        """Return how many bytes they have as they are stored."""
        return bytes_of(self.listed())

    def listed(self) -> Sequence[Entry]:
        """Return the entries in key order."""
        if self.entries is not None:
            return self.entries
        return self.segments.entries if self.segments is not None else ()

    async def shown(self, viewer: Viewer) -> Sequence[Entry]:
        """Return the entries in key order, such as show at once what this viewer makes of them."""
        entries = self.listed()
        return entries if self.convert is None else held(entries, viewer, await self.convert(entries))


class Definitions(Protocol):
    """The part of the serving controller that verbs need."""

    async def refresh(self, group: str, resource: str) -> ServedResource | None:
        """Bring the catalog up to the newest definition and guard; return the resource, None if it was deleted."""

    def holds(self, resource: ServedResource) -> bool:
        """Tell whether the guard that the cache has is the one that this value was made under."""

    async def fresh(self) -> int:
        """Have the definitions of this moment in the cache; returns its revision."""

    async def seen(self, revision: int) -> None:
        """Wait until the catalog reflects every change of definitions up to the revision."""

    @property
    def has_peers(self) -> bool:
        """Report whether other workers serve the same port."""

    async def everywhere(self, written: GroupResource | None = None) -> None:
        """Wait until the other workers, if any, use the configuration that this one has.

        ``written`` is the written object, if it may be no configuration.
        """

    async def begin_deletion(self, name: str, uid: str) -> Guard:
        """Change the guard of a definition to terminating, before its deletionTimestamp is written.

        Raises RevisionChanged when the definition is another by now.
        """


class Verbs(Struct):
    """The parts that every verb uses; one value per server. ``policy`` are the roles there are, if they count."""

    catalog: LiveCatalog
    store: CachedStore
    admission: Chain
    definitions: Definitions
    clock: Callable[[], str]
    loop_time: Callable[[], float]
    converter: Converter | None = None
    authorizer: Authorizer = always_allow
    authenticator: Authenticator | None = None
    accounts: Tokens | None = None
    policy: Policy | None = None
    queues: "Queues" = field(default_factory=dict)
