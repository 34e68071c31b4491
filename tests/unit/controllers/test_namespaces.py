"""Namespaces that always exist, and the deletion of the contents of terminating namespaces."""

import asyncio
from contextlib import AsyncExitStack

import orjson
import pytest

from apiext import limits as server_limits
from apiext.controllers import limits as controllers_limits
from apiext.controllers.instances import Emptied, Sweep
from apiext.controllers.namespaces import ALWAYS, NAMESPACES
from apiext.controllers.serving import Serving
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.storage.store import Entry, NotReady
from tests.support.fake_etcd import FakeEtcd
from tests.support.strain import turns_beside
from tests.unit.controllers.harness import NOW, PREFIX, Server, conditions, crd, server, until, widget

WIDGETS = GroupResource("example.com", "widgets")
EMPTIED = Emptied(due=lambda: True, guard=lambda: None, wake=lambda: None)


def stored_namespace(one: Server, name: str) -> Document | None:
    entry = one.collection(NAMESPACES).state.get("", name)
    return orjson.loads(entry.raw) if entry is not None else None


@pytest.mark.rows("NSP-002", "NSP-003")
async def test_default_namespaces_are_created_at_start() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        found = stored_namespace(one, "kube-node-lease")
        assert found is not None
        assert {key: found[key] for key in ("spec", "status")} == {
            "spec": {"finalizers": ["kubernetes"]},
            "status": {"phase": "Active"},
        }
        assert found["metadata"]["labels"] == {"kubernetes.io/metadata.name": "kube-node-lease"}
        before = etcd.state(f"{PREFIX}/namespaces/")
        assert len(before) == len(ALWAYS)
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(server(etcd))
        assert etcd.state(f"{PREFIX}/namespaces/") == before


@pytest.mark.rows("NSP-005")
async def test_namespace_deletion_removes_only_its_objects() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        await one.define(crd("gadgets", "other.com"))
        await one.define(crd("rooms", "other.com", scope="Cluster"))
        served = await one.established("widgets.example.com")
        other = await one.established("gadgets.other.com")
        await one.established("rooms.other.com")
        await one.define_namespace("d")
        for number in range(30):
            await one.put(served, widget(f"w{number}"))
            await one.put(other, widget(f"g{number}"))
        await one.put(served, widget("kept", "e"))
        await one.delete_namespace("d")
        await until(lambda: stored_namespace(one, "d") is None)
        assert list(etcd.state(f"{PREFIX}/example.com/")) == [f"{PREFIX}/example.com/widgets/e/kept"]
        assert not etcd.state(f"{PREFIX}/other.com/gadgets/")


@pytest.mark.rows("NSP-005", "OPS-003")
async def test_namespace_is_kept_while_definition_is_undecryptable() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        await one.put(await one.established("widgets.example.com"), widget("w"))
        await one.define_namespace("d")
    definition = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/widgets.example.com"
    (_, value), objects = etcd.state(definition)[definition], etcd.state(f"{PREFIX}/example.com/")
    etcd.put(definition, b"k8s:enc:kms:v2:p:sealed")
    etcd.put(definition.replace("widgets", "gadgets"), b"not a definition")
    async with server(etcd) as one:  # its plug-in is missing, or its key is not in the configuration
        await one.delete_namespace("d")
        await until(lambda: one.controllers._emptying.idle)
        assert stored_namespace(one, "d") is not None
        with pytest.raises(NotReady, match=r"^no key decrypts widgets\.example\.com, so"):
            await one.controllers.serving.complete()
        assert etcd.state(f"{PREFIX}/example.com/") == objects
        etcd.put(definition, value)
        await until(lambda: stored_namespace(one, "d") is None)
        assert not etcd.state(f"{PREFIX}/example.com/")


async def test_counting_finalizers_yields_to_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 0.0)
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        for number in range(40):
            await one.put(served, widget(f"w{number}", finalizers=("example.com/keep",) * (number % 2)))
        sweep = Sweep(one.store, one.collection(WIDGETS), "d", EMPTIED, str)
        found, turns = await turns_beside(sweep.finalizers())
        assert found == {"example.com/keep": 20}
        assert turns > 40
        sweep.close()


