"""What every request goes through, outermost first: one list of filters around the routes (AUT-006)."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from apiext import limits
from apiext.auth.authentication import Authenticator, BadCredential
from apiext.auth.authorization import Attributes, Authorizer, denial, is_public
from apiext.auth.user import ANONYMOUS, User
from apiext.http.exchange import Exchange, Reply, StreamReply
from apiext.http.responses import status_reply, warning_values
from apiext.meta import requestinfo, status
from apiext.meta.requestinfo import RequestInfo
from apiext.meta.status import StatusError
from apiext.meta.time import parse_duration
from apiext.telemetry import Telemetry

log = logging.getLogger(__name__)

Answer = Reply | StreamReply
Handler = Callable[[Exchange], Awaitable[Answer]]
Filter = Callable[["Gate", Exchange, Handler], Awaitable[Answer]]

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
    reading: int = 0
    mutating: int = 0

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


def compose(gate: Gate, filters: Sequence[Filter], innermost: Handler) -> Handler:
    """Return one handler: each filter around the next, the first outermost."""
    handler = innermost
    for one in reversed(filters):
        handler = partial(_call, one, gate, handler)
    return handler


def _call(one: Filter, gate: Gate, handler: Handler, exchange: Exchange) -> Awaitable[Answer]:
    return one(gate, exchange, handler)


_IDS = AuditIds()


async def identify(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Keep the client's Audit-Id or make one (AUT-008)."""
    exchange.audit_id = audit_id(exchange.headers.get("Audit-Id", ""))
    return await handler(exchange)


def audit_id(given: str) -> str:
    """Return the id of a request: the client's when it is short and printable, else a new one."""
    if given and len(given) <= 64 and given.isascii() and given.isprintable():
        return given
    return _IDS.next()


async def count(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Count the request, how long it took, and how much was answered (MTR-001, MTR-002)."""
    reply = await handler(exchange)
    labels = exchange.labels
    gate.telemetry.requests.slot(labels[0], exchange.dry_run, *labels[1:], "apiserver", str(reply.code)).value += 1
    if isinstance(reply, Reply):
        elapsed = asyncio.get_running_loop().time() - exchange.started
        gate.telemetry.seconds.slot(labels[0], exchange.dry_run, *labels[1:], "apiserver").observe(elapsed)
        gate.telemetry.sizes.slot(*labels, "apiserver").observe(reply.size)
    return reply


async def warn(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Add the warnings collected on the way (WRI-014)."""
    reply = await handler(exchange)
    if exchange.warnings and isinstance(reply, Reply):
        reply.headers += [("Warning", value) for value in warning_values(exchange.warnings)]
    return reply


async def catch(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Turn what was raised into an answer: the one place where that happens (design.md §7)."""
    try:
        return await handler(exchange)
    except StatusError as error:
        return status_reply(exchange, error)
    except (ConnectionError, asyncio.CancelledError):
        raise
    except Exception:  # the outermost filter: a bug must not take the connection down
        log.exception("request %s failed: %s %s", exchange.audit_id, exchange.method, exchange.path)
        return status_reply(exchange, StatusError(500, "InternalError", _PANIC))


async def parse(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Find out what the URL is about."""
    exchange.info = requestinfo.parse(exchange.method, exchange.path, exchange.query)
    return await handler(exchange)


async def authenticate(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Find out who sends the request."""
    exchange.user = gate.user(
        exchange.headers.get("Authorization", ""), exchange.connection.certificate_user, exchange.path
    )
    return await handler(exchange)


async def limit(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Refuse what is too much at a time; watches do not count (LIM-001)."""
    info = _info(exchange)
    if info.verb == "watch" and info.is_resource:
        return await handler(exchange)
    if info.verb in _MUTATING:
        if 0 < gate.max_mutating <= gate.mutating:
            raise _too_many(gate, exchange)
        gate.mutating += 1
        try:
            return await handler(exchange)
        finally:
            gate.mutating -= 1
    if 0 < gate.max_inflight <= gate.reading:
        raise _too_many(gate, exchange)
    gate.reading += 1
    try:
        return await handler(exchange)
    finally:
        gate.reading -= 1


def _too_many(gate: Gate, exchange: Exchange) -> StatusError:
    gate.telemetry.terminated.slot(*exchange.labels, "apiserver", "429").value += 1
    return status.too_many_requests(_BUSY)


async def deadline(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Bound the time of a request that is no watch: 60 seconds, or less if the client says so (WRI-024, LIM-002)."""
    info = _info(exchange)
    if info.is_resource and info.verb == "watch":
        return await handler(exchange)
    seconds = gate.request_timeout
    asked = exchange.query.get("timeout")
    if asked and asked[0]:
        seconds = min(seconds, _asked(asked[0]) or seconds)
    until = asyncio.get_running_loop().time() + seconds
    exchange.deadline = min(until, exchange.started + limits.REQUEST_DEADLINE) if info.verb in _MUTATING else until
    try:
        async with asyncio.timeout_at(until):
            return await handler(exchange)
    except TimeoutError as error:
        raise status.timeout(_DEADLINE) from error


def _asked(text: str) -> float:
    try:
        return max(parse_duration(text), 0.0)
    except ValueError as error:
        raise status.bad_request(f"invalid timeout specified in the request URL - {error}") from error


async def authorize(gate: Gate, exchange: Exchange, handler: Handler) -> Answer:
    """Refuse what the user may not do (AUT-003)."""
    if is_public(exchange.path) and exchange.method in {"GET", "HEAD"}:
        return await handler(exchange)
    wanted = attributes(exchange)
    if not gate.authorizer(wanted):
        raise denial(wanted)
    return await handler(exchange)


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
    assert exchange.info is not None, "the parse filter comes first"
    return exchange.info


FILTERS: tuple[Filter, ...] = (identify, count, warn, catch, parse, authenticate, limit, deadline, authorize)
"""Outermost first."""
