"""Several stores over one etcd or one embedded store, under writes, compaction and restarts."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from apiext.etcd.client import Batch, Etcd, prefix_end
from apiext.etcd.errors import Compacted as CompactedAlready
from apiext.etcd.values import DELETE
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.keys import Keys
from apiext.storage.store import Compacted, Entry, KeyExists, RevisionChanged
from apiext.storage.watching import WatchGroup
from tests.support import processes
from tests.support.embedded import client_of, file_of
from tests.support.embedded import opened as opened_store
from tests.support.sinks import RecordingSink, Seen, watch_group
from tests.support.store_contract import THINGS, body

pytestmark = pytest.mark.rows("RV-011", "RV-012", "RV-017", "SEL-002")

SECONDS = 2.0


@pytest.fixture(scope="module")
def member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[processes.Etcd]:
    """An etcd for all tests of this module."""
    with processes.running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture(params=["etcd", "sqlite", pytest.param("memory", marks=pytest.mark.long)])
async def clients(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[list[Etcd]]:
    """The clients of two servers, and a client of the test."""
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "etcd":
            url = request.getfixturevalue("member").url
            made = [Etcd([url]) for _ in range(3)]
            for client in made:
                await client.start()
                stack.push_async_callback(client.close)
        else:
            store = await stack.enter_async_context(opened_store(file_of(request.param, tmp_path)))
            made = [await stack.enter_async_context(client_of(store)) for _ in range(3)]
        yield made


class PrefixWatch:
    """All events below the collection's prefix, from a watch that does not use the stores."""

    def __init__(self) -> None:
        self.log: list[tuple[str, int, bytes | None]] = []
        self._news = asyncio.Event()

    async def reached(self, revision: int) -> None:
        """Wait until the watch has received the revision."""
        while not self.log or self.log[-1][1] < revision:
            self._news.clear()
            await self._news.wait()

    def on_batch(self, batch: Batch) -> None:
        for event in batch.events:
            name = event.kv.key.decode().split("/things/")[1]
            self.log.append((name, event.kv.mod_revision, None if event.kind == DELETE else event.kv.value))
        self._news.set()

    def expected(self, watch: "Watch") -> list[Seen]:
        """Compute the expected events of a watch from the log, in the simplest way."""
        state: dict[str, bytes] = {}
        events: list[Seen] = []
        for key, revision, value in self.log:
            before = state.get(key)
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
            if revision <= watch.start or not key.startswith(watch.prefix):
                continue
            old = before is not None and watch.picks(before)
            new = value is not None and watch.picks(value)
            if old or new:
                kind = "MODIFIED" if old and new else "ADDED" if new else "DELETED"
                shown = value if new else before
                assert shown is not None
                events.append(Seen(kind, key, revision, shown.decode()))
        return events


class Watch:
    """A watch with a random namespace and selector."""

    def __init__(self, random: Random, start: int) -> None:
        self.start = start
        self.prefix = random.choice(("", "one/"))
        self.wanted = random.choice((None, b"1"))
        self.sink = RecordingSink()

    def picks(self, raw: bytes) -> bool:
        return self.wanted is None or b'"n":"%s"' % self.wanted in raw

    @property
    def group(self) -> WatchGroup:
        selects: Callable[[Entry], bool] | None = (lambda entry: self.picks(entry.raw)) if self.wanted else None
        namespace = self.prefix.rstrip("/") or None
        return watch_group(namespace, selects, key=f"{self.prefix} {self.wanted}")

    def check(self, prefix_watch: PrefixWatch) -> None:
        seen = [item for item in self.sink.seen if item.type in {"ADDED", "MODIFIED", "DELETED"}]
        expected = prefix_watch.expected(self)
        last = self.sink.seen[-1] if self.sink.ended and self.sink.seen else None
        if last is not None and last.type == "ERROR":
            assert seen == expected[: len(seen)]
        else:
            assert seen == expected
        for place, item in enumerate(self.sink.seen):
            if item.type == "BOOKMARK":
                for later in self.sink.seen[place + 1 :]:
                    assert later.revision > item.revision - (later.type == "BOOKMARK")


