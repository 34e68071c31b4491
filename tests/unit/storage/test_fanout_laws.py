"""A watcher gets each change once and in order, and correct bookmarks.

The changes and pauses are random.
"""

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.storage import fanout as fanout_module
from apiext.storage import limits
from apiext.storage.fanout import Watcher
from apiext.storage.history import Change
from apiext.storage.store import Entry
from apiext.storage.watching import WatchGroup, event_of
from tests.support.converted import SlowWebhook
from tests.support.laws import examples
from tests.support.sinks import RecordingSink, Seen, fold, watch_group
from tests.unit.storage.test_fanout import Feed, turns

pytestmark = pytest.mark.rows("RV-017", "RV-012", "SEL-002")


def odd(entry: Entry) -> bool:
    return entry.raw == b'{"n":1}'


GROUPS: tuple[WatchGroup, ...] = (
    watch_group(key="all"),
    watch_group("a", key="in a"),
    watch_group(selects=odd, key="odd"),
    watch_group("b", selects=odd, key="odd in b"),
)


def pairs(random: Random) -> list[tuple[WatchGroup, WatchGroup]]:
    """Return pairs of a watched group and one that selects the same objects in stored form."""
    webhook = SlowWebhook(random)
    converted = [
        (webhook.group("v1", key="converted"), GROUPS[2]),
        (webhook.group("v1", "b", key="converted in b"), GROUPS[3]),
        (webhook.group("v7", key="never"), watch_group(selects=lambda entry: False)),
    ]
    return [*zip(GROUPS, GROUPS, strict=True), *converted]


class Client:
    """A watcher that pauses and resumes at random, and its expected events."""

    def __init__(self, feed: Feed, random: Random, groups: list[tuple[WatchGroup, WatchGroup]]) -> None:
        watched, self.group = random.choice(groups)
        self.sink = RecordingSink()
        self.initial = random.random() < 0.3
        self.after = (
            feed.revision if self.initial else random.randint(max(10, feed.col.feed.history.floor), feed.revision)
        )
        self.state = {
            f"{entry.namespace}/{entry.name}": entry.revision
            for entry in feed.col.state.entries(self.group.namespace)
            if self.group.selects is None or self.group.selects(entry)
        }
        start = None if self.initial else self.after
        self.watcher: Watcher = feed.col.watch(watched, start, self.sink, initial=self.initial, bookmarks=True)

    def expected(self, changes: list[Change]) -> list[Seen]:
        live = [event_of(self.group, change) for change in changes if change.revision > self.after]
        events = [Seen("ADDED", key, revision) for key, revision in self.state.items()] if self.initial else []
        return events + [
            Seen(kind, f"{entry.namespace}/{entry.name}", entry.revision) for kind, entry in filter(None, live)
        ]

    def check_bookmarks(self, changes: list[Change]) -> None:
        """Check that all changes up to a bookmark's revision precede it, and none follows it."""
        seen = [item for item in self.sink.seen if item.type != "END"]
        for place, item in enumerate(seen):
            if item.type == "BOOKMARK":
                assert all(later.revision > item.revision for later in seen[place + 1 :] if later.type != "BOOKMARK")
                due = [event for event in self.expected(changes) if event.revision <= item.revision]
                came = [event for event in seen[:place] if event.type != "BOOKMARK"]
                assert len(came) >= len(due)


async def story(seed: int) -> None:
    random = Random(seed)
    feed = Feed()
    changes: list[Change] = []
    feed.col.feed.subscribe(changes.append)
    clients: list[Client] = []
    groups = pairs(random)
    for _ in range(random.randint(5, 120)):
        for _ in range(random.choice((1, 1, 3, 30))):
            key = f"{random.choice('ab')}/{random.randrange(6)}"
            if random.random() < 0.3:
                feed.remove(key)
            else:
                feed.put(key, raw=b'{"n":%d}' % random.randrange(2))
        if random.random() < 0.3:
            clients.append(Client(feed, random, groups))
        if clients and random.random() < 0.5:
            client = random.choice(clients)
            client.sink.paused = not client.sink.paused
            if not client.sink.paused:
                client.watcher.resume()
        if clients and random.random() < 0.2:
            random.choice(clients).watcher.bookmark_now()
        if random.random() < 0.1:
            feed.col.tick()
        await turns(random.choice((0, 1, 2, 20)))
    for client in clients:
        if client.sink.paused:
            client.sink.paused = False
            client.watcher.resume()
    for _ in range(20_000):
        if all(client.watcher.revision == feed.revision for client in clients):
            break
        await asyncio.sleep(0)
    for client in clients:
        assert client.sink.events == client.expected(changes)
        assert client.watcher.revision == feed.revision
        client.check_bookmarks(changes)
        if client.initial and client.group.selects is None:
            now = {f"{e.namespace}/{e.name}": e.revision for e in feed.col.state.entries(client.group.namespace)}
            assert fold(client.sink.seen) == now


@given(st.integers(0, 2**32), st.sampled_from([(2, 64), (1000, 200), (1000, 262144)]))
@examples(12)
def test_fanout_delivers_each_change_once_in_order(seed: int, bounds: tuple[int, int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "PUMP_SLICE", bounds[0])
        patch.setattr(limits, "PUMP_BLOCK", bounds[1])
        patch.setattr(fanout_module, "BOOKMARK_FIRST", 0)
        patch.setattr(limits, "EVENTS_KEPT", 5)
        asyncio.run(story(seed))
