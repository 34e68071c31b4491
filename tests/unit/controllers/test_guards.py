"""Several servers create no objects of a deleted or terminating definition."""

import asyncio
from contextlib import AsyncExitStack

import orjson
import pytest

from apiext.catalog.served import ServedResource
from apiext.controllers import limits
from apiext.documents.document import Document
from apiext.etcd import errors
from apiext.etcd.values import WriteResult
from apiext.meta.names import GroupResource
from apiext.storage.store import Entry, GuardChanged, RevisionChanged, Unavailable
from tests.support.fake_etcd import FakeEtcd, FakeWatch, Guards
from tests.unit.controllers.harness import PREFIX, Server, conditions, crd, server, until, widget

NAME = "widgets.example.com"
WIDGETS = GroupResource("example.com", "widgets")
GUARD = f"{PREFIX}/.apiext/guards/{NAME}"


class RefusedError(Exception):
    """A 403 or 404 of verbs."""


async def create(one: Server, document: Document) -> Entry:
    """Create an object as verbs do: retry with a refreshed catalog if the guard has changed."""
    served = one.served(NAME)
    while True:
        if served is None or served.definition.terminating:
            raise RefusedError
        try:
            return await one.put(served, document)
        except GuardChanged:
            served = await one.controllers.serving.refresh("example.com", "widgets")


def read_guard(etcd: FakeEtcd) -> tuple[int, dict[str, object]] | None:
    found = etcd.state(GUARD).get(GUARD)
    return (found[0], orjson.loads(found[1])) if found is not None else None


async def start_two_servers(etcd: FakeEtcd, stack: AsyncExitStack) -> tuple[Server, Server]:
    return await stack.enter_async_context(server(etcd)), await stack.enter_async_context(server(etcd))


async def test_two_servers_serve_by_the_same_guard() -> None:
    etcd = FakeEtcd()
    async with AsyncExitStack() as stack:
        one, other = await start_two_servers(etcd, stack)
        await one.define(crd())
        here = await one.established(NAME)
        there = await other.established(NAME)
        await until(lambda: one.served(NAME).definition.guard_revision == other.served(NAME).definition.guard_revision)  # type: ignore[union-attr]
        guard = read_guard(etcd)
        assert guard is not None
        assert guard == (
            here.definition.guard_revision,
            {"uid": here.definition.uid, "state": "serving", "generation": 1},
        )
        await one.put(here, widget("a"))
        await other.put(there, widget("b"))


async def test_a_restart_adopts_the_guard() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        before = await one.established(NAME)
    async with server(etcd) as again:
        after = again.served(NAME)
        assert after is not None
        assert after.definition.guard_revision == before.definition.guard_revision
        assert after.definition.established


async def test_lagging_server_cannot_create_after_deletion_began() -> None:
    etcd = FakeEtcd()
    async with AsyncExitStack() as stack:
        one, other = await start_two_servers(etcd, stack)
        await one.define(crd())
        await one.established(NAME)
        stale = await other.established(NAME)
        uid = stale.definition.uid
        guard = await one.controllers.serving.begin_deletion(NAME, uid)
        with pytest.raises(GuardChanged):
            await other.put(stale, widget("late"))
        fresh = await other.controllers.serving.refresh("example.com", "widgets")
        assert fresh is not None
        assert fresh.definition.terminating
        assert fresh.definition.guard_revision == guard.revision
        with pytest.raises(RefusedError):
            await create(other, widget("late"))


@pytest.mark.rows("DEL-004")
async def test_updates_are_allowed_while_definition_terminates() -> None:
    etcd = FakeEtcd()
    async with AsyncExitStack() as stack:
        one, other = await start_two_servers(etcd, stack)
        await one.define(crd())
        served = await one.established(NAME)
        await other.established(NAME)
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.delete_definition(NAME)
        terminating = await other.controllers.serving.refresh("example.com", "widgets")
        assert terminating is not None
        await until(lambda: b'"deletionTimestamp"' in other.collection(WIDGETS).state.get("d", "held").raw)  # type: ignore[union-attr]
        held = other.collection(WIDGETS).state.get("d", "held")
        assert held is not None
        held = await other.replace(terminating, held, lambda document: document.update(spec={"x": 1}))
        assert held.revision
        await other.store.delete(other.collection(WIDGETS), "d", "held", held.revision)
        await one.gone(NAME)
        await other.gone(NAME)
        assert await other.controllers.serving.refresh("example.com", "widgets") is None
        await until(lambda: read_guard(etcd) is None)


