"""Encode lists item by item, and yield to the event loop between items (SRV-018).

The encoded items are joined in pieces of several items. The view of an entry is the JSON of the object in the requested
version; its keys are sorted.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from operator import methodcaller
from time import perf_counter
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from apiext import limits as server_limits
from apiext.catalog.columns import OF_METADATA, Searching
from apiext.catalog.served import ServedVersion
from apiext.documents import limits as documents_limits
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode, encode_in_order, encode_yaml, pretty
from apiext.http import limits, protobuf
from apiext.http.exchange import Reply
from apiext.http.negotiation import JSON, PROTOBUF, YAML
from apiext.http.representations import (
    OF_LISTS,
    PARTIAL,
    PARTIAL_LIST,
    Subject,
    definitions,
    no_rows,
    partial,
    row,
    written,
)
from apiext.meta.time import Ages
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits as storage_limits
from apiext.storage.segments import Segments
from apiext.storage.store import Entry
from apiext.verbs.call import Page

MakeItem = Callable[[Entry], bytes | Awaitable[bytes]]
"""Encodes one object of a list; returns an awaitable if a thread encodes it."""
MakeRow = Callable[[bytes, int], bytes]
MakeFrame = Callable[[Subject, Page], "Frame"]
Maker = Callable[[Subject, Ages], MakeItem]
"""Returns the encoder of a list's objects; it computes all ages from one time."""
_WITHOUT_FLOATS = frozenset((str, int, bool, type(None)))  # types of cells that orjson encodes as upstream does


class Frame(NamedTuple):
    """The bytes of a list before, between and after its items.

    ``empty`` are the bytes of a list without items.
    """

    head: bytes
    separator: bytes
    tail: bytes
    empty: bytes


async def reply(subject: Subject, page: Page) -> Reply:
    """Return a page in the requested representation, uncompressed."""
    wanted = subject.wanted
    if wanted.kind == PARTIAL:
        OF_LISTS[PARTIAL](subject, (), {})  # raises a 406, since a list is not a single object
    make = ROWS.get((wanted.encoding, wanted.kind, wanted.pretty))
    if make is not None and wanted.kind and page.segments is not None and page.convert is None:
        return await _formed(subject, page, page.segments, *make)
    entries = await page.shown(subject.served.codec.view)
    if wanted.encoding == PROTOBUF:
        return Reply(200, PROTOBUF, await _protobuf(subject, page, entries), compressible=True)
    if make is None:
        items = [document async for document in _documents(subject, entries)]
        now = subject.clock()  # one time for all ages of the response, which a thread encodes
        whole = await asyncio.to_thread(_whole, replace(subject, clock=lambda: now), items, metadata_of(page))
        return Reply(200, wanted.encoding, (whole,), compressible=True)
    make_frame, maker = make
    finish = FINISHED.get((wanted.encoding, wanted.kind, wanted.pretty))
    frame = make_frame(subject, page)
    pieces = await joined(entries, maker(subject, subject.ages()), frame.separator, finish)
    return _framed(subject, frame, pieces)


async def _formed(subject: Subject, page: Page, segments: Segments, make_frame: MakeFrame, maker: Maker) -> Reply:
    """Return a Table or a PartialObjectMetadataList; the segments cache their encoded items."""
    wanted = subject.wanted
    form = (subject.served.codec.view, wanted.kind, wanted.version, subject.include)
    pieces = await segments.in_form(form, lambda ages: maker(subject, ages), subject.clock()) if segments.count else ()
    return _framed(subject, make_frame(subject, page), pieces)


def _framed(subject: Subject, frame: Frame, pieces: Sequence[bytes]) -> Reply:
    parts = [frame.head] if pieces else [frame.empty]
    for piece in pieces:
        parts += (piece, frame.separator)
    if pieces:
        parts[-1] = frame.tail
    return Reply(200, subject.wanted.encoding, parts, compressible=True)


