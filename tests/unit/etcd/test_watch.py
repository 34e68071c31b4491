"""Watches of a simulated etcd: each change arrives once and in order.

This holds whatever happens to connections.
"""

import asyncio

import looptime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.etcd import errors, messages
from apiext.etcd import limits as etcd_limits
from apiext.etcd.client import Batch
from apiext.etcd.watch import Watch
from tests.unit.etcd.listening import A, B, Listener, client, until
from tests.unit.etcd.mini import Mini


@pytest.mark.looptime
async def test_watch_from_now_delivers_later_events() -> None:
    mini = Mini()
    mini.put(b"/before", b"")
    async with client(mini) as etcd:
        heard = Listener()
        watch = heard.watch(etcd, 0)
        await asyncio.sleep(1)
        assert (watch.connected, watch.watermark) == (True, 2)
        mini.put(b"/k", b"1")
        mini.put(b"/k", b"2")
        mini.delete(b"/k")
        first, second, third = (batch.events[0] for batch in heard.batches)
        assert (first.kind, first.kv.value, first.kv.version, first.prev) == (0, b"1", 1, None)
        assert (second.kind, second.kv.value, second.kv.create_revision) == (0, b"2", 3)
        assert (third.kind, third.kv.key, third.kv.mod_revision) == (1, b"/k", 5)
        assert [batch.revision for batch in heard.batches] == [3, 4, 5]
        assert watch.watermark == 5


@pytest.mark.looptime
async def test_watch_from_a_revision_delivers_previous_values() -> None:
    mini = Mini()
    for value in (b"1", b"2"):
        mini.put(b"/k", value)
    mini.delete(b"/k")
    async with client(mini) as etcd:
        heard = Listener()
        heard.watch(etcd, 3, prev_kv=True)
        await asyncio.sleep(1)
        (batch,) = heard.batches
        assert [(event.kv.mod_revision, event.prev and event.prev.value) for event in batch.events] == [
            (3, b"1"),
            (4, b"2"),
        ]


@pytest.mark.looptime
@pytest.mark.parametrize("repeat", [False, True])
async def test_watch_resumes_without_gap_or_duplicate(repeat: bool) -> None:
    mini = Mini(repeat_events=repeat)
    async with client(mini, A, B) as etcd:
        heard = Listener()
        watch = heard.watch(etcd, 0)
        await asyncio.sleep(1)
        for _ in range(5):
            mini.put(b"/k", b"x")
            mini.cut()
            assert not watch.connected
            mini.put(b"/k", b"y")
            await asyncio.sleep(5)
        assert heard.revisions == list(range(2, 12))
        assert heard.ends == []


@pytest.mark.looptime
async def test_watch_resumes_after_etcd_was_down() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard = Listener()
        heard.watch(etcd, 0)
        await asyncio.sleep(1)
        mini.down.add(A)
        mini.cut()
        mini.put(b"/k", b"x")
        await asyncio.sleep(300)
        mini.down.clear()
        await asyncio.sleep(5)
        assert heard.revisions == [2]


@pytest.mark.looptime
@pytest.mark.parametrize("size", [1, 2, 3, 100])
async def test_fragments_never_split_a_revision(size: int) -> None:
    mini = Mini(fragments=size)
    async with client(mini) as etcd:
        for _ in range(3):
            mini.put_all({b"/a": b"1", b"/b": b"1", b"/c": b"1"})
        heard = Listener()
        heard.watch(etcd, 2)
        await asyncio.sleep(1)
        assert heard.revisions == [2, 2, 2, 3, 3, 3, 4, 4, 4]
        for batch in heard.batches:
            assert len(batch.events) % 3 == 0
            assert batch.revision == batch.events[-1].kv.mod_revision


