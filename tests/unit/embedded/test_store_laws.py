"""The memory and SQLite backends return equal results for any calls.

tests/etcd/test_embedded_laws.py compares with etcd.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given

from apiext.embedded.connection import Connection
from tests.support import store_laws
from tests.support.embedded import opened
from tests.support.laws import examples


@examples(25)
@given(store_laws.calls)
def test_memory_and_sqlite_backends_return_equal_results(sequence: list[Any]) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory() as scratch:
            async with opened() as memory, opened(Path(scratch) / "store.db") as sqlite:
                players = [store_laws.Player(Connection(store), b"k/", 0) for store in (memory, sqlite)]
                first, second = [await player.play(sequence) for player in players]
                assert first == second

    asyncio.run(play())