@pytest.mark.parametrize(
    "raw", [b'{"apiVersion":"example.com/v1","kind":"Widget"}', b'{"metadata":null}', b'{"metadata":5}']
)
async def test_sweep_deletes_objects_without_metadata(raw: bytes) -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established("widgets.example.com")
        collection = one.collection(WIDGETS)
        await one.store.create(collection, "d", "bare", raw)
        sweep = Sweep(one.store, collection, "d", EMPTIED, str)
        assert await sweep.run() == []
        assert sweep.remaining == 0
        sweep.close()


async def test_sweep_succeeds_after_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        await one.put(served, widget("w"))
        sweep = Sweep(one.store, one.collection(WIDGETS), "d", EMPTIED, str)

        async def broken(self: Sweep, entry: Entry) -> None:
            raise ZeroDivisionError

        with monkeypatch.context() as patched:
            patched.setattr(Sweep, "_remove", broken)
            with pytest.raises(ExceptionGroup):
                await sweep.run()
        assert await sweep.run() == []
        assert sweep.remaining == 0
        sweep.close()


async def test_sweep_yields_to_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 0.0)
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        for number in range(40):
            await one.put(served, widget(f"w{number}", finalizers=("example.com/keep",)))
        sweep = Sweep(one.store, one.collection(WIDGETS), "d", EMPTIED, lambda: NOW)
        await sweep.run()
        again = Sweep(one.store, one.collection(WIDGETS), "d", EMPTIED, lambda: NOW)
        _, turns = await turns_beside(again.run())
        assert turns > 40
        sweep.close()
        again.close()


