"""What every request goes through, outermost first: one list of filters around the routes (AUT-006)."""

import asyncio
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from apiext import limits
from apiext.auth.authentication import Authenticator, BadCredential
from apiext.auth.authorization import Attributes, Authorizer, always_allow, denial, is_public
from apiext.auth.user import ANONYMOUS, User
from apiext.http.exchange import Exchange, Reply, StreamReply
from apiext.http.responses import status_reply, warning_values
from apiext.meta import requestinfo, status
from apiext.meta.requestinfo import RequestInfo
from apiext.meta.status import StatusError
from apiext.meta.time import parse_duration
from apiext.telemetry import Distribution, Slot, Telemetry

log = logging.getLogger(__name__)

Answer = Reply | StreamReply
Handler = Callable[[Exchange], Awaitable[Answer]]
Filter = Callable[["Gate", Handler, Exchange], Awaitable[Answer]]
"""Something around the rest of a request; it awaits the handler it is given."""
Step = Callable[["Gate", Exchange], None]
"""Something done before the rest; it may refuse by raising StatusError."""

Counters = tuple[Slot, Distribution, Distribution]

_LOOK_EVERY = 0.25  # seconds between looks at the deadlines
_MUTATING = frozenset(("create", "update", "patch", "delete", "deletecollection"))
_PANIC = "This request caused apiserver to panic. Look in the logs for details."
_DEADLINE = "request did not complete within requested timeout - context deadline exceeded"
_BUSY = "Too many requests, please try again later."


class AuditIds:
    """Random UUIDs for requests that bring no Audit-Id, made from random bytes fetched many at a time."""

    __slots__ = ("_at", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._at = 0

    def next(self) -> str:
        """Return a new version 4 UUID."""
        at = self._at
        text = self._text
        if at >= len(text):
            text = self._text = os.urandom(16 * 256).hex()
            at = 0
        self._at = at + 32
        h = text[at : at + 32]
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-a{h[17:20]}-{h[20:]}"


@dataclass(slots=True)
class Gate:
    """What the filters need: who may do what, how much at a time, and where it is counted."""

    authenticator: Authenticator
    authorizer: Authorizer
    telemetry: Telemetry
    anonymous: bool = False
    request_timeout: float = limits.REQUEST_TIMEOUT
    max_inflight: int = limits.MAX_INFLIGHT
    max_mutating: int = limits.MAX_MUTATING_INFLIGHT
    deadlines: "Deadlines" = field(default_factory=lambda: Deadlines())
    running: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})
    _counters: dict[Any, Counters] = field(default_factory=dict)

    def most(self, mutating: bool) -> int:
        """Return how many requests may run at a time; 0 means any number."""
        return self.max_mutating if mutating else self.max_inflight

    def counters(self, labels: tuple[str, ...], dry_run: str, code: int) -> Counters:
        """Return where a request is counted: the counter, its duration, its size."""
        key = (labels, dry_run, code)
        found = self._counters.get(key)
        if found is None:
            verb, rest = labels[0], (*labels[1:], "apiserver")
            found = self._counters[key] = (
                self.telemetry.requests.slot(verb, dry_run, *rest, str(code)),
                self.telemetry.seconds.slot(verb, dry_run, *rest),
                self.telemetry.sizes.slot(verb, *rest),
            )
        return found

    def user(self, authorization: str, certificate_user: User | None, path: str) -> User:
        """Return who sends a request; 401 for a wrong credential, or for none where one is needed (AUT-002)."""
        attempts = self.telemetry.authentications
        try:
            found = self.authenticator.authenticate(authorization, certificate_user)
        except BadCredential as error:
            attempts.slot("failure").value += 1
            raise status.unauthorized() from error
        if found is None:
            if self.anonymous or is_public(path):
                return ANONYMOUS
            attempts.slot("failure").value += 1
            raise status.unauthorized()
        attempts.slot("success").value += 1
        return found


class Deadlines:
    """The requests that must be over by some time, looked at four times a second: a timer each would cost more."""

    __slots__ = ("_loop", "_timer", "_until")

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[Any], float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, task: asyncio.Task[Any], until: float) -> None:
        """Cancel the task soon after ``until`` (loop time) unless it is removed before."""
        self._until[task] = until
        if self._timer is None:
            self._loop = asyncio.get_running_loop()
            self._timer = self._loop.call_later(_LOOK_EVERY, self._look)

    def remove(self, task: asyncio.Task[Any]) -> bool:
        """Forget a task; False when its time was over and it was cancelled."""
        return self._until.pop(task, None) is not None

    def _look(self) -> None:
        assert self._loop is not None
        now = self._loop.time()
        for task in [task for task, until in self._until.items() if until <= now]:
            del self._until[task]
            task.cancel()
        self._timer = self._loop.call_later(_LOOK_EVERY, self._look) if self._until else None


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
        for step in steps:
            step(gate, exchange)
        return handler(exchange)

    return stepwise