def _whole(subject: Subject, items: list[Document], metadata: Document) -> bytes:
    return written(subject.wanted, OF_LISTS[subject.wanted.kind](subject, items, metadata))


async def joined(
    entries: Sequence[Entry], make: MakeItem, separator: bytes, finish: Callable[[bytes], bytes] | None = None
) -> list[bytes]:
    """Encode the items and join them in pieces, yielding to the event loop.

    Slow items are encoded in a thread.
    """
    found: list[bytes] = []
    until = perf_counter() + server_limits.LOOP_BUDGET / 2  # no LoopBudget, which costs a coroutine for each item
    for at in range(0, len(entries), storage_limits.SEGMENT):
        items: list[bytes] = []
        for entry in entries[at : at + storage_limits.SEGMENT]:
            made = make(entry)
            item = made if isinstance(made, bytes) else await made
            if finish is not None:
                item = finish(item) if len(item) < server_limits.WORK_INLINE else await asyncio.to_thread(finish, item)
            items.append(item)
            if perf_counter() > until:
                await asyncio.sleep(0)
                until = perf_counter() + server_limits.LOOP_BUDGET / 2
        found.append(separator.join(items))
    return found


def metadata_of(page: Page) -> Document:
    """Return the metadata of a list (RV-001, RV-005)."""
    metadata: Document = {"resourceVersion": str(page.revision)}
    if page.token:
        metadata["continue"] = page.token
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def brackets(served: ServedVersion, page: Page) -> tuple[bytes, bytes]:
    """Return the bytes before and after the items of a plain JSON list (SRV-018)."""
    if served.model.typed:
        shown = {"kind": served.names.list_kind, "apiVersion": served.names.api_version, "metadata": metadata_of(page)}
        return orjson.dumps(shown)[:-1] + b',"items":[', b"]}\n"
    remaining = f'"remainingItemCount":{page.remaining},' if page.remaining else ""
    # as in kube-apiserver, lists of custom objects always have ``continue``; neither token nor names need escapes
    metadata = f'{{"continue":"{page.token}",{remaining}"resourceVersion":"{page.revision}"}}'
    tail = f'],"kind":"{served.names.list_kind}","metadata":{metadata}}}\n'
    return f'{{"apiVersion":"{served.names.api_version}","items":['.encode(), tail.encode()


async def _documents(subject: Subject, entries: Sequence[Entry]) -> AsyncIterator[Document]:
    loop_budget = LoopBudget()
    for entry in entries:
        yield orjson.loads(entry.uncached_view(subject.served.codec.view))
        await loop_budget.pause()


# --- lists of complete objects ---


def _plain_frame(subject: Subject, page: Page) -> Frame:
    head, tail = brackets(subject.served, page)
    return Frame(head, b",", tail, head + tail)


def _plain_item(subject: Subject, ages: Ages) -> MakeItem:
    served, viewer = subject.served, subject.served.codec.view
    if not served.model.typed:
        return methodcaller("uncached_view", viewer)
    prefix = b'{"apiVersion":%b,"kind":%b,' % tuple(map(orjson.dumps, (served.model.api_version, served.model.kind)))

    def make(entry: Entry) -> bytes:
        view = entry.uncached_view(viewer)
        if view.startswith(prefix):
            return b"{" + view[len(prefix) :]  # as in kube-apiserver: items of lists of built-in kinds have no kind
        document: Document = orjson.loads(view)
        return encode({name: value for name, value in document.items() if name not in {"kind", "apiVersion"}})

    return make


def _pretty_frame(subject: Subject, page: Page) -> Frame:
    head, tail = brackets(subject.served, page)
    empty = pretty(head + tail)
    before, after = empty.split(b'"items": []', 1)
    return Frame(before + b'"items": [\n    ', b",\n    ", b"\n  ]" + after, empty)


def _as_pretty(item: bytes) -> bytes:
    return pretty(item).replace(b"\n", b"\n    ")  # no string contains these newlines, since JSON escapes them


