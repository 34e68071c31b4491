"""Rows of Tables that take long are computed in a thread, with the same result."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from apiext.catalog.columns import NAME, Searching, custom_columns
from apiext.catalog.served import Column
from apiext.http import limits as http_limits
from apiext.http import lists
from apiext.http.negotiation import JSON, Wanted
from apiext.http.representations import OF_LISTS, Subject
from apiext.storage import limits as storage_limits
from apiext.storage.segments import Segments
from apiext.storage.snapshot import Snapshot
from apiext.storage.store import Entry
from apiext.verbs.call import Page
from tests.unit.http.support import MODEL, endpoint, version

LONG = http_limits.ROW_SEARCHED  # bytes that one column searches
MOMENT = 1_767_232_800.0  # 2026-01-01T02:00:00Z
SIZES = (10, LONG, 20, *[LONG] * 150, 10, 2 * storage_limits.SEGMENT_BYTES, *[10] * 300, LONG)


class Counted:
    """A column that records the threads in which its cells are computed."""

    def __init__(self, *, dated: bool = False) -> None:
        self.here: list[int] = []
        self.elsewhere: list[int] = []
        self._loop = threading.get_ident()
        self._dated = dated

    def __call__(self, document: Any) -> int | str:
        size = len(document["spec"])
        (self.here if threading.get_ident() == self._loop else self.elsewhere).append(size)
        return "2026-01-01T00:00:00Z" if self._dated else size


def entries_of(sizes: Sequence[int]) -> list[Entry]:
    return [
        Entry("d", f"n{number:03}", number + 1, orjson.dumps({
            "apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": f"n{number:03}", "resourceVersion": "", "uid": "u"}, "spec": "x" * size,
        }))
        for number, size in enumerate(sizes)
    ]  # fmt: skip


def table_subject(cell: Any, include: str, columns: int = 1, *, dated: bool = False, now: float = MOMENT) -> Subject:
    shown = (NAME, *[Column("X", "string", cell=Searching(cell), shows_age=dated)] * columns)
    wanted = Wanted(JSON, "Table", "v1")
    return Subject(version(), endpoint(model=replace(MODEL, columns=shown)), wanted, include, lambda: now)


def snapshot_of(entries: Sequence[Entry]) -> Snapshot:
    return Snapshot((f"d/{entry.name}", entry) for entry in entries)


@pytest.mark.rows("TAB-001", "SRV-018")
@pytest.mark.parametrize("include", ["", "Metadata", "Object", "None"])
@pytest.mark.parametrize("remembered", [False, True])
@pytest.mark.parametrize("dated", [False, True])
async def test_large_rows_are_computed_in_a_thread(include: str, remembered: bool, dated: bool) -> None:
    cell = Counted(dated=dated)
    subject = table_subject(cell, include, dated=dated)
    entries = entries_of(SIZES)
    snapshot = snapshot_of(entries)

    def page() -> Page:
        return Page(9, None, Segments(snapshot.pieces(), version().codec.view)) if remembered else Page(9, entries)

    reply = await lists.reply(subject, page())
    small = [size for size in SIZES if size < LONG]
    assert set(cell.here) <= set(small)
    assert sorted(cell.elsewhere) == sorted(large_sizes(SIZES))
    found = orjson.loads(b"".join(reply.parts))
    items = [orjson.loads(entry.view(version().codec.view)) for entry in entries]
    assert found == orjson.loads(orjson.dumps(OF_LISTS["Table"](subject, items, lists.metadata_of(page()))))
    if remembered:
        cell.here, cell.elsewhere = [], []
        again = await lists.reply(subject, page())
        assert b"".join(again.parts) == b"".join(reply.parts)
        assert (cell.here, cell.elsewhere) == ([], [])
        earlier = await lists.reply(table_subject(cell, include, dated=dated, now=MOMENT - 3600), page())
        assert (b"".join(earlier.parts) == b"".join(reply.parts)) is not dated
        assert (cell.here, cell.elsewhere) == ([], []), "only the ages are written again"


async def test_table_of_a_namespace_excludes_other_namespaces() -> None:
    cell = Counted()
    entries = entries_of((LONG, *[10] * 60))
    snapshot = Snapshot(
        (f"{entry.namespace}/{entry.name}", entry)
        for entry in [
            Entry("c", entries[0].name, entries[0].revision, entries[0].raw),
            *entries[1:],
        ]
    )
    page = Page(9, None, Segments(snapshot.pieces("d"), version().codec.view))
    reply = await lists.reply(table_subject(cell, ""), page)
    assert len(orjson.loads(b"".join(reply.parts))["rows"]) == 60


def large_sizes(sizes: Sequence[int]) -> list[int]:
    return [size for size in sizes if size >= LONG]


@pytest.mark.parametrize(("columns", "elsewhere"), [(1, 0), (4, 0), (40, 40)])
async def test_many_searching_columns_move_small_rows_to_a_thread(columns: int, elsewhere: int) -> None:
    cell = Counted()
    await lists.reply(table_subject(cell, "", columns), Page(9, entries_of((LONG // 5,))))
    assert (len(cell.here), len(cell.elsewhere)) == (columns - elsewhere, elsewhere)


@pytest.mark.parametrize(
    ("path", "elsewhere"), [(".spec", False), (".spec[0]", True), ("..x", True), (".a[?(@.b)]", True)]
)
def test_complex_json_paths_make_searching_columns(path: str, elsewhere: bool) -> None:
    (_, column) = custom_columns([{"name": "X", "type": "string", "jsonPath": path}])
    assert isinstance(column.cell, Searching) is elsewhere


async def test_metadata_columns_are_computed_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("asyncio.to_thread")
    reply = await lists.reply(table_subject(None, "", 0), Page(9, entries_of((LONG * 2,))))
    assert orjson.loads(b"".join(reply.parts))["rows"][0]["cells"] == ["n000"]
