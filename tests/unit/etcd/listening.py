"""Watchers of a simulated etcd that record their events."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from apiext.etcd.client import Batch, Etcd, WatchHandle
from apiext.etcd.errors import EtcdError
from tests.support import polling
from tests.unit.etcd.mini import Mini

A, B = "http://a:2379", "http://b:2379"


class Listener:
    """The recorded events of a watch."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.ends: list[EtcdError] = []

    def watch(self, etcd: Etcd, start: int, prev_kv: bool = False) -> WatchHandle:
        return etcd.watch(b"/", b"0", start, prev_kv=prev_kv, on_batch=self.batches.append, on_end=self.ends.append)

    @property
    def revisions(self) -> list[int]:
        return [event.kv.mod_revision for batch in self.batches for event in batch.events]


until = partial(polling.until, within=1_000, every=0.01)  # virtual seconds


@asynccontextmanager
async def client(mini: Mini, *endpoints: str, user: str = "", password: str = "") -> AsyncIterator[Etcd]:
    etcd = Etcd(endpoints or [A], transport=mini.dial, user=user, password=password)
    await etcd.start()
    try:
        yield etcd
    finally:
        await etcd.close()
