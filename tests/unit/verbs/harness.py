"""The verbs with a fake etcd and the controllers that serve definitions, without HTTP."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson

from apiext.admission.chain import Chain
from apiext.auth.user import SUPERUSER
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.storage.store import Entry
from apiext.verbs import api
from apiext.verbs.call import Body, Call, Outcome, Verbs
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, Server, server

WIDGETS = GroupResource("example.com", "widgets")
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@asynccontextmanager
async def serving_widgets(etcd: FakeEtcd) -> AsyncIterator[Server]:
    """Run a server that serves widgets, which another server may have defined."""
    async with server(etcd) as one:
        if one.definition("widgets.example.com") is None:
            await one.define({**DEFINITION, "metadata": {"name": "widgets.example.com", "uid": "d1", "generation": 1}})
        await one.established("widgets.example.com")
        yield one


class Client:
    """A client that calls the verbs of one server for widgets, as HTTP does."""

    def __init__(self, server: Server) -> None:
        self.server = server
        loop = asyncio.get_running_loop()
        self.verbs = Verbs(server.live, server.store, Chain(), server.controllers.serving, lambda: NOW, loop.time)

    def call(self, verb: str, name: str = "", query: Mapping[str, Sequence[str]] | None = None) -> Call:
        resource = self.server.live.current.resource(WIDGETS.group, WIDGETS.resource)
        assert resource is not None
        served = resource.versions["v1"]
        return Call(verb, served, resource, served.endpoints[""], "default", name, query or {}, SUPERUSER, "test")

    async def create(self, name: str, *, call: Call | None = None, **fields: Any) -> Outcome:
        return await api.create(self.verbs, call or self.call("create"), body(widget(name, **fields)))

    async def update(self, document: Document) -> Outcome:
        return await api.update(self.verbs, self.call("update", document["metadata"]["name"]), body(document))

    async def patch(self, name: str, patch: Document, **query: str) -> Outcome:
        call = self.call("patch", name, {key: [value] for key, value in query.items()})
        return await api.patch(self.verbs, call, "application/merge-patch+json", orjson.dumps(patch))

    async def delete(self, name: str, options: Document | None = None) -> Outcome:
        return await api.delete(self.verbs, self.call("delete", name), options)

    async def stored(self, name: str) -> Entry | None:
        return await self.server.store.current(self.server.collection(WIDGETS), "default", name)

    def shown(self, outcome: Outcome) -> Document:
        if outcome.document is not None:
            return outcome.document
        assert outcome.entry is not None
        document: Document = orjson.loads(outcome.entry.view(self.call("get").served.codec.view))
        return document


def widget(name: str, **fields: Any) -> Document:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, **fields}


def body(document: Document) -> Body:
    raw = orjson.dumps(document)
    return Body(orjson.loads(raw), [], "application/json", raw)
