"""Servers without HTTP over one fake etcd: store, catalog and controllers.

Definitions are written as by verbs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import orjson

from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.served import Catalog, LiveCatalog, ServedResource
from apiext.controllers.definitions import DEFINITIONS
from apiext.controllers.namespaces import NAMESPACES, namespace
from apiext.controllers.startup import Controllers, add_collections
from apiext.controllers.statuses import set_condition
from apiext.crd.conditions import condition
from apiext.crd.definition import FINALIZER, TERMINATING
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.keys import Keys
from apiext.storage.store import Entry, Guard, RevisionChanged
from tests.support.configs import config_of
from tests.support.fake_etcd import FakeEtcd
from tests.support.polling import until

CONFIG = config_of(Path("unused"), compaction_interval=0.0)
NOW = "2026-01-02T03:04:05Z"
PREFIX = "/registry"
SYNCED_WITHIN = 60.0


@dataclass(slots=True)
class Server:
    """One server: the parts that app.py starts, without the network."""

    store: CachedStore
    live: LiveCatalog
    controllers: Controllers
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def collection(self, resource: GroupResource) -> Collection:
        found = self.store.collection(resource)
        assert found is not None
        return found

    def served(self, name: str) -> ServedResource | None:
        plural, _, group = name.partition(".")
        return self.live.current.resource(group, plural)

    # -- writes of definitions, as by verbs

    async def define(self, document: Document) -> Entry:
        served = self.live.current.lookup(DEFINITIONS.group, "v1", DEFINITIONS.resource)
        assert served is not None
        return await self.store.create(
            self.collection(DEFINITIONS), "", document["metadata"]["name"], served.codec.encode(document)
        )

    def definition(self, name: str) -> Document | None:
        served = self.live.current.lookup(DEFINITIONS.group, "v1", DEFINITIONS.resource)
        entry = self.collection(DEFINITIONS).state.get("", name)
        assert served is not None
        return served.codec.decode(entry.raw, entry.revision) if entry is not None else None

    async def change(self, name: str, change: Callable[[Document], None], guard: Guard | None = None) -> Entry:
        served = self.live.current.lookup(DEFINITIONS.group, "v1", DEFINITIONS.resource)
        assert served is not None
        entry = self.collection(DEFINITIONS).state.get("", name)
        while entry is not None:
            document = served.codec.decode(entry.raw, entry.revision)
            change(document)
            document["metadata"].pop("resourceVersion", None)
            try:
                return await self.store.update(
                    self.collection(DEFINITIONS), "", name, served.codec.encode(document), entry.revision, guard
                )
            except RevisionChanged as race:
                entry = race.current
        raise AssertionError(f"{name} is gone")

    async def delete_definition(self, name: str) -> None:
        document = self.definition(name)
        assert document is not None
        guard = await self.controllers.serving.begin_deletion(name, document["metadata"]["uid"])

        def mark(document: Document) -> None:
            document["metadata"]["deletionTimestamp"] = NOW
            document["metadata"]["finalizers"] = [*document["metadata"].get("finalizers", []), FINALIZER]
            message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
            told = condition(TERMINATING, "True", "InstanceDeletionPending", message)
            document.update(set_condition(document, told, NOW))

        await self.change(name, mark, guard)

    # -- custom objects

    async def put(self, served: ServedResource, document: Document) -> Entry:
        """Create a custom object like a server whose catalog has this state."""
        metadata = document["metadata"]
        raw = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        return await self.store.create(
            self.collection(served.group_resource),
            metadata.get("namespace", ""),
            metadata["name"],
            raw,
            Guard(served.definition.guard_key, served.definition.guard_revision),
        )

    async def replace(self, served: ServedResource, entry: Entry, change: Callable[[Document], None]) -> Entry:
        document = orjson.loads(entry.raw)
        change(document)
        raw = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        return await self.store.update(
            self.collection(served.group_resource),
            entry.namespace,
            entry.name,
            raw,
            entry.revision,
            Guard(served.definition.guard_key, served.definition.guard_revision),
        )

    async def define_namespace(self, name: str) -> Entry:
        document = namespace(name, NOW, "server")
        raw = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        return await self.store.create(self.collection(NAMESPACES), "", name, raw)

    async def delete_namespace(self, name: str) -> None:
        entry = self.collection(NAMESPACES).state.get("", name)
        assert entry is not None
        document = orjson.loads(entry.raw)
        document["metadata"]["deletionTimestamp"] = NOW
        document["status"]["phase"] = "Terminating"
        raw = orjson.dumps(document, option=orjson.OPT_SORT_KEYS)
        await self.store.update(self.collection(NAMESPACES), "", name, raw, entry.revision)

    # -- waiting

    async def established(self, name: str) -> ServedResource:
        await until(lambda: conditions(self.definition(name)).get("Established", ("",))[0] == "True")
        served = self.served(name)
        assert served is not None
        return served

    async def gone(self, name: str) -> None:
        await until(lambda: self.definition(name) is None and self.served(name) is None)


@asynccontextmanager
async def server(etcd: FakeEtcd, *, wait: bool = True) -> AsyncIterator[Server]:
    """Run one server; leaving the context stops it in the middle of its work."""
    store, live = CachedStore(etcd, Keys(PREFIX)), LiveCatalog(Catalog())
    async with asyncio.TaskGroup() as group:
        await store.start(group)
        builtin = builtin_resources()
        add_collections(store, builtin)
        controllers = Controllers(store, live, lambda: NOW, CONFIG.apis, CONFIG.store)
        await controllers.start(group, builtin)
        if wait:
            async with asyncio.timeout(SYNCED_WITHIN):
                await controllers.wait_synced()
        try:
            yield Server(store, live, controllers)
        finally:
            await controllers.stop()
            await store.stop()


def crd(
    plural: str = "widgets",
    group: str = "example.com",
    *,
    names: Mapping[str, Any] | None = None,
    schema: Mapping[str, Any] | None = None,
    scope: str = "Namespaced",
) -> Document:
    """Return a definition as stored by a create."""
    kind = plural.removesuffix("s").capitalize()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "uid": str(uuid4()),
            "generation": 1,
            "creationTimestamp": NOW,
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {
                "plural": plural,
                "singular": kind.lower(),
                "kind": kind,
                "listKind": f"{kind}List",
                **(names or {}),
            },
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": dict(schema or {"type": "object", "description": "a thing"})},
                }
            ],
            "conversion": {"strategy": "None"},
        },
        "status": {"acceptedNames": {"plural": "", "kind": ""}, "conditions": None, "storedVersions": ["v1"]},
    }


def widget(name: str, namespace: str = "d", finalizers: tuple[str, ...] = ()) -> Document:
    """Return a stored object of ``crd()``."""
    metadata: Document = {"name": name, "namespace": namespace, "uid": str(uuid4()), "generation": 1}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata}


def conditions(document: Mapping[str, Any] | None) -> dict[str, tuple[str, str, str]]:
    """Return status, reason and message of conditions by type."""
    status = (document or {}).get("status") or {}
    return {one["type"]: (one["status"], one["reason"], one["message"]) for one in status.get("conditions") or ()}
