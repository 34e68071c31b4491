"""When Python looks for cyclic garbage: often and briefly among what is new, seldom among everything.

Left alone it looks through everything whenever much is allocated, which holds all threads for tens of milliseconds.
"""

import asyncio
import gc
from time import thread_time

from apiext import limits
from apiext.storage.heap import HEAP

_NEVER = 1_000_000
_NEW = 1  # a generation
_SIZE = 200  # bytes of an object and of what it alone holds, about


def hurry() -> None:
    """Look only briefly from now on, and never at what is there already: code lives as long as the server."""
    gc.freeze()
    gc.set_threshold(limits.GC_NEW, limits.GC_ROUNDS, _NEVER)
    gc.enable()


def keep() -> None:
    """Look through what came since, once; what is left of it lives as long as the server and is not looked at again."""
    gc.collect()
    gc.freeze()


async def collect_loop(every: float = limits.GC_EVERY) -> None:
    """Look through everything every so many seconds if much was new meanwhile, until cancelled.

    Everybody waits meanwhile: what takes long is done less often, so that few requests meet it.
    """
    seen, pause = _looked(), every
    while True:
        await asyncio.sleep(pause)
        if _looked() - seen >= limits.GC_WORTH:
            began = thread_time()  # what others take of the processor is not the look's fault
            HEAP.freed(gc.collect() * _SIZE)
            pause = max(every, (thread_time() - began) / limits.GC_SHARE)
            seen = _looked()


def _looked() -> int:
    """Return how often new objects were looked through."""
    found: int = gc.get_stats()[_NEW]["collections"]
    return found
