"""Dependents and their owners.

The tests cover background, foreground and orphaning deletion, and owners that cannot be absent.
"""

import asyncio

import orjson
import pytest

from apiext import limits as server_limits
from apiext.admission.attributes import Attributes
from apiext.admission.chain import Chain
from apiext.cli import parse_serve
from apiext.config import GARBAGE_COLLECTOR
from apiext.controllers import limits as controllers_limits
from apiext.controllers.references import without_finalizer, without_owners
from apiext.controllers.serving import Serving
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.verbs.call import Verbs
from tests.support.fake_etcd import FakeEtcd
from tests.support.strain import turns_beside
from tests.unit.controllers.harness import NOW, PREFIX, crd, server, until, widget
from tests.unit.controllers.owners import WIDGETS, World, gadget, owned, uids, world

pytestmark = pytest.mark.rows("WRI-018")

# -- background


async def test_background_deletion_removes_transitive_dependents() -> None:
    async with world() as it:
        owner = widget("owner")
        child = owned(widget("child"), owner)
        grandchild = owned(widget("grandchild"), child)
        other = widget("other")
        for one in (owner, child, grandchild, other):
            await it.put(one)
        await it.quiet()
        assert it.find(child) is not None
        await it.remove(owner)
        await until(lambda: it.find(grandchild) is None)
        assert it.find(child) is None
        assert it.find(other) is not None
        assert len(it.garbage.dependents) == 0


async def test_dependent_keeps_only_its_remaining_owner() -> None:
    async with world() as it:
        first, second = widget("first"), gadget("second")
        child = owned(widget("child"), first, second)
        for one in (first, second, child):
            await it.put(one)
        await it.remove(first)
        await until(lambda: uids(it.find(child)) == [second["metadata"]["uid"]])
        await it.remove(second)
        await until(lambda: it.find(child) is None)


async def test_dependent_created_after_owner_deletion_is_deleted() -> None:
    async with world() as it:
        child = owned(widget("child"), widget("never"))
        await it.put(child)
        await until(lambda: it.find(child) is None)


async def test_object_with_owner_name_but_other_uid_is_no_owner() -> None:
    async with world() as it:
        await it.put(widget("owner"))
        child = owned(widget("child"), widget("owner"))  # another uid
        await it.put(child)
        await until(lambda: it.find(child) is None)


async def test_finalizers_keep_dependent_terminating() -> None:
    async with world() as it:
        child = owned(widget("child", finalizers=("example.com/hold",)), widget("never"))
        await it.put(child)
        await until(lambda: (it.find(child) or child)["metadata"].get("deletionTimestamp"))
        await it.quiet()
        found = it.find(child)
        assert found is not None
        assert found["metadata"]["finalizers"] == ["example.com/hold"]
        assert found["metadata"]["generation"] == 2


async def test_restarted_collector_deletes_dependents_of_absent_owners() -> None:
    etcd = FakeEtcd()
    owner, child = widget("owner"), owned(widget("child"), widget("never"))
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established("widgets.example.com")
        kept = owned(widget("kept"), owner)
        for document in (owner, child, kept):
            await one.put(served, document)
        assert len(etcd.state(f"{PREFIX}/example.com/widgets/")) == 3
        async with asyncio.TaskGroup() as group:
            one.controllers.start_garbage_collector(
                group, Verbs(one.live, one.store, Chain([]), one.controllers.serving, lambda: NOW, lambda: 0.0)
            )
            await until(lambda: one.collection(WIDGETS).state.get("d", "child") is None)
            assert one.collection(WIDGETS).state.get("d", "kept") is not None
            await one.controllers.stop()


# -- owners that cannot be absent


async def test_owner_of_unserved_kind_keeps_dependents() -> None:
    async with world() as it:
        stranger = {"apiVersion": "other.example.org/v1", "kind": "Gadget", "metadata": {"name": "p", "uid": "u-pod"}}
        old = {**widget("old"), "apiVersion": "example.com/v0"}
        child, both = owned(widget("child"), stranger), owned(widget("both"), old, widget("never"))
        await it.put(child)
        await it.put(both)
        await until(lambda: uids(it.find(both)) == [old["metadata"]["uid"]])
        await it.quiet()
        assert uids(it.find(child)) == ["u-pod"]