class LaggingEtcd(FakeEtcd):
    """An etcd whose second watch gets all events a little later."""

    def watch(self, *span: object, **options: object) -> FakeWatch:
        late = bool(self.watches)
        watch = super().watch(*span, **options)  # type: ignore[arg-type]
        if late:
            watch.wake = lambda: asyncio.get_running_loop().call_later(0.004, watch.deliver)  # type: ignore[method-assign]
        return watch


async def test_concurrent_creates_and_deletion_leave_no_objects() -> None:
    for pause in range(12):
        etcd = LaggingEtcd()
        async with AsyncExitStack() as stack:
            one, other = await start_two_servers(etcd, stack)
            await one.define(crd())
            await one.established(NAME)
            await other.established(NAME)
            accepted: list[str] = []
            gone = asyncio.Event()

            async def writer(which: Server, prefix: str, accepted: list[str], gone: asyncio.Event) -> None:
                number = 0
                while not gone.is_set():
                    number += 1
                    try:
                        await create(which, widget(f"{prefix}{number}"))
                    except RefusedError:
                        await asyncio.sleep(0)
                        continue
                    accepted.append(f"{prefix}{number}")

            async with asyncio.TaskGroup() as group:
                for number, which in enumerate((one, other, one, other)):
                    group.create_task(writer(which, f"w{number}-", accepted, gone))
                for _ in range(pause):
                    await asyncio.sleep(0)
                await one.delete_definition(NAME)
                await one.gone(NAME)
                await other.gone(NAME)
                gone.set()
            assert not etcd.state(f"{PREFIX}/example.com/"), "objects without a definition"
            await until(lambda etcd=etcd: read_guard(etcd) is None)  # type: ignore[misc]


async def test_recreated_definition_takes_over_guard() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        old = await one.established(NAME)
        key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}"
        replacement = crd()
        replacement["status"] = {**replacement["status"], "acceptedNames": replacement["spec"]["names"]}
        etcd.remove(key)
        await one.define(replacement)
        await until(lambda: one.served(NAME) is not None and one.served(NAME).definition.uid != old.definition.uid)  # type: ignore[union-attr]
        with pytest.raises(GuardChanged):
            await one.put(old, widget("a"))
        assert (await create(one, widget("a"))).revision


async def test_create_without_guard_is_refused() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        etcd.hold()
        etcd.remove(GUARD)
        with pytest.raises(GuardChanged):
            await one.put(served, widget("a"))
        etcd.release()
        assert (await create(one, widget("a"))).revision
        assert read_guard(etcd) is not None


async def test_write_with_older_definition_does_not_commit() -> None:
    etcd = FakeEtcd()
    async with AsyncExitStack() as stack:
        one, other = await start_two_servers(etcd, stack)
        await one.define(crd())
        await one.established(NAME)
        stale = await other.established(NAME)

        def tighten(document: Document) -> None:
            document["metadata"]["generation"] += 1
            document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["required"] = ["spec"]

        entry = await one.change(NAME, tighten)
        await one.controllers.serving.seen(entry.revision)
        with pytest.raises(GuardChanged):
            await other.put(stale, widget("a"))
        fresh = await other.controllers.serving.refresh("example.com", "widgets")
        assert fresh is not None
        assert fresh.definition.generation == 2
        assert fresh.definition.identity != stale.definition.identity
        await other.put(fresh, widget("a"))


@pytest.mark.looptime
async def test_abandoned_deletion_expires() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        guard = await one.controllers.serving.begin_deletion(NAME, served.definition.uid)
        await until(lambda: one.served(NAME).definition.terminating)  # type: ignore[union-attr]
        with pytest.raises(RefusedError):
            await create(one, widget("a"))
        await until(lambda: not one.served(NAME).definition.terminating, limits.DELETION_ABANDONED + 1, 0.1)  # type: ignore[union-attr]
        await create(one, widget("a"))
        with pytest.raises(GuardChanged):  # the deletion is too late
            await one.change(NAME, lambda document: document["metadata"].update(deletionTimestamp="x"), guard)


async def test_refresh_sees_a_definition_of_another_server_at_once() -> None:
    etcd = FakeEtcd()
    async with AsyncExitStack() as stack:
        one, other = await start_two_servers(etcd, stack)
        await one.define(crd())
        await one.established(NAME)
        found = await other.controllers.serving.refresh("example.com", "widgets")
        assert found is not None
        assert found.definition.established
        assert await other.controllers.serving.refresh("example.com", "nothing") is None


async def test_seen_waits_until_other_servers_definition_is_served() -> None:
    etcd = FakeEtcd()
    async with AsyncExitStack() as stack:
        one, other = await start_two_servers(etcd, stack)
        await one.define(crd())
        await one.established(NAME)
        await other.controllers.serving.seen(await other.store.fresh())
        assert other.served(NAME) is not None


