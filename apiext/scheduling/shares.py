"""Limit the threads that one holder (a user, a definition, a kind of work) uses at a time."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar
from weakref import WeakKeyDictionary

from apiext import limits

T = TypeVar("T")


class _Share:
    """The free threads of one holder, and its number of calls that use or await a thread."""

    __slots__ = ("calls", "free")

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(limits.THREADS_SHARE)
        self.calls = 0


_shares: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _Share]] = WeakKeyDictionary()


async def in_thread(work: Callable[[], T], *holders: str) -> T:
    """Run ``work`` in a thread when each holder uses fewer than THREADS_SHARE threads.

    Return the result of ``work``. A caller that names a user and a definition passes the user first. So at most
    THREADS_SHARE requests of one user use the definition's threads or wait for them, and requests of other users do not
    wait behind all requests of this user. The thread counts for the holders until the work ends, even if the caller is
    cancelled.
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
            # asyncio logs an exception that no code retrieves. ``shield`` retrieves the exception, unless the caller
            # was cancelled.
            done.exception()

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