async def test_absent_owner_is_detected_once_its_kind_is_served() -> None:
    async with world() as it:
        thing = {**widget("thing"), "apiVersion": "late.com/v1", "kind": "Thing"}
        child = owned(widget("child"), thing)
        await it.put(child)
        await it.quiet()
        assert it.find(child) is not None
        await it.one.define(crd("things", "late.com"))
        await until(lambda: it.find(child) is None)


async def test_owner_lookup_uses_dependents_namespace_or_cluster_scope() -> None:
    async with world() as it:
        owner = widget("owner", "a")
        same, elsewhere = owned(widget("same", "a"), owner), owned(widget("elsewhere", "b"), owner)
        wide = owned(gadget("wide"), owner)
        top = gadget("top")
        below = owned(widget("below", "b"), top)
        for one in (owner, same, wide, top, below, elsewhere):
            await it.put(one)
        await until(lambda: it.find(elsewhere) is None)
        await it.quiet()
        assert it.find(same) is not None
        assert it.find(below) is not None
        await it.remove(owner)
        await until(lambda: it.find(same) is None)
        await it.quiet()
        assert it.find(wide) is not None  # a cluster-scoped object cannot have a namespaced owner


async def test_owner_missing_only_in_cache_is_not_absent() -> None:
    async with world() as it:
        owner, child = widget("owner"), owned(widget("child"), widget("never"))
        child["metadata"]["ownerReferences"][0] |= {"name": "owner", "uid": owner["metadata"]["uid"]}
        collection = it.one.collection(WIDGETS)
        await it.put(owner)
        collection.state.snapshot.remove("d/owner")  # as if the cache had lost it
        await it.put(child)
        await it.quiet()
        assert it.find(child) is not None


async def test_unreadable_owner_is_not_absent() -> None:
    etcd = FakeEtcd()
    async with world(etcd) as it:
        etcd.put(f"{PREFIX}/example.com/widgets/d/never", b"not JSON")
        await it.put(owned(widget("child"), widget("never")))
        await it.one.store.fresh()
        await until(lambda: it.garbage.loop.idle)
        assert it.one.collection(WIDGETS).state.by_key("d/child") is not None
        etcd.remove(f"{PREFIX}/example.com/widgets/d/never")
        await until(lambda: it.one.collection(WIDGETS).state.by_key("d/child") is None)


@pytest.mark.parametrize("left", [0, 1])
async def test_owners_of_one_kind_are_read_in_one_batch(left: int) -> None:
    etcd = FakeEtcd()
    async with world(etcd) as it:
        owners = [widget(f"owner{number}") for number in range(300)]
        for owner in owners[:left]:
            await it.put(owner)
        child = owned(widget("child"), *owners)
        await it.quiet()
        before = len(etcd.calls)
        await it.put(child)
        if left:
            await until(lambda: uids(it.find(child)) == [owner["metadata"]["uid"] for owner in owners[:left]])
        else:
            await until(lambda: it.find(child) is None)
        await it.quiet()
        assert len(etcd.calls) - before < 40


async def test_unreadable_owner_among_many_is_not_absent() -> None:
    etcd = FakeEtcd()
    async with world(etcd) as it:
        etcd.put(f"{PREFIX}/example.com/widgets/d/owner5", b"not JSON")
        child = owned(widget("child"), *(widget(f"owner{number}") for number in range(50)))
        await it.put(child)
        await it.one.store.fresh()
        await until(lambda: it.garbage.loop.idle)
        assert it.one.collection(WIDGETS).state.by_key("d/child") is not None
        etcd.remove(f"{PREFIX}/example.com/widgets/d/owner5")
        await until(lambda: it.one.collection(WIDGETS).state.by_key("d/child") is None)