@pytest.mark.looptime
@pytest.mark.parametrize("size", [0, 1, 2])
async def test_own_writes_are_not_delivered(size: int) -> None:
    mini = Mini(fragments=size)
    async with client(mini) as etcd:
        heard = Listener()
        watch = heard.watch(etcd, 2)
        await until(lambda: watch.connected)
        watch.skip_to(3, b"/k", b"x")
        for _ in range(4):
            mini.put(b"/k", b"x")
        await until(lambda: heard.revisions[-1:] == [5])
        assert heard.revisions == [4, 5]
        watch.skip_to(4, b"/k", b"x")  # already delivered
        assert watch.watermark == 5
        watch.skip_to(6, b"/k", b"x")
        mini.cut()
        mini.put(b"/k", b"x")
        mini.put(b"/k", b"x")
        await until(lambda: heard.revisions[-1:] == [7])
        assert heard.revisions == [4, 5, 7]


@pytest.mark.looptime
async def test_skip_to_drops_a_buffered_fragment() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard = Listener()
        watch = heard.watch(etcd, 2)
        await until(lambda: watch.connected)
        assert isinstance(watch, Watch)
        answer = messages.WatchResponse(fragment=True)
        answer.header.revision = 2
        answer.events.add().kv.mod_revision = 2
        watch._on_message(answer.SerializeToString())
        assert heard.revisions == []
        watch.skip_to(2, b"/k", b"x")
        answer.fragment = False
        answer.events[0].kv.mod_revision = 3
        watch._on_message(answer.SerializeToString())
        assert heard.revisions == [3]


@pytest.mark.looptime
async def test_progress_between_fragments_is_ignored() -> None:
    """Progress between two fragments of a revision is ignored.

    The rest of the revision is delivered.
    """
    mini = Mini()
    async with client(mini) as etcd:
        heard = Listener()
        watch = heard.watch(etcd, 2)
        await until(lambda: watch.connected)
        assert isinstance(watch, Watch)
        answer = messages.WatchResponse(fragment=True)
        answer.header.revision = 2
        answer.events.add().kv.mod_revision = 2
        progress = messages.WatchResponse()
        progress.header.revision = 2
        watch._on_message(answer.SerializeToString())
        watch._on_message(progress.SerializeToString())
        assert (heard.batches, watch.watermark) == ([], 1)
        answer.fragment = False
        watch._on_message(answer.SerializeToString())
        assert heard.revisions == [2, 2]


@pytest.mark.looptime
async def test_watch_from_a_compacted_revision_ends() -> None:
    mini = Mini()
    for _ in range(10):
        mini.put(b"/k", b"x")
    mini.compacted = 8
    async with client(mini) as etcd:
        heard = Listener()
        watch = heard.watch(etcd, 3)
        await asyncio.sleep(1)
        (error,) = heard.ends
        assert isinstance(error, errors.Compacted)
        assert error.oldest == 8
        assert not watch.connected
        assert mini.links[-1].streams == set()


@pytest.mark.looptime
async def test_compaction_while_disconnected_ends_the_watch() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard = Listener()
        heard.watch(etcd, 0)
        await asyncio.sleep(1)
        mini.cut()
        for _ in range(10):
            mini.put(b"/k", b"x")
        mini.compacted = 9
        await asyncio.sleep(5)
        assert [type(error) for error in heard.ends] == [errors.Compacted]
        assert heard.revisions == []


@pytest.mark.looptime
async def test_watch_far_behind_ends_after_reconnect() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard = Listener()
        heard.watch(etcd, 0)
        await asyncio.sleep(1)
        mini.cut()
        mini.revision += etcd_limits.RELIST_GAP + 1
        await asyncio.sleep(5)
        assert [type(error) for error in heard.ends] == [errors.FarBehind]


@pytest.mark.looptime
@pytest.mark.parametrize(("version", "trusted"), [("3.5.13", True), ("3.5.12", False), ("3.4.31", True), ("3.6", True)])
async def test_progress_requests_depend_on_server_version(version: str, trusted: bool) -> None:
    mini = Mini(version=version)
    async with client(mini) as etcd:
        heard = Listener()
        watch = heard.watch(etcd, 0)
        assert not watch.request_progress()
        await asyncio.sleep(1)
        mini.revision = 9
        assert etcd.progress_requests_ok is trusted
        assert watch.request_progress() is trusted
        await asyncio.sleep(1)
        assert heard.batches == ([Batch([], 9, True)] if trusted else [])
        assert watch.watermark == (9 if trusted else 1)


