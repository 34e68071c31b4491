"""When Python looks for cyclic garbage: often and briefly among what is new, seldom among everything.

Left alone it looks through everything whenever much is allocated, which holds all threads for tens of milliseconds.
"""

import asyncio
import gc
from time import thread_time

from apiext.controllers import limits
from apiext.storage.heap import HEAP

# New objects after which the garbage collector looks at them.
GC_NEW = 2_000
# Such looks after which all new objects are looked at, 1 millisecond.
GC_ROUNDS = 4
# Seconds between full collections.
GC_EVERY = 2.0
# Such rounds that make a full collection worthwhile.
GC_WORTH = 8

_NEVER = 1_000_000
_NEW = 1  # a generation
_SIZE = 200  # bytes of an object and of what it alone holds, about


def hurry() -> None:
    """Look only briefly from now on, and never at what is there already: code lives as long as the server."""
    gc.freeze()
    gc.set_threshold(GC_NEW, GC_ROUNDS, _NEVER)
    gc.enable()


def keep() -> None:
    """Look through what came since, once; what is left of it lives as long as the server and is not looked at again."""
    gc.collect()
    gc.freeze()


async def collect_loop(every: float = GC_EVERY) -> None:
    """Look through everything every so many seconds if much was new meanwhile, until cancelled.

    Everybody waits meanwhile: what takes long is done less often, so that few requests meet it.
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
    """Return how often new objects were looked through."""
    found: int = gc.get_stats()[_NEW]["collections"]
    return found
