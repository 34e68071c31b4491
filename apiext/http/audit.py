"""The audit events of a request: before authorization, at response start and end (AUD-001).

A trail (audit/events.py) holds the data of one request; each stage of the request makes an event from it.
"""

import time
import zlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any
from urllib.parse import quote

import orjson
from msgspec import Struct

from apiext.audit import events, policy
from apiext.audit.auditor import Auditor
from apiext.audit.events import Event, Read, RequestAttributes, Trail
from apiext.auth.user import User
from apiext.documents.encoding import decode_yaml, encode_in_order
from apiext.http import limits, negotiation, protobuf, refusals
from apiext.http.exchange import Answer, Exchange, Handler, Headers, Reply, StreamReply
from apiext.meta import status
from apiext.meta.requestinfo import RequestInfo
from apiext.meta.status import StatusError

# Seconds of a request above which its audit event contains the latency (as upstream).
AUDIT_LATENCY = 0.5

NOT_STORED = "failed to store audit event"
_CLOSED = {"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200}
_DISCOVERY = frozenset(("api", "apis"))
_OF_COLLECTIONS = frozenset(("list", "watch", "deletecollection"))
_URL = "".join(map(chr, range(0x21, 0x7F)))


def begin(auditor: Auditor, exchange: Exchange, user: User | None) -> Trail | None:
    """Return the trail of a request, None if it is not audited.

    ``user`` is None if the request has no valid credentials.
    """
    info = exchange.info
    namespace = namespace_of(info)
    verdict = auditor.verdict(info, namespace, user.name if user else None, user.groups if user else ())
    if verdict.level == policy.NONE:
        return None
    target, peer = exchange.connection.origin()
    headers = exchange.headers
    agent = headers.get("User-Agent", "")
    attributes = RequestAttributes(
        exchange.audit_id,
        _uri(target),
        info.verb,
        events.user_info(user) if user else {},
        source_ips(headers, peer),
        agent if len(agent) <= limits.AUDIT_AGENT else f"{agent[: limits.AUDIT_AGENT]}...TRUNCATED",
        time.time(),
    )
    return Trail(verdict, attributes, _reference(info, namespace) if info.is_resource else {})


def namespace_of(info: RequestInfo) -> str:
    """Return the namespace of a request for policies and events."""
    if info.namespace is None and info.resource == "namespaces" and info.verb not in _OF_COLLECTIONS:
        return info.name  # upstream: the namespace of a namespace is itself
    return info.namespace or ""


def _reference(info: RequestInfo, namespace: str) -> dict[str, str]:
    return {
        "resource": info.resource,
        "namespace": namespace,
        "name": info.name,
        "apiGroup": info.group,
        "apiVersion": info.version,
        "subresource": info.subresource,
    }


def _uri(target: str) -> str:
    if not target.startswith("/"):  # the absolute form of a target, which clients of proxies use
        _, _, rest = target.partition("://")
        target = f"/{rest.partition('/')[2]}"
    if target.isascii():
        return target
    return quote(target.encode("utf-8", "surrogateescape"), safe=_URL)


# --- where a request comes from (upstream: SourceIPs) ---


def source_ips(headers: Headers, peer: str) -> list[str]:
    """Return client addresses that proxies report in headers, and the connection's address."""
    forwarded, real = headers.get("X-Forwarded-For", ""), headers.get("X-Real-Ip", "")
    parts = (part.strip() for part in forwarded.split(",", limits.AUDIT_ADDRESSES)[: limits.AUDIT_ADDRESSES])
    found = [ip for part in parts if len(part) <= limits.ADDRESS_TEXT and (ip := _ip(part))]
    if real and len(real) <= limits.ADDRESS_TEXT and (ip := _ip(real)) and ip not in found:
        found.append(ip)
    remote = _ip(peer)
    if remote and (not found or found[-1] != remote):
        found.append(remote)
    return found


@lru_cache(limits.HEADERS_CACHED)
def _ip(text: str) -> str:
    """Return a normalized address, empty for an invalid address."""
    found = _parsed(text) if text and "%" not in text else None
    return str(found) if found is not None else ""


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        parts = text.split(".")
        if len(parts) != 4 or not all(part.isascii() and part.isdecimal() for part in parts):
            return None
        try:
            return ip_address(".".join(str(int(part)) for part in parts))  # upstream: leading zeros are not octal
        except ValueError:
            return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


# --- the stages ---


async def refused(auditor: Auditor, exchange: Exchange, error: StatusError) -> None:
    """Record a request without valid credentials.

    As in upstream, ResponseStarted is the only stage.
    """
    trail = begin(auditor, exchange, None)
    if trail is not None:
        response, object_json = _of_error(exchange, error, trail)
        await auditor.record(trail.event(policy.STARTED, time.time(), response, object_json))


async def follow(auditor: Auditor, handler: Handler, exchange: Exchange) -> Answer:
    """Handle an audited request, and record its stages; turn exceptions into responses.

    Raise ConnectionError and cancellations again. Raise a 500 if the event of the first stage cannot be recorded.
    """
    trail = exchange.trail
    assert trail is not None
    if not await auditor.record(trail.event(policy.RECEIVED, 0.0)):
        auditor.counters.refused.value += 1
        raise status.internal(NOT_STORED)
    try:
        reply: Answer = await handler(exchange)
    except ConnectionError:
        auditor.record_later(_complete(trail, _CLOSED))
        raise
    except Exception as error:
        reply = refusals.refusal(exchange, error)
        found = refusals.status_of(error)
        if found is None:
            await auditor.record(trail.event(policy.PANIC, time.time(), _panic_status(error)))
            return reply
        response, object_json = _of_error(exchange, found, trail)
        size = reply.size
    except BaseException:  # cancelled: the client has disconnected, or the server ends
        auditor.record_later(_complete(trail, _CLOSED))
        raise
    else:
        response, object_json, size = _of_answer(exchange, reply, trail)
    if exchange.long_running:
        await auditor.record(trail.event(policy.STARTED, time.time(), response, object_json, size))
    if isinstance(reply, StreamReply):
        reply.stream.done.add_done_callback(lambda _: auditor.record_later(_complete(trail, response)))
        return reply
    await auditor.record(_complete(trail, response, object_json, size, timed=not exchange.long_running))
    return reply


def _complete(
    trail: Trail, response: Mapping[str, Any], object_json: Read | None = None, size: int = 0, *, timed: bool = False
) -> Event:
    now = time.time()
    took = now - trail.attributes.received
    if timed and took > AUDIT_LATENCY:
        trail.annotations[events.LATENCY] = events.go_duration(took)
    return trail.event(policy.COMPLETE, now, response, object_json, size)


def _panic_status(error: Exception) -> dict[str, Any]:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"APIServer panic'd: {error}",
        "reason": "InternalError",
        "code": 500,
    }