@pytest.mark.looptime
async def test_cancelled_watch_delivers_nothing() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard = Listener()
        open_one, early = heard.watch(etcd, 0), heard.watch(etcd, 0)
        early.cancel()
        await asyncio.sleep(1)
        open_one.cancel()
        open_one.cancel()
        mini.put(b"/k", b"x")
        await asyncio.sleep(1)
        assert (heard.batches, heard.ends) == ([], [])
        assert mini.links[-1].streams == set()
        assert not open_one.request_progress()


@pytest.mark.looptime
async def test_watch_cancelled_in_its_callback_stops_delivery() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard = Listener()

        def on_batch(batch: Batch) -> None:
            heard.batches.append(batch)
            watch.cancel()

        watch = etcd.watch(b"/", b"0", 0, on_batch=on_batch, on_end=heard.ends.append)
        await asyncio.sleep(1)
        mini.put(b"/k", b"x")
        mini.put(b"/k", b"y")
        await asyncio.sleep(1)
        assert (heard.revisions, heard.ends) == ([2], [])


@pytest.mark.looptime
async def test_close_ends_open_and_later_watches() -> None:
    mini = Mini()
    heard = Listener()
    async with client(mini) as etcd:
        heard.watch(etcd, 0)
        await asyncio.sleep(1)
    assert [type(error) for error in heard.ends] == [errors.Closed]
    heard.watch(etcd, 0)
    await asyncio.sleep(1)
    assert [type(error) for error in heard.ends] == [errors.Closed] * 2


@pytest.mark.looptime
async def test_watch_switches_from_a_member_that_does_not_open_it() -> None:
    mini = Mini(mute_watches=True)
    async with client(mini, A, B) as etcd:
        heard = Listener()
        heard.watch(etcd, 0)
        await asyncio.sleep(1)
        mini.mute_watches = False
        await asyncio.sleep(5)
        mini.put(b"/k", b"x")
        assert heard.revisions == [2]
        assert [endpoint for endpoint, path in mini.calls if path == messages.WATCH] == [A, B]


CANCELS = {
    "etcdserver: no leader": None,
    "the server is unwell": None,
    "etcdserver: permission denied": errors.AuthError,
    "mvcc: required revision has been compacted": errors.Compacted,
}


@pytest.mark.looptime
@pytest.mark.parametrize("reason", CANCELS)
async def test_watch_cancelled_by_the_server_reopens_or_ends(reason: str) -> None:
    mini = Mini()
    async with client(mini, A, B) as etcd:
        heard = Listener()
        heard.watch(etcd, 0)
        await asyncio.sleep(1)
        (stream,) = (stream for link in mini.links for stream in link.streams)
        stream.say(messages.WatchResponse(canceled=True, cancel_reason=reason))
        mini.put(b"/k", b"x")
        await asyncio.sleep(5)
        expected = CANCELS[reason]
        assert [type(error) for error in heard.ends] == ([expected] if expected else [])
        assert heard.revisions == ([] if expected else [2])
        last = [endpoint for endpoint, path in mini.calls if path == messages.WATCH][-1]
        assert last == (B if "no leader" in reason else A), "only a member that is cut off is left"


OLD_TOKENS = (
    "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
    "rpc error: code = InvalidArgument desc = etcdserver: revision of auth store is old",
    "rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
    "auth: revision in header is old",
    "rpc error: code = PermissionDenied desc = etcdserver: permission denied",  # from servers before 3.4.20 and 3.5.5
)