def _yaml_frame(subject: Subject, page: Page) -> Frame:
    served = subject.served
    metadata = metadata_of(page)
    if not served.model.typed:
        metadata.setdefault("continue", "")
    head = encode_yaml({"apiVersion": served.names.api_version})
    tail = encode_yaml({"kind": served.names.list_kind, "metadata": metadata})
    return Frame(head + b"items:\n", b"", tail, head + b"items: []\n" + tail)


def _as_yaml(item: bytes) -> bytes:
    return encode_yaml([orjson.loads(item)])


# --- other kinds in JSON ---


def _table_frame(subject: Subject, page: Page) -> Frame:
    return _frame_of(
        {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{subject.wanted.version}",
            "metadata": metadata_of(page),
            "columnDefinitions": definitions(subject),
        },
        b'"rows":',
        orjson.dumps(no_rows(subject)),
    )


def _table_item(subject: Subject, ages: Ages) -> MakeItem:
    viewer, make_row, long = subject.served.codec.view, _row_maker(subject, ages), _long_from(subject)

    def make(entry: Entry) -> bytes | Awaitable[bytes]:
        view = entry.uncached_view(viewer)
        if len(view) >= long:
            return asyncio.to_thread(make_row, view, entry.revision)
        return make_row(view, entry.revision)

    return make


def _long_from(subject: Subject) -> int:
    """Return the minimal size in bytes of an object whose row is computed in a thread.

    The size is smaller if several columns have a JSONPath that searches the object, since each reads it completely.
    """
    if subject.include in ("", "Metadata") and _needs_only_metadata(subject):
        return documents_limits.MAX_BODY * storage_limits.SEGMENT  # larger than any object
    searching = sum(isinstance(column.cell, Searching) for column in subject.columns)
    return limits.ROW_SEARCHED // max(1, searching)


def _needs_only_metadata(subject: Subject) -> bool:
    return all(column.cell in OF_METADATA for column in subject.columns)


def _row_maker(subject: Subject, ages: Ages) -> MakeRow:
    cells = [column.shown(ages) for column in subject.columns]
    if subject.include == "Object":
        return lambda view, revision: _whole_row(cells, view)
    if subject.include == "None":
        # Sorting is not necessary: the keys of the view are sorted already.
        return lambda view, revision: encode_in_order(row(subject, orjson.loads(view), ages))
    cut, needs_only_metadata = metadata_cutter(subject.served), _needs_only_metadata(subject)
    head, plain = _partial_head(subject), _WITHOUT_FLOATS.issuperset

    def make(view: bytes, revision: int) -> bytes:
        found = cut(view, revision)
        if found is None:
            return encode_in_order(row(subject, orjson.loads(view), ages))
        text, document = found
        if not needs_only_metadata:
            document = orjson.loads(view)
        cell_values = [cell(document) for cell in cells]
        shown = orjson.dumps(cell_values) if plain(map(type, cell_values)) else encode_in_order(cell_values)
        return b'{"cells":%b,"object":%b%b}}' % (shown, head, text)

    return make


def _whole_row(cells: Sequence[Callable[[View], Any]], view: bytes) -> bytes:
    document = orjson.loads(view)
    return b'{"cells":%b,"object":%b}' % (encode_in_order([cell(document) for cell in cells]), view)


def _partial_frame(subject: Subject, page: Page) -> Frame:
    version = f"meta.k8s.io/{subject.wanted.version}"
    return _frame_of(
        {"kind": PARTIAL_LIST, "apiVersion": version, "metadata": metadata_of(page)},
        b'"items":',
        b"null",  # as in kube-apiserver, if the list is empty
    )


def _partial_item(subject: Subject, ages: Ages) -> MakeItem:
    viewer, version, cut = subject.served.codec.view, subject.wanted.version, metadata_cutter(subject.served)
    head = _partial_head(subject)

    def make(entry: Entry) -> bytes:
        view = entry.uncached_view(viewer)
        found = cut(view, entry.revision)
        if found is None:
            return encode_in_order(partial(version, orjson.loads(view)))
        return b"%b%b}" % (head, found[0])

    return make


