"""Owners and dependents for tests: a server with two kinds and a garbage collector."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from apiext.admission.chain import Chain, Plugin
from apiext.catalog.served import ServedResource
from apiext.controllers.garbage import Garbage
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.storage.store import Entry
from apiext.verbs.call import Verbs
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, Server, crd, server, until, widget

WIDGETS = GroupResource("example.com", "widgets")
GADGETS = GroupResource("other.com", "gadgets")


class World:
    """One server with widgets (namespaced) and gadgets (cluster scope), and a garbage collector."""

    def __init__(self, one: Server, garbage: Garbage) -> None:
        self.one = one
        self.garbage = garbage

    def served(self, resource: GroupResource) -> ServedResource:
        found = self.one.live.current.resource(resource.group, resource.resource)
        assert found is not None
        return found

    async def put(self, document: Document) -> Entry:
        return await self.one.put(self.served(WIDGETS if document["kind"] == "Widget" else GADGETS), document)

    def find(self, document: Document) -> Document | None:
        resource = WIDGETS if document["kind"] == "Widget" else GADGETS
        metadata = document["metadata"]
        entry = self.one.collection(resource).state.get(metadata.get("namespace", ""), metadata["name"])
        return orjson.loads(entry.raw) if entry is not None else None

    async def remove(self, document: Document) -> None:
        """Delete an object immediately, as a background deletion does."""
        resource = WIDGETS if document["kind"] == "Widget" else GADGETS
        metadata = document["metadata"]
        collection = self.one.collection(resource)
        entry = collection.state.get(metadata.get("namespace", ""), metadata["name"])
        assert entry is not None
        await self.one.store.delete(collection, entry.namespace, entry.name, entry.revision)

    async def mark(self, document: Document, *finalizers: str) -> None:
        """Mark an object as deleted, with finalizers, as a foreground or orphaning deletion does."""

        def change(stored: Document) -> None:
            stored["metadata"] |= {"deletionTimestamp": NOW, "deletionGracePeriodSeconds": 0}
            stored["metadata"]["finalizers"] = list(finalizers)

        await self.change(document, change)

    async def change(self, document: Document, change: Any) -> None:
        resource = WIDGETS if document["kind"] == "Widget" else GADGETS
        metadata = document["metadata"]
        entry = self.one.collection(resource).state.get(metadata.get("namespace", ""), metadata["name"])
        assert entry is not None
        await self.one.replace(self.served(resource), entry, change)

    async def quiet(self) -> None:
        """Wait until the garbage collector has processed everything stored."""
        await self.one.store.fresh()
        for key in self.garbage.dependents.everything():
            self.garbage.loop.add(key)
        await until(lambda: self.garbage.loop.idle)


@asynccontextmanager
async def world(etcd: FakeEtcd | None = None, *plugins: Plugin) -> AsyncIterator[World]:
    async with server(etcd or FakeEtcd()) as one, asyncio.TaskGroup() as group:
        await one.define(crd())
        await one.define(crd("gadgets", "other.com", scope="Cluster"))
        await one.established("widgets.example.com")
        await one.established("gadgets.other.com")
        verbs = Verbs(one.live, one.store, Chain(plugins), one.controllers.serving, lambda: NOW, lambda: 0.0)
        garbage = Garbage(verbs, one.controllers.serving)
        garbage.start(group)
        try:
            yield World(one, garbage)
        finally:
            await garbage.stop()


def gadget(name: str) -> Document:
    document = widget(name)
    del document["metadata"]["namespace"]
    return {**document, "apiVersion": "other.com/v1", "kind": "Gadget"}


def owned(document: Document, *owners: Document, block: bool = False, **other: Any) -> Document:
    """Return the object with ownerReferences to the owners."""
    references = [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            **({"blockOwnerDeletion": True} if block else {}),
            **other,
        }
        for owner in owners
    ]
    return {**document, "metadata": {**document["metadata"], "ownerReferences": references}}


def uids(document: Document | None) -> list[str]:
    assert document is not None
    return [one["uid"] for one in document["metadata"].get("ownerReferences", [])]
