"""Encode responses: head, Date header, warnings, gzip, a Status in the client's encoding."""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from http import HTTPStatus
from typing import Any

import orjson
from isal import isal_zlib

from apiext.documents.encoding import encode_yaml
from apiext.http import limits, negotiation, protobuf
from apiext.http.exchange import Exchange, Reply
from apiext.meta.status import StatusError

REASONS = {code.value: f"HTTP/1.1 {code.value} {code.phrase}\r\n".encode() for code in HTTPStatus}
TEXT = "text/plain; charset=utf-8"
NOT_FOUND_TEXT = b"404 page not found\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_CACHE = b"Cache-Control: no-cache, private\r\n"
_JSON = negotiation.JSON
_USUAL = {
    code: b"HTTP/1.1 %d %b\r\n%bContent-Type: application/json\r\n" % (code, HTTPStatus(code).phrase.encode(), _CACHE)
    for code in (200, 201, 404, 409)
}
_BODYLESS = frozenset((204, 304))
# matches a Host header that a response may repeat
is_host = re.compile(r"[0-9A-Za-z!$%&'()*+,\-.:;=\[\]_~]*").fullmatch


class SecondClock:
    """The Date header of the current second, formatted once per second.

    ``now`` is the server's wall clock.
    """

    __slots__ = ("_line", "_until", "now")

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self._until = 0.0
        self._line = b""

    def line(self) -> bytes:
        """Return ``Date: …`` with its line end."""
        now = self.now()
        if now >= self._until or now < self._until - 1:
            second = int(now)
            self._until = second + 1.0
            self._line = f"Date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line


def head(
    reply: Reply, date: bytes, audit_id: str, *, close: bool, length: int, version: tuple[int, int] = (1, 1)
) -> bytes:
    """Return status line and headers of a complete response, with the empty line.

    ``version`` is that of the request. By default, a connection closes after a response of HTTP/1.0, and stays open
    after one of HTTP/1.1. The head has a header Connection only if the connection does otherwise.
    """
    if reply.content_type == _JSON and not reply.headers and not close and version >= (1, 1):
        start = _USUAL.get(reply.code)
        if start is not None:
            return b"%b%bAudit-Id: %b\r\nContent-Length: %d\r\n\r\n" % (start, date, audit_id.encode(), length)
    first, old = REASONS.get(reply.code) or f"HTTP/1.1 {reply.code} Unknown\r\n".encode(), version < (1, 1)
    lines = [first.replace(b"HTTP/1.1", b"HTTP/1.0", 1) if old else first]
    lines.append(f"Audit-Id: {audit_id}\r\n".encode("latin-1", "replace"))
    if not any(name == "Cache-Control" for name, _ in reply.headers):
        lines.append(_CACHE)
    if reply.content_type:
        lines.append(f"Content-Type: {reply.content_type}\r\n".encode())
    lines.append(date)
    lines += [f"{name}: {value}\r\n".encode("utf-8", "replace") for name, value in reply.headers]
    if close != old:
        lines.append(b"Connection: close\r\n" if close else b"Connection: keep-alive\r\n")
    lines.append(b"\r\n" if reply.code in _BODYLESS else b"Content-Length: %d\r\n\r\n" % length)
    return b"".join(lines)


def stream_head(content_type: str, date: bytes, audit_id: str, warnings: Sequence[str], more: bytes = b"") -> bytes:
    """Return the head of a chunked response; ``more`` are further header lines."""
    extra = more.decode() + "".join(f"Warning: {value}\r\n" for value in warning_values(warnings))
    text = f"Audit-Id: {audit_id}\r\nContent-Type: {content_type}\r\n{extra}Transfer-Encoding: chunked\r\n\r\n"
    return REASONS[200] + _CACHE + date + text.encode("utf-8", "replace")


# --- plain text responses ---


def text(code: int, body: bytes) -> Reply:
    """Return a plain text response."""
    return Reply(code, TEXT, (body,), [("X-Content-Type-Options", "nosniff")])


def bad_host() -> Reply:
    """Return the response to a request with a malformed Host header."""
    return text(400, b"400 Bad Request: malformed Host header")


def page_not_found() -> Reply:
    """Return the 404 of an unknown path (ERR-03)."""
    return text(404, NOT_FOUND_TEXT)


