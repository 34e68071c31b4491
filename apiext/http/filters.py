"""The filters around the routes, outermost first, and the state that they share (AUT-006)."""

import asyncio
import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct, field

from apiext import limits as server_limits
from apiext import logs
from apiext.audit.auditor import Auditor
from apiext.audit.events import DECISION, REASON, user_info
from apiext.auth import impersonation
from apiext.auth.authentication import EXTRA_SPACE, Authenticator, BadCredential, UnconfirmedCredential, has_extra_space
from apiext.auth.authorization import ALLOWED, Attributes, Authorizer, always_allow, denial, is_public
from apiext.auth.user import ANONYMOUS, User
from apiext.config import RequestConfig
from apiext.http import audit as auditing
from apiext.http import front_page, limits, refusals, websocket
from apiext.http.browsers import Check
from apiext.http.exchange import Answer, Exchange, Handler, Labels, Reply
from apiext.http.responses import warning_values
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.meta.time import parse_duration
from apiext.meta.uids import Uids
from apiext.telemetry import STRETCH, Distribution, IsDeleted, Slot, Telemetry

if TYPE_CHECKING:
    from apiext.auth.proxies import Proxies


Counters = tuple[Slot, Distribution, Distribution | None]
_SIZED = frozenset(("GET", "LIST"))

_CHECK_EVERY = 0.25  # seconds between checks of the deadlines
_IDS = Uids()


def is_open(exchange: Exchange) -> bool:
    """Report whether a request needs no credentials: for health, the version or the front page.

    Such a request needs no authorization either if it is a GET or HEAD.
    """
    return is_public(exchange.path) or front_page.is_wanted(exchange)


def audit_id(given: str) -> str:
    """Return the audit id of a request: the client's id if short and printable, else a new id."""
    if given and len(given) <= 64 and given.isascii() and given.isprintable():
        return given
    return _IDS.next()


class Deadlines:
    """Deadlines of requests, checked four times a second.

    A timer for each request would cost more.
    """

    __slots__ = ("_loop", "_timer", "_until")

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[Any], float] = {}  # task → its deadline (time of the event loop)
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, until: float) -> asyncio.Task[Any]:
        """Set the deadline of the running task (``until``, loop time), and return the task.

        The task is cancelled after this time, unless ``remove`` is called before.
        """
        if self._loop is None:
            self._loop = asyncio.get_running_loop()  # cached, since this call asks the system for the process id
        task = asyncio.current_task(self._loop)
        assert task is not None
        self._until[task] = until
        if self._timer is None:
            self._timer = self._loop.call_later(_CHECK_EVERY, self._check)
        return task

    def remove(self, task: asyncio.Task[Any]) -> bool:
        """Remove the deadline of a task.

        Return False if it has none, as after ``end`` has cancelled it.
        """
        return self._until.pop(task, None) is not None

    def end(self, now: float = math.inf) -> None:
        """Cancel the tasks whose deadline has passed at ``now``, by default all tasks."""
        for task in [task for task, until in self._until.items() if until <= now]:
            del self._until[task]
            task.cancel()

    def _check(self) -> None:
        assert self._loop is not None
        self.end(self._loop.time())
        self._timer = self._loop.call_later(_CHECK_EVERY, self._check) if self._until else None


