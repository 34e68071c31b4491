"""Keys, history, progress, leases and the pump."""

import asyncio
from time import perf_counter
from typing import cast

import pytest

from apiext import limits as server_limits
from apiext.etcd import errors as etcd_errors
from apiext.etcd.client import Etcd
from apiext.etcd.errors import UNAVAILABLE, Unavailable
from apiext.meta.names import GroupResource
from apiext.storage import history as history_module
from apiext.storage import limits as storage_limits
from apiext.storage.etcd_store import EtcdStore
from apiext.storage.history import Change, History
from apiext.storage.indexes import select_entries
from apiext.storage.initial_frames import InitialFrames
from apiext.storage.keys import Keys, bounds, split_relative
from apiext.storage.leases import Leases
from apiext.storage.progress import Progress
from apiext.storage.pump import Pump
from apiext.storage.snapshot import Snapshot
from apiext.storage.store import Compacted, Entry, UnknownOutcome
from tests.support.strain import turns_beside


@pytest.mark.rows("ETC-001")
@pytest.mark.parametrize(
    ("prefix", "root"),
    [
        ("/registry", "/registry/"),
        ("registry/apiextensions.kubernetes.io", "/registry/apiextensions.kubernetes.io/"),
        ("3f1c", "/3f1c/"),
        ("/registry/", "/registry/"),
        ("", "/"),
    ],
)
def test_etcd_keys_of_collections_and_objects(prefix: str, root: str) -> None:
    keys = Keys(prefix)
    tabs = GroupResource("example.com", "crontabs")
    assert keys.collection(tabs) == f"{root}example.com/crontabs/"
    assert keys.object(tabs, "default", "a") == f"{root}example.com/crontabs/default/a"
    assert keys.object(tabs, "", "a") == f"{root}example.com/crontabs/a"
    assert keys.object(GroupResource("", "namespaces"), "", "a") == f"{root}namespaces/a"
    assert keys.guard("crontabs.example.com") == f"{root}.apiext/guards/crontabs.example.com"


@pytest.mark.rows("ETC-008")
@pytest.mark.parametrize(
    ("key", "namespaced", "parts"),
    [
        ("a/b", True, ("a", "b")),
        ("b", False, ("", "b")),
        ("b", True, None),
        ("a/b", False, None),
        ("a/b/c", True, None),
        ("/b", True, None),
        ("a/", True, None),
        ("", False, None),
    ],
)
def test_split_relative_gives_namespace_and_name(key: str, namespaced: bool, parts: tuple[str, str] | None) -> None:
    assert split_relative(key, namespaced) == parts


def test_bounds_contain_exactly_one_namespace() -> None:
    low, high = bounds("a")
    assert all(low <= key < high for key in ("a/", "a/-", "a/zzz"))
    assert not any(low <= key < high for key in ("a-b/x", "a.b/x", "a", "a0/x", "ab/x"))


def change(revision: int, size: int = 2) -> Change:
    return Change("MODIFIED", Entry("n", "a", revision, b"x" * size), None, revision)


@pytest.mark.rows("RV-009")
def test_history_is_bounded_by_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "EVENT_RING", 3)
    history = History(10)
    assert history.position(10) == history.end == 0
    for revision in range(11, 5000):
        history.append(change(revision))
        assert history.end - history.first == min(3, history.end)
        assert history.at(history.end - 1).revision == revision
    assert history.floor == 4996
    assert history.at(history.position(4997)).revision == 4998
    assert history.position(4999) == history.end
    with pytest.raises(Compacted) as found:
        history.position(4995)
    assert (found.value.requested, found.value.oldest) == (4995, 4996)


def test_history_is_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "EVENT_RING_BYTES", 100_000)
    history = History(0)
    for revision in range(1, 100):
        history.append(change(revision, 10_000))
    assert history.end - history.first == 9
    history.append(change(100, 1_000_000))
    assert history.end - history.first == 1


