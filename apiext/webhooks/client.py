"""The client that calls webhooks (ADM-008, VER-009).

The client has pooled HTTP/1.1 connections, TLS, and limits for responses.
"""

import asyncio
import json
import math
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache

from msgspec import Struct, field

from apiext.documents.encoding import DecodeError, decode_json
from apiext.text.quotes import go_quote
from apiext.webhooks import limits
from apiext.webhooks.answers import Answer
from apiext.webhooks.breaker import Breakers, Cut
from apiext.webhooks.credentials import ANONYMOUS, Credentials, Users
from apiext.webhooks.errors import Broken, CallError, Refused, TimedOut, TooLarge, Unreachable, Untrusted
from apiext.webhooks.names import Names, Network
from apiext.webhooks.proxy import Proxy, proxy_of, tunnel
from apiext.webhooks.resolver import Resolver
from apiext.webhooks.target import Target
from apiext.webhooks.trust import SELF_SIGNED, UNVERIFIED, Contexts, failure_of
from apiext.webhooks.wire import Connection

_READING = "unexpected error when reading response body. Please retry. Original error: "
_DEADLINE = "context deadline exceeded"

_STATUS_TEXTS = {  # upstream: NewGenericServerResponse
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_OWN_TEXT = frozenset((403, 406, 415))  # errors of these codes contain the body of the response


class _Pool(Struct):
    """The idle connections of one target; ``used`` is the time of the last use."""

    idle: list[Connection] = field(default_factory=list)
    used: float = 0.0


class Client:
    """Calls webhooks; it reuses connections, and never follows redirects.

    The audit log has its own client.
    """

    __slots__ = ("_breakers", "_contexts", "_names", "_pools", "_proxy", "_resolver", "_swept")

    def __init__(
        self,
        resolver: Resolver | None = None,
        environment: Mapping[str, str] = os.environ,
        denied: Sequence[Network] = (),
    ) -> None:
        """Set up a client without connections.

        ``environment`` may name a proxy (HTTPS_PROXY, NO_PROXY). ``denied`` are networks to which calls never connect.
        Neither applies to services that the resolver maps to an address. A proxy resolves names itself, so ``denied``
        then applies only to targets that are IP addresses.
        """
        self._resolver = resolver or Resolver()
        self._proxy = proxy_of(environment)
        self._contexts = Contexts()
        self._names = Names(denied)
        self._breakers = Breakers()
        self._pools: dict[tuple[Target, Credentials], _Pool] = {}
        self._swept = 0.0

    async def post(
        self,
        target: Target,
        body: bytes,
        timeout: float,
        *,
        owner: str = "",
        max_bytes: int = limits.WEBHOOK_ANSWER,
        user: Credentials = ANONYMOUS,
        empty: bool = False,
    ) -> bytes:
        """POST JSON and return the body of a response with status 200 to 206.

        Raise CallError with Go's text if the call fails, or for any other status. After a response of 429 or 5xx with
        Retry-After, the client retries within the timeout, with limits.WEBHOOK_TRIES calls at most. ``timeout`` is in
        seconds; the webhook gets it as a query parameter. ``owner`` identifies a webhook, a definition or the audit
        log; the calls of an owner share a breaker. ``max_bytes`` limits the body of the response. ``user`` are the
        server's credentials. If ``empty`` is true, a response may have no body.
        """
        url = f"{target.path}?timeout={math.ceil(timeout)}s"
        deadline = asyncio.get_running_loop().time() + timeout
        call = _Call(target, url, body, max_bytes, deadline, user, empty)
        try:
            return await self._breakers.of(owner or target.url).run(
                lambda: self._call(call), deadline, cut=isinstance(timeout, Cut)
            )
        except TimeoutError as error:
            raise TimedOut(f"{call.prefix}{_DEADLINE}") from error

    async def close(self) -> None:
        """Close the idle connections."""
        for pool in self._pools.values():
            for connection in pool.idle:
                connection.close()
        self._pools.clear()
        self._names.close()
        await asyncio.sleep(0)  # transports call connection_lost in the next iteration of the event loop

    async def _call(self, call: "_Call") -> bytes:
        try:
            answer = await self._exchange(call)
            for _ in range(1, limits.WEBHOOK_TRIES):
                if answer.again is None or (answer.status != 429 and answer.status < 500):
                    break
                call.in_body = False
                async with asyncio.timeout_at(call.deadline):
                    await asyncio.sleep(answer.again)
                answer = await self._exchange(call)
        except TimeoutError as error:
            raise TimedOut(_READING + _DEADLINE if call.in_body else f"{call.prefix}{_DEADLINE}") from error
        except (TooLarge, Broken) as error:
            text = f"{_READING}{error}" if call.in_body else f"{call.prefix}{error}"
            raise type(error)(text) from error
        except CallError as error:
            raise type(error)(f"{call.prefix}{error}", error.code) from error
        if not 200 <= answer.status <= 206:
            raise refusal(answer)
        if not answer.body and not call.empty:
            kind = answer.content_type or "application/json"  # the requested media type
            raise Broken(f"0-length response with status code: {answer.status} and content type: {kind}")
        return answer.body

    async def _exchange(self, call: "_Call") -> Answer:
        if call.user is not ANONYMOUS:
            async with asyncio.timeout_at(call.deadline):
                call.lines = "".join([f"{line}\r\n" for line in await call.user.lines()])
        pool = self._pool((call.target, call.user))
        head = f"{_head(call.path, call.target.authority)}{len(call.body)}\r\n{call.lines}\r\n".encode("ascii")
        idle = self._idle(pool)
        while True:
            connection, reusable = idle, False
            if connection is None:
                async with asyncio.timeout_at(call.deadline):
                    connection = await self._connect(call.target, call.user)
            try:
                answer = await connection.exchange(head, call.body, call.max_bytes, call.deadline)
                reusable = answer.reusable
                return answer
            except Broken:
                if idle is None or connection.began:
                    raise
                idle = None  # the webhook has closed the idle connection: retry on a new connection
            finally:
                call.in_body = connection.in_body
                if reusable and len(pool.idle) < limits.WEBHOOK_IDLE:
                    connection.idle_since = pool.used = time.monotonic()
                    pool.idle.append(connection)
                else:
                    connection.close()

    def _idle(self, pool: _Pool) -> Connection | None:
        oldest = time.monotonic() - limits.WEBHOOK_IDLE_FOR
        while pool.idle:
            connection = pool.idle.pop()
            if connection.usable and connection.idle_since > oldest:
                return connection
            connection.close()
        return None

    def _pool(self, key: tuple[Target, Credentials]) -> _Pool:
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = _Pool()
        now = found.used = time.monotonic()
        if now - self._swept > limits.WEBHOOK_IDLE_FOR:
            self._swept = now
            self._sweep(now - limits.WEBHOOK_IDLE_FOR)
        return found

    def _sweep(self, oldest: float) -> None:
        """Close the pools of unused targets."""
        for key, pool in list(self._pools.items()):
            if pool.used < oldest:
                del self._pools[key]
                for connection in pool.idle:
                    connection.close()

    async def _connect(self, target: Target, user: Credentials) -> Connection:
        context = None if target.plain else await self._context(target.ca, user)
        host, port = target.host, target.port
        mapped = self._resolver.find(target.service, port) if target.service else None
        if mapped is not None:
            host, port = mapped
        elif context is not None and self._proxy is not None and self._proxy.serves(host, port):
            self._names.check(host)
            return await _through(self._proxy, target, context)
        failure: CallError | None = None
        for address in await self._names.find(host, given=mapped is not None):
            try:
                return await _dial(address, port, context, target.server_name)
            except (OSError, ssl.SSLError) as error:
                connection = await self._dial_namesake(error, address, port, target, user)
                if connection is not None:
                    return connection
                shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
                failure = (
                    failure
                    or await _refused(error, address, port, target.server_name)
                    or failure_of(error, target.server_name, shown)
                )
        assert failure is not None
        raise failure

    async def _dial_namesake(
        self, error: Exception, address: str, port: int, target: Target, user: Credentials
    ) -> Connection | None:
        """Connect to a server whose certificate has the same name as subject and as issuer.

        OpenSSL rejects each such certificate as self-signed. Go verifies the signature instead, and so does this
        method. ``error`` is the error of the first attempt to connect. Return None if this error has another reason, if
        the CA bundle does not contain the issuer, or if the connection fails again.
        """
        if not isinstance(error, ssl.SSLCertVerificationError) or error.verify_code != SELF_SIGNED or not target.ca:
            return None
        from apiext.webhooks import certificates  # imported here, since it imports cryptography (decision 36)

        found = await certificates.fetch(address, port, target.server_name)
        leaf = None if found is None else certificates.namesake(found, target.ca, datetime.now(UTC))
        if leaf is None:
            return None
        context = await self._context(target.ca + leaf, user)
        try:
            return await _dial(address, port, context, target.server_name)
        except (OSError, ssl.SSLError):
            return None

    async def _context(self, ca: bytes, user: Credentials) -> ssl.SSLContext:
        try:
            return await self._contexts.context_for(ca, user.certificate)
        except OSError as error:  # no temporary file for the client certificate, or too many open files
            raise Unreachable(f"tls: {error.strerror or error}") from error


class Authenticated:
    """A client that sends the credentials of a kubeconfig's users."""

    __slots__ = ("_client", "_users")

    def __init__(self, client: Client, users: Users) -> None:
        self._client = client
        self._users = users

    async def post(self, target: Target, body: bytes, timeout: float, *, owner: str) -> bytes:
        """POST JSON with the credentials for the target; otherwise as ``Client.post``."""
        user = self._users.find(target.host, target.port)
        return await self._client.post(target, body, timeout, owner=owner, user=user)


class _Call(Struct):
    """One request and its state."""

    target: Target
    path: str
    body: bytes
    max_bytes: int
    deadline: float
    user: Credentials
    empty: bool
    lines: str = ""
    in_body: bool = False

    @property
    def prefix(self) -> str:
        return f"Post {go_quote(f'{self.target.url.removesuffix(self.target.path)}{self.path}')}: "


@lru_cache(limits.WEBHOOK_HEADS_SEEN)
def _head(path: str, authority: str) -> str:
    """Return the head of a request up to the value of Content-Length."""
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: {authority}",
        "User-Agent: kube-apiserver-admission",
        "Accept: application/json, */*",
        "Content-Type: application/json",
        "Content-Length: ",
    )
    return "\r\n".join(lines)


