"""Which work on an object is too long for a turn of the loop, and the thread that does it instead."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from apiext import limits
from apiext.verbs.call import Call

P = ParamSpec("P")
T = TypeVar("T")


async def run(call: Call, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what the work returns: here for a small object of a schema in use, else out of a thread."""
    if call.size < limits.OFF_LOOP and not call.served.cold():
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
