"""One handler for each verb: it negotiates, decodes, calls the verb, and encodes the result."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from apiext import limits as server_limits
from apiext.catalog.served import Endpoint, ServedResource, ServedVersion
from apiext.catalog.stored import Unreadable
from apiext.config import RequestConfig
from apiext.documents import limits as documents_limits
from apiext.documents.document import Document
from apiext.documents.encoding import DecodeError, decode_json, decode_overflowing, decode_yaml, root_members
from apiext.documents.errors import OverflowingNumber
from apiext.http import eventstream, limits, lists, negotiation, protobuf, representations, streams, websocket
from apiext.http.exchange import Answer, Exchange, Reply, StreamReply
from apiext.http.memory import ITEMS, WHOLE, ListBudget, Memory, weight
from apiext.http.negotiation import JSON, PROTOBUF, YAML, Wanted
from apiext.http.operations import Operations
from apiext.http.representations import Subject
from apiext.http.responses import Compressor, SecondClock, accepts_gzip, stream_head
from apiext.http.sinks import GZIP_HEAD, GzipSink, WatchSink
from apiext.http.streams import Form
from apiext.meta import status
from apiext.meta.options import ListOptions, OptionsError, parse_int
from apiext.meta.requestinfo import truth
from apiext.meta.status import StatusError
from apiext.storage import limits as storage_limits
from apiext.storage.segments import Segments
from apiext.storage.store import Entry
from apiext.telemetry import Slot, Telemetry
from apiext.verbs import api
from apiext.verbs import limits as verbs_limits
from apiext.verbs.call import Body, Call, Outcome, Page
from apiext.verbs.errors import Undecodable
from apiext.verbs.identity import NO_KIND, no_object, unreadable_body

# Bytes that may wait in the transport of each watch. A watch may always have these bytes, even if its share of
# limits.UNREAD_OF_A_USER is smaller.
WATCH_LOW_WATER = 64 * 1024

_decoding = ThreadPoolExecutor(limits.DECODING_THREADS, "decoding")
# One thread: the YAML parser is written in Python, so that each further thread would slow down the event loop.
_decoding_yaml = ThreadPoolExecutor(1, "decoding-yaml")
_DEFINITIONS = "customresourcedefinitions"
_SOON = 0.001  # seconds
_IN_STREAM = frozenset((410, 504))  # errors that clients expect as the first event of a watch, as from kube-apiserver


class Target(Struct, frozen=True):
    """The resource and the endpoint of a URL.

    ``typed`` is true if the kind of the endpoint has a Go type and a protobuf message, ``tables`` if it has a Table.
    """

    resource: ServedResource
    served: ServedVersion
    endpoint: Endpoint
    # computed from the fields above
    typed: bool = False
    tables: bool = False

    def __post_init__(self) -> None:
        endpoint, model = self.endpoint, self.endpoint.model
        # upstream: the status of a definition has no columns
        # upstream: objects that are never stored, such as reviews, have no Table
        tables = not endpoint.review and (endpoint.name, self.served.names.resource) != ("status", _DEFINITIONS)
        force_setattr(self, "typed", model.typed and protobuf.has_message(model.api_version, model.kind))
        force_setattr(self, "tables", tables)


Decode = Callable[[bytes], tuple[Document, list[str]]]
"""Decodes a body; returns its document and warnings about duplicate keys. Raises DecodeError."""
VerbHandler = Callable[["Resources", Exchange, Target], Awaitable[Answer]]


class Resources:
    """Handles requests for objects and collections."""

    def __init__(
        self,
        operations: Operations,
        telemetry: Telemetry,
        clock: SecondClock,
        compressor: Compressor,
        min_watch_timeout: float = RequestConfig().min_watch_timeout,
        memory: Memory | None = None,
    ) -> None:
        self.operations = operations
        self.telemetry = telemetry
        self.clock = clock
        self.compressor = compressor
        self.min_watch_timeout = min_watch_timeout
        self.memory = memory or Memory()
        self.lists = ListBudget(self.memory)
        self.watches: Counter[str] = Counter()  # number of open watches of each user

    def answer(self, exchange: Exchange, target: Target) -> Awaitable[Answer]:
        """Handle a request for a verb that the endpoint supports."""
        if target.endpoint.connects:
            return _connect(self, exchange, target)
        return VERBS[exchange.info.verb](self, exchange, target)


async def _connect(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    await resources.operations.connect(_call(exchange, target))
    return Reply(200, "text/plain")


async def _get(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    subject = _subject(resources, exchange, target, validate_include=False)
    if truth(exchange.query.get("export")):
        raise status.bad_request("the export parameter, deprecated since v1.14, is no longer supported")
    call = _call(exchange, target)
    entry = await resources.operations.get(call)
    representations.check_include(subject.wanted, subject.include)
    if not subject.wanted.plain and entry.size > limits.UNWEIGHED:
        resources.memory.hold(exchange, await weight(entry.raw, JSON))
    try:
        return await _stored(subject, entry)
    except Unreadable as error:
        raise resources.operations.undecodable(call, entry, error) from error


async def _list(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    subject = _subject(resources, exchange, target, validate_include=False)
    call = _call(exchange, target)
    page = await resources.operations.list(call)
    representations.check_include(subject.wanted, subject.include)
    return await _page_reply(resources, exchange, subject, call, page)


async def _page_reply(resources: Resources, exchange: Exchange, subject: Subject, call: Call, page: Page) -> Reply:
    try:
        return await _page(resources, exchange, subject, page)
    except Unreadable as error:
        raise await resources.operations.undecodable_list(call, page, error) from error


async def _page(resources: Resources, exchange: Exchange, subject: Subject, page: Page) -> Reply:
    if subject.wanted.plain and page.segments is not None and not subject.served.model.typed:
        return await _segments(resources, exchange, subject, page.segments, page)
    with resources.lists.held(page):
        if page.convert is not None or page.count <= storage_limits.SEGMENT:
            return await lists.reply(subject, page)
        async with resources.lists.slots:
            return await lists.reply(subject, page)


async def _segments(
    resources: Resources, exchange: Exchange, subject: Subject, segments: Segments, page: Page
) -> Reply:
    """Return a list without selectors: the segments unchanged, or their cached gzip blocks."""
    if page.convert is None and segments.pending > storage_limits.SEGMENT:
        async with resources.lists.slots:  # limits the work: many clients may request the same list
            await segments.prepare()
    else:
        await segments.prepare(page.convert)
    head, tail = lists.brackets(subject.served, page)
    if segments.size <= limits.GZIP_FROM:
        return Reply(200, JSON, (head, *segments.parts, tail), shared=True)
    vary = ("Vary", "Accept-Encoding")
    if not accepts_gzip(exchange.headers.get("Accept-Encoding", "")):
        return Reply(200, JSON, (head, *segments.parts, tail), [vary], shared=True)
    size = segments.uncompressed
    if not resources.lists.fits(size):
        return Reply(200, JSON, (head, *segments.parts, tail), [vary], shared=True)
    parts = await resources.compressor.run(size, lambda: segments.gzip(head, tail))
    return Reply(200, JSON, parts, [vary, ("Content-Encoding", "gzip")], shared=True)


async def _watch(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    served, transport = target.served, _transport(exchange)
    negotiation.output(transport.accept, typed=target.typed)
    try:
        wanted = negotiation.stream(transport.accept, typed=target.typed)
        include = representations.check_include(wanted, exchange.value("includeObject"))
        subject = Subject(served, target.endpoint, wanted, include, resources.clock.now)
    except StatusError:
        # An error of the options comes before an error of the form (media type and representation).
        api.validate_watch(_call(exchange, target))  # upstream: options are validated before the form of a stream
        raise
    if wanted.kind == representations.PARTIAL_LIST:
        api.validate_watch(_call(exchange, target))
        # Events contain objects, so a client that requests the form of a list gets an empty response.
        # upstream: a watch of lists ends at once
        return Reply(200, streams.content_type(subject, transport.form(wanted)))
    form = transport.form(wanted)
    name = (served.names.group, served.names.version, served.names.resource)
    telemetry = resources.telemetry
    frames = streams.frames(subject, telemetry.watch_events.slot(*name), telemetry.watch_event_sizes.slot(*name), form)
    if exchange.method == "HEAD":
        api.validate_watch(_call(exchange, target))
        return Reply(200, streams.content_type(subject, form))
    assert exchange.labels is not None, "routes set the labels"
    running = telemetry.longrunning.slot(*exchange.labels)
    watches, user = resources.watches, exchange.user.name
    if watches[user] >= limits.WATCHES_OF_A_USER:
        raise status.too_many_requests(f"the user has {limits.WATCHES_OF_A_USER} watches open, and may have no more")
    head = transport.head(resources.clock.line(), exchange, streams.content_type(subject, form))
    unread = min(limits.WATCH_HIGH_WATER, limits.UNREAD_OF_A_USER // (watches[user] + 1))
    sink = exchange.connection.open_stream(
        head, streams.first_columns(subject), transport.sink, max(unread, WATCH_LOW_WATER)
    )
    running.value += 1
    watches[user] += 1
    sink.done.add_done_callback(lambda _: _ended(running, watches, user))
    try:
        sink.follow(await resources.operations.watch(_call(exchange, target), frames, sink))
    except StatusError as error:
        if error.code not in _IN_STREAM and not isinstance(error, Undecodable):
            sink.discard()
            raise
        sink.end(streams.error_frame(subject, error, form))
        return StreamReply(sink, transport.code)
    except BaseException:
        sink.discard()
        raise
    sink.start()
    seconds = _seconds(exchange) or resources.min_watch_timeout * (1.0 + random.random())  # RV-014
    bookmarks = truth(exchange.query.get("allowWatchBookmarks"))
    sink.end_after(seconds, bookmarks, asyncio.get_running_loop())
    return StreamReply(sink, transport.code)


def _ended(running: Slot, watches: Counter[str], user: str) -> None:
    """Remove a watch from the counters."""
    running.add(-1)
    watches[user] -= 1
    if not watches[user]:
        del watches[user]


class Transport(Struct, frozen=True):
    """The transport of a watch: chunks, server-sent events or a WebSocket.

    ``accept`` is the Accept header of the events. ``form`` returns the framing of events, ``head`` the head of the
    response.
    """

    accept: str
    form: Callable[[Wanted], Form | None] = lambda _: None
    head: Callable[[bytes, Exchange, str], bytes] = lambda date, exchange, content: stream_head(
        content, date, exchange.audit_id, exchange.warnings
    )
    sink: type[WatchSink] = WatchSink
    code: int = 200


_GZIPPED = Transport(
    "",
    head=lambda date, exchange, content: stream_head(content, date, exchange.audit_id, exchange.warnings, GZIP_HEAD),
    sink=GzipSink,
)
"""The transport of a watch that begins with the initial state, for a client that accepts gzip.

