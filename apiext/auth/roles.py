"""Keep the RBAC policy equal to the cached roles and bindings.

This includes changes by other servers.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import orjson

from apiext.auth import limits
from apiext.auth.rbac import GROUP, Policy, binding_in, role_in
from apiext.meta.names import GroupResource
from apiext.scheduling.loop_budget import LoopBudget
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
    """Keeps a policy equal to the cached roles and bindings.

    If roles are not served, the policy allows nothing. In each iteration of the event loop, changes are applied
    immediately up to limits.FOLLOW_INLINE bytes. A task applies further changes later, and decodes large objects in a
    thread. Until then, decisions use the older state.
    """

    def __init__(self) -> None:
        self.policy = Policy()
        self.policy.settled = self.settled
        self._collections: list[Collection] = []
        # (resource, namespace, name) → newest entry of this object, not yet applied
        self._pending: dict[tuple[_Followed, str, str], Entry] = {}
        self._read = 0  # bytes decoded in this iteration of the event loop
        self._idle = asyncio.Event()
        self._idle.set()

    def follow(self, store: CachedStore) -> None:
        """Apply the stored objects, and all later changes."""
        policy = self.policy

        def put_role(namespace: str, name: str, document: Any) -> Callable[[], None]:
            role = role_in(document)
            return lambda: policy.put_role(namespace, name, role)

        def put_binding(namespace: str, name: str, document: Any) -> Callable[[], None]:
            binding = binding_in(namespace, name, document)
            return lambda: policy.put_binding(namespace, name, binding)

        for resource in ROLES:
            self._follow(store, resource, put_role, policy.remove_role)
        for resource in BINDINGS:
            self._follow(store, resource, put_binding, policy.remove_binding)

    def _follow(
        self,
        store: CachedStore,
        resource: GroupResource,
        read: Callable[[str, str, Any], Callable[[], None]],
        remove: Callable[[str, str], None],
    ) -> None:
        collection = store.collection(resource)
        if collection is None:
            return
        followed = _Followed(resource, read, remove)

        def changed(change: Change) -> None:
            self._apply(store, followed, change.entry, deleted=change.kind == "DELETED")

        collection.follow(changed)
        self._collections.append(collection)

    def _apply(self, store: CachedStore, followed: "_Followed", entry: Entry, *, deleted: bool = False) -> None:
        key = (followed, entry.namespace, entry.name)
        if deleted:
            self._pending.pop(key, None)
            followed.remove(entry.namespace, entry.name)
            return
        if self._read == 0:
            asyncio.get_running_loop().call_soon(self._reset_budget)
        self._read += len(entry.raw)
        if self._read <= limits.FOLLOW_INLINE and key not in self._pending:
            followed.put(followed.made(entry), entry)
            return
        self._pending[key] = entry
        if self._idle.is_set():
            self._idle.clear()
            store.spawn(self._catch_up())

    def _reset_budget(self) -> None:
        self._read = 0

    async def _catch_up(self) -> None:
        loop_budget = LoopBudget()
        try:
            while self._pending:
                key = next(iter(self._pending))
                followed, entry = key[0], self._pending[key]
                if len(entry.raw) > limits.FOLLOW_THREAD:
                    made = await asyncio.to_thread(followed.made, entry)
                    if self._pending.get(key) is not entry:  # the object has changed again, or was deleted
                        continue
                else:
                    made = followed.made(entry)
                del self._pending[key]
                followed.put(made, entry)
                await loop_budget.pause()
        finally:
            self._idle.set()

    async def settled(self) -> None:
        """Wait until all cached changes are applied."""
        await self._idle.wait()

    async def wait_ready(self) -> None:
        """Wait until all stored roles and bindings are applied."""
        for collection in self._collections:
            await collection.wait_ready()
        await self.settled()


class _Followed:
    """A resource of roles or bindings, such as ``clusterroles``.

    ``read(namespace, name, document)`` parses an object and returns the function that applies it to the policy.
    ``remove(namespace, name)`` removes an object from the policy.
    """

    def __init__(
        self,
        resource: GroupResource,
        read: Callable[[str, str, Any], Callable[[], None]],
        remove: Callable[[str, str], None],
    ) -> None:
        self._resource = resource
        self._read = read
        self.remove = remove

    def made(self, entry: Entry) -> Callable[[], None] | Exception:
        """Decode an object; return the function that applies it to the policy, or the error.

        The decoding may run in a thread.
        """
        try:
            return self._read(entry.namespace, entry.name, orjson.loads(entry.raw))
        except Exception as fault:  # any error: a malformed stored object must not stop the server
            return fault

    def put(self, made: Callable[[], None] | Exception, entry: Entry) -> None:
        """Apply a decoded object; a malformed object grants nothing."""
        if isinstance(made, Exception):
            log.warning("the stored %s %s cannot be read: %s", self._resource, entry.name, made)
            self.remove(entry.namespace, entry.name)
        else:
            made()
