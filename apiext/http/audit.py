"""What the audit log is told of a request: before it is judged, as its answer begins, and at its end (AUD-001)."""

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
from apiext.audit.events import Event, Read, Told, Trail
from apiext.auth.user import User
from apiext.documents.encoding import decode_yaml, encode_in_order
from apiext.http import limits, negotiation, protobuf, refusals
from apiext.http.exchange import Answer, Exchange, Handler, Headers, Reply, StreamReply
from apiext.meta import status
from apiext.meta.requestinfo import RequestInfo
from apiext.meta.status import StatusError

# Seconds of a request from which its audit event has its latency (upstream: the same).
AUDIT_LATENCY = 0.5

NOT_STORED = "failed to store audit event"
_CLOSED = {"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200}
_DISCOVERY = frozenset(("api", "apis"))
_OF_COLLECTIONS = frozenset(("list", "watch", "deletecollection"))
_URL = "".join(map(chr, range(0x21, 0x7F)))


def begin(auditor: Auditor, exchange: Exchange, user: User | None) -> Trail | None:
    """Return the trail of a request, None when nothing is told of it; ``user`` is None when nobody proved to be one."""
    info = exchange.info
    namespace = namespace_of(info)
    verdict = auditor.judge(info, namespace, user.name if user else None, user.groups if user else ())
    if verdict.level == policy.NONE:
        return None
    target, peer = exchange.connection.origin()
    headers = exchange.headers
    agent = headers.get("User-Agent", "")
    told = Told(
        exchange.audit_id,
        _uri(target),
        info.verb,
        events.user_info(user) if user else {},
        source_ips(headers, peer),
        agent if len(agent) <= limits.AUDIT_AGENT else f"{agent[: limits.AUDIT_AGENT]}...TRUNCATED",
        time.time(),
    )
    return Trail(verdict, told, _reference(info, namespace) if info.is_resource else {})


def namespace_of(info: RequestInfo) -> str:
    """Return the namespace of a request as policies and events know it."""
    if info.namespace is None and info.resource == "namespaces" and info.verb not in _OF_COLLECTIONS:
        return info.name  # upstream: a namespace is in itself
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
    if not target.startswith("/"):  # a proxy's form of a request line
        _, _, rest = target.partition("://")
        target = f"/{rest.partition('/')[2]}"
    if target.isascii():
        return target
    return quote(target.encode("utf-8", "surrogateescape"), safe=_URL)


# --- where a request comes from (upstream: SourceIPs) ---


def source_ips(headers: Headers, peer: str) -> list[str]:
    """Return the addresses that a request is said to have passed, and the one it came from."""
    forwarded, real = headers.get("X-Forwarded-For", ""), headers.get("X-Real-Ip", "")
    parts = (part.strip() for part in forwarded.split(",", limits.AUDIT_ADDRESSES)[: limits.AUDIT_ADDRESSES])
    found = [ip for part in parts if len(part) <= limits.ADDRESS_TEXT and (ip := _ip(part))]
    if real and len(real) <= limits.ADDRESS_TEXT and (ip := _ip(real)) and ip not in found:
        found.append(ip)
    remote = _ip(peer)
    if remote and (not found or found[-1] != remote):
        found.append(remote)
    return found


@lru_cache(limits.HEADERS_SEEN)
def _ip(text: str) -> str:
    """Return an address as it is written, empty for what is none."""
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
            return ip_address(".".join(str(int(part)) for part in parts))  # upstream: leading zeros are no octal
        except ValueError:
            return None
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


# --- the stages ---


async def refused(auditor: Auditor, exchange: Exchange, error: StatusError) -> None:
    """Tell that nobody proved to be somebody; upstream: as the start of an answer, and nothing else."""
    trail = begin(auditor, exchange, None)
    if trail is not None:
        told, shown = _of_error(exchange, error, trail)
        await auditor.tell(trail.event(policy.STARTED, time.time(), told, shown))


async def follow(auditor: Auditor, handler: Handler, exchange: Exchange) -> Answer:
    """Answer a request that has a trail, and tell its stages; what is raised is made an answer here."""
    trail = exchange.trail
    assert trail is not None
    if not await auditor.tell(trail.event(policy.RECEIVED, 0.0)):
        auditor.counters.refused.value += 1
        raise status.internal(NOT_STORED)
    try:
        reply: Answer = await handler(exchange)
    except ConnectionError:
        auditor.tell_later(_complete(trail, _CLOSED))
        raise
    except Exception as error:
        reply = refusals.refusal(exchange, error)
        found = refusals.known(error)
        if found is None:
            await auditor.tell(trail.event(policy.PANIC, time.time(), _panic(error)))
            return reply
        told, shown = _of_error(exchange, found, trail)
        size = reply.size
    except BaseException:  # cancelled: the client is gone, or the server ends
        auditor.tell_later(_complete(trail, _CLOSED))
        raise
    else:
        told, shown, size = _of_answer(exchange, reply, trail)
    if exchange.long_running:
        await auditor.tell(trail.event(policy.STARTED, time.time(), told, shown, size))
    if isinstance(reply, StreamReply):
        reply.stream.done.add_done_callback(lambda _: auditor.tell_later(_complete(trail, told)))
        return reply
    await auditor.tell(_complete(trail, told, shown, size, timed=not exchange.long_running))
    return reply


def _complete(
    trail: Trail, told: Mapping[str, Any], shown: Read | None = None, size: int = 0, *, timed: bool = False
) -> Event:
    now = time.time()
    took = now - trail.told.received
    if timed and took > AUDIT_LATENCY:
        trail.annotations[events.LATENCY] = events.go_duration(took)
    return trail.event(policy.COMPLETE, now, told, shown, size)


def _panic(error: Exception) -> dict[str, Any]:
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"APIServer panic'd: {error}",
        "reason": "InternalError",
        "code": 500,
    }


