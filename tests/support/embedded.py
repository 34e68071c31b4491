"""Open embedded stores for tests, and close them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from apiext.embedded import limits as embedded_limits
from apiext.embedded.connection import dialer
from apiext.embedded.memory import MemoryBackend
from apiext.embedded.sqlite import SqliteBackend
from apiext.embedded.store import Store
from apiext.etcd.client import Etcd

KINDS = ("memory", "sqlite")
SMALL_RESERVE = 64 << 10  # bytes; small, since tests write little


@asynccontextmanager
async def opened(
    path: Path | None = None, quota: int = embedded_limits.QUOTA, reserve: int = SMALL_RESERVE
) -> AsyncIterator[Store]:
    """Open a store in the file ``path``, or in memory; close it after the block."""
    store = Store(SqliteBackend(path, reserve) if path is not None else MemoryBackend(), quota)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def client_of(store: Store) -> AsyncIterator[Etcd]:
    """Start an etcd client of an embedded store; close it after the block."""
    etcd = Etcd(["unix:///embedded"], transport=dialer(store))
    await etcd.start()
    try:
        yield etcd
    finally:
        await etcd.close()


def file_of(kind: str, directory: Path) -> Path | None:
    """Return the path of a store's file; None for the kind "memory"."""
    return directory / "store.db" if kind == "sqlite" else None
