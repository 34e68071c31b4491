"""A World of the store contract with two clients of an etcd or embedded store.

One is the server's client.
"""

from __future__ import annotations

import asyncio

from apiext.etcd.client import Etcd
from apiext.storage.cached_store import CachedStore
from apiext.storage.keys import Keys


class DirectWorld:
    """A CachedStore with the client ``etcd``.

    The client ``other`` writes directly to the same etcd.
    """

    def __init__(self, group: asyncio.TaskGroup, etcd: Etcd, other: Etcd, prefix: str) -> None:
        self.group = group
        self.etcd = etcd
        self.other = other
        self.prefix = prefix
        self.store = CachedStore(etcd, Keys(prefix))

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
