"""The garbage collector with refused deletions and unreadable dependents.

The definitions of some owners are deleted.
"""

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from apiext.admission.attributes import Attributes
from apiext.catalog.served import ServedResource
from apiext.controllers import limits, loop
from apiext.controllers.references import Reference
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.verbs.metadata import ORPHAN
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import PREFIX, crd, until, widget
from tests.unit.controllers.owners import gadget, owned, world

pytestmark = pytest.mark.rows("WRI-018")


class Denying:
    """A plug-in that refuses deletions with a code, as webhooks may, and records the times."""

    name = "Denying"

    def __init__(self, code: int) -> None:
        self.code = code
        self.asked: list[float] = []

    def applies(self, operation: str, resource: GroupResource) -> bool:
        return True

    async def mutate(self, attributes: Attributes, new: Document | None) -> Document | None:
        return new

    async def review(self, attributes: Attributes) -> None:
        if attributes.operation == "DELETE":
            self.asked.append(asyncio.get_running_loop().time())
            raise StatusError(self.code, "Conflict", "not now")


@pytest.mark.parametrize("code", [403, 404, 409])
async def test_refused_deletions_are_retried_with_growing_delays(code: int) -> None:
    denying = Denying(code)
    async with world(None, denying) as it:
        child = owned(widget("child"), widget("never"))
        await it.put(child)
        await until(lambda: len(denying.asked) == 7)
        assert it.find(child) is not None
    pauses = [after - before for before, after in pairwise(denying.asked)]
    assert all(pause >= 0.5 * loop.RETRY_FIRST * 2**number for number, pause in enumerate(pauses))


@pytest.mark.parametrize("owner", [gadget("owner"), widget("owner")], ids=["cluster scope", "namespaced"])
async def test_dependents_are_deleted_if_owner_definition_is_gone(owner: Document) -> None:
    name = "gadgets.other.com" if owner["kind"] == "Gadget" else "widgets.example.com"
    etcd = FakeEtcd()
    async with world(etcd) as it:
        await it.one.define(crd("tools", "example.org"))
        tools = await it.one.established("tools.example.org")
        await it.put(owner)
        stranger = owned(tool("of another kind"), {**owner, "kind": "Other"})
        for document in (*(owned(tool(f"t{number}"), owner) for number in range(40)), stranger):
            await it.one.put(tools, document)
        await it.quiet()
        etcd.hold()
        await it.remove(owner)
        for key in etcd.state(f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{name}"):
            etcd.remove(key)  # the server learns of both at once
        etcd.release()
        await it.one.gone(name)
        collection = it.one.collection(tools.group_resource)
        await until(lambda: len(list(collection.state.readable())) <= 1)
        await it.quiet()
        assert [entry.name for entry in collection.state.readable()] == ["of another kind"]
        assert it.garbage.dependents._deleted_owners.keys() == {owner["metadata"]["uid"]}
        entry = collection.state.get("d", "of another kind")
        assert entry is not None
        await it.one.store.delete(collection, "d", entry.name, entry.revision)
        await it.one.store.fresh()
        assert not it.garbage.dependents._deleted_owners


@pytest.mark.looptime
async def test_orphaning_retries_unreadable_dependent_with_backoff() -> None:
    etcd = FakeEtcd()
    async with world(etcd) as it:
        owner, child = widget("owner"), widget("child")
        await it.put(owner)
        await it.put(owned(child, owner))
        await it.quiet()
        etcd.put(f"{PREFIX}/example.com/widgets/d/child", b"no json")
        await it.one.store.fresh()
        before = len(etcd.calls)
        await it.mark(owner, ORPHAN)
        await asyncio.sleep(60)
        assert len(etcd.calls) - before < 300, "it does not spin"
        assert it.find(owner) is not None
        etcd.remove(f"{PREFIX}/example.com/widgets/d/child")
        await until(lambda: it.find(owner) is None, 2 * limits.RETRY_LAST, every=0.5)


def tool(name: str, namespace: str = "d") -> Document:
    return {**widget(name, namespace), "apiVersion": "example.org/v1", "kind": "Tool"}


async def test_catalog_is_refreshed_before_owner_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as it:
        owner = gadget("owner")
        await it.put(owner)
        serving, newest = it.one.controllers.serving, it.garbage._kind
        refresh, behind = serving.refresh, True

        def kind(reference: Reference) -> ServedResource | None:
            found = newest(reference)
            return replace(found, namespaced=True) if found is not None and behind else found

        async def refreshed(group: str, resource: str) -> ServedResource | None:
            nonlocal behind
            behind = False
            return await refresh(group, resource)

        monkeypatch.setattr(it.garbage, "_kind", kind)
        monkeypatch.setattr(serving, "refresh", refreshed)
        child = owned(widget("child"), owner)
        await it.put(child)
        await it.quiet()
        await it.quiet()
        assert not behind
        assert it.find(child) is not None
