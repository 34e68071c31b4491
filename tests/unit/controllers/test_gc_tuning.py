"""The times of Python's garbage collections."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from apiext.controllers import gc_tuning


@pytest.fixture(autouse=True)
def restore_gc_settings() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class Node:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.me = self


def old_garbage() -> tuple[weakref.ref[Node], asyncio.Event]:
    """Return a weak reference to garbage of the oldest generation, and an event.

    The event is set when the garbage is freed.
    """
    node, gone = Node(), asyncio.Event()
    gc.collect(0)
    gc.collect(1)
    return weakref.ref(node, lambda _: gone.set()), gone


def test_young_collections_skip_old_generation() -> None:
    gc.disable()  # as while the server is loaded
    frozen = gc.get_freeze_count()
    gc_tuning.collect_new_only()
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen
    assert gc.get_threshold()[:2] == (gc_tuning.GC_NEW, gc_tuning.GC_ROUNDS)
    before = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(30 * gc_tuning.GC_NEW * gc_tuning.GC_ROUNDS)]
    assert len(kept) > 0
    assert gc.get_stats()[2]["collections"] == before


def test_long_lived_objects_are_frozen() -> None:
    before = gc.get_freeze_count()
    gc_tuning.exempt_existing()
    assert gc.get_freeze_count() > before


class Freed(list[int]):
    """A heap that records frees."""

    freed = list[int].append


async def test_full_collection_runs_after_many_young_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Freed()
    monkeypatch.setattr(gc_tuning, "HEAP", told)
    gc.disable()
    try:
        garbage, gone = old_garbage()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gc_tuning.collect_loop(0.001))
            await asyncio.sleep(0)  # it has started counting
            for _ in range(gc_tuning.GC_WORTH - 1):
                gc.collect(1)
            await asyncio.sleep(0.02)
            assert garbage() is not None
            gc.collect(1)
            async with asyncio.timeout(10):
                await gone.wait()
            task.cancel()
        assert sum(told) > 0, "the system may have it back"
    finally:
        gc.enable()


async def test_full_collection_is_delayed_while_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_tuning, "GC_WORTH", 3)
    gc.disable()
    try:
        garbage, gone = old_garbage()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(gc_tuning.collect_loop(0.0))  # it looks in each iteration of the event loop
            await asyncio.sleep(0)
            for _ in range(3 * gc_tuning.GC_BUSY - 2):
                gc.collect(1)
                await asyncio.sleep(0)
                assert garbage() is not None, "new objects were collected since the last look"
            async with asyncio.timeout(10):
                await gone.wait()  # a quiet moment
            task.cancel()
    finally:
        gc.enable()
