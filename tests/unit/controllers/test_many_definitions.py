"""The work for one definition does not grow with the number of definitions in its group.

The work is counted in executed lines.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import apiext
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import Server, crd, server

HERE = str(Path(apiext.__file__).parent)
GROUP = "many.example.com"
SIZES = (20, 100, 500)
MEASURED = 8
BAR = 1.1  # ratio of the work with 500 definitions to that with 20


def _name(number: int) -> str:
    return f"m{number:04}s.{GROUP}"


async def _define(one: Server, first: int, last: int) -> None:
    for number in range(first, last):
        await one.define(crd(f"m{number:04}s", GROUP))
    for number in range(first, last):
        await one.established(_name(number))


async def _delete(one: Server, first: int, last: int) -> None:
    for number in range(first, last):
        await one.delete_definition(_name(number))
    for number in range(first, last):
        await one.gone(_name(number))


async def _lines(work: Callable[[], Awaitable[None]]) -> int:
    """Return how many lines of the server are executed.

    Each iteration of loops and comprehensions is counted.
    """
    count = 0

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return inside

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        return inside if frame.f_code.co_filename.startswith(HERE) else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        await work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.slow
@pytest.mark.rows("CND-001", "DEL-005")
async def test_cost_of_definition_is_independent_of_group_size() -> None:
    created, deleted, have = [], [], 0
    async with server(FakeEtcd()) as one:
        for size in SIZES:
            await _define(one, have, size)
            created.append(await _lines(partial(_define, one, size, size + MEASURED)))
            deleted.append(await _lines(partial(_delete, one, size, size + MEASURED)))
            have = size
    assert max(created) <= BAR * created[0], created
    assert max(deleted) <= BAR * deleted[0], deleted
