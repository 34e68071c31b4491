"""The contract of a store, over an etcd in memory."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from apiext.storage.cached_store import CachedStore
from apiext.storage.keys import Keys
from tests.support.fake_etcd import FakeEtcd
from tests.support.store_contract import StoreContract

pytestmark = pytest.mark.looptime


class FakeWorld:
    """A store over a FakeEtcd."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.group = group
        self.etcd = FakeEtcd()
        self.store = self._make()

    def _make(self) -> CachedStore:
        return CachedStore(self.etcd, Keys("registry"))  # type: ignore[arg-type]

    async def put(self, key: str, value: bytes) -> int:
        return self.etcd.put(key, value)

    async def remove(self, key: str) -> int:
        return self.etcd.remove(key)

    async def compact(self, revision: int) -> None:
        await self.etcd.compact(revision)

    async def restart(self) -> CachedStore:
        await self.store.stop()
        self.store = self._make()
        await self.store.start(self.group)
        return self.store


@pytest.fixture(params=["progress", "touch"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[FakeWorld]:
    """A started store; with and without an etcd whose progress answers can be trusted."""
    async with asyncio.TaskGroup() as group:
        made = FakeWorld(group)
        made.etcd.progress_requests_ok = request.param == "progress"
        await made.store.start(group)
        yield made
        await made.store.stop()


class TestCachedStore(StoreContract):
    """CachedStore over FakeEtcd."""
