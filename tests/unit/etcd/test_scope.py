"""The tasks of a client end with it, whatever their cleanup does."""

import asyncio

import pytest

from apiext.etcd.scope import Scope


async def test_closing_scope_spawns_no_tasks() -> None:
    """A cancelled task may still request a scope; without this, the scope would never end."""
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


async def test_wait_closed_raises_the_error_of_a_task() -> None:
    async def failing() -> None:
        raise ValueError("a fault of ours")

    scope = Scope()
    await scope.open()
    waiting = asyncio.get_running_loop().create_task(scope.wait_closed())
    await asyncio.sleep(0)
    assert not waiting.done()
    scope.spawn(failing())
    async with asyncio.timeout(10):
        with pytest.raises(ExceptionGroup) as told:
            await waiting
    assert told.group_contains(ValueError, match="a fault of ours")
    await scope.close()


async def test_wait_closed_returns_after_a_regular_close() -> None:
    scope = Scope()
    await scope.open()
    scope.spawn(asyncio.Event().wait())  # type: ignore[arg-type]
    waiting = asyncio.get_running_loop().create_task(scope.wait_closed())
    async with asyncio.timeout(10):
        await scope.close()
        await waiting
