"""Shares of the threads: one holder takes no thread that another one needs, and gives back what it had."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from apiext import limits
from apiext import shares as shares_module
from apiext.shares import in_thread


def _left() -> int:
    return len(shares_module._shares.get(asyncio.get_running_loop(), {}))


async def test_long_work_of_one_holder_leaves_a_thread_for_others() -> None:
    """Eight large writes to one definition kept creates under another one waiting for a minute."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(limits.THREADS))
    go_on = threading.Event()
    async with asyncio.TaskGroup() as group:
        long = [group.create_task(in_thread(go_on.wait, f"user {number}", "definition a")) for number in range(8)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            assert await in_thread(lambda: 1, "user other", "definition b") == 1
            assert await in_thread(lambda: 2, "user other") == 2
        assert not any(one.done() for one in long)
        go_on.set()
    assert _left() == 0


async def test_a_user_who_waits_for_a_definition_keeps_no_other_user_waiting() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
    go_on = threading.Event()
    async with asyncio.TaskGroup() as group:
        for number in range(limits.THREADS_SHARE):
            group.create_task(in_thread(go_on.wait, f"user {number}", "definition a"))
        await asyncio.sleep(0.05)
        waiting = [group.create_task(in_thread(go_on.wait, "user x", "definition a")) for _ in range(4)]
        await asyncio.sleep(0.05)
        async with asyncio.timeout(10):
            await in_thread(lambda: None, "user y", "definition b")
        assert not any(one.done() for one in waiting)
        go_on.set()
    assert _left() == 0


async def test_a_thread_is_held_until_its_work_ends() -> None:
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(8))
    go_on, began = threading.Event(), threading.Semaphore(0)

    def work() -> None:
        began.release()
        go_on.wait()

    for _ in range(limits.THREADS_SHARE):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await in_thread(work, "user x")
    with pytest.raises(TimeoutError):  # its two threads still work, though nobody awaits them
        async with asyncio.timeout(0.1):
            await in_thread(work, "user x")
    go_on.set()
    async with asyncio.timeout(10):
        assert await in_thread(lambda: 3, "user x") == 3
    await asyncio.sleep(0)
    assert _left() == 0
    assert began._value == limits.THREADS_SHARE  # type: ignore[attr-defined]


async def test_errors_are_raised_and_give_back_the_share() -> None:
    def fail() -> None:
        raise ValueError("no")

    for _ in range(limits.THREADS_SHARE + 1):
        with pytest.raises(ValueError, match="no"):
            await in_thread(fail, "user x", "definition a")
    assert _left() == 0