def status_reply(exchange: Exchange, error: StatusError) -> Reply:
    """Return the response with a StatusError in the client's encoding (ERR-01, NEG-007).

    The Status is indented JSON if the client accepts none of the encodings.
    """
    document = error.document()
    wanted = negotiation.for_status(exchange.accept)
    if wanted is None:
        reply = Reply(error.code, negotiation.JSON, (orjson.dumps(document, option=orjson.OPT_INDENT_2),))
    else:
        pretty = wanted.pretty or negotiation.wants_pretty(
            exchange.query.get("pretty", ()), exchange.headers.get("User-Agent", "")
        )
        reply = Reply(error.code, wanted.encoding, (encoded(document, wanted.encoding, pretty),))
    if error.retry_after > 0:
        reply.headers.append(("Retry-After", str(error.retry_after)))
    if error.guarded:
        reply.headers.append(("X-Content-Type-Options", "nosniff"))
    return reply


def encoded(document: Any, encoding: str, pretty: bool = False) -> bytes:
    """Encode a document as YAML, protobuf or JSON (NEG-005).

    JSON is indented if ``pretty`` is true, else it ends with a newline.
    """
    if encoding == negotiation.YAML:
        return encode_yaml(document)
    if encoding == negotiation.PROTOBUF:
        return protobuf.encode(document)
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 if pretty else orjson.OPT_APPEND_NEWLINE)


# --- warnings (WRI-014) ---

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def warning_values(texts: Sequence[str]) -> list[str]:
    """Return the values of the Warning headers, each text once.

    If all texts together have more than limits.MAX_WARNINGS characters, truncate each text to limits.MAX_WARNING
    characters. Omit the rest once the truncated texts reach limits.MAX_WARNINGS characters. If more than
    limits.WARNING_LINES texts remain, the last value states the number of omitted texts. As in upstream, texts with
    control characters are omitted.
    """
    shown = distinct = [text for text in dict.fromkeys(texts) if text and not _CONTROL.search(text)]
    if sum(map(len, distinct)) > limits.MAX_WARNINGS:
        shown = _cut(distinct)
    if len(shown) > limits.WARNING_LINES:
        shown = shown[: limits.WARNING_LINES - 1]
        shown.append(f"{len(distinct) - len(shown)} more warnings are not shown")
    return ["299 - " + _quoted(text) for text in shown]


def _cut(texts: Sequence[str]) -> list[str]:
    """Truncate each text, and omit texts beyond the limit.

    The limit is reached once the truncated texts have limits.MAX_WARNINGS characters.
    """
    cut: list[str] = []
    whole = total = 0
    for text in texts:
        if whole > limits.MAX_WARNINGS and total >= limits.MAX_WARNINGS:
            break
        cut.append(text[: limits.MAX_WARNING])
        whole += len(text)
        total += len(cut[-1])
    return cut


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


# --- gzip (RV-021) ---


def accepts_gzip(header: str) -> bool:
    """Report whether an Accept-Encoding header names gzip without q=0."""
    for part in header.split(","):
        name, _, parameters = part.partition(";")
        if name.strip().lower() == "gzip":
            return parameters.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def gzip(parts: Sequence[bytes]) -> list[bytes]:
    """Compress the parts to one gzip member, at level 1."""
    deflate = isal_zlib.compressobj(1, isal_zlib.DEFLATED, 31)
    found = [piece for part in parts if (piece := deflate.compress(part))]
    found.append(deflate.flush())
    return found


class Compressor:
    """Compresses large responses for clients that accept gzip.

    Responses over limits.GZIP_INLINE bytes are compressed in a thread.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None

    async def apply(self, exchange: Exchange, reply: Reply) -> None:
        """Compress the reply in place if it is large and the client accepts gzip."""
        if not reply.compressible:
            return
        size = reply.size
        if size <= limits.GZIP_FROM:
            return
        reply.headers.append(("Vary", "Accept-Encoding"))
        if not accepts_gzip(exchange.headers.get("Accept-Encoding", "")):
            return
        reply.parts = await self.run(size, lambda: gzip(reply.parts))
        reply.headers.append(("Content-Encoding", "gzip"))

    async def run(self, size: int, work: Callable[[], list[bytes]]) -> list[bytes]:
        """Compress ``size`` bytes, on the event loop if small, else in the thread."""
        if size <= limits.GZIP_INLINE:
            return work()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "gzip")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Stop the thread."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
