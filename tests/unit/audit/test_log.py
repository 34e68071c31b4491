"""The audit log as a backend: waiting requests, dropped events, and a full disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from apiext.audit import limits
from apiext.audit.counters import Counters
from apiext.audit.log import Log
from apiext.audit.policy import RECEIVED
from apiext.config import AuditDelivery
from tests.unit.audit.support import Place, event

pytestmark = pytest.mark.rows("AUD-001")


@asynccontextmanager
async def running(place: Place, delivery: AuditDelivery, counters: Counters, form: str = "json") -> AsyncIterator[Log]:
    """Run a log; stop it after the block."""
    async with asyncio.TaskGroup() as group:
        log = Log(place, form, delivery, counters)
        log.start(group)
        try:
            yield log
        finally:
            place.open.set()
            await log.stop()
    assert place.closed


async def test_response_waits_until_its_events_are_written() -> None:
    place = Place()
    async with running(place, AuditDelivery(), Counters()) as log:
        place.open.clear()
        assert log.put(event(RECEIVED)) is None, "what comes later is written later"
        waiting = log.put(event())
        assert waiting is not None
        await place.begun()
        assert not waiting.done()
        place.open.set()
        assert await waiting
        assert len(place.lines) == 2


async def test_events_during_a_write_are_written_together_in_order() -> None:
    place = Place()
    async with running(place, AuditDelivery(), Counters()) as log:
        place.open.clear()
        waiting = [log.put(event(name=str(number))) for number in range(limits.AUDIT_WRITE_EVENTS + 2)]
        place.open.set()
        assert all([await one for one in waiting if one is not None])
        assert [len(lines) for lines in place.written] == [1, limits.AUDIT_WRITE_EVENTS, 1]
        numbers = [int(line.partition(b'"requestURI":"/')[2].partition(b'"')[0]) for line in place.lines]
        assert numbers == sorted(numbers)
        assert all(line.endswith(b"}\n") for line in place.lines)


async def test_blocking_strict_waits_for_each_stage() -> None:
    place, counters = Place(), Counters()
    async with running(place, AuditDelivery(mode="blocking-strict"), counters) as log:
        assert log.strict
        place.full = True
        waiting = log.put(event(RECEIVED))
        assert waiting is not None
        assert not await waiting
    assert counters.errors.slot("log").value == 1


async def test_full_disk_drops_events_until_there_is_space(caplog: pytest.LogCaptureFixture) -> None:
    place, counters = Place(), Counters()
    async with running(place, AuditDelivery(), counters) as log:
        place.full = True
        assert not await (log.put(event()) or _never())
        assert not await (log.put(event()) or _never())
        place.full = False
        assert await (log.put(event()) or _never())
    assert counters.errors.slot("log").value == 2
    assert [record.getMessage() for record in caplog.records] == [
        "audit plugin log lost 1 events: [Errno 28] No space left on device"
    ]


async def _never() -> bool:
    raise AssertionError("somebody has to wait")


async def test_events_over_the_memory_limit_are_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_HELD_BYTES", 10_000)
    place, counters = Place(), Counters()
    async with running(place, AuditDelivery(), counters) as log:
        place.open.clear()
        kept, dropped = log.put(event(size=9000)), log.put(event(size=9000))
        assert dropped is not None
        assert not await dropped
        place.open.set()
        assert kept is not None
        assert await kept
        assert await (log.put(event(size=20_000)) or _never()), "one alone may be larger"
    assert counters.errors.slot("buffered").value == 1


async def test_events_that_are_too_large_are_counted_separately() -> None:
    place, counters = Place(), Counters()
    delivery = AuditDelivery(truncated=True, max_event_bytes=600)
    async with running(place, delivery, counters) as log:
        assert not await (log.put(event(name="n" * 700)) or _never())
        assert await (log.put(event()) or _never())
    assert counters.errors.slot("truncate").value == 1
    assert len(place.lines) == 1


async def test_legacy_format_writes_text_lines() -> None:
    place = Place()
    async with running(place, AuditDelivery(), Counters(), "legacy") as log:
        await (log.put(event()) or _never())
    assert place.lines[0].startswith(b'2026-01-02T12:00:00.250000Z AUDIT: id="id-1"')


async def test_batch_mode_never_blocks_and_drops_if_full() -> None:
    place, counters = Place(), Counters()
    async with running(place, AuditDelivery(mode="batch", buffer_size=3), counters) as log:
        place.open.clear()
        assert log.put(event(name="first")) is None
        await place.begun()
        for number in range(5):
            assert log.put(event(name=str(number))) is None
        assert counters.errors.slot("buffered").value == 2
    assert len(place.lines) == 4, "the end writes what is left"


async def test_batch_buffer_is_limited_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_BUFFER_BYTES", 11_000)
    place, counters = Place(), Counters()
    async with running(place, AuditDelivery(mode="batch"), counters) as log:
        for _ in range(3):
            log.put(event(size=4000))
        assert counters.errors.slot("buffered").value == 1
    assert len(place.lines) == 2


async def test_finished_write_is_not_treated_as_hung(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_WAIT", 0.02)
    async with running(Place(), AuditDelivery(), Counters()) as log:
        assert await (log.put(event()) or _never())
        over = asyncio.Event()
        asyncio.get_running_loop().call_later(limits.AUDIT_WAIT, over.set)  # after the log's own timer
        await over.wait()
        assert await (log.put(event()) or _never())


async def test_hung_disk_does_not_block_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_FLUSH", 0.05)
    place, counters = Place(), Counters()
    log = Log(place, "json", AuditDelivery(), counters)
    place.open.clear()
    for _ in range(3):
        log.put(event())
    async with asyncio.timeout(10):
        await log.stop()
    assert counters.errors.slot("log").value == 3
    place.open.set()


async def test_hung_disk_blocks_requests_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AUDIT_WAIT", 0.05)
    place, counters = Place(), Counters()
    async with running(place, AuditDelivery(), counters) as log:
        place.open.clear()
        async with asyncio.timeout(10):
            first, second = log.put(event()), log.put(event())
            assert not await (first or _never())
            assert not await (second or _never())
            assert not await (log.put(event()) or _never()), "at once"
        assert counters.errors.slot("log").value == 2
        place.open.set()
        async with asyncio.timeout(10):
            while not await (log.put(event()) or _never()):  # noqa: ASYNC110 - the log has no event for this
                await asyncio.sleep(0)
    assert len(place.lines) >= 4, "what it was given is written when it goes on"


async def test_exception_in_the_writer_thread_releases_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Place, lines: object) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr(Place, "write", broken)
    counters = Counters()
    async with running(Place(), AuditDelivery(), counters) as log:
        assert not await (log.put(event()) or _never())
    assert counters.errors.slot("log").value == 1
