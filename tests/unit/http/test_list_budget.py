"""A few lists are encoded at a time, and only if they fit into memory."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from apiext.http import limits as http_limits
from apiext.http import resources
from apiext.http.memory import ListBudget, Memory
from apiext.meta.status import StatusError
from apiext.storage import limits as storage_limits
from apiext.storage.free_memory import FreeMemory
from apiext.storage.segments import Segments
from apiext.storage.snapshot import Snapshot
from apiext.storage.store import Entry
from apiext.verbs.call import Page


class Given(FreeMemory):
    """A memory limit of ``size`` bytes, all free."""

    def __init__(self, size: int) -> None:
        super().__init__([])
        self.size = size

    @property
    def is_limited(self) -> bool:
        return True

    def fits(self, size: int) -> bool:
        return size <= self.size


def page(count: int, size: int) -> Page:
    entries = [Entry("n", f"o{at:04}", at, b"x" * size) for at in range(count)]
    pieces = Snapshot((f"n/{entry.name}", entry) for entry in entries).pieces()
    return Page(1, segments=Segments(pieces, lambda raw, revision: raw))


async def test_lists_in_progress_reduce_the_budget() -> None:
    budget = ListBudget(Memory(Given(5_000), total=1 << 60))
    with budget.held(page(200, 10)), budget.held(Page(1, entries=[Entry("n", "a", 1, b"x" * 400)])):
        assert budget.fits(200)
        assert not budget.fits(201)
        with pytest.raises(StatusError, match="too little memory left for this list") as refused:
            budget.held(page(3, 100)).__enter__()
        assert (refused.value.code, refused.value.retry_after) == (429, 1)
        with budget.held(page(1, 100)):
            pass
    assert budget.fits(5_000)
    with pytest.raises(RuntimeError), budget.held(page(200, 10)):
        raise RuntimeError
    assert budget.fits(5_000)


async def test_unlimited_memory_accepts_any_list() -> None:
    budget = ListBudget(Memory(FreeMemory([]), total=1 << 60))
    with budget.held(page(100, 1_000)):
        assert budget.fits(1 << 60)


async def test_concurrent_list_encodings_are_limited() -> None:
    budget = ListBudget(Memory(FreeMemory([]), total=1 << 60))
    running, most = 0, 0

    async def make() -> None:
        nonlocal running, most
        async with budget.slots:
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(make() for _ in range(20)))
    assert most == http_limits.LISTS_AT_ONCE


class Endless:
    """Segments whose preparation fails.

    ``most`` is the highest number of preparations at the same time.
    """

    pending = storage_limits.SEGMENT + 1

    def __init__(self) -> None:
        self.running = self.most = 0

    async def prepare(self) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        raise EOFError


async def test_concurrent_preparations_of_segments_are_limited() -> None:
    given: Any = SimpleNamespace(lists=ListBudget(Memory(FreeMemory([]), total=1 << 60)))
    nothing: Any = None
    segments: Any = Endless()
    asking = (resources._segments(given, nothing, nothing, segments, Page(1)) for _ in range(20))
    assert {type(one) for one in await asyncio.gather(*asking, return_exceptions=True)} == {EOFError}
    assert segments.most == http_limits.LISTS_AT_ONCE