async def test_refresh_fails_while_etcd_is_down() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        await one.established(NAME)
        etcd.down = True
        with pytest.raises(Unavailable):
            await one.controllers.serving.refresh("example.com", "widgets")
        etcd.down = False
        assert await one.controllers.serving.refresh("example.com", "widgets") is not None


class FullEtcd(FakeEtcd):
    """An etcd that is over its quota: it accepts deletes, but no puts."""

    full = False

    async def _guarded(self, key: bytes, value: bytes | None, expected: int, guards: Guards) -> WriteResult:
        if self.full and value is not None:
            raise errors.OutOfSpace(8, "etcdserver: mvcc: database space exceeded")
        return await super()._guarded(key, value, expected, guards)


async def test_deletion_finishes_while_etcd_is_out_of_space() -> None:
    etcd = FullEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        for number in range(20):
            await one.put(served, widget(f"w{number}"))
    # No server runs: the definition is marked as deleted, then etcd is full.
    key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}"
    document = orjson.loads(etcd.state(key)[key][1])
    document["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    document["metadata"]["finalizers"] = ["customresourcecleanup.apiextensions.k8s.io"]
    etcd.put(GUARD, orjson.dumps({"uid": document["metadata"]["uid"], "state": "terminating", "generation": 1}))
    etcd.put(key, orjson.dumps(document))
    etcd.full = True
    async with server(etcd) as one:
        await one.gone(NAME)
        await until(lambda: read_guard(etcd) is None)
    assert not etcd.state(f"{PREFIX}/example.com/")


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13, 21, 34])
async def test_interrupted_deletion_continues_after_restart(turns: int) -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        for number in range(50):
            await one.put(served, widget(f"w{number}"))
        await one.delete_definition(NAME)
        for _ in range(turns):
            await asyncio.sleep(0)
    async with server(etcd, wait=False) as again:
        await again.gone(NAME)
        await until(lambda: not etcd.state(f"{PREFIX}/.apiext/guards/"))
    assert not etcd.state(f"{PREFIX}/example.com/")


async def test_guards_without_definition_are_removed_at_start() -> None:
    etcd = FakeEtcd()
    etcd.put(GUARD, orjson.dumps({"uid": "u", "state": "serving", "generation": 1}))
    async with server(etcd):
        await until(lambda: read_guard(etcd) is None)


async def test_two_servers_accept_name_for_one_definition_only() -> None:
    for turns in range(10):
        etcd = FakeEtcd()
        async with AsyncExitStack() as stack:
            one, other = await start_two_servers(etcd, stack)
            await one.define(crd("apples", names={"kind": "Fruit"}))
            for _ in range(turns):
                await asyncio.sleep(0)
            await other.define(crd("pears", names={"kind": "Fruit"}))

            def decided(one: Server = one) -> bool:
                told = [conditions(one.definition(f"{name}.example.com")) for name in ("apples", "pears")]
                return all("NamesAccepted" in each for each in told)

            await until(decided)
            await one.established("apples.example.com")
            told = conditions(one.definition("pears.example.com"))
            assert told["NamesAccepted"] == ("False", "KindConflict", '"Fruit" is already in use')


async def test_replaying_definitions_in_any_order_gives_an_equal_catalog() -> None:
    def looks(served: ServedResource) -> tuple[object, ...]:
        return served.definition.uid, served.definition.identity, served.definition.established, tuple(served.versions)

    etcd = FakeEtcd()
    async with server(etcd) as one:
        for plural in ("apples", "pears", "plums"):
            await one.define(crd(plural))
            await one.established(f"{plural}.example.com")
        grown = {key: looks(served) for key, served in one.live.current.resources.items() if not served.builtin}
    async with server(etcd) as again:
        read = {key: looks(served) for key, served in again.live.current.resources.items() if not served.builtin}
    assert grown == read


async def test_definition_update_survives_concurrent_status_writes() -> None:
    etcd = FakeEtcd()
    async with AsyncExitStack() as stack:
        one, other = await start_two_servers(etcd, stack)
        await one.define(crd())

        def label(document: Document) -> None:
            document["metadata"]["labels"] = {"a": "b"}

        await other.store.fresh()
        await other.change(NAME, label)
        served = await one.established(NAME)
        assert served.definition.established
        document = one.definition(NAME)
        assert document is not None
        assert document["metadata"]["labels"] == {"a": "b"}
        with pytest.raises(RevisionChanged):
            await one.store.update(one.collection(WIDGETS), "d", "x", b"{}", 3)
