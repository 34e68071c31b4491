"""Creates with admission: the namespace that they need, and the steps that metrics count."""

from threading import current_thread, main_thread

import pytest
from msgspec.structs import replace

from apiext import limits
from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.admission.chain import Chain, Plugin
from apiext.admission.lifecycle import ACCESS_REVIEWS, NamespaceLifecycle
from apiext.documents.document import Document, View
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError, bad_request
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.verbs import validation
from apiext.verbs.admission_plugins import Namespaces
from apiext.verbs.call import Call
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import Server
from tests.unit.verbs.harness import WIDGETS, Client, serving_widgets

pytestmark = pytest.mark.rows("ADM-001", "NSP-003", "NSP-004", "WRI-001")


class InDefault(Client):
    """A client whose creates go through admission, as in a server."""

    def __init__(self, server: Server, *more: Plugin) -> None:
        super().__init__(server)
        self.lifecycle = NamespaceLifecycle(Namespaces(server.live, server.store))
        self.verbs.admission = Chain([self.lifecycle, *more])

    def passed(self) -> dict[tuple[str, str], int]:
        """Return the number of calls without a refusal by type of step and operation."""
        slots = self.verbs.admission.metrics._steps._slots
        return {labels[:2]: sum(slot.buckets) for labels, slot in slots.items() if labels[2] == "false"}


async def create_error(client: Client) -> StatusError:
    with pytest.raises(StatusError) as error:
        await client.create("a")
    return error.value


def raise_bad_request(new: Document, old: View | None) -> Document:
    raise bad_request("no address is left")


class Grows:
    """A plug-in that changes objects, and reports them as large."""

    name = "Grows"

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        attributes.size = limits.WORK_INLINE
        return {**new, "spec": {"n": 2}} if new is not None else None


async def test_objects_that_admission_enlarges_are_validated_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, validate = list[bool](), validation.validate

    def validated(call: Call, new: Document, old: View | None) -> None:
        threads.append(current_thread() is not main_thread())
        validate(call, new, old)

    monkeypatch.setattr(validation, "validate", validated)
    async with serving_widgets(FakeEtcd()) as one:
        await InDefault(one).create("a", spec={"n": 1})  # the first object of a kind is always validated in a thread
        threads.clear()
        await InDefault(one).create("small", spec={"n": 1})
        client = InDefault(one, Grows())
        await client.create("b", spec={"n": 1})
        await client.patch("a", {"spec": {"n": 3}})
        assert threads == [False, True, True]


async def test_create_in_terminating_namespace_is_forbidden() -> None:
    async with serving_widgets(FakeEtcd()) as one:
        client = InDefault(one)
        await client.create("held", metadata={"finalizers": ["example.com/hold"]})
        await one.delete_namespace("default")
        error = await create_error(client)
        assert (error.code, error.reason) == (403, "Forbidden")
        assert "because it is being terminated" in error.message
        assert await client.stored("a") is None


async def test_create_in_absent_namespace_is_not_found() -> None:
    async with serving_widgets(FakeEtcd()) as one:
        client = InDefault(one)
        await one.delete_namespace("default")
        assert (await create_error(client)).code == 404


async def test_admission_metrics_count_each_passed_step() -> None:
    async with serving_widgets(FakeEtcd()) as one:
        client, before = InDefault(one), dict[tuple[str, str], int]()

        def passed() -> list[tuple[str, str]]:
            nonlocal before
            last, before = before, client.passed()
            return [moment for moment, times in before.items() for _ in range(times - last.get(moment, 0))]

        await client.create("a", spec={"n": 1})
        assert passed() == [("admit", "CREATE"), ("validate", "CREATE")]
        with pytest.raises(StatusError):
            await client.create("/")
        assert passed() == [("admit", "CREATE")]
        call = client.call("create")
        call.endpoint = replace(call.endpoint, prepare=raise_bad_request)
        with pytest.raises(StatusError):
            await client.create("c", call=call)
        assert passed() == [("admit", "CREATE")]
        await client.create("b", call=client.call("create", query={"dryRun": ["All"]}))
        assert passed() == [("admit", "CREATE"), ("validate", "CREATE")]
        await client.patch("a", {"spec": {"n": 2}})
        assert passed() == [("admit", "UPDATE"), ("validate", "UPDATE")]
        with pytest.raises(StatusError):
            await client.patch("a", {"metadata": {"labels": {"/": "x"}}})
        assert passed() == [("admit", "UPDATE")]
        with pytest.raises(StatusError):
            await client.delete("a", {"preconditions": {"uid": "other"}})
        assert not passed()
        await client.delete("a")
        assert passed() == [("admit", "DELETE"), ("validate", "DELETE")]


@pytest.mark.parametrize("gone", [False, True], ids=["changed", "deleted"])
async def test_create_compares_cached_namespace_with_etcd(gone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    etcd, looked = FakeEtcd(), list[object]()
    async with serving_widgets(etcd) as one, serving_widgets(etcd) as other:
        client = InDefault(one)
        entry = one.collection(NAMESPACES).state.get("", "default")
        assert entry is not None
        look = CachedStore.fresh

        async def fresh(store: CachedStore, *of: Collection | None) -> int:
            looked.append(await client.stored("a"))
            etcd.release()
            return await look(store, *of)

        etcd.hold()
        if gone:
            await other.store.delete_key(other.store.keys.object(NAMESPACES, "", "default"), entry.revision)
        else:
            raw = entry.raw.replace(b'"labels":{', b'"labels":{"a":"b",')
            await other.store.update(other.collection(NAMESPACES), "", "default", raw, entry.revision)
        monkeypatch.setattr(CachedStore, "fresh", fresh)
        assert one.collection(NAMESPACES).state.get("", "default") is entry, "the watch says nothing"
        if gone:
            assert (await create_error(client)).code == 404
        else:
            assert (await client.create("a")).code == 201
        assert looked[0] is None, "nothing was stored by what was known"
        assert (await client.stored("a") is None) is gone


async def test_namespace_lifecycle_skips_access_reviews() -> None:
    async with serving_widgets(FakeEtcd()) as one:
        lifecycle = InDefault(one).lifecycle
        assert not lifecycle.applies("CREATE", ACCESS_REVIEWS)
        assert lifecycle.applies("CREATE", WIDGETS)