async def _through(proxy: Proxy, target: Target, context: ssl.SSLContext) -> Connection:
    """Connect through a proxy; raise CallError if this fails."""
    try:
        return await tunnel(proxy, target.host, target.port, context, target.server_name)
    except ssl.SSLError as error:
        raise failure_of(error, target.server_name, target.authority) from error
    except OSError as error:
        place = f"{proxy.host}:{proxy.port}"
        raise Unreachable(f"proxyconnect tcp: {failure_of(error, proxy.host, place)}") from error


async def _dial(address: str, port: int, context: ssl.SSLContext | None, name: str) -> Connection:
    loop = asyncio.get_running_loop()
    shown = name if context is not None else None
    _, connection = await loop.create_connection(Connection, address, port, ssl=context, server_hostname=shown)
    return connection


async def _refused(error: Exception, address: str, port: int, name: str) -> Untrusted | None:
    """Return the error of a certificate with invalid times or names; None for any other error."""
    if not isinstance(error, ssl.SSLCertVerificationError):
        return None
    from apiext.webhooks import certificates  # imported here, since it imports cryptography (decision 36)

    found = await certificates.fetch(address, port, name)
    why = None if found is None else certificates.fault(found, name, datetime.now(UTC))
    return None if why is None else Untrusted(f"{UNVERIFIED}{why}")


