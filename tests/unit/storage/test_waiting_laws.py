"""With values that wait for keys, watchers get each change in order.

This is so for any writers and plug-ins.
"""

import asyncio
from contextlib import closing
from typing import NamedTuple

import looptime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.etcd.values import DELETE
from apiext.storage import limits
from apiext.storage.encryption import Encryption
from apiext.storage.store import StoreError
from tests.support.laws import examples
from tests.support.sinks import RecordingSink, watch_group
from tests.support.store_contract import THINGS, body
from tests.unit.storage.test_waiting import PREFIX, KmsWorld, names

NAMES = ("a", "b", "c")


class Step(NamedTuple):
    """A step of a test: a write or a change of the plug-in.

    It names the object and states whether the value is large.
    """

    name: str
    what: str
    large: bool


STEPS = st.builds(
    Step,
    st.sampled_from(NAMES),
    st.sampled_from(("theirs", "new", "plain", "ours", "gone", "slow", "quick", "wait", "read", "bookmark")),
    st.booleans(),
)


async def story(steps: list[Step]) -> None:
    async with asyncio.TaskGroup() as group:
        world = KmsWorld(group)
        col = await world.start()
        world.plugin.timeout = 1e6  # it is slow, but never fails
        first, sink = world.etcd.revision, RecordingSink()
        watcher = col.watch(watch_group(), None, sink, bookmarks=True)
        others: list[Encryption] = [await world.other()]
        for step in steps:
            await run_step(world, others, step)
            if step.what == "bookmark":
                watcher.bookmark_now()
            assert col.state.revision <= world.store.revision
        world.plugin.gate.set()
        revision = await world.store.fresh(col)
        happened = world.etcd.log_after(first)
        events = await sink.reached(revision) if happened else []
        assert [(seen.type == "DELETED", seen.revision) for seen in events] == [
            (event.kind == DELETE, event.kv.mod_revision) for event in happened
        ]
        assert names(col) == [key.rpartition("/")[2] for key in world.etcd.state(PREFIX)]
        assert not sink.ended
        passed = 0
        for seen in sink.seen:  # no bookmark precedes a waiting change of an earlier revision
            passed = max(passed, seen.revision) if seen.type == "BOOKMARK" else passed
            assert seen.type == "BOOKMARK" or seen.revision > passed
        assert not col.values.ahead
        await world.end()


async def run_step(world: KmsWorld, others: list[Encryption], step: Step) -> None:
    store, fields = world.store, {"n": len(others), "text": "x" * (limits.ENCRYPT_INLINE if step.large else 1)}
    col = store.collection(THINGS)
    assert col is not None
    match step.what:
        case "new":
            others.append(await world.other())
            world.write(others[-1], f"d/{step.name}", **fields)
        case "theirs":
            world.write(others[-1], f"d/{step.name}", **fields)
        case "plain":
            world.etcd.put(f"{PREFIX}d/{step.name}", body(**fields))
        case "ours":
            known = world.etcd.state(f"{PREFIX}d/{step.name}")
            expected = next(iter(known.values()))[0] if known else 0
            await store.update(col, "d", step.name, body(**fields), expected)
        case "gone":
            world.etcd.remove(f"{PREFIX}d/{step.name}")
        case "slow":
            world.plugin.gate.clear()
        case "quick":
            world.plugin.gate.set()
        case "wait":
            await asyncio.sleep(0.3)
        case "read":
            try:
                await store.fresh(col)
            except StoreError:
                world.plugin.gate.set()
    await asyncio.sleep(0)


@pytest.mark.rows("OPS-003", "RV-017")
@examples(10)
@given(steps=st.lists(STEPS, max_size=25))
def test_buffered_changes_are_delivered_once_in_order(steps: list[Step]) -> None:
    # no Runner: from Python 3.12 on it waits five minutes for threads, which pass at once in virtual time
    with closing(looptime.new_event_loop()) as loop:
        loop.run_until_complete(story(steps))