class Gate(Struct, eq=False):
    """The state that filters share: authentication, authorization, limits, audit and metrics."""

    authenticator: Authenticator
    authorizer: Authorizer
    telemetry: Telemetry
    anonymous: bool = False
    requests: RequestConfig = RequestConfig()
    auditor: Auditor | None = None
    proxies: "Proxies | None" = None
    pages: Check | None = None  # raises a 403 for requests that may come from web pages of other origins
    deadlines: Deadlines = field(default_factory=Deadlines)
    # number of running requests: with the key True those of mutating verbs, with False the rest
    running: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    _counters: dict[Any, Counters] = field(default_factory=dict)
    _authenticated: Slot = field(default_factory=Slot)  # the counter of successful authentications

    def __post_init__(self) -> None:
        self._authenticated = self.telemetry.authentications.slot("success")

    def counters(self, labels: Labels, dry_run: str, code: int) -> Counters:
        """Return the metrics of a request: its counter, the durations, and the response sizes.

        The sizes are None for a request for a resource, unless it is a GET or a list.
        """
        key = (labels, dry_run, code)
        found = self._counters.get(key)
        if found is None:
            telemetry, verb, rest = self.telemetry, labels.verb, labels[1:]
            found = self._counters[key] = (
                telemetry.requests.slot(verb, dry_run, *rest, str(code)),
                telemetry.seconds.slot(verb, dry_run, *rest),
                telemetry.sizes.slot(*labels) if verb in _SIZED or not labels.resource else None,
            )
            # upstream: dry runs and watches have no service level objective (SLI)
            # So only other requests count in the SLI durations.
            if not dry_run and verb != "WATCH":
                telemetry.sli_seconds.share(found[1], *labels)
        return found

    def drop_deleted(self, is_deleted: IsDeleted) -> Iterator[None]:
        """Drop the metrics of deleted resources in steps.

        The caller can yield to the event loop after each step. Drop the cached counters first. Otherwise a request
        could increment a counter that is no longer in /metrics.
        """
        for number, key in enumerate(tuple(self._counters)):
            if is_deleted(key[0].group, key[0].resource):
                self._counters.pop(key, None)
            if not (number + 1) % STRETCH:
                yield
        yield
        yield from self.telemetry.drop_deleted(is_deleted)

    def user(self, authorization: str, certificate_user: User | None, exchange: Exchange) -> User:
        """Return the user of a request.

        Raise a 401 for an invalid credential, or if a needed one is missing. See AUT-002. Raise UnconfirmedCredential
        if the credential is invalid for the cache, which may be older than the store.
        """
        try:
            found = self.authenticator.authenticate(authorization, certificate_user)
        except UnconfirmedCredential:
            raise
        except BadCredential as error:
            raise self.refused() from error
        if found is None:
            if not self.anonymous and not is_open(exchange):
                self.telemetry.authentications.slot("failure").value += 1
                raise status.unauthorized()
            found = ANONYMOUS
        self._authenticated.value += 1
        return found

    def refused(self) -> status.StatusError:
        """Count an invalid credential, and return its 401."""
        self.telemetry.authentications.slot("error").value += 1
        return status.unauthorized()


Filter = Callable[[Gate, Handler, Exchange], Awaitable[Answer]]
"""A filter around the given handler, which it calls to continue with the inner filters and the route."""
Step = Callable[[Gate, Exchange], None]
"""A filter that only runs before the inner filters and the route, without awaiting; it may raise a StatusError."""

_MUTATING = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_DEADLINE = "request did not complete within requested timeout - context deadline exceeded"
_BUSY = "Too many requests, please try again later."


def compose(gate: Gate, filters: Sequence[Filter | Step], innermost: Handler) -> Handler:
    """Combine filters into one handler, the first filter outermost.

    Consecutive steps become one call.
    """
    handler = innermost
    steps: list[Step] = []
    for one in reversed(filters):
        if inspect.iscoroutinefunction(one):
            handler = _after(gate, steps, handler)
            steps = []
            handler = partial(cast(Filter, one), gate, handler)
        else:
            steps.insert(0, cast(Step, one))
    return _after(gate, steps, handler)


def _after(gate: Gate, steps: Sequence[Step], handler: Handler) -> Handler:
    if not steps:
        return handler

    def stepwise(exchange: Exchange) -> Awaitable[Answer]:
        try:
            for step in steps:
                step(gate, exchange)
        except UnconfirmedCredential as unconfirmed:
            return later(unconfirmed, exchange)
        return handler(exchange)

    async def later(unconfirmed: UnconfirmedCredential, exchange: Exchange) -> Answer:
        await authenticate_again(gate, exchange, unconfirmed)
        for step in steps[steps.index(authenticate) + 1 :]:
            step(gate, exchange)
        return await handler(exchange)

    return stepwise


def identify(gate: Gate, exchange: Exchange) -> None:
    """Set the audit id: the client's Audit-ID or a new id (AUT-008)."""
    exchange.audit_id = audit_id(exchange.sender.audit_id)


