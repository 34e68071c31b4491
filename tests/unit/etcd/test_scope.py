"""The tasks of a client end with it, whatever they do on their way out."""

import asyncio

from apiext.etcd.scope import Scope


async def test_a_task_that_ends_starts_no_other() -> None:
    """Who is cancelled may still ask for one: nobody would ever end it."""
    scope, found = Scope(), list[object]()

    async def ending() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            found.append(scope.spawn(asyncio.Event().wait()))  # type: ignore[arg-type]

    await scope.open()
    task = scope.spawn(ending())
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await scope.close()
    assert task is not None
    assert (task.cancelled(), found) == (True, [None])
    assert scope.spawn(ending()) is None
