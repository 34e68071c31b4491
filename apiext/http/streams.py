"""A watch on the wire: the frames of each representation, made once per group of watchers (RV-010…014)."""

from collections.abc import Callable, Hashable, Mapping

import orjson
from msgspec import Struct

from apiext.documents.document import Document, View
from apiext.documents.encoding import encode
from apiext.http import negotiation, protobuf
from apiext.http.ahead import Ahead
from apiext.http.representations import INITIAL_EVENTS_END, Subject, definitions, partial, row, table
from apiext.http.sinks import chunk
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.storage.store import Entry, Viewer
from apiext.telemetry import Distribution, Slot

_OPEN = {
    kind: b'{"type":"%b","object":' % kind.encode() for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR")
}


def json_frame(kind: str, view: bytes) -> bytes:
    """Return one event as a JSON line in a chunk."""
    head = _OPEN[kind]
    return b"%x\r\n%b%b}\n\r\n" % (len(head) + len(view) + 2, head, view)


class Form(Struct, frozen=True):
    """How events go out where it is not the usual way, one line of JSON or one protobuf message in a chunk.

    Each function gets that line (without its end) or message (without its length), and makes bytes of the wire.
    ``event(data, revision)``, ``initial`` for what was there at the start, ``bookmark(data, revision, end of those)``,
    ``error(data)``. ``key`` is equal for equal forms, ``content_type`` empty when it is the usual one.
    """

    key: Hashable
    event: Callable[[bytes, int], bytes]
    initial: Callable[[bytes, int], bytes]
    bookmark: Callable[[bytes, int, bool], bytes]
    error: Callable[[bytes], bytes]
    content_type: str


class Frames(Struct):
    """How one representation of one resource version looks on the wire; equal keys mean equal bytes.

    ``first(entry)`` makes the frames of initial events where they are unlike others. ``stage`` makes large objects
    ready for their frames, None where they are mostly sent as they are stored. ``second()`` is that of the wall clock,
    None where no ages are shown.
    """

    key: Hashable
    frame: Callable[[str, Entry], bytes]
    bookmark: Callable[[int, bool], bytes]
    expired: Callable[[int, int], bytes]
    failed: Callable[[StatusError], bytes]
    first: Callable[[Entry], bytes] | None = None
    stage: Ahead | None = None
    second: Callable[[], int] | None = None


def frames(subject: Subject, events: Slot, sizes: Distribution, form: Form | None = None) -> Frames:
    """Return the frames of a representation; ``events`` and ``sizes`` count each frame that is made."""
    ahead = Ahead(_object(subject, Entry.view), _object(subject, Entry.shown)) if subject.served.model.typed else None
    look = ahead.written if ahead is not None else _object(subject, _view)
    write = _writer(subject, look) if form is None else _formed(subject, look, form.event)
    first = None if form is None else _formed(subject, look, form.initial)
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

    def expired(asked: int, oldest: int) -> bytes:
        return error_frame(subject, status.too_old_resource_version(asked, oldest), form)

    def failed(error: StatusError) -> bytes:
        return error_frame(subject, error, form)

    key = (wanted.kind, wanted.version, wanted.encoding, subject.include, form.key if form is not None else "")
    second = (lambda: int(subject.clock())) if subject.tells_ages else None
    return Frames(key, frame, bookmark, expired, failed, initial if form is not None else None, ahead, second)


def error_frame(subject: Subject, error: StatusError, form: Form | None = None) -> bytes:
    """Return an ERROR event; it carries the Status as it is, whatever was asked for."""
    if form is not None:
        return form.error(_data(subject, "ERROR", error.document()))
    return _document_frame(subject, "ERROR", error.document())


def _view(entry: Entry, viewer: Viewer) -> bytes:
    return entry.view(viewer)  # converted entries have a way of their own


def _object(subject: Subject, look: Callable[[Entry, Viewer], bytes]) -> Callable[[Entry], bytes]:
    """Return what writes an object as the representation shows it; ``look`` returns the view of an entry."""
    viewer, encoding = subject.served.codec.view, subject.wanted.encoding
    if encoding == negotiation.JSON and not subject.wanted.kind:
        return lambda entry: look(entry, viewer)
    write = protobuf.encode if encoding == negotiation.PROTOBUF else encode
    return lambda entry: write(_transformed(subject, orjson.loads(look(entry, viewer))))


def _writer(subject: Subject, look: Callable[[Entry], bytes]) -> Callable[[str, Entry], bytes]:
    if subject.wanted.encoding == negotiation.PROTOBUF:
        return lambda event, entry: chunk(protobuf.encode_event(event, look(entry)))
    return lambda event, entry: json_frame(event, look(entry))


def _formed(
    subject: Subject, look: Callable[[Entry], bytes], form: Callable[[bytes, int], bytes]
) -> Callable[[str, Entry], bytes]:
    if subject.wanted.encoding == negotiation.PROTOBUF:
        return lambda event, entry: form(protobuf.encode_event(event, look(entry))[protobuf.LENGTH :], entry.revision)
    return lambda event, entry: form(b"%b%b}" % (_OPEN[event], look(entry)), entry.revision)


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
    return found | {"columnDefinitions": None}  # shared frames: each sink puts them into its first event


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
_ZERO: Mapping[str, View] = {  # what bookmarks of Go types say beside their metadata (recorded)
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
    """Return what replaces NO_COLUMNS in the first event of a Table stream; empty for other streams (TAB-005)."""
    if subject.wanted.kind != "Table":
        return b""
    return b'"columnDefinitions":' + orjson.dumps(definitions(subject))
