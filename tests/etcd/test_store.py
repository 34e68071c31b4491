"""The contract of CachedStore, over a real etcd."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from apiext.etcd.client import Etcd
from tests.support import processes
from tests.support.direct_world import DirectWorld
from tests.support.store_contract import StoreContract


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Etcd]:
    """An etcd for all tests of this module; each test has its own prefix."""
    with processes.running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
async def world(member: processes.Etcd) -> AsyncIterator[DirectWorld]:
    """A World with a started store."""
    etcd, other = Etcd([member.url]), Etcd([member.url])
    await etcd.start()
    await other.start()
    async with asyncio.TaskGroup() as group:
        made = DirectWorld(group, etcd, other, uuid.uuid4().hex)
        await made.store.start(group)
        yield made
        await made.store.stop()
    await etcd.close()
    await other.close()


class TestCachedStoreOverEtcd(StoreContract):
    """The contract for CachedStore over apiext.etcd and an etcd process."""
