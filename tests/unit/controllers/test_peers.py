import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from apiext import limits as server_limits
from apiext.admission.chain import Chain
from apiext.config import Worker
from apiext.controllers.peers import Peers
from apiext.controllers.serving import Serving
from apiext.meta.names import GroupResource
from apiext.storage import limits as storage_limits
from apiext.system.worker_progress import GONE, WorkerProgress
from apiext.verbs import api
from apiext.verbs.call import Verbs
from apiext.verbs.reviews import ACCOUNTS
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, Server, conditions, crd, server, until

EVENTS = GroupResource("", "events")

NAME = "widgets.example.com"


class Two:
    """Two workers of one server."""

    def __init__(self, etcd: FakeEtcd, progress: WorkerProgress, one: Server, two: Server) -> None:
        self.etcd = etcd
        self.progress = progress
        self.one = one
        self.two = two

    def revision_of(self, worker: Server) -> int:
        found = worker.collection(ACCOUNTS).state.get("d", "a")
        return found.revision if found is not None else 0


@pytest.fixture
async def workers() -> AsyncIterator[Two]:
    etcd, progress = FakeEtcd(), WorkerProgress.make(3)  # tests report the progress of worker 3
    async with AsyncExitStack() as stack:
        found = []
        for number in (1, 2):
            one = await stack.enter_async_context(server(etcd))
            peers = Peers(Worker(number, 3, progress.descriptor), one.store, one.controllers.serving.settled)
            one.controllers.serving.peers = peers
            peers.follow()
            group = await stack.enter_async_context(asyncio.TaskGroup())
            await peers.join(group)
            found.append(one)
        yield Two(etcd, progress, *found)


async def test_everywhere_waits_for_joined_worker(workers: Two) -> None:
    assert {1, 2} == workers.progress.behind(GONE).keys()
    await workers.one.store.create(workers.one.collection(ACCOUNTS), "d", "a", b"{}")
    await workers.one.controllers.serving.everywhere()
    assert workers.revision_of(workers.two) == workers.revision_of(workers.one) > 0
    assert not workers.progress.behind(workers.revision_of(workers.one))