def test_histories_together_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory for history is limited for all resources together.

    The least recently changed resource loses its history first.
    """
    monkeypatch.setattr(history_module, "HISTORIES", history_module._Histories())
    monkeypatch.setattr(storage_limits, "HISTORIES_BYTES", 100_000)
    histories = [History(0) for _ in range(30)]
    for turn in range(1, 9):
        for history in histories:
            history.append(change(turn, 1_000))
    assert history_module.HISTORIES.bytes <= 100_000 + 30 * 1_400
    assert histories[0].end - histories[0].first == 1
    busy = histories[0]
    for revision in range(9, 50):
        busy.append(change(revision, 1_000))
    assert busy.end - busy.first > 41
    assert (histories[1].position(8), histories[1].at(histories[1].position(7)).revision) == (8, 8)
    with pytest.raises(Compacted):
        histories[1].position(6)
    for history in histories:
        history.reset(50)
    assert history_module.HISTORIES.bytes == 0


def test_histories_are_bounded_after_a_backfill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "HISTORIES", history_module._Histories())
    monkeypatch.setattr(storage_limits, "HISTORIES_BYTES", 100_000)
    filled, idle, busy = History(100), History(0), History(0)
    for revision in range(1, 71):
        idle.append(change(revision, 1_000))
    filled.pin()
    filled.append(change(101, 1_000))
    filled.prepend([change(revision, 1_000) for revision in range(1, 61)], 0)
    assert (idle.end - idle.first, history_module.HISTORIES.bytes <= 100_000) == (1, True)
    for revision in range(102, 142):
        busy.append(change(revision, 1_000))
    assert filled.end - filled.first == 61, "it is pinned"
    filled.unpin()
    assert (filled.end - filled.first, history_module.HISTORIES.bytes <= 100_000) == (61, True)
    for revision in range(142, 182):
        busy.append(change(revision, 1_000))
    assert (filled.end - filled.first, history_module.HISTORIES.bytes <= 100_000) == (1, True)


def test_dropped_history_is_not_listed_again_after_its_backfill(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "HISTORIES", history_module._Histories())
    history = History(0)
    history.append(change(1))
    history.pin()
    history.reset(1)
    history.unpin()
    assert not history_module.HISTORIES._histories


def test_aged_history_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "EVENTS_KEPT_BYTES", 25_000)
    large, small = History(0), History(0)
    for revision in range(1, 200):
        large.append(change(revision, 10_000))
        small.append(change(revision))
    for _ in range(3):
        large.age(large.end)
        small.age(small.end)
    assert (large.end - large.first, small.end - small.first) == (2, 25_000 // 302)


def test_prepended_history_is_kept_until_limits_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "EVENT_RING", 3)
    history = History(20)
    for revision in (30, 31, 32, 33):
        history.append(change(revision))
    cursor = history.position(31)
    assert (history.floor, history.unchanged_since(32), history.unchanged_since(33)) == (30, False, True)
    history.prepend([change(revision) for revision in range(11, 31)], 10)
    assert history.at(cursor).revision == 32
    assert [history.at(at).revision for at in range(history.position(28), history.end)] == [29, 30, 31, 32, 33]
    assert history.at(history.position(10)).revision == 11
    history.append(change(34))
    assert history.floor == 11
    history.restore_limits()
    assert history.floor == 11
    history.restore_limits()
    assert (history.floor, history.end - history.first) == (31, 3)
    assert history.at(cursor).revision == 32
    history.reset(50)
    assert history.position(50) == history.end == history.first
    history.append(change(51))
    assert history.at(history.position(50)).revision == 51


def test_history_evicts_old_changes_unless_watchers_need_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "EVENTS_KEPT", 3)
    history = History(0)
    for revision in range(1, 11):
        history.append(change(revision))
    history.age(history.end)
    history.append(change(11))
    history.age(history.end)
    assert history.floor == 0, "there are watchers that are a minute late"
    history.age(4)
    assert history.floor == 4, "somebody has yet to be told the rest"
    assert history.at(history.position(4)).revision == 5
    history.age(history.end)
    assert (history.floor, history.end - history.first) == (8, 3)
    history.prepend([change(revision) for revision in range(1, 9)], 0)
    history.age(history.end)
    assert history.floor == 0, "it has just been fetched"
    history.restore_limits()
    history.restore_limits()
    history.pin()
    history.age(history.end)
    assert history.floor == 0
    history.unpin()
    history.age(history.end)
    assert history.floor == 8
    assert history.unchanged_since(11)


def test_pinned_history_keeps_all_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "EVENT_RING", 3)
    history = History(0)
    history.pin()
    for revision in range(1, 11):
        history.append(change(revision))
    assert history.floor == 0
    history.unpin()
    history.append(change(11))
    assert history.floor == 8


@pytest.mark.looptime
async def test_reach_waits_until_progress_has_the_revision() -> None:
    asked: list[tuple[int, int]] = []
    progress = Progress(lambda revision, times: asked.append((revision, times)))
    progress.restart(5)
    assert await progress.reach(5)
    async with asyncio.TaskGroup() as group:
        waits = [group.create_task(progress.reach(revision)) for revision in (9, 7, 8, 7)]
        await asyncio.sleep(0)
        progress.advance(7)
        await asyncio.sleep(0)
        assert [wait.done() for wait in waits] == [False, True, False, True]
        progress.advance(6)
        assert progress.revision == 7
        waits[2].cancel()
        progress.advance(20)
    assert waits[0].result()
    assert not asked
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert not await progress.reach(30)
    assert loop.time() - began == pytest.approx(storage_limits.FRESH_WAIT)
    assert asked[:3] == [(30, 1), (30, 2), (30, 3)]
    assert len(asked) < 15


@pytest.mark.looptime
async def test_closed_progress_ends_waits() -> None:
    progress = Progress(lambda revision, times: None)
    async with asyncio.TaskGroup() as group:
        wait = group.create_task(progress.reach(3))
        await asyncio.sleep(0)
        progress.close()
    assert not wait.result()


class Silent:
    """An etcd that refuses leases after a while."""

    async def lease_grant(self, ttl: int) -> int:
        await asyncio.sleep(10)
        raise Unavailable(UNAVAILABLE, "etcd does not answer")


@pytest.mark.looptime
async def test_failed_lease_request_fails_all_its_callers() -> None:
    leases, loop = Leases(Silent()), asyncio.get_running_loop()
    began = loop.time()
    found = await asyncio.gather(*(leases.lease(60) for _ in range(20)), return_exceptions=True)
    assert {str(error) for error in found} == {"etcd does not answer (gRPC status 14)"}
    assert loop.time() - began == pytest.approx(10)
    with pytest.raises(Unavailable):  # a later caller sends its own request
        await leases.lease(60)
    assert loop.time() - began == pytest.approx(20)


class Granter:
    """An etcd that grants leases; ``granted`` are their times to live, the ids count up from 0."""

    def __init__(self) -> None:
        self.granted: list[int] = []

    async def lease_grant(self, ttl: int) -> int:
        self.granted.append(ttl)
        return len(self.granted) - 1


@pytest.mark.looptime
async def test_objects_of_equal_ttl_share_a_lease_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of a shared lease never expire early.

    The lease lasts longer by the time for which it may be shared.
    """
    monkeypatch.setattr(storage_limits, "LEASE_OBJECTS", 3)
    etcd = Granter()
    leases = Leases(etcd)
    assert [await leases.lease(60) for _ in range(7)] == [0, 0, 0, 1, 1, 1, 2]
    assert [await leases.lease(ttl) for ttl in (40, 60)] == [3, 2]
    await asyncio.sleep(2)
    assert await leases.lease(60) == 2
    await asyncio.sleep(2)
    assert await leases.lease(40) == 4
    leases.remove(4)
    assert await leases.lease(40) == 5
    assert etcd.granted == [63, 63, 63, 42, 42, 42]


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("ttl", "longer"),
    [(1, 0), (10, 0), (19, 0), (20, 1), (39, 1), (60, 3), (1199, 59), (1200, 60), (3600, 60), (86400, 60)],
)
async def test_lease_lasts_at_most_a_twentieth_longer_than_ttl(ttl: int, longer: int) -> None:
    etcd, loop = Granter(), asyncio.get_running_loop()
    leases, granted = Leases(etcd), dict[int, float]()
    for _ in range(10):
        lease = await leases.lease(ttl)
        left = granted.setdefault(lease, loop.time()) + etcd.granted[lease] - loop.time()
        assert ttl - 0.001 <= left <= ttl + longer + 0.001
        await asyncio.sleep(max(0.4, longer / 4))
    assert set(etcd.granted) == {ttl + longer}
    assert len(granted) == 10 if not longer else 1 < len(granted) < 5


