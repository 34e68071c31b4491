"""Watches with label selectors on converted objects.

Tests of the costs with many watches, and of failures of the webhook.
"""

from random import Random

import orjson
import pytest
from msgspec.structs import replace

from apiext import limits as server_limits
from apiext.storage import limits
from apiext.storage.indexes import Dimension, Term
from apiext.storage.watching import WatchGroup
from tests.support.converted import SlowWebhook
from tests.support.sinks import RecordingSink
from tests.unit.storage.test_fanout import Feed, turns

pytestmark = pytest.mark.rows("VER-012", "SEL-002")


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Increase the loop's budget.

    On a busy machine, the pump needs more iterations for the same work.
    """
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 60.0)


def number(value: int) -> bytes:
    return orjson.dumps({"n": value})


def webhook(turns: int = 3) -> SlowWebhook:
    return SlowWebhook(Random(1), turns, forgets=0)


@pytest.mark.parametrize("watches", [2, 3000])
async def test_change_is_converted_once_and_sent_to_matching_watches(watches: int) -> None:
    feed, hook = Feed(), webhook()
    sinks = [RecordingSink() for _ in range(watches)]
    watchers = [feed.col.watch(hook.group(f"v{at}"), None, sink) for at, sink in enumerate(sinks)]
    await turns(200)
    feed.put("n/a", raw=number(99_999))
    await turns(200)
    assert (hook.calls, hook.objects) == (1, 1)
    hook.asked = 0
    feed.put("n/a", raw=number(1))
    await turns(200)
    feed.put("n/a", raw=number(0))
    await turns(200)
    assert (hook.calls, hook.objects) == (3, 5), "the states before and after, whatever the number of watches"
    assert hook.asked < 30, "those whom it does not concern do not look at it"
    assert [[seen.type for seen in sink.seen] for sink in sinks[:2]] == [["ADDED"], ["ADDED", "DELETED"]]
    assert not any(sink.seen for sink in sinks[2:])
    assert all(watcher.revision == feed.revision for watcher in watchers)


async def test_changes_in_other_namespaces_are_not_converted() -> None:
    feed, hook = Feed(), webhook()
    watcher = feed.col.watch(hook.group("v1", "b"), None, RecordingSink())
    await turns()
    feed.put("a/a", raw=number(1))
    await turns()
    assert (hook.calls, watcher.revision) == (0, feed.revision)


async def test_new_watcher_waits_until_earlier_changes_are_routed() -> None:
    feed, hook = Feed(), webhook(20)
    first, second = RecordingSink(), RecordingSink()
    group = hook.group("v1", key="both")
    feed.col.watch(group, None, first)
    await turns(1)
    feed.put("n/a", raw=number(1))
    await turns(1)
    watcher = feed.col.watch(group, None, second)
    feed.put("n/b", raw=number(1))
    await turns(100)
    assert [seen.key for seen in first.seen] == ["n/a", "n/b"]
    assert [seen.key for seen in second.seen] == ["n/b"]
    assert watcher.revision == feed.revision


@pytest.mark.parametrize("beginning", [0, 1])
async def test_group_from_past_revision_gets_unconverted_changes(beginning: int) -> None:
    feed, hook = Feed(), webhook(40)
    first, second = RecordingSink(), RecordingSink()
    feed.col.watch(hook.group("v1", "n"), None, first)
    await turns(1)
    start = feed.put("m/before", raw=number(1)) - 1
    feed.put("n/a", raw=number(1))
    await turns(1)
    feed.put("m/a", raw=number(1))
    watcher = feed.col.watch(hook.group("v1", "m"), start + beginning, second)
    await turns(1)
    feed.put("m/b", "n/b", raw=number(1))
    await turns(400)
    assert [seen.key for seen in first.seen] == ["n/a", "n/b"]
    assert [seen.key for seen in second.seen] == ["m/before", "m/a", "m/b"][beginning:]
    assert watcher.revision == feed.revision


async def test_closing_a_group_keeps_changes_for_overlapping_groups() -> None:
    feed, hook, sink = Feed(), webhook(), RecordingSink()
    by_name = Dimension("name", lambda entry: entry.name)
    terms = [Term(by_name, lambda _: True, frozenset(names)) for names in ("ab", "bc")]
    terms += [Term(by_name, lambda _: True, None)] * 2
    groups = [replace(hook.group("v1"), route=route) for route in (*terms, None)]
    for staying in range(len(groups)):
        watchers = [feed.col.watch(group, None, RecordingSink()) for group in groups]
        stays = feed.col.watch(replace(groups[staying], key="stays"), None, sink)
        for watcher in watchers:
            watcher.close()
        feed.put("n/b", raw=number(1))
        await turns(200)
        stays.close()
    assert len(sink.seen) == len(groups)


async def test_failed_conversion_ends_only_watches_it_may_concern() -> None:
    feed, hook = Feed(), webhook()
    hook.fails = lambda entry: entry.name == "bad"
    groups: list[WatchGroup] = [hook.group("v1"), hook.group("v2"), hook.group("v1", "elsewhere")]
    sinks = [RecordingSink() for _ in groups]
    for group, sink in zip(groups, sinks, strict=True):
        feed.col.watch(group, None, sink)
    await turns()
    feed.put("n/good", raw=number(1))
    feed.put("n/bad", raw=number(1))
    feed.put("elsewhere/a", raw=number(1))
    await turns(200)
    assert [sink.ended for sink in sinks] == [True, True, False]
    assert [[seen.type for seen in sink.seen] for sink in sinks] == [["ADDED", "ERROR"], ["ERROR"], ["ADDED"]]


async def test_changes_evicted_before_conversion_end_watches_with_410(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "EVENT_RING", 5)
    feed, hook, sink = Feed(), webhook(100), RecordingSink()
    feed.col.watch(hook.group("v1"), None, sink)
    await turns(1)
    for value in range(20):
        feed.put("n/a", raw=number(value))
        await turns(1)
    await turns(300)
    assert sink.ended
    assert sink.seen[-1].key == "410"


async def test_closed_watches_leave_no_conversion_state() -> None:
    feed, hook = Feed(), webhook()
    watchers = [feed.col.watch(hook.group("v1", space), None, RecordingSink()) for space in ("a", "a", "b", None)]
    feed.put("a/a", raw=number(1))
    for watcher in watchers:
        watcher.close()
    await turns(200)
    fanout = feed.col.feed.fanout
    assert not any((fanout._converted, fanout._routes._everywhere, fanout._routes._inside))
    assert not fanout.busy
