"""What every request goes through, outermost first: one list of filters around the routes (AUT-006)."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import cast

from apiext import limits as server_limits
from apiext import logs
from apiext.audit.events import DECISION, REASON, user_info
from apiext.auth import impersonation
from apiext.auth.authentication import EXTRA_SPACE, Doubtful, has_extra_space
from apiext.auth.authorization import ALLOWED, Attributes, always_allow, denial, is_public
from apiext.http import audit as auditing
from apiext.http import limits, refusals, websocket
from apiext.http.exchange import Answer, Exchange, Handler, Labels, Reply
from apiext.http.gate import Gate, audit_id, is_open
from apiext.http.responses import warning_values
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.meta.time import parse_duration

Filter = Callable[[Gate, Handler, Exchange], Awaitable[Answer]]
"""Something around the rest of a request; it awaits the handler it is given."""
Step = Callable[[Gate, Exchange], None]
"""Something done before the rest; it may refuse by raising StatusError."""

_MUTATING = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_DEADLINE = "request did not complete within requested timeout - context deadline exceeded"
_BUSY = "Too many requests, please try again later."


def compose(gate: Gate, filters: Sequence[Filter | Step], innermost: Handler) -> Handler:
    """Return one handler: each filter around the next, the first outermost; steps in a row become one call."""
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
        except Doubtful as doubt:
            return later(doubt, exchange)
        return handler(exchange)

    async def later(doubt: Doubtful, exchange: Exchange) -> Answer:
        await authenticate_again(gate, exchange, doubt)
        for step in steps[steps.index(authenticate) + 1 :]:
            step(gate, exchange)
        return await handler(exchange)

    return stepwise


def identify(gate: Gate, exchange: Exchange) -> None:
    """Keep the client's Audit-Id or make one (AUT-008)."""
    exchange.audit_id = audit_id(exchange.sender.audit_id)