_IDS = AuditIds()


def identify(gate: Gate, exchange: Exchange) -> None:
    """Keep the client's Audit-Id or make one (AUT-008)."""
    exchange.audit_id = audit_id(exchange.headers.get("Audit-Id", ""))


def audit_id(given: str) -> str:
    """Return the id of a request: the client's when it is short and printable, else a new one."""
    if given and len(given) <= 64 and given.isascii() and given.isprintable():
        return given
    return _IDS.next()


async def count(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Count the request, how long it took, and how much was answered (MTR-001, MTR-002)."""
    reply = await handler(exchange)
    requests, seconds, sizes = gate.counters(exchange.labels, exchange.dry_run, reply.code)
    requests.value += 1
    if isinstance(reply, Reply):
        seconds.observe(asyncio.get_running_loop().time() - exchange.started)
        sizes.observe(reply.size)
    return reply


async def catch(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Turn what was raised into an answer, the one place where that happens (design.md §7), and add the warnings."""
    try:
        reply = await handler(exchange)
    except StatusError as error:
        reply = status_reply(exchange, error)
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:  # the outermost filter: a bug must not take the connection down
        log.exception("request %s failed: %s %s", exchange.audit_id, exchange.method, exchange.path)
        reply = status_reply(exchange, StatusError(500, "InternalError", _PANIC))
    if exchange.warnings and isinstance(reply, Reply):
        reply.headers += [("Warning", value) for value in warning_values(exchange.warnings)]
    return reply


def parse(gate: Gate, exchange: Exchange) -> None:
    """Find out what the URL is about."""
    info = exchange.info = requestinfo.parse(exchange.method, exchange.path, exchange.query)
    exchange.long_running = info.is_resource and info.verb == "watch"


def authenticate(gate: Gate, exchange: Exchange) -> None:
    """Find out who sends the request."""
    exchange.user = gate.user(
        exchange.headers.get("Authorization", ""), exchange.connection.certificate_user, exchange.path
    )


async def limit(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Refuse what is too much at a time; watches do not count (LIM-001)."""
    if exchange.long_running:
        return await handler(exchange)
    kind = _info(exchange).verb in _MUTATING
    running, most = gate.running, gate.most(kind)
    if 0 < most <= running[kind]:
        gate.telemetry.terminated.slot(*exchange.labels, "apiserver", "429").value += 1
        raise status.too_many_requests(_BUSY)
    running[kind] += 1
    try:
        return await handler(exchange)
    finally:
        running[kind] -= 1


async def deadline(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
    """Bound the time of a request that is no watch: 60 seconds, or less if the client says so (WRI-024, LIM-002)."""
    if exchange.long_running:
        return await handler(exchange)
    until = exchange.started + gate.request_timeout
    asked = exchange.query.get("timeout")
    if asked and asked[0]:
        wanted = _asked(asked[0])
        if 0 < wanted < gate.request_timeout:
            return await _promptly(handler, exchange, exchange.started + wanted)
    exchange.deadline = min(until, exchange.started + limits.REQUEST_DEADLINE)
    task = asyncio.current_task()
    assert task is not None
    gate.deadlines.add(task, until)
    try:
        return await handler(exchange)
    except asyncio.CancelledError as error:
        if gate.deadlines.remove(task):
            raise  # somebody else cancelled: the connection is closed
        task.uncancel()
        raise status.timeout(_DEADLINE) from error
    finally:
        gate.deadlines.remove(task)


async def _promptly(handler: Handler, exchange: Exchange, until: float) -> Answer:
    exchange.deadline = until
    try:
        async with asyncio.timeout_at(until):
            return await handler(exchange)
    except TimeoutError as error:
        raise status.timeout(_DEADLINE) from error


def _asked(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise status.bad_request(f"invalid timeout specified in the request URL - {error}") from error


def authorize(gate: Gate, exchange: Exchange) -> None:
    """Refuse what the user may not do (AUT-003)."""
    if gate.authorizer is always_allow or (is_public(exchange.path) and exchange.method in {"GET", "HEAD"}):
        return
    wanted = attributes(exchange)
    if not gate.authorizer(wanted):
        raise denial(wanted)


def attributes(exchange: Exchange) -> Attributes:
    """Return what a request wants, as authorization judges it."""
    info = _info(exchange)
    if not info.is_resource:
        return Attributes(exchange.user, info.verb, exchange.path)
    return Attributes(
        exchange.user,
        info.verb,
        exchange.path,
        info.group,
        info.version,
        info.resource,
        info.subresource,
        info.namespace or "",
        info.name,
    )


def _info(exchange: Exchange) -> RequestInfo:
    assert exchange.info is not None, "the parse step comes first"
    return exchange.info


FILTERS: tuple[Filter | Step, ...] = (identify, count, catch, parse, authenticate, limit, deadline, authorize)
"""Outermost first; those that need not wait are plain steps."""