class Adoption:
    """A plug-in that gives an object another owner while its deletion is admitted."""

    name = "Adoption"

    def __init__(self) -> None:
        self.world: World | None = None
        self.owner: Document | None = None
        self.asked: list[tuple[str, str]] = []

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        return new

    async def review(self, attributes: Attributes) -> None:
        self.asked.append((attributes.operation, attributes.name))
        owner, self.owner = self.owner, None
        if owner is not None and self.world is not None and attributes.old is not None:
            await self.world.change(dict(attributes.old), lambda stored: stored.update(owned(stored, owner)))


async def test_dependent_adopted_during_deletion_is_kept() -> None:
    adoption = Adoption()
    async with world(None, adoption) as it:
        owner, child = widget("owner"), owned(widget("child"), widget("never"))
        await it.put(owner)
        adoption.world, adoption.owner = it, owner
        await it.put(child)
        await until(lambda: uids(it.find(child)) == [owner["metadata"]["uid"]])
        await it.quiet()
        assert adoption.asked == [("DELETE", "child")]
        assert it.find(child) is not None


async def test_two_garbage_collectors_finish_foreground_deletion() -> None:
    etcd = FakeEtcd()
    async with world(etcd) as it, server(etcd) as two, asyncio.TaskGroup() as group:
        await two.established("widgets.example.com")
        verbs = Verbs(two.live, two.store, Chain([]), two.controllers.serving, lambda: NOW, lambda: 0.0)
        two.controllers.start_garbage_collector(group, verbs)
        owner, other = widget("owner"), widget("other")
        children = [owned(widget(f"child-{number}"), owner, block=True) for number in range(30)]
        shared = owned(widget("shared"), owner, other, block=True)
        for one in (owner, other, *children, shared):
            await it.put(one)
        await it.mark(owner, "foregroundDeletion")
        await until(lambda: it.find(owner) is None)
        await it.quiet()
        assert sorted(etcd.state(f"{PREFIX}/example.com/widgets/d/")) == [
            f"{PREFIX}/example.com/widgets/d/other",
            f"{PREFIX}/example.com/widgets/d/shared",
        ]
        assert uids(it.find(shared)) == [other["metadata"]["uid"]]
        await two.controllers.stop()


async def test_collector_deletes_definition_that_is_dependent() -> None:
    async with world() as it:
        owner = gadget("owner")
        await it.put(owner)
        await it.put(widget("object"))
        await it.one.change(
            "widgets.example.com", lambda stored: stored["metadata"].update(owned(stored, owner)["metadata"])
        )
        await it.quiet()
        assert it.one.definition("widgets.example.com") is not None
        await it.remove(owner)
        await it.one.gone("widgets.example.com")


# -- foreground


async def test_foreground_deletion_waits_for_blocking_dependents() -> None:
    async with world() as it:
        owner = widget("owner")
        held = owned(widget("held", finalizers=("example.com/hold",)), owner, block=True)
        free, loose = owned(widget("free"), owner, block=True), owned(widget("loose"), owner)
        for one in (owner, held, free, loose):
            await it.put(one)
        await it.mark(owner, "foregroundDeletion")
        await until(lambda: it.find(free) is None and it.find(loose) is None)
        await it.quiet()
        found = it.find(owner)
        assert found is not None
        assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
        await it.remove(held)
        await until(lambda: it.find(owner) is None)


async def test_foreground_deletion_ignores_non_blocking_dependents() -> None:
    async with world() as it:
        owner = widget("owner")
        loose = owned(widget("loose", finalizers=("example.com/hold",)), owner)
        await it.put(owner)
        await it.put(loose)
        await it.mark(owner, "example.com/mine", "foregroundDeletion")
        await until(lambda: (it.find(owner) or owner)["metadata"].get("finalizers") == ["example.com/mine"])
        assert it.find(loose) is not None