class Rounds:
    """Work of a number of steps, which adds its name to ``done`` for each."""

    def __init__(self, name: str, steps: int, done: list[str]) -> None:
        self.queued = False
        self._name, self._left, self._done = name, steps, done

    @property
    def busy(self) -> bool:
        return self._left > 0

    def step(self, budget: int) -> int:
        self._left -= 1
        self._done.append(self._name)
        return 1

    def on_idle(self) -> None:
        self._done.append(f"{self._name} rests")

    def fail(self, error: Exception) -> bool:
        return False


async def test_pump_runs_work_round_robin() -> None:
    """The pump runs all work in turn until none is left."""
    pump, done = Pump(), list[str]()
    for work in (Rounds("a", 3, done), Rounds("b", 1, done), Rounds("c", 2, done)):
        pump.add(work)
    while len(done) < 9:  # noqa: ASYNC110 - iterations of the loop are counted
        await asyncio.sleep(0)
    assert done == ["a", "b", "b rests", "c", "a", "c", "c rests", "a", "a rests"]


def test_initial_frames_are_cached_within_a_byte_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "INITIAL_BYTES", 250)
    pieces = Snapshot((f"n/o{at:04}", Entry("n", f"o{at:04}", at, b"{}")) for at in range(500)).pieces()
    initial_frames = InitialFrames()
    for number, piece in enumerate(pieces):
        assert initial_frames.find(piece) is None
        initial_frames.keep(piece, (number, b"%d" % number * 100))
    assert [initial_frames.find(piece) for piece in pieces] == [None, None, None, (3, b"3" * 100), (4, b"4" * 100)]
    assert initial_frames.find(pieces[4]._replace(start=1)) is None
    initial_frames.clear()
    assert initial_frames.find(pieces[4]) is None