Upstream: the feature gate WatchListCompression.
"""


def _transport(exchange: Exchange) -> Transport:
    headers, query = exchange.headers, exchange.query
    if websocket.is_requested(exchange):
        websocket.check(headers)
        return Transport(
            exchange.accept,
            lambda wanted: websocket.form(wanted.encoding == PROTOBUF),
            lambda date, _, __: websocket.head(headers, date, exchange.audit_id),
            websocket.WebSocketSink,
            101,
        )
    if eventstream.is_wanted(exchange.accept):
        exchange.query = eventstream.query(exchange)
        return Transport(eventstream.accept(exchange.accept), lambda _: eventstream.form(query))
    if accepts_gzip(headers.get("Accept-Encoding", "")) and _lists_first(query):
        return replace(_GZIPPED, accept=exchange.accept)
    return Transport(exchange.accept)


def _lists_first(query: Mapping[str, Sequence[str]]) -> bool:
    """Report whether a watch begins with the initial state and its bookmark.

    Upstream: isListWatchRequest.
    """
    try:
        found = ListOptions.parse(query)
    except OptionsError:
        return False
    return found.begins_with_state and found.allow_watch_bookmarks


def _seconds(exchange: Exchange) -> float:
    """Return timeoutSeconds, at most MAX_WATCH_TIMEOUT.

    Return 0 if it is absent. As upstream, a negative time ends the watch after the first events.
    """
    text = exchange.value("timeoutSeconds")
    seconds = parse_int(text) if text else 0  # valid: the operation has parsed it
    return _SOON if seconds < 0 else min(float(seconds), limits.MAX_WATCH_TIMEOUT)


async def _create(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    subject, call = _subject(resources, exchange, target), _call(exchange, target)
    encoding = _encoding(exchange, target)
    raw = await _raw_body(resources, exchange)
    if call.query:
        # upstream: options are validated before the body is decoded
        api.write_options(call, "CreateOptions")
    await _weigh(resources, exchange, target, raw, encoding)
    return await _outcome(subject, await resources.operations.create(call, await _body(target, encoding, raw)))


async def _update(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    _check_name(exchange)
    subject, call = _subject(resources, exchange, target), _call(exchange, target)
    raw = await _raw_body(resources, exchange)
    if call.query:
        # upstream: options of a PUT are validated even before the media type of the body is validated
        api.write_options(call, "UpdateOptions")
    encoding = _encoding(exchange, target)
    await _weigh(resources, exchange, target, raw, encoding)
    body = await _body(target, encoding, raw)
    return await _outcome(subject, await resources.operations.update(call, body))


async def _patch(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    media_type = negotiation.patch_type(exchange.headers.get("Content-Type", ""), typed=target.served.model.typed)
    _check_name(exchange)
    subject = _subject(resources, exchange, target)
    raw = await _raw_body(resources, exchange)
    await _weigh(resources, exchange, target, raw, media_type)
    return await _outcome(subject, await resources.operations.patch(_call(exchange, target), media_type, raw))


async def _delete(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    subject = _subject(resources, exchange, target)
    options = await _delete_options(resources, exchange, target)
    return await _outcome(subject, await resources.operations.delete(_call(exchange, target), options))


async def _delete_collection(resources: Resources, exchange: Exchange, target: Target) -> Answer:
    subject, call = _subject(resources, exchange, target), _call(exchange, target)
    api.validate_list(call)  # upstream: the selection of objects is validated before the body is read
    options = await _delete_options(resources, exchange, target)
    page, wanted = await resources.operations.begin_collection_delete(call, options)
    reply = await _page_reply(resources, exchange, subject, call, page)
    names = [(entry.namespace, entry.name) for entry in page.listed()]
    del page  # so that each object is freed when it is deleted
    await resources.operations.delete_listed(call, names, wanted)
    return reply


VERBS: Mapping[str, VerbHandler] = {
    "get": _get,
    "list": _list,
    "watch": _watch,
    "create": _create,
    "update": _update,
    "patch": _patch,
    "delete": _delete,
    "deletecollection": _delete_collection,
}


# --- parts of all verbs ---


def _subject(resources: Resources, exchange: Exchange, target: Target, *, validate_include: bool = True) -> Subject:
    """Return the Subject of a request: the requested representation of an object.

    Gets and lists validate includeObject later, after the read of the store.
    """
    wanted = negotiation.output(exchange.sender.accept, typed=target.typed, tables=target.tables)
    if not wanted.pretty and negotiation.wants_pretty(exchange.query.get("pretty", ()), exchange.sender.agent):
        wanted = Wanted(wanted.encoding, wanted.kind, wanted.version, True)
    include = exchange.value("includeObject")
    if validate_include:
        representations.check_include(wanted, include)
    return Subject(target.served, target.endpoint, wanted, include, resources.clock.now)


def _call(exchange: Exchange, target: Target) -> Call:
    info = exchange.info
    return Call(
        info.verb,
        target.served,
        target.resource,
        target.endpoint,
        info.namespace,
        info.name,
        exchange.query,
        exchange.user,
        exchange.sender.manager,
        exchange.deadline,
        exchange.warnings,
        exchange.trail,
        client=exchange.connection,
    )


def _check_name(exchange: Exchange) -> None:
    if not exchange.info.name:
        raise status.bad_request("name must be provided")  # as kube-apiserver for PUT and PATCH of a collection


async def _outcome(subject: Subject, outcome: Outcome) -> Reply:
    if outcome.served is not None and outcome.served is not subject.served:
        endpoint = outcome.served.endpoints.get(subject.endpoint.name, subject.endpoint)
        subject = replace(subject, served=outcome.served, endpoint=endpoint)
    if outcome.entry is not None:
        return await _stored(subject, outcome.entry, outcome.code)
    assert outcome.document is not None
    if representations.is_small(outcome.document):
        return representations.document_reply(subject, outcome.document, outcome.code)
    return await asyncio.to_thread(representations.document_reply, subject, outcome.document, outcome.code)


async def _stored(subject: Subject, entry: Entry, code: int = 200) -> Reply:
    """Return a stored object in the requested representation; a thread converts a large object."""
    if subject.wanted.plain or len(entry.raw) < server_limits.WORK_INLINE:
        return representations.entry_reply(subject, entry, code)
    raw = representations.shown(subject, entry)  # not in the thread, since this may cache the JSON in the entry
    return await asyncio.to_thread(representations.shown_reply, subject, raw, code)


# --- bodies ---


async def _raw_body(resources: Resources, exchange: Exchange) -> bytes:
    # The body may be compressed by Content-Encoding, or by a Transfer-Encoding such as "gzip, chunked", which aiohttp
    # accepts.
    if exchange.sender.packed:
        raise status.unsupported_media_type(negotiation.ENCODINGS)
    connection = exchange.connection
    if (coming := connection.declared_size()) > limits.UNWEIGHED:
        resources.memory.hold(exchange, min(coming, documents_limits.MAX_BODY))
    raw = await connection.read_body(documents_limits.MAX_BODY)
    labels, info = exchange.labels, exchange.info
    assert labels is not None, "routes set the labels"
    verb = "delete_collection" if info.verb == "deletecollection" else info.verb
    resources.telemetry.body_sizes.observe(len(raw), labels.group, labels.resource, verb)
    return raw


async def _weigh(resources: Resources, exchange: Exchange, target: Target, raw: bytes, encoding: str) -> None:
    """Reserve the memory of a write.

    Raise a 429 or 413 before its body is decoded (http.memory).
    """
    info = exchange.info
    served = target.served
    need = 0
    if len(raw) > limits.UNWEIGHED:
        need = await weight(raw, encoding, ITEMS if served.model.owns_items() else WHOLE)
    if info.name and info.verb != "delete":  # not for a delete, so that objects that need much memory can be deleted
        entry = resources.operations.cached(served.names.stored_resource, info.namespace or "", info.name)
        if entry is not None and entry.size > limits.UNWEIGHED:
            need += await weight(entry.raw, JSON, ITEMS if served.model.owns_items() else WHOLE)
    if need or exchange.promised:
        resources.memory.hold(exchange, need)


def _encoding(exchange: Exchange, target: Target) -> str:
    """Return the encoding of the body of a POST or PUT; raise a 415 for an unsupported encoding."""
    encoding = negotiation.body_encoding(exchange.headers.get("Content-Type", ""))
    if encoding == PROTOBUF and not target.typed:
        raise status.unsupported_media_type((JSON, YAML))
    return encoding


async def _body(target: Target, encoding: str, raw: bytes) -> Body:
    """Return a decoded body; raise a 400 with upstream's text if it cannot be decoded (ERR-11)."""
    decode = BODIES[encoding]
    if encoding == PROTOBUF:  # an envelope without a kind gets the kind of the URL
        decode = partial(_from_protobuf, wanted=(target.endpoint.model.api_version, target.endpoint.model.kind))
    try:
        try:
            document, duplicates = await _decoded(encoding, raw, decode)
            beyond = ""
        # The body is decoded again without this error, to find the kind and the version.
        except OverflowingNumber as error:  # upstream: an error of the kind or version is reported before this error
            decode, beyond = _from_json_beyond, str(error)
            document, duplicates = await _decoded(encoding, raw, decode)
    except DecodeError as error:
        raise unreadable_body(target.endpoint.model, error, raw) from error
    return Body(document, duplicates, encoding, raw, decode, beyond)


