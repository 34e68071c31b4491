"""Tuning of Python's garbage collector for reference cycles.

By default, Python scans all objects after many allocations, which blocks all threads for tens of milliseconds. With
this tuning, the collector scans new objects often and all objects rarely.
"""

import asyncio
import gc
from time import thread_time

from apiext.controllers import limits
from apiext.storage.heap import HEAP

# The number of new objects after which Python collects the newest generation.
GC_NEW = 500
# The number of collections of the newest generation before a collection of all new objects, which takes about 1 ms.
GC_ROUNDS = 3
# Minimum number of seconds between two full collections.
GC_EVERY = 2.0
# The number of collections of all new objects after which a full collection is worthwhile.
GC_WORTH = 60
# While the server is busy, a full collection needs this multiple of GC_WORTH, since it takes 40 ms (200,000 objects).
GC_BUSY = 8

_NEVER = 1_000_000
_NEW = 1  # the number of the generation that contains all new objects
_SIZE = 200  # approximate size in bytes of a collected object and of the objects that only it refers to


def collect_new_only() -> None:
    """Collect only new objects from now on.

    Existing objects, such as code, live as long as the server.
    """
    gc.freeze()
    gc.set_threshold(GC_NEW, GC_ROUNDS, _NEVER)
    gc.enable()


def exempt_existing() -> None:
    """Collect all new objects once, and exempt the survivors from later collections."""
    gc.collect()
    gc.freeze()


async def collect_loop(every: float = GC_EVERY) -> None:
    """Run full collections, after enough collections of new objects.

    Between two full collections are at least ``every`` seconds and GC_WORTH collections of new objects. All requests
    wait during a full collection. So the pause after it grows with its duration, and the loop prefers a quiet moment: a
    pause without a collection of new objects. At other moments the loop waits for GC_BUSY times as many collections.
    """
    collected, pause = _collections(), every
    before = collected
    while True:
        await asyncio.sleep(pause)
        found = _collections()
        if found - collected >= GC_WORTH * (1 if found == before else GC_BUSY):
            began = thread_time()  # CPU time, which does not include the wait for a processor
            HEAP.freed(gc.collect() * _SIZE)
            pause = max(every, (thread_time() - began) / limits.GC_SHARE)
            collected = found = _collections()
        before = found


def _collections() -> int:
    """Return the number of collections of all new objects since the start of the process."""
    found: int = gc.get_stats()[_NEW]["collections"]
    return found