@pytest.mark.looptime
@pytest.mark.parametrize("reason", OLD_TOKENS)
async def test_a_watch_with_an_old_token_logs_in_again(reason: str) -> None:
    mini = Mini(password="secret")
    async with client(mini, user="app", password="secret") as etcd:
        heard, before = Listener(), mini.count(messages.AUTHENTICATE)
        mini.refusals.append(reason)
        watch = heard.watch(etcd, 0)
        await until(lambda: watch.connected)
        assert mini.count(messages.AUTHENTICATE) == before + 1
        mini.put(b"/k", b"x")
        await until(lambda: heard.revisions == [2])
        assert heard.ends == []


@pytest.mark.looptime
async def test_watch_denied_with_a_new_token_ends() -> None:
    mini = Mini(password="secret")
    async with client(mini, user="app", password="secret") as etcd:
        heard = Listener()
        mini.refusals += [OLD_TOKENS[-1]] * 2
        heard.watch(etcd, 0)
        await until(lambda: bool(heard.ends))
        assert [type(error) for error in heard.ends] == [errors.AuthError]


@pytest.mark.looptime
async def test_failing_watches_are_logged_with_a_rate_limit(caplog: pytest.LogCaptureFixture) -> None:
    mini = Mini()
    async with client(mini) as etcd:
        mini.refusals += ["the server is unwell"] * 1_000
        watches = [Listener().watch(etcd, 0) for _ in range(10)]
        await asyncio.sleep(60)
        assert not any(watch.connected for watch in watches)
        told = [record.getMessage() for record in caplog.records if "stay open" in record.getMessage()]
        assert told[0] == "a watch of / in etcd does not stay open: the server is unwell"
        assert "more were not logged" in told[1]
        assert 3 <= len(told) <= 7


@pytest.mark.looptime
async def test_only_repeatedly_ended_watches_reopen_with_a_pause() -> None:
    """Only watches that end repeatedly wait longer each time."""
    mini, loop = Mini(), asyncio.get_running_loop()

    async def reopen_duration() -> float:
        (stream,) = (stream for link in mini.links for stream in link.streams)
        began = loop.time()
        stream.say(messages.WatchResponse(canceled=True, cancel_reason="the server is unwell"))
        await until(lambda: watch.connected)
        return loop.time() - began

    async with client(mini) as etcd:
        watch = Listener().watch(etcd, 0)
        await until(lambda: watch.connected)
        pauses = [await reopen_duration() for _ in range(10)]
        assert max(pauses[:2]) < 0.1
        assert min(pauses[8:]) > 0.9
        await asyncio.sleep(5)
        assert await reopen_duration() < 0.1


STEPS = st.lists(
    st.sampled_from(["put", "put", "delete", "pair", "cut", "wait", "repeat", "fragment", "progress"]), max_size=40
)


@given(STEPS)
def test_watch_delivers_every_change_once_and_in_order(steps: list[str]) -> None:
    async def story() -> tuple[list[tuple[int, int, bytes]], list[tuple[int, int, bytes]]]:
        mini = Mini()
        async with client(mini, A, B) as etcd:
            heard = Listener()
            heard.watch(etcd, 2)
            for step in steps:
                if step == "put":
                    mini.put(b"/k", b"x")
                elif step == "delete" and b"/k" in mini.kvs:
                    mini.delete(b"/k")
                elif step == "pair":
                    mini.put_all({b"/a": b"1", b"/b": b"2"})
                elif step == "cut":
                    mini.cut()
                elif step == "wait":
                    await asyncio.sleep(0.1)
                elif step == "repeat":
                    mini.repeat_events = not mini.repeat_events
                elif step == "fragment":
                    mini.fragments = 1 - mini.fragments
                elif step == "progress":
                    for link in mini.links:
                        for stream in link.streams:
                            if stream.next:
                                stream.say(messages.WatchResponse())
            await asyncio.sleep(10)
            told = [(e.kv.mod_revision, e.kind, e.kv.key) for batch in heard.batches for e in batch.events]
            revisions = [batch.revision for batch in heard.batches]
            assert revisions == sorted(set(revisions))
            return told, [(revision, event.type, event.kv.key) for revision, event in mini.history]

    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        told, happened = runner.run(story())
    assert told == happened
