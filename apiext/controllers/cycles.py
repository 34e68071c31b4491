"""When Python looks for cyclic garbage: often and briefly among what is new, seldom among everything.

Left alone it looks through everything whenever much is allocated, which holds all threads for tens of milliseconds.
"""

import asyncio
import gc

from apiext import limits

_NEVER = 1_000_000
_NEW = 1  # a generation


def hurry() -> None:
    """Look only briefly from now on."""
    gc.set_threshold(limits.GC_NEW, limits.GC_ROUNDS, _NEVER)


def keep() -> None:
    """Look through everything once; what is left of it lives as long as the server and is never looked at again."""
    gc.collect()
    gc.freeze()


async def collect_loop(every: float = limits.GC_EVERY) -> None:
    """Look through everything every so many seconds if much was new meanwhile, until cancelled."""
    seen = _looked()
    while True:
        await asyncio.sleep(every)
        if _looked() - seen >= limits.GC_WORTH:
            gc.collect()
            seen = _looked()


def _looked() -> int:
    """Return how often new objects were looked through."""
    found: int = gc.get_stats()[_NEW]["collections"]
    return found
