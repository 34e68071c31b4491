"""Entries cache views, except views that only insert a resourceVersion."""

from __future__ import annotations

import gc
from weakref import ref

import orjson
import pytest

from apiext.storage import limits
from apiext.storage.encryption import EncryptedEntry, Secret
from apiext.storage.history import Change, History
from apiext.storage.store import ConvertedEntries, Entry
from tests.unit.controllers.harness import until

RAW = (
    b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z",'
    b'"generation":1,"name":"a","namespace":"default","uid":"0f6e"},"spec":{}}\n'
)


def with_resource_version(raw: bytes, revision: int) -> bytes:
    return raw[:-1].replace(b'"uid"', b'"resourceVersion":"%d","uid"' % revision)


@pytest.mark.rows("VER-003")
@pytest.mark.parametrize(("version", "made"), [(b"v1", 2), (b"v2", 1), (b"v1beta1", 1)])
def test_view_of_another_version_is_cached(version: bytes, made: int) -> None:
    calls: list[int] = []

    def viewer(raw: bytes, revision: int) -> bytes:
        calls.append(revision)
        return with_resource_version(raw, revision).replace(b"/v1", b"/" + version)

    entry = Entry("default", "a", 7, RAW)
    assert entry.view(viewer) == entry.view(viewer)
    assert len(calls) == made  # inserting a resourceVersion is not cached


class Held(Entry, gc=True, weakref=True):
    """An entry that supports weak references, so that a test can check when it is freed."""


def test_the_garbage_collector_tracks_no_entry() -> None:
    """Entries are not tracked by the garbage collector.

    It would take 40 ms on the event loop for 200,000 of them.
    """
    secret = Secret("aescbc", "key", b"x" * 32)
    kept = [Entry("default", "a", 7, RAW), EncryptedEntry("default", "a", 7, RAW, secret=secret)]
    for entry in (*kept, kept[0].with_revision(8)):
        entry.view(view_as_v2)
        assert entry.labels == {}
        assert not gc.is_tracked(entry)
        assert RAW.decode() not in repr(entry)


def view_as_v2(raw: bytes, revision: int) -> bytes:
    return with_resource_version(raw, revision).replace(b"/v1", b"/v2")


def test_evicted_states_are_not_referenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENT_RING", 2)
    history, held = History(0), list[ref[Entry]]()
    previous: Entry | None = None
    for revision in range(1, 8):
        entry = Held("default", "a", revision, RAW)
        entry.view(view_as_v2)
        held.append(ref(entry))
        history.append(Change("MODIFIED" if previous else "ADDED", entry, previous, revision))
        previous = entry
    last = Held("default", "a", 8, RAW)
    last.view(view_as_v2)
    held.append(ref(last))
    history.append(Change("DELETED", last, previous, 8))
    del entry, previous, last
    assert [number for number, each in enumerate(held, 1) if each() is not None] == [6, 7, 8]
    history.reset(8)
    assert not any(each() for each in held)


def test_viewer_of_released_entry_is_not_referenced() -> None:
    def viewer(raw: bytes, revision: int) -> bytes:
        return view_as_v2(raw, revision)

    entry, kept = Entry("default", "a", 7, RAW), ref(viewer)
    gone = entry.with_revision(8)
    assert gone.view(viewer) == gone.view(viewer) == view_as_v2(RAW, 8)  # as for the last event of a watch
    del gone, viewer
    assert kept() is None


def test_views_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VIEW_BYTES", 3 * len(view_as_v2(RAW, 1)))
    entries = [Entry("default", "a", revision, RAW) for revision in range(1, 6)]
    for entry in entries:
        entry.view(view_as_v2)
        entry.cache_view(view_as_v2, entry.view(view_as_v2))
    assert [entry._cached is not None for entry in entries] == [False, False, True, True, True]
    entries[3].evict_view()
    entries[0].view(view_as_v2)
    assert [entry._cached is not None for entry in entries] == [True, False, True, False, True]


async def test_converted_entries_are_shared_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONVERTED_CACHE_BYTES", 250)
    monkeypatch.setattr(limits, "CONVERTED_CACHE_SECONDS", 0.02)
    text = orjson.dumps({"metadata": {"labels": {"a": "b"}}, "x": "x" * 60})

    def viewer(raw: bytes, revision: int) -> bytes:
        return text

    def another(raw: bytes, revision: int) -> bytes:
        return text

    entries = [Entry("d", f"o{number}", number, b"{}") for number in range(4)]
    once = ConvertedEntries()
    first = once.keep(entries[0], viewer, text)
    assert first.labels == {"a": "b"}
    assert once.find(entries[0], viewer) is first
    assert once.keep(entries[0], viewer, text) is first
    assert once.find(entries[0], another) is None
    for entry in entries[1:]:
        once.keep(entry, viewer, text)
    assert [once.find(entry, viewer) is not None for entry in entries] == [False, False, True, True]
    await until(lambda: not any(once.find(entry, viewer) for entry in entries))
    assert once.keep(entries[0], viewer, text) is not first
