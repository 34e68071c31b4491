"""Tuning of Python's collector of cyclic garbage: new objects often and briefly, all objects seldom.

By default Python scans all objects after many allocations, which blocks all threads for tens of milliseconds.
"""

import asyncio
import gc
from time import thread_time

from apiext.controllers import limits
from apiext.storage.heap import HEAP

# New objects after which the newest generation is collected.
GC_NEW = 2_000
# Collections of the newest generation before one of all new objects, which takes about 1 millisecond.
GC_ROUNDS = 4
# Seconds between full collections.
GC_EVERY = 2.0
# Collections of all new objects that make a full collection worthwhile.
GC_WORTH = 8

_NEVER = 1_000_000
_NEW = 1  # the generation of all new objects
_SIZE = 200  # approximate bytes of an object, with the objects that only it refers to


def collect_new_only() -> None:
    """Collect only new objects from now on: existing ones, such as code, live as long as the server."""
    gc.freeze()
    gc.set_threshold(GC_NEW, GC_ROUNDS, _NEVER)
    gc.enable()


def exempt_existing() -> None:
    """Collect all new objects once, and exempt the survivors from later collections."""
    gc.collect()
    gc.freeze()


async def collect_loop(every: float = GC_EVERY) -> None:
    """Run a full collection at most every ``every`` seconds, if GC_WORTH collections ran since; until cancelled.

    All requests wait during a full collection. So the pause before the next one grows with its duration.
    """
    collected, pause = _collections(), every
    while True:
        await asyncio.sleep(pause)
        if _collections() - collected >= GC_WORTH:
            began = thread_time()  # CPU time: waiting for a processor does not count
            HEAP.freed(gc.collect() * _SIZE)
            pause = max(every, (thread_time() - began) / limits.GC_SHARE)
            collected = _collections()


def _collections() -> int:
    """Return the number of collections of all new objects."""
    found: int = gc.get_stats()[_NEW]["collections"]
    return found
