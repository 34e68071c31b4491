import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise

import pytest

from apiext.catalog.stored import Unreadable
from apiext.controllers import limits
from apiext.controllers import loop as loop_module
from apiext.controllers.loop import Loop
from apiext.meta.status import StatusError
from apiext.storage.store import StoreError, Unavailable
from tests.support import polling

pytestmark = pytest.mark.looptime


class Recorder:
    """A reconcile function that records when runs begin and end.

    ``failures`` is the number of failed runs of each key.
    """

    def __init__(self, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self.events: list[tuple[str, str, float]] = []
        self.failures: dict[str, int] = {}
        self.most = 0
        self._now = 0

    async def __call__(self, key: str) -> None:
        loop = asyncio.get_running_loop()
        self._now += 1
        self.most = max(self.most, self._now)
        self.events.append((key, "begin", loop.time()))
        try:
            await asyncio.sleep(self.seconds)  # looptime: virtual time
            if self.failures.get(key, 0):
                self.failures[key] -= 1
                raise ValueError(key)
        finally:
            self._now -= 1
            self.events.append((key, "end", loop.time()))

    def begins(self, key: str) -> list[float]:
        return [at for of, what, at in self.events if of == key and what == "begin"]


@asynccontextmanager
async def running(recorder: Recorder, **options: int) -> AsyncIterator[Loop]:
    loop = Loop("test", recorder, **options)
    async with asyncio.TaskGroup() as group:
        loop.start(group)
        yield loop
        await loop.stop()


until = partial(polling.until, within=10_000, every=0.5)  # virtual seconds


async def test_adds_of_one_key_are_serialized_and_coalesced() -> None:
    recorder = Recorder()
    async with running(recorder) as loop:
        for _ in range(5):
            loop.add("a")
        await asyncio.sleep(0.5)
        for _ in range(5):
            loop.add("a")
        await until(lambda: loop.idle)
    assert [what for _, what, _ in recorder.events] == ["begin", "end", "begin", "end"]


async def test_keys_run_concurrently_up_to_width() -> None:
    recorder = Recorder()
    async with running(recorder, width=3) as loop:
        for key in "abcdefgh":
            loop.add(key)
        await until(lambda: loop.idle)
    assert recorder.most == 3
    assert [key for key, what, _ in recorder.events if what == "begin"] == list("abcdefgh")


async def test_failed_key_is_retried_with_backoff() -> None:
    recorder = Recorder(seconds=0)
    recorder.failures["a"] = 20
    async with running(recorder) as loop:
        loop.add("a")
        loop.add("b")
        await until(lambda: len(recorder.begins("a")) == 21)
    begins = recorder.begins("a")
    pauses = [after - before for before, after in pairwise(begins)]
    assert all(
        0.5 * expected - 1e-6 <= pause <= expected + 1e-6
        for expected, pause in zip(
            [min(limits.RETRY_LAST, loop_module.RETRY_FIRST * 2**n) for n in range(20)], pauses, strict=True
        )
    )
    assert len(recorder.begins("b")) == 1


@pytest.mark.parametrize(
    "failure", [StatusError(422, "Invalid", "never so"), StoreError("never so"), Unreadable("never so", {})], ids=repr
)
async def test_repeated_errors_are_logged_sparsely(caplog: pytest.LogCaptureFixture, failure: Exception) -> None:
    caplog.set_level(logging.WARNING)
    tries = 0

    async def refused(_: str) -> None:
        nonlocal tries
        tries += 1
        raise failure

    async with asyncio.TaskGroup() as group:
        loop = Loop("refused", refused)
        loop.start(group)
        loop.add("a")
        await until(lambda: tries > 200, every=10)
        await loop.stop()
    assert 20 <= len(caplog.records) <= 30
    assert all(record.exc_info is None and "never so" in record.getMessage() for record in caplog.records)


async def test_add_ends_backoff_of_failed_key() -> None:
    recorder = Recorder(seconds=0)
    recorder.failures["a"] = 15
    async with running(recorder) as loop:
        loop.add("a")
        await until(lambda: len(recorder.begins("a")) == 14)
        before = asyncio.get_running_loop().time()
        loop.add("a")
        await asyncio.sleep(0.01)
        assert recorder.begins("a")[-1] == pytest.approx(before, abs=0.011)


async def test_run_waits_for_a_run_that_begins_after_the_call() -> None:
    recorder = Recorder()
    async with running(recorder) as loop:
        loop.add("a")
        await asyncio.sleep(0.5)
        asked = asyncio.get_running_loop().time()
        await loop.run("a")
        assert recorder.begins("a")[-1] >= asked
        assert recorder.events[-1][1] == "end"


async def test_run_raises_error_and_key_is_retried() -> None:
    recorder = Recorder(seconds=0)
    recorder.failures["a"] = 1
    async with running(recorder) as loop:
        with pytest.raises(ValueError, match="a"):
            await loop.run("a")
        await until(lambda: len(recorder.begins("a")) == 2)


async def test_cancelled_run_call_does_not_stop_loop() -> None:
    recorder = Recorder()
    async with running(recorder) as loop:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await loop.run("a")
        await until(lambda: loop.idle)
        await loop.run("a")


async def test_settled_waits_for_keys_added_before() -> None:
    recorder = Recorder()
    async with running(recorder, width=1) as loop:
        for key in "abc":
            loop.add(key)
        await asyncio.sleep(0)
        await loop.settled()
        assert [key for key, what, _ in recorder.events if what == "end"] == ["a", "b", "c"]
        await loop.settled()


@pytest.mark.parametrize("pauses", [(7, 3), (3, 7)])
async def test_add_after_waits_for_the_shortest_pause(pauses: tuple[float, float]) -> None:
    recorder = Recorder(seconds=0)
    async with running(recorder) as loop:
        for pause in pauses:
            loop.add_after("a", pause)
        await asyncio.sleep(10)
        assert recorder.begins("a") == [pytest.approx(3, abs=1)]


async def test_resync_runs_all_keys_periodically() -> None:
    recorder = Recorder(seconds=0)
    loop = Loop("test", recorder)
    async with asyncio.TaskGroup() as group:
        loop.start(group, lambda: ["a", "b"])
        await asyncio.sleep(loop_module.RESYNC_EVERY * 2.5)
        await loop.stop()
    assert len(recorder.begins("a")) == len(recorder.begins("b")) == 2


async def test_stop_cancels_runs_and_fails_waiting_calls() -> None:
    recorder = Recorder(seconds=1000)
    loop = Loop("test", recorder, width=1)
    async with asyncio.TaskGroup() as group:
        loop.start(group)

        async def wait(key: str) -> None:
            with pytest.raises(Unavailable):
                await loop.run(key)

        waiting = [group.create_task(wait("a")), group.create_task(wait("b"))]
        await asyncio.sleep(1)
        await loop.stop()
        await asyncio.wait(waiting)
        loop.add("c")
        with pytest.raises(Unavailable):
            await loop.run("c")
    assert len(recorder.events) == 2


async def test_loop_ends_with_its_task_group() -> None:
    recorder = Recorder(seconds=1000)
    loop = Loop("test", recorder)

    async def live_and_die() -> None:
        async with asyncio.TaskGroup() as group:
            loop.start(group)
            loop.add("a")
            await asyncio.sleep(1)
            raise EndError

    with pytest.raises(ExceptionGroup):
        await live_and_die()
    loop.add("b")
    assert len(recorder.begins("a")) == 1
    assert not recorder.begins("b")


class EndError(Exception):
    pass


async def test_failed_resync_is_followed_by_next_resync() -> None:
    recorder, seen = Recorder(), list[float]()

    def keys() -> list[str]:
        seen.append(asyncio.get_running_loop().time())
        if len(seen) == 1:
            raise ValueError("no keys today")
        return ["a"]

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    loop = Loop("test", recorder)
    async with asyncio.TaskGroup() as group:
        loop.start(group, keys)
        await asyncio.sleep(2.5 * loop_module.RESYNC_EVERY)
        await loop.stop()
    assert (len(seen), len(recorder.begins("a"))) == (2, 1)