def _of_error(exchange: Exchange, error: StatusError, trail: Trail) -> tuple[Mapping[str, Any], Read | None]:
    """Return responseStatus and responseObject for an error.

    As in upstream, responseStatus has only the code if the client accepts no encoding of a Status.
    """
    if negotiation.for_status(exchange.accept) is None:
        return events.response_status(error.code), None
    document = error.document()
    response = events.response_status(error.code, document)
    if trail.verdict.level < policy.REQUEST_RESPONSE:
        return response, None
    return response, lambda: encode_in_order(document)


def _of_answer(exchange: Exchange, reply: Answer, trail: Trail) -> tuple[Mapping[str, Any], Read | None, int]:
    """Return responseStatus and responseObject for a response, and the object's size in bytes.

    responseObject is None if the body is not an object, or if the audit level does not include it; then the size is 0.
    """
    response = events.response_status(reply.code)
    if isinstance(reply, StreamReply) or not _is_object(exchange, reply):
        return response, None, 0
    info = exchange.info
    body = Body(reply.parts, reply.content_type.partition(";")[0], ("Content-Encoding", "gzip") in reply.headers)
    if info.verb == "delete" and reply.size < _LARGEST_STATUS:
        document = orjson.loads(body.json() or b"{}")
        if status.is_status(document):
            response = events.response_status(reply.code, document)
    if trail.verdict.level < policy.REQUEST_RESPONSE:
        return response, None, 0
    return response, body.bare_json if trail.verdict.omit_managed_fields else body.json, reply.size


_LARGEST_STATUS = 4096  # bytes; a Status is smaller, so a larger response to a delete is an object


def _is_object(exchange: Exchange, reply: Reply) -> bool:
    """Report whether a response is an object of the API or discovery: upstream logs only these."""
    info = exchange.info
    if reply.code in _BODYLESS or reply.content_type.partition(";")[0] not in negotiation.ENCODINGS:
        return False
    return info.is_resource or exchange.path.lstrip("/").partition("/")[0] in _DISCOVERY


_BODYLESS = frozenset((204, 304, 404, 406))


class Body(Struct, frozen=True):
    """The body of a response.

    ``kind`` is its media type. ``packed`` is true if the body is compressed with gzip. A thread decodes the body later.
    """

    parts: Sequence[bytes]
    kind: str
    packed: bool

    def json(self) -> bytes:
        """Return the body as JSON, from any encoding; empty if it cannot be decoded."""
        raw = b"".join(self.parts)
        try:
            if self.packed:
                raw = zlib.decompress(raw, 31)
            if self.kind == negotiation.YAML:
                return encode_in_order(decode_yaml(raw)[0])
            if self.kind == negotiation.PROTOBUF:
                return encode_in_order(protobuf.decode(raw))
            return orjson.dumps(orjson.loads(raw)) if raw.startswith(b"{\n") else raw.rstrip(b"\n")
        except (ValueError, zlib.error):
            return b""

    def bare_json(self) -> bytes:
        """Return the body as JSON without managedFields (AUD-002).

        A list is decoded part by part, so that the thread releases the GIL between parts.
        """
        if self.kind == negotiation.JSON and not self.packed and len(self.parts) > _ONE_OBJECT:
            rows = self.parts[0].startswith(_TABLE)
            try:
                return b"".join([_bare(part, rows) for part in self.parts]).rstrip(b"\n")
            except ValueError:  # the parts are not objects with commas between them
                pass
        raw = self.json()
        if b'"managedFields"' in raw:
            return encode_in_order(events.without_managed_fields(orjson.loads(raw)))
        return raw


_ONE_OBJECT = 2  # parts of the response for one object: the object and a newline
_TABLE = b'{"kind":"Table","apiVersion":"meta.k8s.io/'  # the beginning of the first part of a Table (http.lists)


def _bare(part: bytes, rows: bool) -> bytes:
    """Return objects or rows, joined by commas, without managedFields."""
    if b'"managedFields"' not in part:
        return part
    bare = events.row_without_managed_fields if rows else events.without_managed_fields
    return encode_in_order([bare(value) for value in orjson.loads(b"[%b]" % part)])[1:-1]
