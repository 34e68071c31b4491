"""The contract of stores, for embedded stores in memory and in a file."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.direct_world import DirectWorld
from tests.support.embedded import KINDS, client_of, file_of, opened
from tests.support.store_contract import StoreContract


@pytest.fixture(params=KINDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[DirectWorld]:
    """Return a started store."""
    async with (
        opened(file_of(request.param, tmp_path)) as store,
        client_of(store) as etcd,
        client_of(store) as other,
        asyncio.TaskGroup() as group,
    ):
        made = DirectWorld(group, etcd, other, uuid.uuid4().hex)
        await made.store.start(group)
        yield made
        await made.store.stop()


class TestCachedStoreOverEmbedded(StoreContract):
    """CachedStore over apiext.etcd's client and an embedded store."""
