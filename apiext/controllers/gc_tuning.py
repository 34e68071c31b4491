"""When Python collects cyclic garbage: new objects often and briefly, all objects seldom.

Left alone it looks through everything whenever much is allocated, which holds all threads for tens of milliseconds.
"""

import asyncio
import gc
from time import thread_time

from apiext.controllers import limits
from apiext.storage.heap import HEAP

# New objects that start a collection of the newest objects.
GC_NEW = 2_000
# Collections of the newest objects before one of all new objects, 1 millisecond.
GC_ROUNDS = 4
# Seconds between full collections.
GC_EVERY = 2.0
# Collections of all new objects that make a full collection worthwhile.
GC_WORTH = 8

_NEVER = 1_000_000
_NEW = 1  # a generation
_SIZE = 200  # bytes, about, of an object with the objects that only it refers to


def hurry() -> None:
    """Collect only new objects from now on: those that exist already, such as code, live as long as the server."""
    gc.freeze()
    gc.set_threshold(GC_NEW, GC_ROUNDS, _NEVER)
    gc.enable()


def keep() -> None:
    """Collect all new objects once, and exempt the remaining ones: they live as long as the server."""
    gc.collect()
    gc.freeze()


async def collect_loop(every: float = GC_EVERY) -> None:
    """Run a full collection every so many seconds after many collections of new objects, until cancelled.

    All requests wait for a full collection: the longer one takes, the longer is the pause before the next.
    """
    seen, pause = _looked(), every
    while True:
        await asyncio.sleep(pause)
        if _looked() - seen >= GC_WORTH:
            began = thread_time()  # time in which other programs have the processor does not count
            HEAP.freed(gc.collect() * _SIZE)
            pause = max(every, (thread_time() - began) / limits.GC_SHARE)
            seen = _looked()


def _looked() -> int:
    """Return the number of collections of all new objects."""
    found: int = gc.get_stats()[_NEW]["collections"]
    return found
