"""The verbs as methods for the HTTP package.

So tests can replace them and run without a store.
"""

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol

from apiext.catalog.served import LiveCatalog
from apiext.catalog.stored import Unreadable
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions
from apiext.storage.fanout import Sink, Watcher
from apiext.storage.store import Entry
from apiext.verbs import api, connects, converting
from apiext.verbs.call import Body, Call, Outcome, Page, Verbs
from apiext.verbs.watch import Frames


class Operations(Protocol):
    """The operations behind the routes; each may raise StatusError."""

    @property
    def catalog(self) -> LiveCatalog:
        """The served resources."""

    async def settle(self) -> None:
        """Wait until the catalog has every definition stored before the call."""

    @property
    def has_peers(self) -> bool:
        """Report whether other workers listen on the same port."""

    async def catch_up(self) -> None:
        """Wait until the catalog has the definitions that other workers serve.

        Wait for some seconds at most.
        """

    def cached(self, resource: GroupResource, namespace: str, name: str) -> Entry | None:
        """Return the cached object without waiting; None if it is not cached."""

    def counts(self) -> Iterable[tuple[GroupResource, int]]:
        """Return (resource, number of cached objects) of each resource whose cache is ready."""

    async def connect(self, call: Call) -> None:
        """Handle a request that upstream forwards to a node, pod or service."""

    async def get(self, call: Call) -> Entry:
        """Return one object."""

    async def list(self, call: Call) -> Page:
        """Return a page of a collection."""

    def undecodable(self, call: Call, entry: Entry, error: Unreadable) -> Exception:
        """Return the error of a get whose object cannot be converted to the requested version."""

    async def undecodable_list(self, call: Call, page: Page, error: Unreadable) -> Exception:
        """Return the error of a list with objects that cannot be converted."""

    async def watch(self, call: Call, frames: Frames, sink: Sink) -> Watcher:
        """Start a watch that sends its events to the sink."""

    async def create(self, call: Call, body: Body) -> Outcome:
        """Create an object."""

    async def update(self, call: Call, body: Body) -> Outcome:
        """Replace an object."""

    async def patch(self, call: Call, media_type: str, raw: bytes) -> Outcome:
        """Patch an object."""

    async def delete(self, call: Call, options: Document | None) -> Outcome:
        """Delete an object."""

    async def begin_collection_delete(self, call: Call, options: Document | None) -> tuple[Page, DeleteOptions]:
        """Return the page of objects to delete, and the options for their deletion."""

    async def delete_listed(self, call: Call, names: Sequence[tuple[str, str]], options: DeleteOptions) -> None:
        """Delete the objects of a page, by namespace and name."""


class VerbOperations:
    """The operations of a server. Most methods only return the coroutine of a verb."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self.catalog = verbs.catalog

    async def settle(self) -> None:
        """Wait until the catalog has every definition stored before the call."""
        await api.settle(self._verbs)

    @property
    def has_peers(self) -> bool:
        """Report whether other workers listen on the same port."""
        return self._verbs.definitions.has_peers

    async def catch_up(self) -> None:
        """Wait until the catalog has the definitions that other workers serve.

        Wait for some seconds at most.
        """
        await api.catch_up(self._verbs)

    def cached(self, resource: GroupResource, namespace: str, name: str) -> Entry | None:
        """Return an object as it is in the cache, without waiting; return None if it is not there.

        The caller uses its size to estimate the memory that a write needs.
        """
        collection = self._verbs.store.collection(resource)
        if collection is None or not collection.state.ready:
            return None
        return collection.state.cached(namespace, name)

    def counts(self) -> Iterable[tuple[GroupResource, int]]:
        """Return (resource, number of cached objects) of each resource whose cache is ready."""
        for resource in self._verbs.catalog.current.resources.values():
            collection = self._verbs.store.collection(resource.group_resource)
            if collection is not None and collection.state.ready:
                yield resource.group_resource, collection.state.count(None)

    def connect(self, call: Call) -> Coroutine[Any, Any, None]:
        """Handle a request that upstream forwards.

        Return for the log of a pod without a node, which is empty. Else raise StatusError.
        """
        return connects.connect(self._verbs, call)

    def get(self, call: Call) -> Coroutine[Any, Any, Entry]:
        """Return one object; raise a 404 if it does not exist."""
        return api.get(self._verbs, call)

    def list(self, call: Call) -> Coroutine[Any, Any, Page]:
        """Return a page of a collection."""
        return api.list_objects(self._verbs, call)

    def undecodable(self, call: Call, entry: Entry, error: Unreadable) -> Exception:
        """Return the error of a get whose object cannot be converted to the requested version."""
        return converting.undecodable(self._verbs, call, (entry,), error)

    def undecodable_list(self, call: Call, page: Page, error: Unreadable) -> Coroutine[Any, Any, Exception]:
        """Return the error of a list with objects that cannot be converted."""
        return converting.undecodable_list(self._verbs, call, page.listed(), error)

    def watch(self, call: Call, frames: Frames, sink: Sink) -> Coroutine[Any, Any, Watcher]:
        """Start a watch that sends its events to the sink.

        Raise StatusError before any byte is sent.
        """
        return api.open_watch(self._verbs, call, frames, sink)

    def create(self, call: Call, body: Body) -> Coroutine[Any, Any, Outcome]:
        """Create the object of a body."""
        return api.create(self._verbs, call, body)

    def update(self, call: Call, body: Body) -> Coroutine[Any, Any, Outcome]:
        """Replace the object, or the subresource of the endpoint."""
        return api.update(self._verbs, call, body)

    def patch(self, call: Call, media_type: str, raw: bytes) -> Coroutine[Any, Any, Outcome]:
        """Patch the object, or the subresource of the endpoint."""
        return api.patch(self._verbs, call, media_type, raw)

    def delete(self, call: Call, options: Document | None) -> Coroutine[Any, Any, Outcome]:
        """Delete one object."""
        return api.delete(self._verbs, call, options)

    def begin_collection_delete(
        self, call: Call, options: Document | None
    ) -> Coroutine[Any, Any, tuple[Page, DeleteOptions]]:
        """Return the page of the selected objects, and the options for their deletion."""
        return api.begin_collection_delete(self._verbs, call, options)

    def delete_listed(
        self, call: Call, names: Sequence[tuple[str, str]], options: DeleteOptions
    ) -> Coroutine[Any, Any, None]:
        """Delete the objects of a page, by namespace and name."""
        return api.delete_listed(self._verbs, call, names, options)
