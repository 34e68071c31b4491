"""What controllers do when the world is not well: etcd fails, values cannot be read, history is lost."""

import asyncio

import orjson
import pytest

from apiext import limits
from apiext.etcd import errors
from apiext.etcd.values import WriteResult
from apiext.meta.names import GroupResource
from tests.support.fake_etcd import FakeEtcd, Guards
from tests.unit.controllers.harness import PREFIX, conditions, crd, server, until, widget

NAME = "widgets.example.com"
WIDGETS = GroupResource("example.com", "widgets")


class MoodyEtcd(FakeEtcd):
    """An etcd that does not take deletions of some keys."""

    refuses = b""

    async def _guarded(self, key: bytes, value: bytes | None, expected: int, guards: Guards) -> WriteResult:
        if self.refuses and value is None and self.refuses in key:
            raise errors.Unavailable(14, "not now", sent=False)
        return await super()._guarded(key, value, expected, guards)


@pytest.mark.rows("CND-009")
async def test_objects_that_cannot_be_deleted_are_reported_and_tried_again() -> None:
    etcd = MoodyEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        for name in ("good", "bad"):
            await one.put(served, widget(name))
        etcd.refuses = b"/bad"
        await one.delete_definition(NAME)
        await until(lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionFailed")
        told = conditions(one.definition(NAME))["Terminating"]
        assert told[0] == "True"
        assert told[2].startswith("could not issue all deletes: ")
        assert one.collection(WIDGETS).get("d", "good") is None
        etcd.refuses = b""
        await one.gone(NAME)


@pytest.mark.looptime
@pytest.mark.rows("CND-009")
async def test_a_cleanup_that_takes_too_long_says_so() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        served = await one.established(NAME)
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.delete_definition(NAME)
        await until(
            lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionCheck",
            limits.CLEANUP_PATIENCE + 5,
            every=1.0,
        )
        assert conditions(one.definition(NAME))["Terminating"] == (
            "True",
            "InstanceDeletionCheck",
            "could not confirm zero CustomResources remaining: timed out waiting for the condition",
        )
        held = one.collection(WIDGETS).get("d", "held")
        assert held is not None
        await one.store.delete(one.collection(WIDGETS), "d", "held", held.revision)
        await one.gone(NAME)


@pytest.mark.rows("CND-009", "ETC-006")
async def test_an_object_that_cannot_be_read_is_not_left_behind() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        await one.put(served, widget("good"))
        etcd.put(f"{PREFIX}/example.com/widgets/d/bad", b"no json")
        await one.delete_definition(NAME)
        await until(lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionFailed")
        assert conditions(one.definition(NAME))["Terminating"][2].startswith("could not list instances: ")
        assert one.collection(WIDGETS).readable() == []
        etcd.remove(f"{PREFIX}/example.com/widgets/d/bad")
        await one.gone(NAME)


async def test_what_happened_while_history_was_lost_is_followed() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one, server(etcd) as other:
        await one.define(crd())
        await one.define(crd("things"))
        await one.established(NAME)
        await one.established("things.example.com")
        watches = list(etcd.watches)
        etcd.hold()
        key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions"
        etcd.remove(f"{key}/things.example.com")
        document = crd("gadgets")
        document["status"]["acceptedNames"] = document["spec"]["names"]
        document["status"]["conditions"] = [{"type": "NamesAccepted", "status": "True", "reason": "a", "message": "b"}]
        etcd.put(f"{key}/gadgets.example.com", orjson.dumps(document))
        etcd.forget_before(etcd.revision)
        etcd.release()
        for each in (one, other):
            await each.established("gadgets.example.com")
            await each.gone("things.example.com")
            assert each.served(NAME) is not None
        assert all(watch.ended for watch in watches)


async def test_a_store_that_goes_and_comes_back_is_followed() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        etcd.put(f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}", orjson.dumps(crd()))
        etcd.down = True
        await until(lambda: one.definition(NAME) is not None)
        for _ in range(50):
            await asyncio.sleep(0)
        assert one.served(NAME) is None
        etcd.down = False
        await one.established(NAME)