async def write(store: CachedStore, col: Collection, random: Random, until: float) -> None:
    """Create, update and delete a few objects, concurrently with other writers."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        namespace, name = random.choice(("one", "two")), f"o{random.randrange(8)}"
        entry = col.state.get(namespace, name)
        try:
            if entry is None:
                await store.create(col, namespace, name, body(n=random.randrange(2), u=random.random()))
            elif random.random() < 0.3:
                await store.delete(col, namespace, name, entry.revision)
            else:
                raw = body(n=random.randrange(2), u=random.random())
                await store.update(col, namespace, name, raw, entry.revision)
        except (KeyExists, RevisionChanged):
            pass


async def watch(store: CachedStore, col: Collection, random: Random, until: float) -> list[Watch]:
    """Open watches at past and current revisions, with pauses and bookmarks."""
    opened: list[Watch] = []
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        made = Watch(random, max(1, store.revision - random.choice((0, 0, 5, 100, 1000))))
        try:
            watcher = await store.watch(col, made.group, made.start, made.sink, bookmarks=True)
        except Compacted:
            continue
        finally:
            await asyncio.sleep(random.random() / 50)
        opened.append(made)
        for _ in range(random.randrange(3)):
            made.sink.paused = True
            await asyncio.sleep(random.random() / 100)
            made.sink.paused = False
            watcher.resume()
            watcher.bookmark_now()
    return opened


async def restart(
    etcd: Etcd, keys: Keys, group: asyncio.TaskGroup, random: Random, until: float
) -> tuple[list[CachedStore], list[Watch]]:
    """Start further stores, and resume watches on them at revisions before their start."""
    loop = asyncio.get_running_loop()
    stores: list[CachedStore] = []
    opened: list[Watch] = []
    while loop.time() < until:
        store = CachedStore(etcd, keys)
        await store.start(group)
        stores.append(store)
        col = store.add(THINGS, True)
        await col.wait_ready()
        made = Watch(random, max(1, store.revision - random.choice((1, 10, 200))))
        with contextlib.suppress(Compacted):
            await store.watch(col, made.group, made.start, made.sink)
            opened.append(made)
        await asyncio.sleep(0.2)
    return stores, opened


async def compact(etcd: Etcd, until: float) -> None:
    """Compact all but the last few hundred revisions, repeatedly."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await asyncio.sleep(0.1)
        with contextlib.suppress(CompactedAlready):
            await etcd.compact(max(1, await etcd.head_revision() - 300))


@pytest.mark.parametrize("seed", [1, 2])
async def test_watches_deliver_all_events_in_order(clients: list[Etcd], seed: int) -> None:
    random = Random(seed)
    keys = Keys(uuid.uuid4().hex)
    prefix_watch = PrefixWatch()
    prefix = keys.collection(THINGS).encode()
    head = await clients[2].head_revision()
    clients[2].watch(
        prefix,
        prefix_end(prefix),
        head + 1,
        on_batch=prefix_watch.on_batch,
        on_end=lambda error: prefix_watch.log.clear(),
    )
    until = asyncio.get_running_loop().time() + SECONDS
    async with asyncio.TaskGroup() as group:
        stores = [CachedStore(client, keys) for client in clients[:2]]
        for store in stores:
            await store.start(group)
        cols = [store.add(THINGS, True) for store in stores]
        for col in cols:
            await col.wait_ready()
        async with asyncio.TaskGroup() as work:
            pairs = list(zip(stores, cols, strict=True))
            for store, col in pairs * 4:
                work.create_task(write(store, col, Random(random.random()), until))
            watches = [work.create_task(watch(store, col, Random(random.random()), until)) for store, col in pairs]
            further = work.create_task(restart(clients[0], keys, group, Random(random.random()), until))
            work.create_task(compact(clients[2], until))
        last = await stores[0].create(cols[0], "one", "last", body(n=1))
        more, opened = further.result()
        for task in watches:
            opened += task.result()
        async with asyncio.timeout(10):
            await prefix_watch.reached(last.revision)
        for made in opened:
            await made.sink.reached(last.revision)
            made.check(prefix_watch)
        assert len(opened) > 20
        found = await clients[2].range(prefix, prefix_end(prefix))
        state = {item.key.decode(): item.mod_revision for item in found.kvs}
        for store in (*stores, *more):
            await store.at_least(last.revision)
            same = store.add(THINGS, True).state.entries()
            assert {keys.object(THINGS, entry.namespace, entry.name): entry.revision for entry in same} == state
            await store.stop()
