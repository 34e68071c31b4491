"""The contract of a store, over a real etcd."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from apiext.etcd.client import Etcd
from apiext.storage.cached_store import CachedStore
from apiext.storage.keys import Keys
from tests.support import processes
from tests.support.store_contract import StoreContract


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Etcd]:
    """One etcd for all tests here; each has its own prefix."""
    with processes.running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


class RealWorld:
    """A store over a real etcd, and a second client as somebody else."""

    def __init__(self, group: asyncio.TaskGroup, etcd: Etcd, other: Etcd) -> None:
        self.group = group
        self.etcd = etcd
        self.other = other
        self.prefix = uuid.uuid4().hex
        self.store = CachedStore(etcd, Keys(self.prefix))

    async def put(self, key: str, value: bytes) -> int:
        current = await self.other.get(key.encode())
        return (await self.other.update(key.encode(), value, current.mod_revision if current else 0)).revision

    async def remove(self, key: str) -> int:
        current = await self.other.get(key.encode())
        assert current is not None
        return (await self.other.delete(key.encode(), current.mod_revision)).revision

    async def compact(self, revision: int) -> None:
        await self.other.compact(revision)

    async def restart(self) -> CachedStore:
        await self.store.stop()
        self.store = CachedStore(self.etcd, Keys(self.prefix))
        await self.store.start(self.group)
        return self.store


@pytest.fixture
async def world(member: processes.Etcd) -> AsyncIterator[RealWorld]:
    """A started store."""
    etcd, other = Etcd([member.url]), Etcd([member.url])
    await etcd.start()
    await other.start()
    async with asyncio.TaskGroup() as group:
        made = RealWorld(group, etcd, other)
        await made.store.start(group)
        yield made
        await made.store.stop()
    await etcd.close()
    await other.close()


class TestCachedStoreOverEtcd(StoreContract):
    """CachedStore over apiext.etcd and an etcd process."""