def refusal(answer: Answer) -> Refused:
    """Return the error of an unsuccessful response.

    If the body is a Status, the text is its message. Otherwise it is Go's text for the status code, or for the codes in
    _OWN_TEXT the body itself.
    """
    found = _status_of(answer.body)
    if found is not None:
        return Refused(str(found.get("message") or "unknown"), _code_of(found, answer.status))
    body_text = "unknown"
    if not answer.content_type or answer.content_type.startswith("text/"):
        body_text = answer.body[: limits.WEBHOOK_ERROR_TEXT].decode("utf-8", "replace").strip()
    if answer.status in _OWN_TEXT:
        return Refused(body_text, answer.status)
    text = _STATUS_TEXTS.get(answer.status)
    if text is None and answer.status >= 500:
        quoted = json.dumps(body_text, ensure_ascii=False)
        text = f"an error on the server ({quoted}) has prevented the request from succeeding"
    generic = f"the server responded with the status code {answer.status} but did not return more information"
    return Refused(text or generic, answer.status)


def _status_of(body: bytes) -> dict[str, object] | None:
    if not body.startswith(b"{") or len(body) > limits.WEBHOOK_STATUS:
        return None
    try:
        found = decode_json(body)[0]
    except DecodeError:
        return None
    kind = found.get("kind", "Status")
    return found if kind == "Status" and found.get("status") == "Failure" else None


def _code_of(found: dict[str, object], status: int) -> int:
    code = found.get("code")
    return code if isinstance(code, int) and 100 <= code <= 999 else status
