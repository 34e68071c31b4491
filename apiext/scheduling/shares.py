"""Shares of the threads: how many threads one user, definition or kind of work may hold at a time."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

from apiext import limits

T = TypeVar("T")


class _Share:
    """The threads of one holder, and the number of calls that hold or await one."""

    __slots__ = ("calls", "free")

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(limits.THREADS_SHARE)
        self.calls = 0


_shares: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Share]] = WeakKeyDictionary()


async def in_thread(work: Callable[[], T], *holders: str) -> T:
    """Run ``work`` in a thread once each holder has fewer than THREADS_SHARE threads; return its result.

    All callers name their holders in the same order: the user, then the definition. So a user that waits for a
    definition does not block other users of it. A thread is held until its work ends, even if the caller is cancelled.
    """
    loop = asyncio.get_running_loop()
    known = _shares.setdefault(loop, {})
    taken: list[str] = []
    try:
        for holder in holders:
            await _acquire(known, holder)
            taken.append(holder)
        working = loop.run_in_executor(None, copy_context().run, work)
    except BaseException:
        _release(known, taken)
        raise

    def ended(done: asyncio.Future[T]) -> None:
        _release(known, taken)
        if not done.cancelled():
            done.exception()  # marks it as retrieved; the caller raises it, unless it is cancelled

    working.add_done_callback(ended)
    return await asyncio.shield(working)


async def _acquire(known: dict[str, _Share], holder: str) -> None:
    share = known.get(holder)
    if share is None:
        share = known[holder] = _Share()
    share.calls += 1
    try:
        await share.free.acquire()
    except BaseException:
        _leave(known, holder, share)
        raise


def _release(known: dict[str, _Share], holders: list[str]) -> None:
    for holder in holders:
        share = known[holder]
        share.free.release()
        _leave(known, holder, share)


def _leave(known: dict[str, _Share], holder: str, share: _Share) -> None:
    share.calls -= 1
    if not share.calls:
        del known[holder]
