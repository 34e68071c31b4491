"""Controller that writes type errors of expressions into ValidatingAdmissionPolicy status.

Upstream: pkg/controller/validatingadmissionpolicystatus.
"""

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import orjson

from apiext.catalog.served import Catalog, LiveCatalog
from apiext.controllers.loop import Loop
from apiext.controllers.statuses import Statuses
from apiext.crd.conditions import with_status
from apiext.documents.document import Document, View
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry

if TYPE_CHECKING:
    from apiext.admission.type_checks import Kind

MANAGER = "validatingadmissionpolicy-status"
_ALL = ""  # the key of the run at the start, which queues the stored policies that need a check


class Policies:
    """The controller of policies.

    It checks each generation of a policy once, with the resources that are served at the time of the check.
    """

    def __init__(self, store: CachedStore, live: LiveCatalog, collection: Collection, version: str) -> None:
        self._live = live
        self._collection = collection
        self._version = version
        self._statuses = Statuses(store, live, collection, "v1", MANAGER)
        self._loop = Loop("policies", self._reconcile, width=1)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start to check stored policies and changed policies."""
        self._collection.feed.subscribe(self._changed)
        self._loop.start(group, self._names)
        self._loop.add(_ALL)

    async def stop(self) -> None:
        """Cancel the running check."""
        await self._loop.stop()

    def _names(self) -> Iterable[str]:
        return [entry.name for entry in self._collection.state.readable() if _new(entry)]

    def _changed(self, change: Change) -> None:
        if change.kind != "DELETED" and _new(change.entry):
            self._loop.add(change.entry.name)

    async def _reconcile(self, name: str) -> None:
        if name == _ALL:
            await self._collection.wait_ready()
            for each in self._names():
                self._loop.add(each)
            return
        entry = self._collection.state.get("", name)
        if entry is None or not _new(entry):
            return
        policy, catalog = self._statuses.decode(entry), self._live.current
        faults = await asyncio.to_thread(_Kinds(catalog, self._version).check, policy)
        checked = {"expressionWarnings": faults} if faults else {}

        def amend(document: Document) -> Document:
            generation = document["metadata"].get("generation", 0)
            return with_status(document, observedGeneration=generation, typeChecking=checked)

        await self._statuses.amend(entry, amend)


def _new(entry: Entry) -> bool:
    """Report whether the controller has not yet checked this generation of a policy."""
    document: Any = orjson.loads(entry.raw)
    try:
        seen = (document.get("status") or {}).get("observedGeneration") or 0
        return int(document["metadata"].get("generation") or 0) > seen
    except (AttributeError, KeyError, TypeError, ValueError):  # the stored object is invalid; reads report the error
        return False


class _Kinds:
    """The kinds of a catalog, and their schemas from the published OpenAPI documents."""

    def __init__(self, catalog: Catalog, version: str) -> None:
        self._catalog = catalog
        self._version = version
        self._documents: dict[str, Any] = {}

    def check(self, policy: View) -> list[Document]:
        """Return the type errors of the expressions of a policy.

        This may be slow, so call it in a thread.
        """
        # imported here, in the thread, since the module imports CEL
        from apiext.admission.type_checks import warnings_of

        return warnings_of(policy, self._named, self._schema)

    def _named(self, group: str, version: str, name: str) -> "list[Kind]":
        """Return the kinds of a resource, by its plural or singular name.

        An empty group means any group, as in upstream.
        """
        from apiext.admission.type_checks import Kind

        return [
            Kind(served.names.group, version, served.names.kind)
            for resource in self._catalog.resources.values()
            if not group or resource.group == group
            for served in (resource.versions.get(version),)
            if served is not None and name in (served.names.resource, served.published.singular)
        ]

    def _schema(self, kind: "Kind") -> View | None:
        from apiext.admission.type_checks import resolved
        from apiext.discovery import openapi_v3

        path = f"apis/{kind.group}/{kind.version}" if kind.group else f"api/{kind.version}"
        if path not in self._documents:
            document = openapi_v3.document(self._catalog, path, self._version)
            whole = orjson.loads(document.body) if document is not None else {}
            self._documents[path] = (whole.get("components") or {}).get("schemas") or {}
        schemas = self._documents[path]
        wanted = kind._asdict()
        for name, schema in schemas.items():
            if wanted in schema.get("x-kubernetes-group-version-kind", ()):
                return resolved(name, schemas)
        return None
