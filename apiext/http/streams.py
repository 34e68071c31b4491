"""Watch streams: the frames of each representation, encoded once for each group of watchers.

See RV-010…014. A frame is the bytes of one event in a response. The pump (storage/pump.py) writes frames to the
watchers.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence

import orjson
from msgspec import Struct

from apiext import limits as server_limits
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode
from apiext.http import negotiation, protobuf
from apiext.http.representations import INITIAL_EVENTS_END, Subject, definitions, partial, row, table
from apiext.http.sinks import chunk
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.storage import limits as storage_limits
from apiext.storage.store import Entry, Viewer
from apiext.telemetry import Distribution, Slot

Encode = Callable[[Entry], bytes]


class EncodedAhead:
    """Encodes large objects of watch events in a thread, before the pump creates their frames.

    See storage.staging.Stage. ``inline`` encodes an object on the event loop. ``in_thread`` does the same in a thread,
    and changes no entry.
    """

    __slots__ = ("_encoded", "_in_thread", "_inline")

    def __init__(self, inline: Encode, in_thread: Encode) -> None:
        self._inline = inline
        self._in_thread = in_thread
        self._encoded: dict[Entry, bytes] = {}

    def take(self, entry: Entry) -> bytes:
        """Return the encoded object of an event; encode it now if the cache lacks it.

        The object is deleted from the cache, since each frame is created once.
        """
        encoded = self._encoded.pop(entry, None)
        return encoded if encoded is not None else self._inline(entry)

    def may_select(self, entry: Entry) -> bool:
        """Return True: any object may be selected."""
        return True

    def now(self, entry: Entry) -> Entry | None:
        """Return the entry if it is small or already encoded, else None."""
        return entry if len(entry.raw) < server_limits.WORK_INLINE or entry in self._encoded else None

    def prepare(self, entries: Sequence[Entry], then: Callable[[Sequence[Entry] | bytes], None]) -> None:
        """Encode the large objects in a thread, then call ``then`` with all entries.

        If the encoding fails, ``take`` encodes the objects again, and raises the error.
        """
        large = [entry for entry in entries if self.now(entry) is None]

        def done(work: asyncio.Future[list[bytes]]) -> None:
            if work.cancelled():  # the server stops
                return
            if work.exception() is None:
                self._encoded.update(zip(large, work.result(), strict=True))
            # ``take`` removes an object, but it is never called for an object that no watcher has selected.
            while len(self._encoded) > 2 * storage_limits.SEGMENT:
                del self._encoded[next(iter(self._encoded))]
            then(entries)

        asyncio.get_running_loop().run_in_executor(None, self._all, large).add_done_callback(done)

    def on_idle(self) -> None:
        """Clear the cache: a row of a Table contains the ages at the time of its encoding."""
        self._encoded.clear()

    def _all(self, entries: Sequence[Entry]) -> list[bytes]:
        return [self._in_thread(entry) for entry in entries]


_OPEN = {
    kind: b'{"type":"%b","object":' % kind.encode() for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


def json_frame(kind: str, view: bytes) -> bytes:
    """Return one event as a JSON line in a chunk."""
    head = _OPEN[kind]
    return b"%x\r\n%b%b}\n\r\n" % (len(head) + len(view) + 2, head, view)


class Form(Struct, frozen=True):
    """The framing of events for WebSockets and server-sent events.

    The usual framing is a line of JSON or a protobuf message in a chunk. Each function gets the line without its end,
    or the message without its length, and returns the bytes to send: ``event(data, revision)``, ``initial`` for initial
    events, ``bookmark(data, revision, end of initial events)``, ``error(data)``. ``key`` is equal for equal forms;
    ``content_type`` is empty for the usual content type.
    """

    key: Hashable
    event: Callable[[bytes, int], bytes]
    initial: Callable[[bytes, int], bytes]
    bookmark: Callable[[bytes, int, bool], bytes]
    error: Callable[[bytes], bytes]
    content_type: str


class Frames(Struct):
    """The frames of one representation of one resource version; equal keys mean equal bytes.

    ``first(entry)`` returns the frame of an initial event. ``first`` is None if an initial event has the same
    frame as a later ADDED event. ``stage`` encodes large objects in advance; it is None if stored bytes are mostly sent
    unchanged. ``second()`` is the second of the wall clock; ``second`` is None for representations without ages (only
    Tables contain ages).
    """

    key: Hashable
    frame: Callable[[str, Entry], bytes]
    bookmark: Callable[[int, bool], bytes]
    expired: Callable[[int, int], bytes]
    failed: Callable[[StatusError], bytes]
    first: Callable[[Entry], bytes] | None = None
    stage: EncodedAhead | None = None
    second: Callable[[], int] | None = None


def frames(subject: Subject, events: Slot, sizes: Distribution, form: Form | None = None) -> Frames:
    """Return the frames of a representation.

    ``events`` and ``sizes`` count objects, not bookmarks and errors.
    """
    ahead = (
        EncodedAhead(_object(subject, Entry.view), _object(subject, Entry.uncached_view))
        if subject.served.model.typed
        else None
    )
    view_of = ahead.take if ahead is not None else _object(subject, _view)
    write = _writer(subject, view_of) if form is None else _formed(subject, view_of, form.event)
    first = None if form is None else _formed(subject, view_of, form.initial)
    wanted = subject.wanted

    def frame(event: str, entry: Entry) -> bytes:
        made = write(event, entry)
        events.value += 1
        sizes.observe(len(made))
        return made

    def initial(entry: Entry) -> bytes:
        assert first is not None
        made = first("ADDED", entry)
        events.value += 1
        sizes.observe(len(made))
        return made

    def bookmark(revision: int, end_of_initial: bool) -> bytes:
        document = _transformed(subject, _bookmark(subject, revision, end_of_initial))
        if form is None:
            return _document_frame(subject, "BOOKMARK", document)
        return form.bookmark(_data(subject, "BOOKMARK", document), revision, end_of_initial)

    def expired(requested: int, oldest: int) -> bytes:
        return error_frame(subject, status.too_old_resource_version(requested, oldest), form)

    def failed(error: StatusError) -> bytes:
        return error_frame(subject, error, form)

    key = (wanted.kind, wanted.version, wanted.encoding, subject.include, form.key if form is not None else "")
    second = (lambda: int(subject.clock())) if subject.shows_ages else None
    return Frames(key, frame, bookmark, expired, failed, initial if form is not None else None, ahead, second)


def error_frame(subject: Subject, error: StatusError, form: Form | None = None) -> bytes:
    """Return an ERROR event, which contains a Status in every representation."""
    if form is not None:
        return form.error(_data(subject, "ERROR", error.document()))
    return _document_frame(subject, "ERROR", error.document())


def _view(entry: Entry, viewer: Viewer) -> bytes:
    return entry.view(viewer)  # not Entry.view(entry, viewer): a converted entry overrides the method


def _object(subject: Subject, view_of: Callable[[Entry, Viewer], bytes]) -> Callable[[Entry], bytes]:
    """Return a function that encodes an object in the representation.

    ``view_of`` returns the JSON of an entry.
    """
    viewer, encoding = subject.served.codec.view, subject.wanted.encoding
    if encoding == negotiation.JSON and not subject.wanted.kind:
        return lambda entry: view_of(entry, viewer)
    write = protobuf.encode if encoding == negotiation.PROTOBUF else encode
    return lambda entry: write(_transformed(subject, orjson.loads(view_of(entry, viewer))))


def _writer(subject: Subject, view_of: Callable[[Entry], bytes]) -> Callable[[str, Entry], bytes]:
    if subject.wanted.encoding == negotiation.PROTOBUF:
        return lambda event, entry: chunk(protobuf.encode_event(event, view_of(entry)))
    return lambda event, entry: json_frame(event, view_of(entry))


def _formed(
    subject: Subject, view_of: Callable[[Entry], bytes], form: Callable[[bytes, int], bytes]
) -> Callable[[str, Entry], bytes]:
    if subject.wanted.encoding == negotiation.PROTOBUF:
        return lambda event, entry: form(
            protobuf.encode_event(event, view_of(entry))[protobuf.LENGTH :], entry.revision
        )
    return lambda event, entry: form(b"%b%b}" % (_OPEN[event], view_of(entry)), entry.revision)


def _data(subject: Subject, event: str, document: View) -> bytes:
    if subject.wanted.encoding == negotiation.PROTOBUF:
        return protobuf.encode_event(event, protobuf.encode(document))[protobuf.LENGTH :]
    return b"%b%b}" % (_OPEN[event], encode(document))


def _transformed(subject: Subject, document: View) -> View:
    kind, version = subject.wanted.kind, subject.wanted.version
    if not kind:
        return document
    if kind != "Table":
        return partial(version, document)
    revision = document["metadata"].get("resourceVersion")
    found = table(subject, [row(subject, document, subject.ages())], {"resourceVersion": revision})
    # watchers share frames: each sink inserts the columns into its first event
    return found | {"columnDefinitions": None}


def _document_frame(subject: Subject, event: str, document: View) -> bytes:
    if subject.wanted.encoding == negotiation.PROTOBUF:
        return chunk(protobuf.encode_event(event, protobuf.encode(document)))
    return json_frame(event, encode(document))


def _bookmark(subject: Subject, revision: int, end_of_initial: bool) -> Document:
    metadata: Document = {"resourceVersion": str(revision)}
    if end_of_initial:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return {
        "apiVersion": subject.served.names.api_version,
        "kind": subject.served.names.kind,
        "metadata": metadata,
        **_ZERO.get(subject.served.names.kind if subject.served.model.typed else "", {}),
    }


_NO_NAMES = {"plural": "", "kind": ""}
_ZERO: Mapping[str, View] = {  # kind → fields besides metadata in bookmarks of Go types, as in kube-apiserver
    "CustomResourceDefinition": {
        "spec": {"group": "", "names": _NO_NAMES, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": _NO_NAMES, "storedVersions": None},
    },
    "Namespace": {"spec": {}, "status": {}},
}


def content_type(subject: Subject, form: Form | None = None) -> str:
    """Return the Content-Type of a stream."""
    if form is not None and form.content_type:
        return form.content_type
    if subject.wanted.encoding == negotiation.PROTOBUF:
        return f"{negotiation.PROTOBUF};stream=watch"
    return negotiation.JSON


def first_columns(subject: Subject) -> bytes:
    """Return the column definitions for the first event of a Table stream.

    The result is empty for other streams. See TAB-005. The sink replaces ``"columnDefinitions":null`` by these bytes
    (``sinks.NO_COLUMNS``).
    """
    if subject.wanted.kind != "Table":
        return b""
    return b'"columnDefinitions":' + orjson.dumps(definitions(subject))