async def account(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Turn exceptions into responses; count requests, their durations and response sizes.

    See MTR-001, MTR-002. A ConnectionError is raised again, since its client gets no response. Requests without labels
    are not counted.
    """
    try:
        reply = await handler(exchange)
    except ConnectionError:
        raise
    except Exception as error:
        reply = refusals.refusal(exchange, error)
    if isinstance(reply, Reply) and exchange.warnings:
        reply.headers += [("Warning", value) for value in warning_values(exchange.warnings)]
    labels = exchange.labels
    if labels is None:
        return reply
    labels_key, started = (labels, exchange.dry_run if exchange.query else "", reply.code), exchange.started
    if isinstance(reply, Reply):
        _count(gate, labels_key, started, reply)
        if monotonic() - started > limits.SLOW_REQUEST:
            _log_slow(exchange, reply.code, monotonic() - started)
    else:  # a watch is counted at its end; until then, the callback must not keep the exchange in memory
        reply.stream.done.add_done_callback(lambda _: _count(gate, labels_key, started, _NOTHING))
    return reply


def _count(gate: Gate, labels_key: tuple[Labels, str, int], started: float, reply: Reply) -> None:
    requests, seconds, sizes = gate.counters(*labels_key)
    requests.value += 1
    seconds.observe(monotonic() - started)  # not loop.time(), which uvloop computes once for each iteration
    if sizes is not None:
        sizes.observe(reply.size)


log = logging.getLogger(__name__)

_NOTHING = Reply(200)
_SLOW = logs.RateLimited(server_limits.LOG_EVERY)


def _log_slow(exchange: Exchange, code: int, took: float) -> None:
    target, address = exchange.connection.origin()
    _SLOW.log(
        logging.WARNING,
        log,
        f"slow request: {exchange.method} {target} took {took:.1f} s",
        event="slow request",
        method=exchange.method,
        uri=target,
        code=code,
        user=exchange.user.name,
        source=address,
        auditID=exchange.audit_id,
        milliseconds=round(took * 1000),
    )


def authenticate(gate: Gate, exchange: Exchange) -> None:
    """Set the user of a request.

    Raise a 401 for an invalid credential, or if a needed one is missing. As upstream, first raise a 400 for a malformed
    timeout parameter, which watches do not have (AUT-006). Raise a 403 for requests of web pages that may not call the
    server. Raise UnconfirmedCredential as ``Gate.user`` does.
    """
    headers = exchange.headers
    if exchange.query and not exchange.long_running:
        exchange.given = _time_given(exchange)
    if gate.pages is not None:
        gate.pages(exchange)
    foreign = exchange.long_running and websocket.is_foreign(exchange)
    holder = exchange.connection.holder
    if gate.proxies is not None and holder is not None and holder.is_proxy:
        named = gate.proxies.user(headers.items())
        if named is not None:
            # A page of another origin must send a token itself. The proxy may have accepted another credential, such as
            # a cookie, which the browser sends for every page.
            if foreign:
                raise websocket.no_token(headers.get("Origin", ""))
            gate.telemetry.authentications.slot("success").value += 1
            exchange.user = named
            return
    sent = websocket.authorization(headers) if exchange.long_running else exchange.sender.authorization
    if "  " in sent and has_extra_space(sent):
        exchange.warnings.append(EXTRA_SPACE)
    certificate_user = None if holder is None or (foreign and sent) else holder.user
    exchange.user = gate.user(sent, certificate_user, exchange)
    if foreign and not (sent and gate.authenticator.uses_credentials):
        raise websocket.no_token(headers.get("Origin", ""))


async def authenticate_again(gate: Gate, exchange: Exchange, unconfirmed: UnconfirmedCredential) -> None:
    """Authenticate a request again with a fresh cache.

    Raise a 401 if the credential still cannot be validated.
    """
    await unconfirmed.fresh()
    try:
        authenticate(gate, exchange)
    except UnconfirmedCredential as error:
        raise gate.refused() from error


async def audit(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Authenticate a request, and write its audit events, also if the authentication fails.

    See AUD-001.
    """
    auditor = gate.auditor
    assert auditor is not None, "servers without audit do not have this filter"
    try:
        try:
            authenticate(gate, exchange)
        except UnconfirmedCredential as unconfirmed:
            await authenticate_again(gate, exchange, unconfirmed)
    except StatusError as refused:
        await auditing.refused(auditor, exchange, refused)
        raise
    exchange.trail = auditing.begin(auditor, exchange, exchange.user)
    if exchange.trail is None:
        return await handler(exchange)
    return await auditing.follow(auditor, handler, exchange)


def impersonate(gate: Gate, exchange: Exchange) -> None:
    """Replace the user by the impersonated user; raise a 403 if the user lacks the permission.

    See AUT-005. Raise a 400 if the headers name no user to impersonate.
    """
    if not exchange.sender.impersonates:
        return
    trail = exchange.trail
    note = trail.constrained if trail is not None else lambda _: None
    try:
        wanted = impersonation.parse(exchange.headers.items())
        exchange.user = impersonation.acting(wanted, attributes(exchange), gate.authorizer, note)
    except impersonation.MissingUser as error:
        raise _guarded(status.bad_request(str(error))) from error
    except StatusError as error:
        _guarded(error)
        raise
    if trail is not None:
        trail.impersonated = user_info(exchange.user)


def _guarded(refusal: StatusError) -> StatusError:
    """Mark the error of a filter, so that its response has X-Content-Type-Options: nosniff.

    The text of the error quotes the request. Upstream does this in the package responsewriters.
    """
    refusal.guarded = True
    return refusal


async def limit(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Limit the number of concurrent requests (429), and the duration of each request (504).

    The duration is limited by --request-timeout, or by the timeout parameter of the client if that is shorter. A write
    gets a 504 after limits.REQUEST_DEADLINE seconds at the latest. Neither limit applies to watches. Requests for
    health and version never get the 429 (LIM-001, LIM-002, WRI-024).
    """
    if exchange.long_running:
        return await handler(exchange)
    info = exchange.info
    kind = info.verb in _MUTATING
    running, most = gate.running, gate.requests.max_mutating if kind else gate.requests.max_inflight  # 0: no limit
    if 0 < most <= running[kind] and (info.is_resource or not is_public(exchange.path)):
        # The labels of the URL are empty. Only the routes set them, since unknown URLs must not create labels.
        nothing = ("",) * 5
        gate.telemetry.terminated.slot(exchange.method, *nothing, "apiserver", "429").value += 1
        raise status.too_many_requests(_BUSY)
    running[kind] += 1
    task = None
    try:
        task = gate.deadlines.begin(exchange.started + gate.requests.timeout)
        if 0 < exchange.given < gate.requests.timeout:
            return await _promptly(handler, exchange, exchange.started + exchange.given)
        exchange.deadline = exchange.started + min(gate.requests.timeout, limits.REQUEST_DEADLINE)
        return await handler(exchange)
    except asyncio.CancelledError as error:
        if task is None or gate.deadlines.remove(task):
            raise  # the connection is closed
        task.uncancel()
        raise status.timeout(_DEADLINE) from error
    finally:
        running[kind] -= 1
        if task is not None:
            gate.deadlines.remove(task)


async def _promptly(handler: Handler, exchange: Exchange, until: float) -> Answer:
    exchange.deadline = min(until, exchange.started + limits.REQUEST_DEADLINE)
    try:
        async with asyncio.timeout_at(until):
            return await handler(exchange)
    except TimeoutError as error:
        raise status.timeout(_DEADLINE) from error


def _time_given(exchange: Exchange) -> float:
    """Return the timeout parameter in seconds, 0 if it is absent.

    Raise a 400 for a malformed parameter.
    """
    given = exchange.query.get("timeout")
    try:
        return parse_duration(given[0]) if given and given[0] else 0.0
    except ValueError as error:
        raise status.bad_request(f"invalid timeout specified in the request URL - {error}") from error


def authorize(gate: Gate, exchange: Exchange) -> None:
    """Raise a 403 for a request that the authorizer denies (AUT-003)."""
    if gate.authorizer is always_allow or (is_open(exchange) and exchange.method in {"GET", "HEAD"}):
        return
    wanted = attributes(exchange)
    decision = gate.authorizer(wanted)
    if not decision.allowed:
        raise _guarded(denial(wanted, decision.reason))


def authorize_audited(gate: Gate, exchange: Exchange) -> None:
    """Authorize like ``authorize``, and put decision and reason into the audit event."""
    public = is_open(exchange) and exchange.method in {"GET", "HEAD"}
    wanted = attributes(exchange)
    decision = ALLOWED if public else gate.authorizer(wanted)
    if exchange.trail is not None:
        exchange.trail.annotations[DECISION] = "allow" if decision.allowed else "forbid"
        exchange.trail.annotations[REASON] = decision.reason
    if not decision.allowed:
        raise _guarded(denial(wanted, decision.reason))


def attributes(exchange: Exchange) -> Attributes:
    """Return the authorization attributes of a request."""
    info = exchange.info
    if not info.is_resource:
        return Attributes(exchange.user, info.verb, exchange.path, at_path=True)
    namespace = info.namespace or ""
    # The test of the path excludes a list of namespaces, whose name in ``info`` comes from its field selector.
    if info.resource == "namespaces" and info.name and "/namespaces/" in exchange.path:
        namespace = info.name  # upstream: the namespace of a namespace is itself, so its own roles apply
    names = (info.resource, info.subresource, namespace, info.name)
    return Attributes(exchange.user, info.verb, exchange.path, info.group, info.version, *names)


FILTERS: tuple[Filter | Step, ...] = (
    identify,
    account,
    authenticate,
    audit,
    impersonate,
    limit,
    authorize,
)
"""All filters, the outermost first; filters that await nothing are steps."""

_AUDITED: Mapping[Filter | Step, Filter | Step | None] = {  # filter → its replacement with an audit log, or None
    authenticate: None,  # dropped, since the audit filter authenticates
    authorize: authorize_audited,
}


def filters(*, audited: bool, authorizes: bool = True) -> list[Filter | Step]:
    """Return the filters of a server.

    ``audited`` is true if there is an audit log; then ``authorize_audited`` replaces ``authorize``. ``authorizes`` is
    false if every request is allowed: then ``authorize`` is omitted, but not ``authorize_audited``, since it writes
    decisions into the events.
    """
    if not audited:
        return [one for one in FILTERS if one is not audit and (authorizes or one is not authorize)]
    found = [_AUDITED.get(one, one) for one in FILTERS]
    return [one for one in found if one is not None]