def test_initial_frames_with_ages_are_cached_per_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "INITIAL_BYTES", 250)
    (piece, other, *_) = Snapshot((f"n/o{at:04}", Entry("n", f"o{at:04}", at, b"{}")) for at in range(500)).pieces()
    initial_frames = InitialFrames()
    for second in range(100, 110):  # frames of a new second replace them
        initial_frames.keep(piece, (1, b"%d" % second * 50), second)
        initial_frames.keep(other, (2, b"x" * 90), second)
        assert initial_frames.find(piece, second) == (1, b"%d" % second * 50)
        assert (initial_frames.find(piece, second - 1), initial_frames.find(piece, second + 1)) == (None, None)
        assert initial_frames.find(other, second) == (2, b"x" * 90)


async def test_select_entries_yields_to_the_event_loop() -> None:
    entries = [Entry("n", f"o{at:04}", at, b"{}") for at in range(100)]

    def selects(entry: Entry) -> bool:
        late = perf_counter() + server_limits.LOOP_BUDGET / 8
        while perf_counter() < late:
            pass
        return entry.revision % 2 == 1

    found, turns = await turns_beside(select_entries(entries, selects))
    assert [entry.revision for entry in found] == list(range(1, 100, 2))
    assert turns >= 10


class Doubtful:
    """An etcd whose write has an unknown outcome, with an error that mentions a missing lease."""

    def __init__(self) -> None:
        self.leases: list[int] = []

    async def lease_grant(self, ttl: int) -> int:
        return 7

    async def update(self, *_: object, lease: int, **__: object) -> None:
        self.leases.append(lease)
        raise etcd_errors.UnknownOutcome(5, "the write is in doubt: etcdserver: requested lease not found")


@pytest.mark.looptime
async def test_write_with_unknown_outcome_is_not_retried_for_lease() -> None:
    etcd = Doubtful()
    with pytest.raises(UnknownOutcome):
        await EtcdStore(cast(Etcd, etcd)).put("/k", b"v", 0, None, ttl=60)
    assert etcd.leases == [7]
