"""GET of one cached object, answered without a task: the facts of filters and routes at a tenth of their cost.

Only ``GET /…/<plural>/<name>?resourceVersion=0`` in plain JSON comes here; everything else takes the ordinary way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from apiext import limits
from apiext.auth import impersonation
from apiext.auth.authentication import BadCredential
from apiext.auth.authorization import always_allow
from apiext.auth.user import User
from apiext.catalog.served import Catalog
from apiext.http import negotiation, pages, routes
from apiext.http.exchange import Reply
from apiext.http.gate import Gate, audit_id
from apiext.http.heads import Headers
from apiext.http.operations import Operations
from apiext.http.responses import SecondClock
from apiext.meta import requestinfo
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.storage.store import Entry, Viewer
from apiext.telemetry import Distribution, Slot

TAIL = "?resourceVersion=0"
_HEAD = b"HTTP/1.1 200 OK\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n%bAudit-Id: "


class Caller(Protocol):
    """The connection a request came on; it remembers the headers judged last and the verdict."""

    certificate_user: User | None
    is_proxy: bool
    seen_headers: object
    seen_plain: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Road:
    """How to the objects under one collection path, and where their requests are counted.

    ``typed``: they exist in protobuf, which a client may like better.
    """

    resource: GroupResource
    typed: bool
    viewer: Viewer
    namespace: str
    cold: Callable[[], bool]
    requests: Slot
    seconds: Distribution
    sizes: Distribution


class FastPath:
    """Answers cached GETs from a memo of collection paths that lives as long as the catalog's current value."""

    def __init__(
        self, operations: Operations, gate: Gate, clock: SecondClock, always: bytes = b"", origins: bool = False
    ) -> None:
        """``always`` is a header of all answers, ``origins`` says whether pages of other origins may call."""
        self._always = always
        self._origins = origins
        self._operations = operations
        self._cached: Callable[[GroupResource, str, str], Entry | None] = operations.cached
        self._gate = gate
        self._clock = clock
        self._catalog: Catalog | None = None
        self._roads: dict[str, Road | None] = {}
        self._date = b""
        self._head = b""
        self._attempts = gate.telemetry.authentications.slot("success")
        # other modes judge each request by its attributes, and an audit log is told of each
        self.open = gate.authorizer is always_allow and gate.auditor is None

    def answer(self, target: str, headers: Headers, raw_headers: object, caller: Caller) -> bytes | None:
        """Return the whole answer to a GET, None when it has to go the ordinary way."""
        if not target.endswith(TAIL):
            return None
        try:
            return self._made(target, headers, raw_headers, caller)
        except Exception:  # whatever it is, the ordinary way says it properly
            return None

    def _made(self, target: str, headers: Headers, raw_headers: object, caller: Caller) -> bytes | None:
        began = perf_counter()
        if raw_headers != caller.seen_headers:  # equal headers on one connection: the same user, the same wish
            caller.seen_plain = self._is_plain(headers, caller)
            caller.seen_headers = raw_headers
        if not caller.seen_plain:
            return None
        catalog = self._operations.catalog.current
        if catalog is not self._catalog:
            self._roads.clear()
            self._catalog = catalog
        path, _, name = target[: -len(TAIL)].rpartition("/")
        road = self._roads[path] if path in self._roads else self._learn(path, catalog)
        if road is None or not caller.seen_plain[road.typed] or not name or "%" in name or "?" in name:
            return None
        entry = self._cached(road.resource, road.namespace, name)
        if entry is None:
            return None
        view = entry.view(road.viewer)
        size = len(view) + 1
        if size > limits.ANSWER_UNWEIGHED:
            return None  # the ordinary way counts it for its user, and compresses it or tells that it would
        reply = b"%b%b\r\nContent-Length: %d\r\n\r\n%b\n" % (
            self._start(),
            audit_id(headers.get("Audit-Id", "")).encode(),
            size,
            view,
        )
        self._attempts.value += 1
        road.requests.value += 1
        road.sizes.observe(size)
        road.seconds.observe(perf_counter() - began)
        return reply

    def _start(self) -> bytes:
        date = self._clock.line()
        if date is not self._date:
            self._date = date
            self._head = _HEAD % (self._always + date)
        return self._head

    def _is_plain(self, headers: Headers, caller: Caller) -> tuple[bool, ...]:
        """Whether requests with these headers are a known user's, and answered with views as they are.

        The first is about objects without a Go type upstream, the second about those with one; empty: neither.
        """
        gate = self._gate
        accept = headers.get("Accept", "")
        try:
            # not by the gate, which would count an attempt: each request is one, wherever it is answered
            user = gate.authenticator.authenticate(headers.get("Authorization", ""), caller.certificate_user)
        except (StatusError, BadCredential):
            return ()
        if user is None and not gate.anonymous:
            return ()
        if user is not None and impersonation.account_of(user.name) is not None:
            return ()  # its token ends some day
        if self._origins and headers.get("Origin", ""):
            return ()  # pages of other origins are told more
        if gate.pages is not None and not pages.is_here(headers.get("Host", "")):
            return ()
        pretty = negotiation.wants_pretty((), headers.get("User-Agent", ""))
        special = headers.get("Expect", "") or impersonation.is_meant(headers) or caller.is_proxy
        if not self.open or pretty or special:
            return ()
        plain = _is_plain(accept, typed=False), _is_plain(accept, typed=True)
        return plain if any(plain) else ()

    def _learn(self, path: str, catalog: Catalog) -> Road | None:
        """Remember where a collection path leads; None for paths that are no collection of plain objects."""
        if len(path) > limits.FAST_PATH:
            return None
        if len(self._roads) >= limits.ROADS_KEPT:
            self._roads.clear()
        road = self._find(path, catalog)
        if road is not None and road.cold():
            return None  # the ordinary way compiles what its objects are read by
        self._roads[path] = road
        return road

    def _find(self, path: str, catalog: Catalog) -> Road | None:
        if "%" in path or "//" in path or "/." in path or not path.startswith("/"):
            return None
        info = requestinfo.parse("GET", f"{path}/name", {})
        if not info.is_resource or info.verb != "get" or info.name != "name" or info.subresource:
            return None
        try:
            target = routes.find(catalog, info)
        except StatusError:  # the ordinary way says so
            return None
        if isinstance(target, Reply) or target.served.deprecation_warning or target.endpoint.kind:
            return None
        if "get" not in target.endpoint.verbs:
            return None
        requests, seconds, sizes = self._gate.counters(routes.labels(info, target.served, "GET"), "", 200)
        assert sizes is not None, "answers to reads are measured"
        return Road(
            target.served.stored_resource,
            target.typed,
            target.served.view,
            info.namespace or "",
            target.served.cold,
            requests,
            seconds,
            sizes,
        )


def _is_plain(accept: str, *, typed: bool) -> bool:
    try:
        return negotiation.output(accept, typed=typed).plain
    except StatusError:
        return False
