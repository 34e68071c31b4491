"""Deletes of an object that another client deletes and recreates.

This happens before the cache has the change.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from apiext.admission.attributes import Attributes
from apiext.admission.chain import Chain
from apiext.auth.user import SUPERUSER
from apiext.catalog.served import ServedResource
from apiext.controllers.namespaces import NAMESPACES, namespace
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.verbs import api
from apiext.verbs.call import Call
from apiext.verbs.delete import DEFINITIONS
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, PREFIX, Server, crd, server, until
from tests.unit.controllers.harness import widget as stored_widget
from tests.unit.verbs.harness import WIDGETS, Client

DEFINITION = "widgets.example.com"


class World:
    """A server with a namespace, a definition and objects that can be deleted and recreated.

    A recreated object has another uid.
    """

    def __init__(self, one: Server, etcd: FakeEtcd) -> None:
        self.client = Client(one)
        self.etcd = etcd
        self.asked: list[tuple[str, Any]] = []  # the uids of the object and of the options, as admission gets them
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def begin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        await self.client.server.define(crd())
        await self.client.server.established(DEFINITION)
        for what in ("namespace", "object", "held object"):
            self.make(what)
        await self.client.server.store.fresh()
        monkeypatch.setattr(Chain, "applies", lambda *_: True)
        monkeypatch.setattr(Chain, "review_delete", lambda _, attributes: self.judge(attributes))

    async def judge(self, attributes: Attributes) -> None:
        assert attributes.old is not None
        pinned = ((attributes.options or {}).get("preconditions") or {}).get("uid")
        self.asked.append((attributes.old["metadata"]["uid"], pinned))
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()

    def place(self, what: str) -> tuple[GroupResource, str, str]:
        return {
            "namespace": (NAMESPACES, "", "d"),
            "definition": (DEFINITIONS, "", DEFINITION),
            "object": (WIDGETS, "d", "a"),
            "held object": (WIDGETS, "d", "b"),
        }[what]

    def key(self, what: str) -> str:
        return self.client.server.store.keys.object(*self.place(what))

    def make(self, what: str) -> None:
        made: dict[str, Callable[[], Document]] = {
            "namespace": lambda: namespace("d", NOW, "x"),
            "definition": crd,
            "object": lambda: stored_widget("a"),
            "held object": lambda: stored_widget("b", finalizers=("example.com/keep",)),
        }
        self.etcd.put(self.key(what), orjson.dumps(made[what]()))

    async def replace(self, what: str) -> None:
        self.etcd.remove(self.key(what))
        self.make(what)
        if what == "definition":
            await self.client.server.store.fresh()
            await self.client.server.established(DEFINITION)

    def stored(self, what: str) -> dict[str, Any] | None:
        found = self.etcd.state(self.key(what)).get(self.key(what))
        return orjson.loads(found[1])["metadata"] if found is not None else None

    def uid(self, what: str) -> str:
        found = self.stored(what)
        return found["uid"] if found is not None else ""

    async def delete(self, what: str, uid: str = "") -> int | str:
        """Return the code, or the part of a conflict's message after the name."""
        resource, place, name = self.place(what)
        found: ServedResource | None = self.client.server.live.current.resource(resource.group, resource.resource)
        assert found is not None
        served = found.versions["v1"]
        call = Call("delete", served, found, served.endpoints[""], place or None, name, {}, SUPERUSER, "test")
        try:
            return (await api.delete(self.client.verbs, call, {"preconditions": {"uid": uid}} if uid else None)).code
        except StatusError as refused:
            if refused.code != 409:
                raise
            return refused.message.partition('": ')[2]


def guard(etcd: FakeEtcd) -> dict[str, Any]:
    key = f"{PREFIX}/.apiext/guards/{DEFINITION}"
    found: dict[str, Any] = orjson.loads(etcd.state(key)[key][1])
    return found


def conflict(key: str, meant: str, found: str) -> str:
    place = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
    return f"{place}Precondition failed: UID in precondition: {meant}, UID in object meta: {found}"


@pytest.mark.rows("WRI-019", "DEL-001", "NSP-005")
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("what", ["namespace", "definition", "object", "held object"])
async def test_admitted_delete_does_not_delete_recreated_object(
    what: str, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # upstream: definitions and namespaces are deleted with the uid of the object that was read
    etcd = FakeEtcd()
    async with server(etcd) as one:
        world = World(one, etcd)
        await world.begin(monkeypatch)
        first = world.uid(what)
        world.meanwhile = lambda: world.replace(what)
        answer = await world.delete(what, first if given else "")
        second = world.uid(what)
        pins = what in ("namespace", "definition")
        told = first if given or pins else None
        if given or pins:
            assert answer == conflict(world.key(what), first, second)
            assert world.asked == [(first, told)]
            assert "deletionTimestamp" not in (world.stored(what) or {})
        else:  # upstream: any other object is read and validated again, and deleted
            assert answer == 200
            assert len(world.asked) == 2
            assert world.asked[0] == (first, None)
            assert not second or "deletionTimestamp" in (world.stored(what) or {})
        if what == "definition":
            assert guard(etcd) == {"uid": second, "state": "serving", "generation": 1}


@pytest.mark.rows("WRI-019", "RV-017")
@pytest.mark.parametrize("what", ["namespace", "definition"])
async def test_delete_applies_to_successor_missing_in_cache(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        world = World(one, etcd)
        await world.begin(monkeypatch)
        etcd.hold()
        etcd.remove(world.key(what))
        world.make(what)
        second = world.uid(what)
        async with asyncio.TaskGroup() as group:
            deleting = group.create_task(world.delete(what))
            await until(lambda: world.asked)
            etcd.release()
        assert deleting.result() == 200
        assert set(world.asked) == {(second, second)}, "controllers may write to it meanwhile"