@pytest.mark.rows("NSP-005")
async def test_object_finalizers_keep_namespace_and_set_conditions() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        await one.define_namespace("d")
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.put(served, widget("free"))
        await one.delete_namespace("d")
        await until(lambda: conditions(stored_namespace(one, "d")))
        assert conditions(stored_namespace(one, "d")) == {
            "NamespaceDeletionDiscoveryFailure": (
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
            "NamespaceDeletionGroupVersionParsingFailure": (
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
            "NamespaceDeletionContentFailure": (
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            "NamespaceContentRemaining": (
                "True",
                "SomeResourcesRemain",
                "Some resources are remaining: widgets.example.com has 1 resource instances",
            ),
            "NamespaceFinalizersRemaining": (
                "True",
                "SomeFinalizersRemain",
                "Some content in the namespace has finalizers remaining: example.com/keep in 1 resource instances",
            ),
        }
        widgets = one.collection(WIDGETS)
        assert widgets.state.get("d", "free") is None
        held = widgets.state.get("d", "held")
        assert held is not None
        assert b'"deletionTimestamp"' in held.raw
        await one.store.delete(widgets, "d", "held", held.revision)
        await until(lambda: stored_namespace(one, "d") is None)


async def test_namespace_is_deleted_after_definition_is_deleted() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        await one.define_namespace("d")
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.delete_namespace("d")
        await until(lambda: conditions(stored_namespace(one, "d")))
        await one.delete_definition("widgets.example.com")
        held = one.collection(WIDGETS).state.get("d", "held")
        assert held is not None
        await one.store.delete(one.collection(WIDGETS), "d", "held", held.revision)
        await one.gone("widgets.example.com")
        await until(lambda: stored_namespace(one, "d") is None)


async def test_other_namespace_finalizers_are_kept() -> None:
    async with server(FakeEtcd()) as one:
        entry = await one.define_namespace("d")
        document = orjson.loads(entry.raw)
        document["spec"]["finalizers"].append("example.com/mine")
        raw = orjson.dumps(document)
        await one.store.update(one.collection(NAMESPACES), "", "d", raw, entry.revision)
        await one.delete_namespace("d")
        await until(lambda: stored_namespace(one, "d")["spec"] == {"finalizers": ["example.com/mine"]})  # type: ignore[index]


async def test_two_servers_delete_contents_of_one_namespace() -> None:
    etcd = FakeEtcd()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(server(etcd))
        other = await stack.enter_async_context(server(etcd))
        await one.define(crd())
        served = await one.established("widgets.example.com")
        await other.established("widgets.example.com")
        await one.define_namespace("d")
        for number in range(100):
            await one.put(served, widget(f"w{number}"))
        await one.delete_namespace("d")
        await until(lambda: stored_namespace(one, "d") is None and stored_namespace(other, "d") is None)
        assert not etcd.state(f"{PREFIX}/example.com/")


async def test_namespace_deletion_continues_after_restart() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        await one.define_namespace("d")
        for number in range(50):
            await one.put(served, widget(f"w{number}"))
        await one.delete_namespace("d")
    async with server(etcd) as again:
        await until(lambda: stored_namespace(again, "d") is None)
    assert not etcd.state(f"{PREFIX}/example.com/")


async def test_objects_created_in_terminating_namespace_are_deleted() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        await one.define_namespace("d")
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.delete_namespace("d")
        await until(lambda: conditions(stored_namespace(one, "d")))
        await one.put(served, widget("late"))
        await until(lambda: one.collection(WIDGETS).state.get("d", "late") is None)
        assert stored_namespace(one, "d") is not None


@pytest.mark.looptime
@pytest.mark.rows("NSP-005", "RV-020")
async def test_unreadable_object_is_reported_and_keeps_namespace() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        await one.established("widgets.example.com")
        await one.define_namespace("d")
        etcd.put(f"{PREFIX}/example.com/widgets/d/bad", b"no json")
        await one.store.fresh()
        await one.delete_namespace("d")
        await until(lambda: conditions(stored_namespace(one, "d")), every=0.1)
        status, reason, message = conditions(stored_namespace(one, "d"))["NamespaceDeletionContentFailure"]
        assert (status, reason) == ("True", "ContentDeletionFailed")
        assert message.startswith("Failed to delete all resource types, 1 remaining: widgets.example.com: ")
        assert "d/bad cannot be read" in message
        etcd.remove(f"{PREFIX}/example.com/widgets/d/bad")
        await until(
            lambda: one.collection(NAMESPACES).state.get("", "d") is None, 2 * controllers_limits.RETRY_LAST, every=0.5
        )


@pytest.mark.looptime
@pytest.mark.rows("NSP-005", "RV-020")
async def test_an_unreadable_object_after_a_pending_one_is_reported() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        await one.define_namespace("d")
        await one.put(served, widget("a", finalizers=("example.com/keep",)))
        etcd.put(f"{PREFIX}/example.com/widgets/d/bad", b"no json")
        await one.store.fresh()
        await one.delete_namespace("d")
        await until(lambda: conditions(stored_namespace(one, "d")), every=0.1)
        assert "d/bad cannot be read" in conditions(stored_namespace(one, "d"))["NamespaceDeletionContentFailure"][2]


async def test_sweep_raises_while_collection_is_refilled() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        col = one.collection(WIDGETS)
        sweep = Sweep(one.store, col, "d", EMPTIED, str)
        assert sweep.remaining == 0
        col.unready()  # as when encryption keys change
        await one.put(served, widget("new"))
        await one.store.fresh()
        with pytest.raises(NotReady):
            assert sweep.remaining
        await one.store.fills.fill(col)
        assert sweep.remaining == 1


@pytest.mark.parametrize("restarted", [True, False])
async def test_objects_of_definition_not_yet_served_keep_namespace(
    monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    etcd, follow, late = FakeEtcd(), Serving._follow, list[Serving]()

    async def slowly(self: Serving, name: str) -> None:
        await asyncio.sleep(0.05 * (self in late or restarted))
        await follow(self, name)

    monkeypatch.setattr(controllers_limits, "COMPILE_AT_ONCE", 0)
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(server(etcd))
        other = one if restarted else await stack.enter_async_context(server(etcd))
        if not restarted:
            late.append(other.controllers.serving)
            await one.controllers._emptying.stop()  # the other server does it
            monkeypatch.setattr(Serving, "_follow", slowly)
        await one.define_namespace("d")
        await one.define(crd())
        served = await one.established("widgets.example.com")
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.delete_namespace("d")
        if restarted:
            await until(lambda: one.controllers._emptying.idle)
            await stack.aclose()
            monkeypatch.setattr(Serving, "_follow", slowly)
            other = await stack.enter_async_context(server(etcd))
        await until(lambda: other.served("widgets.example.com"))
        await until(lambda: other.controllers._emptying.idle)
        assert stored_namespace(other, "d") is not None
