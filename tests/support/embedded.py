"""Embedded stores for tests: opened, and closed in order."""

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
SMALL_RESERVE = 64 << 10  # bytes: tests write little


@asynccontextmanager
async def opened(
    path: Path | None = None, quota: int = embedded_limits.QUOTA, reserve: int = SMALL_RESERVE
) -> AsyncIterator[Store]:
    """Open a store in a file, or in memory."""
    store = Store(SqliteBackend(path, reserve) if path is not None else MemoryBackend(), quota)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def client_of(store: Store) -> AsyncIterator[Etcd]:
    """Start a client of a store."""
    etcd = Etcd(["unix:///embedded"], transport=dialer(store))
    await etcd.start()
    try:
        yield etcd
    finally:
        await etcd.close()


def file_of(kind: str, directory: Path) -> Path | None:
    """Return where a store of a kind lies; None for memory."""
    return directory / "store.db" if kind == "sqlite" else None
