"""A World of the store contract with an etcd in memory."""

from __future__ import annotations

import asyncio

from apiext.storage.cached_store import CachedStore
from apiext.storage.encryption import Encryptions
from apiext.storage.keys import Keys
from tests.support.fake_etcd import FakeEtcd


class FakeWorld:
    """A CachedStore over a FakeEtcd; ``kept`` encrypts its values."""

    def __init__(self, group: asyncio.TaskGroup, kept: Encryptions | None = None) -> None:
        self.group = group
        self.kept = kept
        self.etcd = FakeEtcd()
        self.store = self._make()

    def _make(self) -> CachedStore:
        return CachedStore(self.etcd, Keys("registry"), encryptions=self.kept)  # type: ignore[arg-type]

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