async def account(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Answer whatever happens, and count it: how often, how long it took, how much was answered (MTR-001, MTR-002)."""
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
    what, started = (labels, exchange.dry_run if exchange.query else "", reply.code), exchange.started
    if isinstance(reply, Reply):
        _count(gate, what, started, reply)
        if monotonic() - started > limits.SLOW_REQUEST:
            _log_slow(exchange, reply.code, monotonic() - started)
    else:  # a watch is counted at its end; until then nothing else of the exchange is kept
        reply.stream.done.add_done_callback(lambda _: _count(gate, what, started, _NOTHING))
    return reply


def _count(gate: Gate, what: tuple[Labels, str, int], started: float, reply: Reply) -> None:
    requests, seconds, sizes = gate.counters(*what)
    requests.value += 1
    seconds.observe(monotonic() - started)  # the loop's time, but of this moment
    if sizes is not None:
        sizes.observe(reply.size)


log = logging.getLogger(__name__)

_NOTHING = Reply(200)
_SLOW = logs.Seldom(server_limits.LOG_EVERY)


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
    """Find out who sends the request; a time limit that is none is told of first, as upstream (AUT-006)."""
    headers = exchange.headers
    if exchange.query and not exchange.long_running:
        exchange.given = _time_given(exchange)
    if gate.pages is not None:
        gate.pages(exchange)
    foreign = exchange.long_running and websocket.is_foreign(exchange)
    holder = exchange.connection.holder
    if gate.proxies is not None and holder is not None and holder.is_proxy:
        told = gate.proxies.user(headers.items())
        if told is not None:
            if foreign:  # nobody knows here what else the proxy was shown
                raise websocket.no_token(headers.get("Origin", ""))
            gate.telemetry.authentications.slot("success").value += 1
            exchange.user = told
            return
    sent = websocket.authorization(headers) if exchange.long_running else exchange.sender.authorization
    if "  " in sent and has_extra_space(sent):
        exchange.warnings.append(EXTRA_SPACE)
    certificate_user = None if holder is None or (foreign and sent) else holder.user
    exchange.user = gate.user(sent, certificate_user, exchange)
    if foreign and not (sent and gate.authenticator.asks):
        raise websocket.no_token(headers.get("Origin", ""))


async def authenticate_again(gate: Gate, exchange: Exchange, doubt: Doubtful) -> None:
    """Find out who sends a request when the cache knows all that was stored by now: 401 if it still does not help."""
    await doubt.fresh()
    try:
        authenticate(gate, exchange)
    except Doubtful as error:
        raise gate.refused() from error


async def audit(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Tell the audit log what is asked and answered (AUD-001); who may not ask is told as well."""
    auditor = gate.auditor
    assert auditor is not None, "without one this filter is left out"
    try:
        try:
            authenticate(gate, exchange)
        except Doubtful as doubt:
            await authenticate_again(gate, exchange, doubt)
    except StatusError as refused:
        await auditing.refused(auditor, exchange, refused)
        raise
    exchange.trail = auditing.begin(auditor, exchange, exchange.user)
    if exchange.trail is None:
        return await handler(exchange)
    return await auditing.follow(auditor, handler, exchange)


def impersonate(gate: Gate, exchange: Exchange) -> None:
    """Let a user who may act as another one do so (AUT-005)."""
    if not exchange.sender.acts:
        return
    trail = exchange.trail
    told = trail.constrained if trail is not None else lambda _: None
    try:
        wanted = impersonation.parse(exchange.headers.items())
        exchange.user = impersonation.acting(wanted, attributes(exchange), gate.authorizer, told)
    except impersonation.NobodyNamed as error:
        raise _guarded(status.bad_request(str(error))) from error
    except StatusError as error:
        _guarded(error)
        raise
    if trail is not None:
        trail.impersonated = user_info(exchange.user)


def _guarded(refusal: StatusError) -> StatusError:
    """Mark what is refused before it reaches its resource: the text quotes the request (upstream: responsewriters)."""
    refusal.guarded = True
    return refusal


async def bound(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Refuse what is too much at a time, and end what takes over 60 seconds, or over what the client gives it.

    Watches neither count nor end, and probes are always answered (LIM-001, LIM-002, WRI-024).
    """
    if exchange.long_running:
        return await handler(exchange)
    info = exchange.info
    kind = info.verb in _MUTATING
    running, most = gate.running, gate.requests.max_mutating if kind else gate.requests.max_inflight  # 0: any number
    if 0 < most <= running[kind] and (info.is_resource or not is_public(exchange.path)):
        nothing = ("",) * 5  # not known yet, and not to be made up by URLs
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
            raise  # somebody else cancelled: the connection is closed
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
    """Return the seconds that a client gives its request, 0 for no limit."""
    asked = exchange.query.get("timeout")
    try:
        return parse_duration(asked[0]) if asked and asked[0] else 0.0
    except ValueError as error:
        raise status.bad_request(f"invalid timeout specified in the request URL - {error}") from error


def authorize(gate: Gate, exchange: Exchange) -> None:
    """Refuse what the user may not do (AUT-003)."""
    if gate.authorizer is always_allow or (is_open(exchange) and exchange.method in {"GET", "HEAD"}):
        return
    wanted = attributes(exchange)
    decision = gate.authorizer(wanted)
    if not decision.allowed:
        raise _guarded(denial(wanted, decision.reason))


def authorize_telling(gate: Gate, exchange: Exchange) -> None:
    """Refuse what the user may not do, and tell what was decided, and why."""
    public = is_open(exchange) and exchange.method in {"GET", "HEAD"}
    wanted = attributes(exchange)
    decision = ALLOWED if public else gate.authorizer(wanted)
    if exchange.trail is not None:
        exchange.trail.annotations[DECISION] = "allow" if decision.allowed else "forbid"
        exchange.trail.annotations[REASON] = decision.reason
    if not decision.allowed:
        raise _guarded(denial(wanted, decision.reason))


def attributes(exchange: Exchange) -> Attributes:
    """Return what a request wants, as authorization judges it."""
    info = exchange.info
    if not info.is_resource:
        return Attributes(exchange.user, info.verb, exchange.path, at_path=True)
    namespace = info.namespace or ""
    if info.resource == "namespaces" and info.name and "/namespaces/" in exchange.path:  # not by a field selector
        namespace = info.name  # upstream: a namespace lies within itself, so roles there count for it
    place = (info.resource, info.subresource, namespace, info.name)
    return Attributes(exchange.user, info.verb, exchange.path, info.group, info.version, *place)


FILTERS: tuple[Filter | Step, ...] = (
    identify,
    account,
    authenticate,
    audit,
    impersonate,
    bound,
    authorize,
)
"""Outermost first; those that need not wait are plain steps."""

_TELLING: Mapping[Filter | Step, Filter | Step | None] = {
    authenticate: None,  # the audit filter does it
    authorize: authorize_telling,
}


def filters(*, audited: bool, judged: bool = True) -> list[Filter | Step]:
    """Return the filters of a server: no request goes through those that have nothing to do.

    ``audited``: there is an audit log. ``judged``: not everybody may do everything.
    """
    if not audited:
        return [one for one in FILTERS if one is not audit and (judged or one is not authorize)]
    told = [_TELLING.get(one, one) for one in FILTERS]
    return [one for one in told if one is not None]
