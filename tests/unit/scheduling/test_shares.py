"""Shares of the threads: a holder cannot use the share of another holder.

A holder returns its own threads.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from apiext import limits
from apiext.scheduling import shares as shares_module
from apiext.scheduling.shares import in_thread


def _count_shares() -> int:
    return len(shares_module._shares.get(asyncio.get_running_loop(), {}))


async def _wait_for_calls(holder: str, calls: int) -> None:
    """Wait until ``calls`` calls hold or await a thread of a holder."""
    async with asyncio.timeout(10):
        known = shares_module._shares.setdefault(asyncio.get_running_loop(), {})
        while holder not in known or known[holder].calls < calls:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_busy_definition_leaves_threads_for_other_definitions() -> None:
    """Large writes to one definition do not delay creates of another.

    Once, eight large writes delayed creates for a minute.
    """
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(limits.THREADS))
    go_on = threading.Event()
    async with asyncio.TaskGroup() as group:
        long = [group.create_task(in_thread(go_on.wait, f"user {number}", "definition a")) for number in range(8)]
        await _wait_for_calls("definition a", 8)
        async with asyncio.timeout(10):
            assert await in_thread(lambda: 1, "user other", "definition b") == 1
            assert await in_thread(lambda: 2, "user other") == 2
        assert not any(one.done() for one in long)
        go_on.set()
    assert _count_shares() == 0


async def test_user_waiting_for_definition_blocks_no_other_user() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
    go_on = threading.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(limits.THREADS_SHARE):
            group.create_task(in_thread(go_on.wait, f"user {number}", "definition a"))
        await _wait_for_calls("definition a", limits.THREADS_SHARE)
        waiting = [group.create_task(in_thread(go_on.wait, "user x", "definition a")) for _ in range(4)]
        await _wait_for_calls("user x", 4)
        async with asyncio.timeout(10):
            await in_thread(lambda: None, "user y", "definition b")
        assert not any(one.done() for one in waiting)
        go_on.set()
    assert _count_shares() == 0


async def test_cancelled_call_holds_its_thread_until_the_work_ends() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
    go_on, began = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        began.release()
        go_on.wait()

    for _ in range(limits.THREADS_SHARE):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await in_thread(work, "user x")
    with pytest.raises(TimeoutError):  # its two threads still work, though no task awaits them
        async with asyncio.timeout(0.1):
            await in_thread(work, "user x")
    go_on.set()
    async with asyncio.timeout(10):
        both = threading.Barrier(limits.THREADS_SHARE)  # passed once all threads of the share are free again
        await asyncio.gather(*(in_thread(both.wait, "user x") for _ in range(limits.THREADS_SHARE)))
    assert _count_shares() == 0
    assert began._value == limits.THREADS_SHARE  # type: ignore[attr-defined]


async def test_failed_work_raises_and_releases_its_share() -> None:
    def fail() -> None:
        raise ValueError("no")

    for _ in range(limits.THREADS_SHARE + 1):
        with pytest.raises(ValueError, match="no"):
            await in_thread(fail, "user x", "definition a")
    assert _count_shares() == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.sampled_from("xy"), st.sampled_from("ab"), st.booleans()),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("end"), st.integers(0, 9)),
        st.tuples(st.just("turn")),
    ),
    max_size=30,
)


WAITS = [("call", "x", "a", False), ("call", "y", "a", False), ("call", "x", "a", False), ("turn",)]  # for definition a


@given(STEPS)
@example([*WAITS, ("cancel", 2)])
@example([*WAITS, ("call", "x", "b", False), ("turn",), ("cancel", 3)])  # the last call waits for user x
@settings(deadline=None)
def test_cancellations_never_exceed_or_leak_thread_shares(steps: list[tuple[Any, ...]]) -> None:
    """No holder exceeds its thread share in any order of calls, ends of work and cancellations.

    Afterwards each holder has its whole share again, and no state is left.
    """
    asyncio.run(_run_steps(steps))


class _Work:
    """Work of two holders that ends when a test releases it."""

    def __init__(self, user: str, definition: str, fails: bool) -> None:
        self.holders = (f"user {user}", f"definition {definition}")
        self.fails = fails
        self.began, self.go_on = False, threading.Event()

    def __call__(self) -> str:
        self.began = True
        assert self.go_on.wait(10)
        if self.fails:
            raise ValueError(self.holders)
        return self.holders[0]


async def _run_steps(steps: list[tuple[Any, ...]]) -> None:
    works: list[_Work] = []
    calls: list[asyncio.Task[str]] = []
    with ThreadPoolExecutor(16) as pool:
        asyncio.get_running_loop().set_default_executor(pool)

        def check() -> None:
            at_work = Counter(name for work in works if work.began and not work.go_on.is_set() for name in work.holders)
            assert all(count <= limits.THREADS_SHARE for count in at_work.values()), at_work

        try:
            for name, *given in steps:
                if name == "call" and len(calls) < 12:
                    works.append(_Work(*given))
                    calls.append(asyncio.get_running_loop().create_task(in_thread(works[-1], *works[-1].holders)))
                elif name == "cancel" and calls:
                    calls[given[0] % len(calls)].cancel()
                elif name == "end" and works:
                    works[given[0] % len(works)].go_on.set()
                await asyncio.sleep(0.0005 if name == "turn" else 0)
                check()
        finally:
            for work in works:
                work.go_on.set()
        async with asyncio.timeout(10):
            ended = await asyncio.gather(*calls, return_exceptions=True)
        for work, found in zip(works, ended, strict=True):
            assert isinstance(found, asyncio.CancelledError | ValueError) or found == work.holders[0]
            assert work.began or isinstance(found, asyncio.CancelledError)
        again = [in_thread(lambda: 1, f"user {user}", f"definition {one}") for user in "xy" for one in "ab"]
        async with asyncio.timeout(10):
            assert await asyncio.gather(*again, *again_with_all_shares()) == [1] * 4 + [None] * 4
        for _ in range(100):
            if not _count_shares():
                break
            await asyncio.sleep(0.001)
        assert _count_shares() == 0


def again_with_all_shares() -> list[Awaitable[None]]:
    """Return work that ends only if each holder has THREADS_SHARE threads at the same time."""

    async def all_of(holder: str) -> None:
        together = threading.Barrier(limits.THREADS_SHARE)
        await asyncio.gather(*(in_thread(lambda: together.wait(5), holder) for _ in range(limits.THREADS_SHARE)))

    return [all_of(f"user {user}") for user in "xy"] + [all_of(f"definition {one}") for one in "ab"]