async def test_foreground_deletion_waits_for_transitive_dependents() -> None:
    async with world() as it:
        owner = gadget("owner")
        child = owned(widget("child"), owner, block=True)
        leaf = owned(widget("leaf", finalizers=("example.com/hold",)), child, block=True)
        for one in (owner, child, leaf):
            await it.put(one)
        await it.mark(owner, "foregroundDeletion")
        await until(lambda: (it.find(leaf) or leaf)["metadata"].get("deletionTimestamp"))
        await it.quiet()
        found = it.find(child)
        assert found is not None
        assert found["metadata"]["finalizers"] == ["foregroundDeletion"]
        await it.remove(leaf)
        await until(lambda: it.find(owner) is None and it.find(child) is None)


async def test_dependent_with_other_owner_does_not_block_foreground() -> None:
    async with world() as it:
        owner, other = widget("owner"), widget("other")
        child = owned(widget("child"), owner, other, block=True)
        for one in (owner, other, child):
            await it.put(one)
        await it.mark(owner, "foregroundDeletion")
        await until(lambda: it.find(owner) is None)
        assert uids(it.find(child)) == [other["metadata"]["uid"]]


async def test_foreground_deletion_resolves_ownership_cycles() -> None:
    async with world() as it:
        first, own = widget("first"), widget("own")
        second = owned(widget("second"), first, block=True)
        for one in (first, second, owned(own, own, block=True)):
            await it.put(one)
        await it.change(first, lambda stored: stored.update(owned(stored, second, block=True)))
        await it.quiet()
        assert it.find(first) is not None
        await it.mark(first, "foregroundDeletion")
        await it.mark(own, "foregroundDeletion")
        await until(lambda: all(it.find(one) is None for one in (first, second, own)))


async def test_cluster_scoped_dependent_does_not_block_foreground() -> None:
    async with world() as it:
        owner = widget("owner", "a")
        await it.put(owner)
        wide = owned(gadget("wide"), owner, block=True)
        await it.put(wide)
        await it.mark(owner, "foregroundDeletion")
        await until(lambda: it.find(owner) is None)
        assert it.find(wide) is not None


# -- orphan


async def test_orphaning_removes_references_then_owner() -> None:
    async with world() as it:
        owner, other = widget("owner"), widget("other")
        children = [owned(widget(f"child-{number}"), owner, block=True) for number in range(40)]
        shared = owned(widget("shared"), owner, other)
        for one in (owner, other, *children, shared):
            await it.put(one)
        await it.mark(owner, "orphan")
        await until(lambda: it.find(owner) is None)
        await it.quiet()
        assert all(uids(it.find(one)) == [] for one in children)
        assert "ownerReferences" not in (it.find(children[0]) or {})["metadata"]
        assert uids(it.find(shared)) == [other["metadata"]["uid"]]


# -- whether the collector runs


@pytest.mark.parametrize(
    ("flag", "runs", "warned"),
    [
        ("*", True, 0),
        ("*,-garbage-collector-controller", False, 0),
        ("-garbage-collector-controller,*", False, 0),
        ("*,-garbagecollector", False, 0),
        ("garbage-collector-controller", True, 0),
        ("*,-job-controller", True, 1),
        ("job-controller", False, 1),
    ],
)
def test_controllers_flag_selects_garbage_collector(flag: str, runs: bool, warned: int) -> None:
    warnings: list[str] = []
    config = parse_serve([f"--controllers={flag}"], {}, warnings.append)
    assert config.apis.runs(GARBAGE_COLLECTOR) is runs
    assert len(warnings) == warned
    assert parse_serve([], {}, warnings.append).apis.runs(GARBAGE_COLLECTOR)


async def test_waking_blocking_dependents_yields_to_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 0.0)
    async with world() as it:
        owner = widget("owner")
        await it.put(owner)
        for number in range(40):
            await it.put(owned(widget(f"w{number}", finalizers=("example.com/hold",)), owner, block=True))
        await it.mark(owner, "foregroundDeletion", "example.com/hold")
        await it.quiet()
        (leaving,) = it.garbage.dependents._deleting.values()
        _, turns = await turns_beside(it.garbage.reconcile(leaving.key))
        assert turns > 40


# -- changes that this server learns late


