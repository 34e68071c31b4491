"""Batches: their size, wait and rate, and the remaining events at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from apiext.audit import limits
from apiext.audit.batches import Batches, Throttle
from apiext.audit.counters import Counters
from apiext.audit.events import Event
from apiext.config import AuditDelivery
from tests.unit.audit.support import event

pytestmark = [pytest.mark.rows("AUD-001"), pytest.mark.looptime]

WEBHOOK = AuditDelivery(mode="batch", max_batch=3, max_wait=30.0)


class Taken:
    """A receiver that records the time and size of each batch."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.batches: list[tuple[float, int]] = []
        self.most = self.now = 0

    async def __call__(self, events: Sequence[Event]) -> bool:
        self.now += 1
        self.most = max(self.most, self.now)
        self.batches.append((round(asyncio.get_running_loop().time(), 1), len(events)))
        await asyncio.sleep(self.seconds)
        self.now -= 1
        return True


async def test_full_batch_is_sent_at_once_partial_after_max_wait() -> None:
    taken = Taken()
    async with asyncio.TaskGroup() as group:
        batches = Batches(WEBHOOK, taken, Counters(), 4)
        batches.start(group)
        await asyncio.sleep(10)
        for _ in range(4):
            batches.put(event())
        await asyncio.sleep(60)
        await batches.stop()
    assert taken.batches == [(10.0, 3), (40.0, 1)]


async def test_zero_max_wait_sends_no_empty_batches() -> None:
    taken = Taken()
    async with asyncio.TaskGroup() as group:
        batches = Batches(AuditDelivery(mode="batch", max_batch=3, max_wait=0.0), taken, Counters())
        batches.start(group)
        await asyncio.sleep(10)
        for _ in range(2):
            batches.put(event())
        await asyncio.sleep(10)
        await batches.stop()
    assert taken.batches == [(10.0, 2)]


async def test_stop_sends_remaining_events_at_once() -> None:
    taken = Taken()
    async with asyncio.TaskGroup() as group:
        batches = Batches(WEBHOOK, taken, Counters(), 4)
        batches.start(group)
        for _ in range(5):
            batches.put(event())
        await batches.stop()
    assert [count for _, count in taken.batches] == [3, 2]


async def test_parallel_batches_are_limited() -> None:
    taken, counters = Taken(2.0), Counters()
    async with asyncio.TaskGroup() as group:
        batches = Batches(AuditDelivery(mode="batch", max_batch=2, max_wait=1), taken, counters, 2)
        batches.start(group)
        for _ in range(10):
            batches.put(event())
        await asyncio.sleep(20)
        await batches.stop()
    assert taken.most == 2
    assert sum(count for _, count in taken.batches) == 10


async def test_stop_waits_a_limited_time_for_a_blocked_consumer() -> None:
    counters = Counters()
    async with asyncio.TaskGroup() as group:
        batches = Batches(AuditDelivery(mode="batch", max_batch=1, max_wait=1), Taken(1000), counters, 1)
        batches.start(group)
        for _ in range(limits.AUDIT_WRITE_EVENTS + 5):
            batches.put(event())
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        await batches.stop()
        assert asyncio.get_running_loop().time() - began == pytest.approx(limits.AUDIT_FLUSH, abs=0.1)
    assert counters.errors.slot("buffered").value == 5


async def test_events_dropped_at_stop_are_counted() -> None:
    counters = Counters()
    async with asyncio.TaskGroup() as group:
        batches = Batches(WEBHOOK, Taken(1000), counters, 2)
        batches.start(group)
        for _ in range(8):
            batches.put(event())
        await asyncio.sleep(1)
        await batches.stop()
    assert counters.errors.slot("buffered").value == 8


async def test_throttle_allows_a_burst_then_the_qps() -> None:
    throttle, loop = Throttle(10, 5), asyncio.get_running_loop()
    began = loop.time()
    for _ in range(15):
        await throttle.wait()
    assert loop.time() - began == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("parallel", "sizes"), [(4, [1, 1, 1]), (1, [3])], ids=["calls", "file"])
async def test_max_batch_one_sends_single_events_except_to_files(parallel: int, sizes: list[int]) -> None:
    taken = Taken()
    async with asyncio.TaskGroup() as group:
        batches = Batches(AuditDelivery(mode="batch", max_batch=1), taken, Counters(), parallel)
        batches.start(group)
        for _ in range(3):
            batches.put(event())
        await asyncio.sleep(1)
        await batches.stop()
    assert [count for _, count in taken.batches] == sizes


async def test_batches_wait_for_the_throttle() -> None:
    taken = Taken()
    delivery = AuditDelivery(mode="batch", max_batch=1, throttled=True, throttle_qps=1, throttle_burst=2)
    async with asyncio.TaskGroup() as group:
        batches = Batches(delivery, taken, Counters(), 4)
        batches.start(group)
        for _ in range(5):
            batches.put(event())
        await asyncio.sleep(10)
        await batches.stop()
    assert [when for when, _ in taken.batches] == [0.0, 0.0, 1.0, 2.0, 3.0]


async def test_sent_events_free_the_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_BUFFER_BYTES", 2 * event().size)
    taken, counters = Taken(), Counters()
    async with asyncio.TaskGroup() as group:
        batches = Batches(AuditDelivery(mode="batch", max_batch=2, max_wait=1), taken, counters, 4)
        batches.start(group)
        for _ in range(2):
            for _ in range(3):
                batches.put(event())
            await asyncio.sleep(5)
        await batches.stop()
    assert [count for _, count in taken.batches] == [2, 2]
    assert counters.errors.slot("buffered").value == 2


@pytest.mark.parametrize("parallel", [4, 1], ids=["calls", "file"])
async def test_batch_is_sent_after_a_failed_batch(parallel: int) -> None:
    taken, counters = Taken(), Counters()

    async def fails_once(events: Sequence[Event]) -> bool:
        if await taken(events) and len(taken.batches) == 1:
            raise LookupError("a bug")
        return True

    async with asyncio.TaskGroup() as group:
        batches = Batches(AuditDelivery(mode="batch", max_batch=2, max_wait=1), fails_once, counters, parallel)
        batches.start(group)
        for _ in range(2):
            for _ in range(2):
                batches.put(event())
            await asyncio.sleep(5)
        await batches.stop()
    assert [count for _, count in taken.batches] == [2, 2]
    assert counters.errors.slot("buffered").value == 2