async def _decoded(encoding: str, raw: bytes, decode: Decode) -> tuple[Document, list[str]]:
    if len(raw) < verbs_limits.DECODE_INLINE.get(encoding, documents_limits.MAX_BODY):
        return decode(raw)
    threads = _decoding_yaml if encoding == YAML else _decoding
    return await asyncio.get_running_loop().run_in_executor(threads, decode, raw)


def _from_json(raw: bytes) -> tuple[Document, list[str]]:
    try:
        document, duplicates = decode_json(raw)
    except OverflowingNumber:
        raise
    except DecodeError as error:
        raise DecodeError(f"{NO_KIND}{error}") from error
    return _object(document), duplicates


def _from_json_beyond(raw: bytes) -> tuple[Document, list[str]]:
    document, duplicates = decode_overflowing(raw)
    return _object(document), duplicates


def _from_yaml(raw: bytes) -> tuple[Document, list[str]]:
    document, duplicates = decode_yaml(raw)
    return _object(document), duplicates


def _from_protobuf(raw: bytes, wanted: tuple[str, str] = ("", "")) -> tuple[Document, list[str]]:
    return protobuf.decode(raw, wanted), []


def _object(document: Any) -> Document:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise DecodeError(no_object(document))
    return document


BODIES: Mapping[str, Decode] = {
    JSON: _from_json,
    YAML: _from_yaml,
    PROTOBUF: _from_protobuf,
}
"""Encoding of a body → function that decodes it."""


async def _delete_options(resources: Resources, exchange: Exchange, target: Target) -> Document | None:
    """Return the DeleteOptions of a body, None without a body (WRI-020)."""
    raw = await _raw_body(resources, exchange)
    if not raw:
        await _weigh(resources, exchange, target, raw, JSON)
        return None
    encoding = negotiation.body_encoding(exchange.headers.get("Content-Type", ""))
    await _weigh(resources, exchange, target, raw, encoding)
    try:
        if encoding == PROTOBUF:
            return protobuf.decode_delete_options(raw)
        document, duplicates = await _decoded(encoding, raw, BODIES[encoding])
    except DecodeError as error:
        raise status.bad_request(str(error)) from error
    if duplicates and encoding == JSON:
        api.validate_delete_fields(root_members(raw))
    # upstream converts YAML to sorted JSON first
    return document if encoding == JSON else dict(sorted(document.items()))