async def test_owner_recreated_during_lost_history_is_another_owner() -> None:
    etcd = FakeEtcd()
    async with world(etcd) as it:
        owner = widget("owner")
        child = owned(widget("child"), owner)
        await it.put(owner)
        await it.put(child)
        await it.mark(owner, "foregroundDeletion", "example.com/hold")
        await it.quiet()
        await until(lambda: it.find(child) is None)
        await it.put(child)
        await it.quiet()
        etcd.hold()
        key = f"{PREFIX}/example.com/widgets/d/owner"
        etcd.remove(key)
        etcd.put(key, orjson.dumps(widget("owner")))
        etcd.forget_before(etcd.revision)
        etcd.release()
        await until(lambda: it.find(child) is None)
        await until(lambda: it.garbage.loop.idle)
        assert it.garbage.dependents.everything() == []


async def test_dependents_of_kind_not_yet_served_are_orphaned(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd, follow = FakeEtcd(), Serving._follow
    async with world(etcd) as it, server(etcd) as other:

        async def slowly(self: Serving, name: str) -> None:
            await asyncio.sleep(0.1 * (self is it.one.controllers.serving))
            await follow(self, name)

        monkeypatch.setattr(controllers_limits, "COMPILE_AT_ONCE", 0)
        monkeypatch.setattr(Serving, "_follow", slowly)
        owner = widget("owner")
        await it.put(owner)
        await other.define(crd("things", "late.com"))
        served = await other.established("things.late.com")
        thing = {**owned(widget("thing"), owner), "apiVersion": "late.com/v1", "kind": "Thing"}
        await other.put(served, thing)
        await it.mark(owner, "orphan")
        await until(lambda: it.find(owner) is None)
        await until(lambda: it.one.served("things.late.com"))
        await it.quiet()
        (kept,) = etcd.state(f"{PREFIX}/late.com/things/").values()
        assert "ownerReferences" not in orjson.loads(kept[1])["metadata"]


# -- the index


async def test_index_holds_only_objects_with_owners() -> None:
    async with world() as it:
        dependents = it.garbage.dependents
        for number in range(20):
            await it.put(widget(f"w{number}"))
        assert dependents.everything() == []
        owner = widget("owner")
        child = owned(widget("child"), owner)
        await it.put(owner)
        await it.put(child)
        assert len(dependents) == 1
        await it.change(child, lambda stored: stored["metadata"].pop("ownerReferences"))
        assert dependents.everything() == []
        assert dependents.of(owner["metadata"]["uid"]) == []


async def test_deleted_definition_leaves_index_and_other_objects() -> None:
    async with world() as it:
        owner = widget("owner")
        wide, below = gadget("wide"), owned(widget("below"), owner)
        for one in (owner, wide, below):
            await it.put(one)
        await it.one.delete_definition("widgets.example.com")
        await it.one.gone("widgets.example.com")
        assert len(it.garbage.dependents) == 0
        assert it.find(wide) is not None


@pytest.mark.rows("SSA-007")
def test_removed_owner_references_leave_managed_fields() -> None:
    fields: Document = {
        "f:metadata": {
            "f:ownerReferences": {".": {}, 'k:{"uid":"a"}': {}, 'k:{"uid":"b"}': {}},
            "f:finalizers": {".": {}, 'v:"orphan"': {}},
        }
    }
    metadata: Document = {
        "ownerReferences": [{"uid": "a"}, {"uid": "b"}],
        "finalizers": ["orphan"],
        "managedFields": [{"manager": "m", "fieldsV1": fields}, {"manager": "n", "fieldsV1": {"f:spec": {}}}],
    }
    without_owners({"a"})(metadata)
    assert metadata["ownerReferences"] == [{"uid": "b"}]
    assert fields["f:metadata"]["f:ownerReferences"] == {".": {}, 'k:{"uid":"b"}': {}}
    without_owners({"b"})(metadata)
    without_finalizer("orphan")(metadata)
    assert metadata == {"managedFields": [{"manager": "n", "fieldsV1": {"f:spec": {}}}]}
