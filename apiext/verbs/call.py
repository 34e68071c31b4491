"""Types of requests and responses of the verbs, independent of HTTP and etcd."""

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
from apiext.storage.store import Entry, Guard, Viewer, ViewSource, bytes_of, with_views

if TYPE_CHECKING:
    from apiext.verbs.writers import Queues


class Client(Protocol):
    """The connection of a client.

    ``waiting`` is the future with which a write waits for other writers.
    """

    waiting: asyncio.Future[None] | None  # gets an exception when the client disconnects


class Call(Struct):
    """A request, with its URL and headers decoded.

    - ``namespace`` is None if the path has none (cluster scope, or all namespaces). ``name`` is empty for collections.
    - ``query`` has all values of each parameter. ``manager`` is the User-Agent up to the first slash.
    - ``deadline`` is a time of the event loop in seconds; 0 means no deadline.
    - ``warnings`` are added to the response in order.
    - ``conversions`` caches results of the conversion webhook for this request: (encoded object, apiVersion) →
      converted object. ``convert`` calls the webhook; it is None for reads and built-in kinds.
    - ``size`` is the estimated size of the object in bytes, by which ``threads.run`` decides where to work.
    - ``trail`` is the audit trail of the request, or None.
    - ``exact`` is true if the stored object is known to be normalized. Then a patch need not check unchanged fields.
    - The functions in ``settled`` are called after a write, with False if it failed.
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
    settled: list[Callable[[bool], None]] = field(default_factory=list)

    def warn(self, notes: Iterable[str]) -> None:
        """Add notes to the warnings of the response, without duplicates."""
        seen = set(self.warnings)
        for note in notes:
            if note not in seen:
                seen.add(note)
                self.warnings.append(note)

    @property
    def annotations(self) -> dict[str, str]:
        """The audit annotations, which admission may extend (ADM-013).

        They are not used if the request is not audited.
        """
        return self.trail.annotations if self.trail is not None else {}


class Body(Struct):
    """A decoded request body.

    It has the document, notes about duplicate keys, the media type, and the sent bytes. ``decode(raw)`` returns
    (document, notes). ``beyond`` is an error text if the document has a number over the range of float64.
    """

    document: Document
    duplicates: list[str]
    media_type: str
    raw: bytes
    decode: Callable[[bytes], tuple[Document, list[str]]] = decode_json
    beyond: str = ""

    def again(self) -> "Body":
        """Decode the sent bytes again, since the document changes during a write."""
        return replace(self, document=self.decode(self.raw)[0])


class Outcome(Struct):
    """The response to a write.

    ``entry`` is the stored object, whose JSON is ``entry.view(served.codec.view)``. ``document`` is set instead for any
    other response: a Status, a review, a dry run, a deleted pod, an object of another kind such as a Scale. ``served``
    is the version of the final decision, since the definition may change during a write.
    """

    code: int
    entry: Entry | None = None
    document: Document | None = None
    served: ServedVersion | None = None


class Page(Struct):
    """The response to a list.

    A page has either ``segments`` of the cache, as joined bytes, or ``entries`` in key order. ``remaining`` is None for
    the last page, and for a list with a selector. ``convert`` converts the entries of the segments, and raises
    StatusError if the webhook fails. It is None if no webhook is needed.
    """

    revision: int
    entries: Sequence[Entry] | None = None
    segments: Segments | None = None
    token: str = ""
    remaining: int | None = None
    convert: Callable[[Sequence[Entry]], Awaitable[Sequence[ViewSource]]] | None = None

    @property
    def count(self) -> int:
        """Return the number of objects on the page."""
        return self.segments.count if self.segments is not None else len(self.entries or ())

    def size(self) -> int:
        """Return the number of stored bytes of the objects on the page."""
        return bytes_of(self.listed())

    def listed(self) -> Sequence[Entry]:
        """Return the entries in key order."""
        if self.entries is not None:
            return self.entries
        return self.segments.entries if self.segments is not None else ()

    async def shown(self, viewer: Viewer) -> Sequence[Entry]:
        """Return the entries in key order, converted to the version of ``viewer``."""
        entries = self.listed()
        return entries if self.convert is None else with_views(entries, viewer, await self.convert(entries))


class Definitions(Protocol):
    """The part of the serving controller that verbs use."""

    async def refresh(self, group: str, resource: str) -> ServedResource | None:
        """Load the newest definition and guard into the catalog.

        Return the resource, or None if it was deleted. Raise StoreError if the store does not respond.
        """

    def holds(self, resource: ServedResource) -> bool:
        """Return whether the cached guard of the definition has the revision of ``resource``."""

    async def fresh(self) -> int:
        """Wait until the cache has the newest definitions, and return the cache's revision."""

    async def seen(self, revision: int) -> None:
        """Wait until the catalog reflects every change of definitions up to the revision.

        If the compilation of changed definitions takes longer than storage_limits.FRESH_WAIT seconds, return. Raise
        FutureRevision if the cache does not reach the revision in time.
        """

    @property
    def has_peers(self) -> bool:
        """Return whether other workers serve the same port."""

    async def everywhere(self, written: GroupResource | None = None) -> None:
        """Wait until the other workers, if any, use the configuration of this worker.

        Wait at most storage_limits.FRESH_WAIT seconds. ``written`` is the resource of a written object: do not wait if
        objects of this resource do not configure the server.
        """

    async def begin_deletion(self, name: str, uid: str) -> Guard:
        """Set the guard of a definition to terminating, before its deletionTimestamp is written.

        Return the guard. Raise RevisionChanged if the definition was deleted or replaced.
        """


class Verbs(Struct):
    """The parts of a server that verbs use.

    ``policy`` is the RBAC policy, or None if the authorizer does not use RBAC. ``wait_for_account(namespace)`` waits
    until a new namespace has its default service account; it is None if no controller creates the account.
    """

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
    wait_for_account: Callable[[str], Awaitable[None]] | None = None
