"""Wait on the event loop for a condition that other tasks make true."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], within: float = 20.0, every: float = 0.001) -> None:
    """Poll a condition until it holds; raise TimeoutError after ``within`` seconds.

    With ``every`` 0, poll in each iteration of the event loop. With looptime, both times are virtual.
    """
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(every)