def _of_error(exchange: Exchange, error: StatusError, trail: Trail) -> tuple[Mapping[str, Any], Read | None]:
    """Return what is told of an error; upstream: of one in a form that the client did not ask for, the code."""
    if negotiation.for_status(exchange.accept) is None:
        return events.response_status(error.code), None
    document = error.document()
    told = events.response_status(error.code, document)
    if trail.verdict.level < policy.REQUEST_RESPONSE:
        return told, None
    return told, lambda: encode_in_order(document)


def _of_answer(exchange: Exchange, reply: Answer, trail: Trail) -> tuple[Mapping[str, Any], Read | None, int]:
    """Return what is told of an answer: its status, its object if it is one, and the bytes that this holds."""
    told = events.response_status(reply.code)
    if isinstance(reply, StreamReply) or not _is_object(exchange, reply):
        return told, None, 0
    info = exchange.info
    body = Body(reply.parts, reply.content_type.partition(";")[0], ("Content-Encoding", "gzip") in reply.headers)
    if info.verb == "delete" and reply.size < _MOST_OF_A_STATUS:
        document = orjson.loads(body.json() or b"{}")
        if status.is_status(document):
            told = events.response_status(reply.code, document)
    if trail.verdict.level < policy.REQUEST_RESPONSE:
        return told, None, 0
    return told, body.bare_json if trail.verdict.omit_managed_fields else body.json, reply.size


_MOST_OF_A_STATUS = 4096  # bytes: what a delete answers is one, or an object


def _is_object(exchange: Exchange, reply: Reply) -> bool:
    """Whether an answer is an object of the API: upstream logs those, and discovery; not what other handlers write."""
    info = exchange.info
    if reply.code in _BODYLESS or reply.content_type.partition(";")[0] not in negotiation.ENCODINGS:
        return False
    return info.is_resource or exchange.path.lstrip("/").partition("/")[0] in _DISCOVERY


_BODYLESS = frozenset((204, 304, 404, 406))


class Body(Struct, frozen=True):
    """The body of an answer as it is before anything more is done with it: it is looked at later, in a thread."""

    parts: Sequence[bytes]
    kind: str
    packed: bool

    def json(self) -> bytes:
        """Return it as JSON, in whatever form it is sent; empty when it cannot be read."""
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
        """Return the same without managedFields (AUD-002); of a list part by part, so that others have their turn."""
        if self.kind == negotiation.JSON and not self.packed and len(self.parts) > _ONE_OBJECT:
            rows = self.parts[0].startswith(_TABLE)
            try:
                return b"".join([_bare(part, rows) for part in self.parts]).rstrip(b"\n")
            except ValueError:  # these parts are not objects with commas between them
                pass
        raw = self.json()
        if b'"managedFields"' in raw:
            return encode_in_order(events.without_managed_fields(orjson.loads(raw)))
        return raw


_ONE_OBJECT = 2  # parts of an answer that is no list: the object and a newline
_TABLE = b'{"kind":"Table","apiVersion":"meta.k8s.io/'  # how the first part of one begins (http.lists)


def _bare(part: bytes, rows: bool) -> bytes:
    """Return objects or rows with commas between them without managedFields, or what has none as it is."""
    if b'"managedFields"' not in part:
        return part
    bare = events.row_without_managed_fields if rows else events.without_managed_fields
    return encode_in_order([bare(value) for value in orjson.loads(b"[%b]" % part)])[1:-1]
