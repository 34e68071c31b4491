"""A namespace or an object that is recreated during its deletion is kept."""

import asyncio
import inspect

import orjson
import pytest

from apiext.controllers.instances import Emptied, Sweep
from apiext.controllers.namespaces import NAMESPACES, namespace
from apiext.controllers.references import metadata_of
from apiext.meta.names import GroupResource
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, PREFIX, Server, conditions, server, until, widget
from tests.unit.controllers.harness import crd as definition

pytestmark = pytest.mark.rows("NSP-005")
WIDGETS = GroupResource("example.com", "widgets")


def recreate_namespace_before(one: Server, etcd: FakeEtcd, controller: object, step: str) -> asyncio.Event:
    """Make another server delete the namespace d, and a client recreate it.

    This happens before a step of a controller.
    """
    done, before = asyncio.Event(), getattr(controller, step)

    async def late(*given: object) -> object:
        if not done.is_set():
            for key in (*etcd.state(f"{PREFIX}/example.com/widgets/d/"), f"{PREFIX}/namespaces/d"):
                etcd.remove(key)
            await one.store.fresh()
            await one.define_namespace("d")
            served = one.served("widgets.example.com")
            assert served is not None
            await one.put(served, widget("w"))
            await one.store.fresh()
            done.set()
        found = before(*given)
        return await found if inspect.isawaitable(found) else found

    setattr(controller, step, late)
    return done


@pytest.mark.parametrize(
    ("step", "held"),
    [
        ("_served", False),
        ("_served", True),
        ("_follow", False),
        ("_follow", True),
        ("_release", False),
        ("_statuses.amend", True),
    ],
)
async def test_namespace_recreated_during_deletion_is_kept(step: str, held: bool) -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(definition())
        served = await one.established("widgets.example.com")
        await one.define_namespace("d")
        await one.put(served, widget("w", finalizers=("example.com/keep",) * held))
        namespaces = one.controllers._namespaces
        place, _, name = step.rpartition(".")
        done = recreate_namespace_before(one, etcd, getattr(namespaces, place) if place else namespaces, name)
        before = one.collection(NAMESPACES).state.get("", "d")
        await one.delete_namespace("d")
        await done.wait()
        await until(lambda: one.controllers._emptying.idle)
        await one.store.fresh()
        after = one.collection(NAMESPACES).state.get("", "d")
        assert before is not None
        assert after is not None
        found = orjson.loads(after.raw)
        assert found["metadata"]["uid"] != orjson.loads(before.raw)["metadata"]["uid"]
        assert found["status"] == {"phase": "Active"}
        assert one.collection(WIDGETS).state.get("d", "w") is not None


@pytest.mark.parametrize("finalizers", [(), ("example.com/keep",)])
async def test_object_in_recreated_namespace_is_kept(finalizers: tuple[str, ...]) -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(definition())
        served = await one.established("widgets.example.com")
        first = metadata_of(await one.define_namespace("d"))["uid"]
        await one.put(served, widget("w", finalizers=finalizers))
        await one.store.fresh()
        emptied = Emptied(
            due=lambda: (
                metadata_of(one.collection(NAMESPACES).state.by_key("d") or pytest.fail("gone"))["uid"] == first
            ),
            guard=lambda: None,
            wake=lambda: None,
        )
        sweep = Sweep(one.store, one.collection(WIDGETS), "d", emptied, lambda: NOW)
        made = widget("w", finalizers=finalizers)

        def replaced() -> None:
            """Recreate the namespace and the object, as a faster server does.

            The cache gets these events later.
            """
            etcd.hold()
            for name, document in (("namespaces/d", namespace("d", NOW, "x")), ("example.com/widgets/d/w", made)):
                etcd.remove(f"{PREFIX}/{name}")
                etcd.put(f"{PREFIX}/{name}", orjson.dumps(document))

        replaced()
        async with asyncio.TaskGroup() as group:
            before = len(etcd.calls)
            running = group.create_task(sweep.run())
            await until(lambda: "txn" in etcd.calls[before:])
            assert not running.done(), "it waits for what the cache says of the namespace"
            etcd.release()
        assert running.result() == []
        await one.store.fresh()
        after = one.collection(WIDGETS).state.get("d", "w")
        assert after is not None
        assert metadata_of(after) == made["metadata"]
        sweep.close()


@pytest.mark.rows("DEL-005")
@pytest.mark.parametrize("step", ["_set_in_progress", "_set_condition"])
async def test_definition_recreated_during_deletion_is_kept(step: str) -> None:
    etcd, name = FakeEtcd(), "widgets.example.com"
    async with server(etcd) as one:
        await one.define(definition())
        served = await one.established(name)
        await one.put(served, widget("w", finalizers=("example.com/keep",)))
        finalizing, made = one.controllers._loops.finalizing, definition(scope="Cluster")
        done, before = asyncio.Event(), getattr(finalizing, step)

        async def late(*given: object) -> None:
            if not done.is_set():
                etcd.remove(f"{PREFIX}/example.com/widgets/d/w")
                etcd.remove(f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{name}")
                await one.store.fresh()
                await one.define(made)
                await until(
                    lambda: (it := one.served(name)) is not None and it.definition.uid == made["metadata"]["uid"]
                )
                done.set()
            await before(*given)

        setattr(finalizing, step, late)
        await one.delete_definition(name)
        await done.wait()
        await one.established(name)
        await until(
            lambda: one.controllers._emptying.idle and all(loop.idle for loop in one.controllers._loops.loops.values())
        )
        found = one.definition(name)
        assert found is not None
        assert found["metadata"]["uid"] == made["metadata"]["uid"]
        assert "Terminating" not in conditions(found)
        assert not one.collection(WIDGETS).namespaced
