"""The roles and bindings that the store's cache holds, followed as they change, whoever changes them."""

import logging
from collections.abc import Callable

import orjson

from apiext.auth.rbac import GROUP, Policy
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry

log = logging.getLogger(__name__)

CLUSTER_ROLES = GroupResource(GROUP, "clusterroles")
CLUSTER_BINDINGS = GroupResource(GROUP, "clusterrolebindings")
ROLES = (CLUSTER_ROLES, GroupResource(GROUP, "roles"))
BINDINGS = (CLUSTER_BINDINGS, GroupResource(GROUP, "rolebindings"))


class Roles:
    """Keeps a policy as the cache is; ``policy`` allows nothing by roles that are not served."""

    def __init__(self) -> None:
        self.policy = Policy()
        self._collections: list[Collection] = []

    def follow(self, store: CachedStore) -> None:
        """Take what there is, and every change from now on."""
        policy = self.policy
        for resource in ROLES:
            self._follow(store.collection(resource), policy.put_role, policy.remove_role)
        for resource in BINDINGS:
            self._follow(store.collection(resource), policy.put_binding, policy.remove_binding)

    def _follow(
        self,
        collection: Collection | None,
        put: Callable[[str, str, dict[str, object]], None],
        remove: Callable[[str, str], None],
    ) -> None:
        if collection is None:
            return

        def changed(change: Change) -> None:
            if change.kind == "DELETED":
                remove(change.entry.namespace, change.entry.name)
            else:
                take(change.entry)

        def take(entry: Entry) -> None:
            try:
                put(entry.namespace, entry.name, orjson.loads(entry.raw))
            except (AttributeError, KeyError, TypeError, ValueError) as fault:  # others stored it: it grants nothing
                log.warning("the stored %s %s cannot be read: %s", collection.resource, entry.name, fault)
                remove(entry.namespace, entry.name)

        collection.subscribe(changed)
        self._collections.append(collection)
        if collection.ready:
            for entry in collection.readable():
                take(entry)

    async def wait_ready(self) -> None:
        """Wait until all stored roles and bindings are known."""
        for collection in self._collections:
            await collection.wait_ready()
