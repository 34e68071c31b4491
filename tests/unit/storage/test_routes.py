"""A change with thousands of unrelated watches costs only the lookup of matching watches."""

from collections.abc import Callable

import orjson
import pytest

from apiext.storage import limits
from apiext.storage.indexes import Dimension, Term
from apiext.storage.watching import WatchGroup
from tests.support.sinks import RecordingSink, watch_group
from tests.support.work import calls
from tests.unit.storage.test_fanout import Feed, turns

NAME = Dimension("metadata.name", lambda entry: entry.name)
COLOR = Dimension("color", lambda entry: orjson.loads(entry.raw).get("color"))


def label(key: str) -> Dimension:
    return Dimension(("label", key), lambda entry: entry.labels.get(key), key)


def group(dimension: Dimension, value: str, namespace: str | None = None) -> WatchGroup:
    term = Term(dimension, lambda found: found == value, frozenset((value,)))
    return watch_group(namespace, term.matches, route=term)


def raw(number: int) -> bytes:
    return orjson.dumps({"metadata": {"labels": {"own": f"v{number}", f"l{number}": "x"}}, "color": f"c{number}"})


WATCHES: dict[str, Callable[[int], WatchGroup]] = {
    "name": lambda number: group(NAME, f"o{number}"),
    "name in a namespace": lambda number: group(NAME, f"o{number}", "n"),
    "value of a label": lambda number: group(label("own"), f"v{number}"),
    "label": lambda number: group(label(f"l{number}"), "x"),
    "field": lambda number: group(COLOR, f"c{number}"),
    "namespace": lambda number: watch_group(f"n{number}"),
}


@pytest.mark.rows("RV-010")
@pytest.mark.parametrize("watches", WATCHES)
async def test_cost_of_a_change_excludes_unrelated_watches(watches: str) -> None:
    took: dict[int, int] = {}
    for number in (2, 3000):
        feed = Feed()
        for at in range(number):
            feed.col.watch(WATCHES[watches](at), None, RecordingSink())
        await turns(200)
        feed.put("n/other", raw=raw(99_999))
        await turns()
        # the minimum of three: a garbage collection may call finalizers
        took[number] = min(calls(lambda: feed.put("n/other", raw=raw(99_998))) for _ in range(3))  # noqa: B023 - called immediately
        assert not feed.col.feed.fanout.busy
    assert took[3000] == took[2]


@pytest.mark.parametrize("watches", WATCHES)
async def test_idle_watch_follows_the_revision_and_gets_its_change(watches: str) -> None:
    """Idle watches follow changes of other objects, also more changes than the history holds."""
    feed = Feed()
    sinks = [RecordingSink() for _ in range(8)]
    watchers = [feed.col.watch(WATCHES[watches](at), None, sink) for at, sink in enumerate(sinks)]
    await turns()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "EVENT_RING", 5)
        for number in range(20):
            feed.put("n/other", raw=raw(1000 + number))
    assert [watcher.revision for watcher in watchers] == [feed.revision] * 8
    feed.put("n3/o3" if watches == "namespace" else "n/o3", raw=raw(3))
    await turns()
    assert [len(sink.seen) for sink in sinks] == [0, 0, 0, 1, 0, 0, 0, 0]
    assert [watcher.revision for watcher in watchers] == [feed.revision] * 8


@pytest.mark.rows("SEL-002")
async def test_changed_label_is_deleted_event_for_its_old_selector() -> None:
    feed = Feed()
    before, now = RecordingSink(), RecordingSink()
    for at, sink in ((1, before), (2, now)):
        feed.col.watch(WATCHES["value of a label"](at), None, sink)
    feed.put("n/a", raw=raw(1))
    feed.put("n/a", raw=raw(2))
    await turns()
    assert [seen.type for seen in before.seen] == ["ADDED", "DELETED"]
    assert [seen.type for seen in now.seen] == ["ADDED"]


async def test_selector_with_many_values_is_not_routed_by_value() -> None:
    values = frozenset(f"v{number}" for number in range(limits.ROUTE_VALUES + 1))
    feed, sink = Feed(), RecordingSink()
    term = Term(label("own"), values.__contains__, values)
    watcher = feed.col.watch(watch_group(None, term.matches, route=term), None, sink)
    feed.put("n/a", raw=raw(3))
    feed.put("n/b", raw=raw(777))
    await turns()
    assert [seen.key for seen in sink.seen] == ["n/a"]
    watcher.close()
    assert feed.col.feed.watchers == 0
    feed.put("n/a", raw=raw(3))


async def test_label_that_is_no_string_matches_no_value() -> None:
    feed, sinks = Feed(), [RecordingSink() for _ in range(3)]
    for at, sink in enumerate(sinks):
        feed.col.watch(WATCHES["value of a label"](at), None, sink)
    feed.put("n/a", raw=b'{"metadata":{"labels":{"own":["v1"]}}}')
    feed.put("n/b", raw=raw(1))
    await turns(200)
    assert [[seen.key for seen in sink.seen] for sink in sinks] == [[], ["n/b"], []]


@pytest.mark.parametrize("watches", WATCHES)
async def test_closed_watches_leave_no_routes(watches: str) -> None:
    feed = Feed()
    for _ in range(2):
        watchers = [feed.col.watch(WATCHES[watches](at), None, RecordingSink()) for at in range(20)]
        await turns()
        for watcher in watchers:
            watcher.close()
    routes = feed.col.feed.fanout._routes
    assert not any((routes._everywhere, routes._inside, routes._fields, routes._labels))