def _partial_head(subject: Subject) -> bytes:
    return encode_in_order(partial(subject.wanted.version, {}))[: -len(b"{}}")]


def metadata_cutter(served: ServedVersion) -> Callable[[bytes, int], tuple[bytes, Document] | None]:
    """Return a function (view, revision) → (metadata bytes, document with only the metadata).

    The function returns None if it cannot find the metadata. The document usually has no managedFields. Since the keys
    of a view are sorted, metadata usually follows apiVersion and kind. The last keys of metadata usually are
    resourceVersion, which every view has, and uid. The bytes up to the end of the uid are the metadata if they are
    valid JSON. If the search finds these keys in an annotation or a nested object, the bytes end too early to be valid
    JSON.
    """
    api_version, kind = orjson.dumps(served.model.api_version), orjson.dumps(served.model.kind)
    start = b'{"apiVersion":%b,"kind":%b,"metadata":' % (api_version, kind)
    size = len(start)

    def cut(view: bytes, revision: int) -> tuple[bytes, Document] | None:
        if not view.startswith(start):
            return None
        mark = b'"resourceVersion":"%d"' % revision
        last = view.find(mark, size)
        end = view.find(b'"}', last)
        if last < 0 or end < 0 or not view.startswith(b',"uid":"', last + len(mark)):
            return None
        text = view[size : end + 2]
        owned = text.find(b'"managedFields":[')
        name = text.find(b'],"name":"', owned) if owned > 0 else -1
        try:
            return text, {"metadata": orjson.loads(text if name < 0 else text[:owned] + text[name + 2 :])}
        except orjson.JSONDecodeError:
            return None

    return cut


def _frame_of(document: View, member: bytes, empty: bytes) -> Frame:
    head = orjson.dumps(document)[:-1] + b"," + member
    return Frame(head + b"[", b",", b"]}\n", head + empty + b"}\n")


ROWS: Mapping[tuple[str, str, bool], tuple[MakeFrame, Maker]] = {
    (JSON, "", False): (_plain_frame, _plain_item),
    (JSON, "", True): (_pretty_frame, _plain_item),
    (YAML, "", False): (_yaml_frame, _plain_item),
    (YAML, "", True): (_yaml_frame, _plain_item),
    (JSON, "Table", False): (_table_frame, _table_item),
    (JSON, PARTIAL_LIST, False): (_partial_frame, _partial_item),
}
"""(encoding, kind, indentation) → functions for the frame and the items.

Lists in other forms of JSON and YAML are encoded as one document, lists in protobuf by ``_protobuf``.
"""

FINISHED: Mapping[tuple[str, str, bool], Callable[[bytes], bytes]] = {
    (JSON, "", True): _as_pretty,
    (YAML, "", False): _as_yaml,
    (YAML, "", True): _as_yaml,
}
"""(encoding, kind, indentation) → function that converts each encoded item to its final form."""


async def _protobuf(subject: Subject, page: Page, entries: Sequence[Entry]) -> list[bytes]:
    served, wanted = subject.served, subject.wanted
    if wanted.kind:
        kind, api_version, list_kind = PARTIAL, f"meta.k8s.io/{wanted.version}", PARTIAL_LIST
    else:
        kind, api_version, list_kind = served.names.kind, served.names.api_version, served.names.list_kind
    items: list[bytes] = []
    async for document in _documents(subject, entries):
        if len(entries[len(items)].raw) < server_limits.WORK_INLINE:
            items.append(protobuf.encode_item(api_version, kind, document))
        else:
            items.append(await asyncio.to_thread(protobuf.encode_item, api_version, kind, document))
    return protobuf.encode_list(api_version, list_kind, metadata_of(page), items)
