"""One attempt of the server itself to write the status of an object.

The attempt is not repeated after a conflict.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from apiext import limits as server_limits
from apiext.catalog.served import LiveCatalog, ServedVersion
from apiext.documents.document import Document
from apiext.managedfields.manager import Writer
from apiext.meta import time
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.store import Entry, RevisionChanged
from apiext.verbs import ownership
from apiext.verbs.commit import Put, attempt

P = ParamSpec("P")
T = TypeVar("T")
Amendment = Callable[[Document], Document | None]
"""object → the object to store, or None to store nothing. The function may change its argument."""


async def amend(
    store: CachedStore, live: LiveCatalog, resource: GroupResource, entry: Entry, amendment: Amendment,
    manager: str, version: str = "v1",
) -> Entry | None:  # fmt: skip
    """Store the result of ``amendment`` if the object still has the revision of ``entry``.

    Return the stored entry, which is ``entry`` if its bytes stay the same. Return None if the amendment returns None,
    or after a conflict. ``manager`` owns the changed fields. Raise StoreError for other errors of the store.
    """
    found, collection = live.current.resource(resource.group, resource.resource), store.collection(resource)
    assert found is not None
    assert collection is not None
    served = found.all_versions[version]
    document = amendment(await _run(entry, served.codec.decode, entry.raw, entry.revision))
    if document is None:
        return None
    writer = ownership.writer(found, served, "status", manager, time.now())
    raw = await _run(entry, _recorded, writer, served, entry, document)
    if raw == entry.raw:
        return entry
    try:
        return await attempt(store, collection, Put((entry.namespace, entry.name), entry.revision, raw))
    except RevisionChanged:
        return None


async def _run(entry: Entry, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``work``, in a thread if the object of ``entry`` is large, and return the result."""
    if len(entry.raw) < server_limits.WORK_INLINE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def _recorded(writer: Writer, served: ServedVersion, entry: Entry, document: Document) -> bytes:
    """Record the field managers of a change; return the bytes to store, without resourceVersion."""
    ownership.record(writer, served.codec.decode(entry.raw, entry.revision), document)
    document["metadata"].pop("resourceVersion", None)
    return served.codec.encode(document)
