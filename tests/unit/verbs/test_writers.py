"""Writers of one object wait for each other after a conflict, in order.

They wait no longer than necessary.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from apiext.admission.attributes import Attributes
from apiext.admission.chain import Chain
from apiext.documents.document import Document
from apiext.etcd.values import WriteResult
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.verbs import api, limits
from apiext.verbs.writers import Queues, Writer
from tests.support.fake_etcd import FakeEtcd, Guards
from tests.unit.verbs.harness import WIDGETS, Client, serving_widgets

T = TypeVar("T")
MERGE = "application/merge-patch+json"


class SlowEtcd(FakeEtcd):
    """An etcd whose transactions of widgets take some iterations of the loop, and are counted."""

    def __init__(self) -> None:
        super().__init__()
        self.transactions = 0

    async def _guarded(self, key: bytes, value: bytes | None, expected: int, guards: Guards) -> WriteResult:
        if b"/widgets/" in key:
            self.transactions += 1
            for _ in range(3):
                await asyncio.sleep(0)
        return await super()._guarded(key, value, expected, guards)


class Calling:
    """A plug-in that awaits a function in each write, like a webhook."""

    name = "Calling"

    def __init__(self, called: Callable[[Attributes], Awaitable[None]]) -> None:
        self.called = called
        self.calls = 0

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        self.calls += 1
        await self.called(attributes)
        return new

    async def review(self, attributes: Attributes) -> None:
        """Allow the write."""


class Connected:
    """A client that may disconnect."""

    waiting: asyncio.Future[None] | None = None

    def leave(self) -> None:
        assert self.waiting is not None
        self.waiting.set_exception(ConnectionResetError("gone"))


@asynccontextmanager
async def served(etcd: FakeEtcd, count: int = 1) -> AsyncIterator[list[Client]]:
    async with serving_widgets(etcd) as one, serving_widgets(etcd) as other:
        clients = [Client(one), Client(other)][:count]
        await clients[0].create("a", spec={})
        for client in clients:
            await client.server.store.fresh()
        yield clients


async def patch(server: Client, field: str, **more: Any) -> Document:
    call = replace(server.call("patch", "a"), **more)
    return server.shown(await api.patch(server.verbs, call, MERGE, b'{"spec":{"%s":1}}' % field.encode()))


def start_task(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    return asyncio.get_running_loop().create_task(work)


async def yield_to_loop(times: int = 20) -> None:
    for _ in range(times):
        await asyncio.sleep(0)


def no_queue_is_left(*clients: Client) -> bool:
    return not any(client.verbs.queues for client in clients)


@pytest.mark.rows("WRI-005")
async def test_concurrent_patches_take_at_most_two_transactions_each() -> None:
    async with served(etcd := SlowEtcd()) as (client,):
        etcd.transactions = 0
        found = await asyncio.gather(*(patch(client, f"f{number}") for number in range(32)))
        assert etcd.transactions <= 2 * 32
        # writes are stored in the order of their arrival
        assert [sorted(it["spec"]) for it in found] == [sorted(f"f{n}" for n in range(m + 1)) for m in range(32)]
        assert no_queue_is_left(client)


@pytest.mark.rows("WRI-005")
async def test_queued_writers_take_one_transaction() -> None:
    async with served(etcd := SlowEtcd()) as (client,):

        async def writes(writer: int) -> None:
            for number in range(10):
                await patch(client, f"f{writer}-{number}")

        etcd.transactions = 0
        await asyncio.gather(*(writes(writer) for writer in range(8)))
        assert etcd.transactions <= 80 + 8, "only the first writes of each meet"


@pytest.mark.rows("WRI-005")
async def test_two_servers_resolve_conflicts_by_retry() -> None:
    async with served(SlowEtcd(), 2) as clients:
        await asyncio.gather(*(patch(client, f"f{n}-{m}") for n, client in enumerate(clients) for m in range(8)))
        stored = await clients[0].stored("a")
        assert stored is not None
        assert len(clients[0].call("get").served.codec.decode(stored.raw, 1)["spec"]) == 16
        assert no_queue_is_left(*clients)


async def test_concurrent_delete_create_and_patches_finish() -> None:
    async with served(SlowEtcd()) as (client,):
        results = await asyncio.gather(
            *(patch(client, f"f{number}") for number in range(4)),
            client.delete("a"),
            client.create("a", spec={"new": 1}),
            *(patch(client, f"g{number}") for number in range(4)),
            return_exceptions=True,
        )
        codes = {it.code for it in results if isinstance(it, StatusError)}
        assert codes <= {404, 409}
        assert not [it for it in results if isinstance(it, BaseException) and not isinstance(it, StatusError)]
        assert no_queue_is_left(client)


@pytest.mark.rows("WRI-024")
async def test_a_writer_waits_until_its_deadline() -> None:
    async with served(SlowEtcd()) as (client,):
        holder = Writer(client.verbs.queues, client.call("patch", "a"))
        assert not await holder.turn()
        loop = asyncio.get_running_loop()
        with pytest.raises(StatusError) as late:
            await patch(client, "f", deadline=loop.time() + 0.02)
        assert (late.value.code, late.value.reason) == (504, "Timeout")
        holder.leave()
        assert (await patch(client, "g"))["spec"] == {"g": 1}
        assert no_queue_is_left(client)


async def test_disconnected_writer_leaves_queue() -> None:
    async with served(SlowEtcd()) as (client,):
        first = Writer(client.verbs.queues, client.call("patch", "a"))
        await first.turn()
        connected = Connected()
        gone = start_task(patch(client, "f", client=connected))
        cancelled = start_task(patch(client, "h"))
        left = start_task(patch(client, "g"))
        await yield_to_loop()
        connected.leave()
        cancelled.cancel()
        with pytest.raises(ConnectionResetError):
            await gone
        assert connected.waiting is None
        first.leave()
        assert (await left)["spec"] == {"g": 1}
        assert no_queue_is_left(client)


async def test_webhook_write_to_same_object_does_not_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITER_TURN", 0.02)
    async with served(SlowEtcd()) as (client,):

        async def write(attributes: Attributes) -> None:
            if "nested" not in (attributes.new or {}).get("spec", {}):
                await patch(client, "nested")

        client.verbs.admission = Chain([Calling(write)])
        holder = Writer(client.verbs.queues, client.call("patch", "a"))
        await holder.turn()
        outer = start_task(patch(client, "outer"))
        await yield_to_loop()
        holder.leave()
        assert (await asyncio.wait_for(outer, 5))["spec"] == {"nested": 1, "outer": 1}
        assert no_queue_is_left(client)


async def test_timed_out_writer_is_next_with_doubled_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WRITER_TURN", 0.02)
    async with served(SlowEtcd()) as (client,):

        async def slowly(attributes: Attributes) -> None:
            if "slow" in (attributes.new or {})["spec"] and "slow" not in (attributes.old or {})["spec"]:
                await asyncio.sleep(0.03)

        plug_in = Calling(slowly)
        client.verbs.admission = Chain([plug_in])
        first = Writer(client.verbs.queues, client.call("patch", "a"))
        await first.turn()
        writes = [start_task(patch(client, field)) for field in ("slow", "b", "c")]
        await yield_to_loop()
        first.leave()
        slow, *_ = [await write for write in writes]
        assert slow["spec"] == {"slow": 1, "b": 1, "c": 1}
        assert plug_in.calls == 4, "once more for the slow one"
        assert no_queue_is_left(client)


@given(st.lists(st.tuples(st.sampled_from(("come", "leave", "cancel", "gone", "expire")), st.integers(0, 9))))
def test_queue_gives_turn_to_one_writer_at_a_time(events: list[tuple[str, int]]) -> None:
    """At most one writer has the turn, and no writer waits while no writer has the turn.

    No queue is left afterwards.
    """

    async def run() -> None:
        queues: Queues = {}
        writers: list[tuple[Writer, Connected, asyncio.Task[bool]]] = []

        def holding() -> list[Writer]:
            return [queue.holder for queue in queues.values() if queue.holder is not None]

        for event, number in events:
            if event == "come":
                connected = Connected()
                served = SimpleNamespace(names=SimpleNamespace(stored_resource=WIDGETS))
                call: Any = SimpleNamespace(served=served, namespace="n", name="a", client=connected, deadline=0.0)
                writer = Writer(queues, call)
                writers.append((writer, connected, start_task(writer.turn())))
            elif writers:
                writer, connected, waiting = writers[number % len(writers)]
                if event == "expire":
                    for holder in holding():
                        holder._pass_on()
                elif event == "leave" and waiting.done():
                    writer.leave()
                elif event == "cancel" and waiting.cancel():
                    await asyncio.wait([waiting])
                    writer.leave()
                elif event == "gone" and connected.waiting is not None and not connected.waiting.done():
                    connected.leave()
                    await asyncio.wait([waiting])
                    writer.leave()
            await yield_to_loop(3)
            still = [it for it in writers if not it[2].done()]
            assert len(holding()) == bool(queues)
            assert len(still) == sum(len(queue.waiting) for queue in queues.values())
        for writer, _, waiting in writers:
            if waiting.done():
                writer.leave()
        for writer, _, waiting in writers:
            await asyncio.wait([waiting], timeout=1)
            assert waiting.done(), "a writer waits for nothing"
            writer.leave()
        assert not queues

    asyncio.run(run())


async def test_writes_of_other_objects_do_not_wait() -> None:
    async with served(SlowEtcd()) as (client,):
        holder = Writer(client.verbs.queues, client.call("patch", "a"))
        await holder.turn()
        await client.create("b", spec={})
        call = client.call("patch", "b")
        await api.patch(client.verbs, call, MERGE, b'{"spec":{"n":1}}')
        await client.delete("b")
        holder.leave()
