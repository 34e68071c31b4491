"""The verbs as the HTTP side calls them: one method per verb, so that a test can answer without a store."""

from collections.abc import Iterable
from typing import Protocol

from apiext.catalog.served import LiveCatalog
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.storage.fanout import Sink, Watcher
from apiext.storage.store import Entry
from apiext.verbs import api
from apiext.verbs.call import Body, Call, Outcome, Page, Verbs
from apiext.verbs.watch import Frames


class Operations(Protocol):
    """Everything that a request can ask for; each may raise StatusError."""

    @property
    def catalog(self) -> LiveCatalog:
        """What is served."""

    async def settle(self) -> None:
        """Wait until the catalog reflects every definition stored by now."""

    def cached(self, resource: GroupResource, namespace: str, name: str) -> Entry | None:
        """Return the object as the cache has it, without waiting; None when the cache cannot say."""

    def counts(self) -> Iterable[tuple[GroupResource, int]]:
        """Return how many objects of each resource are stored."""

    async def get(self, call: Call) -> Entry:
        """Return one object."""

    async def list(self, call: Call) -> Page:
        """Return a page of a collection."""

    async def watch(self, call: Call, frames: Frames, sink: Sink) -> Watcher:
        """Send changes to a sink from now on."""

    async def create(self, call: Call, body: Body) -> Outcome:
        """Create an object."""

    async def update(self, call: Call, body: Body) -> Outcome:
        """Replace an object."""

    async def patch(self, call: Call, media_type: str, raw: bytes) -> Outcome:
        """Patch an object."""

    async def delete(self, call: Call, options: Document | None) -> Outcome:
        """Delete an object."""

    async def delete_collection(self, call: Call, options: Document | None) -> Outcome:
        """Delete the objects of a collection."""


class VerbOperations:
    """The verbs over the store."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs

    @property
    def catalog(self) -> LiveCatalog:
        """What is served."""
        return self._verbs.catalog

    async def settle(self) -> None:
        """Wait until the catalog reflects every definition stored by now (design.md §8, 5)."""
        await api.settle(self._verbs)

    def cached(self, resource: GroupResource, namespace: str, name: str) -> Entry | None:
        """Return the object as the cache has it, without waiting (RV-002, "0")."""
        collection = self._verbs.store.collection(resource)
        if collection is None or not collection.ready:
            return None
        return collection.get(namespace, name)

    def counts(self) -> Iterable[tuple[GroupResource, int]]:
        """Return how many objects of each resource the cache holds."""
        for resource in self._verbs.catalog.current.resources.values():
            collection = self._verbs.store.collection(resource.group_resource)
            if collection is not None and collection.ready:
                yield resource.group_resource, collection.count(None)

    async def get(self, call: Call) -> Entry:
        """Return one object; 404 when there is none."""
        return await api.get(self._verbs, call)

    async def list(self, call: Call) -> Page:
        """Return a page of a collection."""
        return await api.list_objects(self._verbs, call)

    async def watch(self, call: Call, frames: Frames, sink: Sink) -> Watcher:
        """Register the sink; raises StatusError before anything is written."""
        return await api.open_watch(self._verbs, call, frames, sink)

    async def create(self, call: Call, body: Body) -> Outcome:
        """Create the object of a body."""
        return await api.create(self._verbs, call, body)

    async def update(self, call: Call, body: Body) -> Outcome:
        """Replace the object, or the part that the endpoint shows."""
        return await api.update(self._verbs, call, body)

    async def patch(self, call: Call, media_type: str, raw: bytes) -> Outcome:
        """Patch the object, or the part that the endpoint shows."""
        return await api.patch(self._verbs, call, media_type, raw)

    async def delete(self, call: Call, options: Document | None) -> Outcome:
        """Delete one object."""
        return await api.delete(self._verbs, call, options)

    async def delete_collection(self, call: Call, options: Document | None) -> Outcome:
        """Delete everything that the selectors name."""
        return await api.delete_collection(self._verbs, call, options)
