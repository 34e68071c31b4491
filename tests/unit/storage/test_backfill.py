"""Many resuming watches share one read of etcd's history.

They do so if etcd's progress notifications are unreliable.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.keys import Keys
from apiext.storage.store import Compacted, Unavailable
from tests.support.fake_etcd import FakeEtcd, FakeWatch
from tests.support.sinks import RecordingSink, watch_group
from tests.support.store_contract import body

pytestmark = pytest.mark.looptime

KINDS = [GroupResource("example.com", f"kind{number}s") for number in range(20)] + [GroupResource("", "configmaps")]


class Past:
    """A store that was started after all writes.

    ``made`` are the revisions of each kind's objects.
    """

    def __init__(self, etcd: FakeEtcd, store: CachedStore, made: list[list[int]]) -> None:
        self.etcd, self.store, self.made = etcd, store, made
        self.kinds: list[Collection] = []
        self.spans: list[tuple[bytes, bytes]] = []  # key ranges of watches that read history
        self.most = 0  # maximum number of concurrent watches
        opened = etcd.watch

        def watch(start: bytes, end: bytes, from_revision: int, **rest: object) -> FakeWatch:
            self.spans.append((start, end))
            self.most = max(self.most, len(etcd.watches))
            return opened(start, end, from_revision, **rest)  # type: ignore[arg-type]

        etcd.watch = watch  # type: ignore[method-assign]

    async def resume(self, kind: int, after: int) -> list[int]:
        """Watch a kind from the revision of its object number ``after``.

        Return the revisions of the events.
        """
        made, sink = self.made[kind], RecordingSink()
        await self.store.watch(self.kinds[kind], watch_group(), made[after], sink)
        return [seen.revision for seen in await sink.reached(made[-1])]


@pytest.fixture
async def past() -> AsyncIterator[Past]:
    etcd, keys = FakeEtcd(), Keys("registry")
    etcd.progress_requests_ok, etcd.batch = False, 7
    made: list[list[int]] = [[] for _ in KINDS]
    for number in range(5):
        for kind, revisions in zip(KINDS, made, strict=True):
            revisions.append(etcd.put(keys.object(kind, "one", f"o{number}"), body(n=number)))
    store = CachedStore(etcd, keys)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        await store.start(group)
        world = Past(etcd, store, made)
        world.kinds = [store.add(kind, True) for kind in KINDS]
        for col in world.kinds:
            await col.wait_ready()
        yield world
        await store.stop()


@pytest.mark.rows("RV-017")
async def test_concurrent_watches_share_reads_of_history(past: Past) -> None:
    kinds = range(len(KINDS))
    seen = await asyncio.gather(*(past.resume(kind, (3 - kind) % 4) for kind in kinds))
    assert seen == [past.made[kind][(3 - kind) % 4 + 1 :] for kind in kinds]
    assert past.spans == [(b"/registry/", b"/registry0")] * len(past.spans)
    assert len(past.spans) <= 2, "one for the first, one for all who want more"
    assert past.most == 1, "beside the root watch, one at a time"
    assert len(past.etcd.watches) == 1


async def test_reliable_progress_allows_one_read_per_resource(past: Past) -> None:
    past.etcd.progress_requests_ok = True
    await asyncio.gather(*(past.resume(kind, 0) for kind in (0, 1)))
    assert past.spans == [
        (b"/registry/example.com/kind%ds/" % n, b"/registry/example.com/kind%ds0" % n) for n in (0, 1)
    ]


async def test_only_watches_from_compacted_revisions_are_refused(past: Past) -> None:
    past.etcd.forget_before(past.made[0][2])
    found = await asyncio.gather(*(past.resume(kind, kind) for kind in range(4)), return_exceptions=True)
    assert [type(one) for one in found] == [Compacted, Compacted, list, list]
    assert found[2:] == [past.made[2][3:], past.made[3][4:]]


@pytest.mark.parametrize("first", [0, 1], ids=["read", "waits"])
async def test_cancelled_watch_does_not_affect_shared_reads(past: Past, first: int) -> None:
    loop = asyncio.get_running_loop()
    past.etcd.hold()
    readers = [loop.create_task(past.resume(kind, after)) for kind, after in ((0, 3), (1, 0), (2, 0))]
    await asyncio.sleep(1)
    readers[first].cancel()
    await asyncio.sleep(1)
    past.etcd.release()
    found = await asyncio.gather(*readers, return_exceptions=True)
    assert isinstance(found.pop(first), asyncio.CancelledError)
    assert found == [past.made[kind][after + 1 :] for kind, after in ((0, 3), (1, 0), (2, 0)) if kind != first]
    assert len(past.etcd.watches) == 1


async def test_silent_etcd_makes_history_reads_unavailable(past: Past) -> None:
    past.etcd.hold()
    found = await asyncio.gather(*(past.resume(kind, 0) for kind in range(3)), return_exceptions=True)
    assert [type(one) for one in found] == [Unavailable] * 3
    assert len(past.etcd.watches) == 1
    past.etcd.release()
    assert await past.resume(0, 0) == past.made[0][1:]