async def test_definition_is_established_when_all_workers_serve_it(
    workers: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, let_go = [], asyncio.Event()
    compile_, late = Serving._compile, workers.two.controllers.serving

    async def slowly(self: Serving, facts: object) -> None:
        if self is late:
            held.append(facts)
            await let_go.wait()
        await compile_(self, facts)  # type: ignore[arg-type]

    peers, waiting = workers.one.controllers.serving.peers, asyncio.Event()
    assert peers is not None
    everywhere = peers.everywhere

    async def noted(written: GroupResource | None = None) -> None:
        waiting.set()
        await everywhere(written)

    monkeypatch.setattr(peers, "everywhere", noted)
    monkeypatch.setattr(Serving, "_compile", slowly)
    monkeypatch.setattr(Serving, "_compile_at_once", lambda *_: None)
    await workers.one.define(crd())
    try:
        await until(lambda: held and workers.one.served(NAME) and waiting.is_set())
        assert conditions(workers.one.definition(NAME))["Established"][:2] == ("False", "Installing")
    finally:
        let_go.set()
    await workers.one.established(NAME)
    assert workers.two.served(NAME) is not None


def verbs_of(worker: Server) -> Verbs:
    return Verbs(worker.live, worker.store, Chain(), worker.controllers.serving, lambda: NOW, lambda: 0.0)


async def test_lagging_worker_catches_up_with_peer_writes(workers: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, etcd = workers.one, workers.two, workers.etcd
    verbs = verbs_of(two)
    assert verbs.definitions.has_peers
    await one.define(crd())
    await one.established(NAME)
    await two.established(NAME)
    etcd.hold()
    made = await one.change(NAME, lambda definition: definition["metadata"].update(labels={"a": "b"}))
    assert one.store.revision == made.revision, "a worker knows its own writes before the watch tells them"
    async with asyncio.TaskGroup() as group:
        etcd.calls.clear()
        waiting = group.create_task(api.catch_up(verbs))
        await until(lambda: etcd.calls)
        assert two.store.revision < made.revision
        assert not waiting.done()
        etcd.release()
    assert two.store.revision >= made.revision
    monkeypatch.setattr(storage_limits, "FRESH_WAIT", 0.05)
    etcd.hold()
    etcd.put("/registry/apiext/other", b"{}")
    await asyncio.wait_for(api.catch_up(verbs), 20)
    etcd.answering = False
    etcd.calls.clear()
    await api.catch_up(verbs)
    assert not etcd.calls, "who knows that etcd is silent does not ask it"


async def test_everywhere_times_out_and_ignores_ended_workers(
    workers: Two, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(storage_limits, "FRESH_WAIT", 0.05)
    serving = workers.two.controllers.serving
    assert serving.peers is not None
    await serving.peers.stop()  # as if the worker hung
    await workers.one.store.create(workers.one.collection(ACCOUNTS), "d", "a", b"{}")
    await workers.one.controllers.serving.everywhere(EVENTS)
    assert not caplog.text, "what configures nothing is not waited for"
    await workers.one.controllers.serving.everywhere(ACCOUNTS)
    assert "not all workers use the configuration" in caplog.text
    caplog.clear()
    monkeypatch.setattr(storage_limits, "FRESH_WAIT", 60.0)
    async with asyncio.timeout(20):
        await workers.one.controllers.serving.everywhere(ACCOUNTS)
        await workers.one.store.create(workers.one.collection(ACCOUNTS), "d", "b", b"{}")
        await workers.one.controllers.serving.everywhere()  # does not wait: worker 2 still reports no progress
    monkeypatch.setattr(storage_limits, "FRESH_WAIT", 0.05)
    workers.progress.put(2, workers.progress.behind(GONE)[2] + 1)
    await workers.one.controllers.serving.everywhere()
    assert "not all workers use the configuration" in caplog.text, "for one that moves again"
    caplog.clear()
    workers.progress.put(2, GONE)  # as the supervisor does
    await workers.one.controllers.serving.everywhere()
    assert not caplog.text


async def test_everywhere_waits_for_moving_worker_beside_stalled_one(
    workers: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, one, looks = workers.progress, workers.one, list[int]()
    latest = await stall_workers(workers, monkeypatch, 3)
    progress.put(2, latest)
    made = await one.store.create(one.collection(ACCOUNTS), "d", "b", b"{}")
    behind = WorkerProgress.behind

    def looking(self: WorkerProgress, revision: int) -> dict[int, int]:
        looks.append(revision)
        return behind(self, revision)

    monkeypatch.setattr(WorkerProgress, "behind", looking)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(one.controllers.serving.everywhere())
        await until(lambda: len(looks) >= 5 or waiting.done())
        assert not waiting.done()
        progress.put(2, made.revision)


async def test_stalled_workers_stay_ignored_when_one_moves(workers: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    workers.progress.put(3, await stall_workers(workers, monkeypatch, 2, 3))
    async with asyncio.timeout(20):
        await workers.one.controllers.serving.everywhere()


async def stall_workers(workers: Two, monkeypatch: pytest.MonkeyPatch, *numbers: int) -> int:
    """Let some workers miss the time limit; return the expected revision.

    Each of these workers is at a different revision.
    """
    one, late = workers.one, workers.two.controllers.serving.peers
    assert late is not None
    await late.stop()
    made = await one.store.create(one.collection(ACCOUNTS), "d", "a", b"{}")
    for number in (2, 3):
        workers.progress.put(number, 5 - number if number in numbers else made.revision)
    monkeypatch.setattr(storage_limits, "FRESH_WAIT", 0.05)
    await one.controllers.serving.everywhere()
    monkeypatch.setattr(storage_limits, "FRESH_WAIT", 60.0)
    return made.revision


async def test_worker_sends_heartbeats_until_it_stops(workers: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    progress, peers = workers.progress, workers.two.controllers.serving.peers
    assert peers is not None
    before = progress.beats(2)
    assert before > 0
    monkeypatch.setattr(server_limits, "WORKER_BEAT", 0.0)
    peers._beat()
    await until(lambda: progress.beats(2) > before + 3)
    await peers.stop()
    assert progress.beats(1) == before
    for _ in range(3):
        await asyncio.sleep(0)
        assert progress.beats(2) == 0, "who ends is not expected to give any"


async def test_everywhere_returns_at_once_without_workers() -> None:
    async with server(FakeEtcd()) as alone:
        await alone.controllers.serving.everywhere()
        assert not alone.controllers.serving.has_peers
        await alone.controllers.join(None)  # type: ignore[arg-type]  # there is nothing to start
