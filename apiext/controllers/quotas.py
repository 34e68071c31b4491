"""The controller that updates the limits and the usage in the status of quotas.

Upstream: pkg/controller/resourcequota. Admission only adds the usage of each write (its "charge"). This controller
counts the usage again after a deletion, the end of a pod, an update that uses less, a write that failed after its
charge, and a change of the limits of a quota. It adds the charges of running writes, so that the new count includes
them. It does not know the charges of other servers over the same store, so it lowers the usage only if their charges
are older than QUOTA_SETTLES seconds.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import orjson

from apiext.admission import quota_usage as usage
from apiext.admission.limits import QUOTA_SETTLES
from apiext.admission.object_lookup import CLAIMS, PODS
from apiext.admission.quotas import QUOTAS, ResourceQuota
from apiext.catalog.stored import Unreadable
from apiext.controllers.loop import Loop
from apiext.documents.document import Document, View
from apiext.go_types.pod_resources import Amounts
from apiext.meta.names import GroupResource
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry, StoreError
from apiext.verbs.amendments import amend
from apiext.verbs.call import Verbs

_MANAGER = "kube-controller-manager"
_BAD_TYPES = (AssertionError, AttributeError, KeyError, TypeError, ValueError)
"""The errors for an object that another program stored with wrong types. Reads report these errors."""


class Quotas:
    """The controller of quotas.

    It subscribes to the objects of each resource that a quota limits.
    """

    def __init__(self, verbs: Verbs, collection: Collection) -> None:
        self._verbs = verbs
        self._collection = collection
        self._plugin = next((one for one in verbs.admission.plugins if isinstance(one, ResourceQuota)), None)
        self._loop = Loop("quotas", self._reconcile, width=2)
        self._followed: dict[GroupResource, Callable[[], None]] = {}
        # namespace/name of a quota → (revision, event loop time) of its changes in the last QUOTA_SETTLES seconds
        self._changes: dict[str, list[tuple[int, float]]] = {}

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the loop, and subscribe to changes of quotas."""
        self._loop.start(group, self._keys)
        self._collection.follow(self._changed)
        if self._plugin is not None:
            self._plugin.failed = self._recount

    async def stop(self) -> None:
        """Cancel running work; the next start completes it."""
        await self._loop.stop()
        for unsubscribe in self._followed.values():
            unsubscribe()

    def _keys(self) -> Iterable[str]:
        return [f"{entry.namespace}/{entry.name}" for entry in self._collection.state.readable()]

    def _changed(self, change: Change) -> None:
        """Recount the usage of a quota if its status has no usage, or other limits than its spec."""
        entry = change.entry
        key = f"{entry.namespace}/{entry.name}"
        if change.kind == "DELETED":
            self._changes.pop(key, None)
        else:
            now = asyncio.get_running_loop().time()
            self._changes[key] = [*self._newest(key, now), (entry.revision, now)]
            with suppress(*_BAD_TYPES):
                self._check(entry)

    def _check(self, entry: Entry) -> None:
        quota = _parsed(entry.raw)
        hard, status = (quota.get("spec") or {}).get("hard") or {}, quota.get("status") or {}
        for name in hard:
            self._follow(usage.measured(name))
        if status.get("used") is None or status.get("hard") != hard:
            self._loop.add(f"{entry.namespace}/{entry.name}")

    def _newest(self, key: str, now: float) -> list[tuple[int, float]]:
        return [one for one in self._changes.get(key, ()) if one[1] > now - QUOTA_SETTLES]

    def _unsettled(self, key: str) -> float:
        """Return the seconds until all charges of other servers are older than QUOTA_SETTLES.

        Return 0 if other servers have charged nothing in this time.
        """
        if self._plugin is None:
            return 0.0
        now, wrote = asyncio.get_running_loop().time(), self._plugin.wrote
        times = [time for revision, time in self._newest(key, now) if not wrote(revision)]
        return max(times) + QUOTA_SETTLES - now if times else 0.0

    def _follow(self, resource: GroupResource | None) -> None:
        if resource is None or resource in self._followed:
            return
        collection = self._objects(resource)
        if collection is not None and collection is not self._collection:
            self._followed[resource] = collection.feed.subscribe(lambda change: self._object_changed(resource, change))

    def _object_changed(self, resource: GroupResource, change: Change) -> None:
        """Count the usage of the quotas of a namespace again if an object may use less than before."""
        if change.kind == "DELETED" or (
            change.kind == "MODIFIED" and resource in (PODS, usage.SERVICES, CLAIMS) and _uses_less(change)
        ):
            self._recount(change.entry.namespace)

    def _recount(self, namespace: str) -> None:
        for entry in self._collection.state.readable(namespace):
            self._loop.add(f"{namespace}/{entry.name}")

    def _objects(self, resource: GroupResource) -> Collection | None:
        served = self._verbs.catalog.current.resource(resource.group, resource.resource)
        return self._verbs.store.collection(served.stored_resource) if served is not None else None

    async def _reconcile(self, key: str) -> None:
        with suppress(*_BAD_TYPES):
            await self._recount_one(key)

    async def _recount_one(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        await self._collection.wait_ready()
        entry = self._collection.state.cached(namespace, name)
        if entry is None:
            return
        quota = _parsed(entry.raw)
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        hard = spec.get("hard") or {}
        pending = self._plugin.pending(namespace) if self._plugin is not None else []
        used = await self._count(namespace, spec, hard)
        if any(charge.busy or charge.is_stored() for charge in pending):
            raise StoreError("an object may be counted twice")
        for charge in pending:
            amounts = charge.amounts.get(quota["metadata"].get("uid", ""), {})
            used = usage.added(used, {one: amount for one, amount in amounts.items() if one in used})
        before = status.get("used")
        wanted = {one: used.get(one, (before or {}).get(one)) for one in hard}
        known = {one: amount for one, amount in wanted.items() if amount is not None}
        if before is not None and (seconds := self._unsettled(key)):
            higher = usage.higher(known, before)
            if not usage.equal(known, higher):
                known = higher
                self._loop.add_after(key, seconds)
        if status.get("hard") == hard and before is not None and usage.equal(before, known):
            return

        def count(document: Document) -> Document:
            return {**document, "status": {"hard": dict(hard), "used": known}}

        live, store = self._verbs.catalog, self._verbs.store
        stored = await amend(store, live, QUOTAS, entry, count, _MANAGER)
        if stored is None:
            raise StoreError("the quota changed meanwhile")
        if self._plugin is not None:
            self._plugin.record(stored.revision)

    async def _count(self, namespace: str, spec: View, hard: Mapping[str, str]) -> dict[str, str]:
        """Return the usage of each name in ``hard`` that this controller can count."""
        used: dict[str, str] = {}
        by_resource: dict[GroupResource, list[str]] = {}
        for name in hard:
            resource = usage.measured(name)
            if resource is not None:
                by_resource.setdefault(resource, []).append(name)
        for resource, names in by_resource.items():
            self._follow(resource)
            total = await self._usage_of(namespace, resource, spec, names)
            used.update({name: total.get(name, "0") for name in names})
        return used

    async def _usage_of(self, namespace: str, resource: GroupResource, spec: View, names: list[str]) -> Amounts:
        """Return the usage of the objects of a resource."""
        evaluator, collection = usage.evaluator_of(resource), self._objects(resource)
        if collection is None:
            return {}
        await collection.wait_ready()
        if resource not in (PODS, usage.SERVICES, CLAIMS):
            if usage.requirements_of(spec):
                return {}  # the quota has scopes, and objects of other resources are in no scope
            count = str(collection.state.count(namespace))
            return dict.fromkeys(names, count)
        served = self._verbs.catalog.current.resource(resource.group, resource.resource)
        assert served is not None
        decode, loop_budget, total = served.versions["v1"].codec.decode, LoopBudget(), dict[str, str]()
        for entry in collection.state.readable(namespace):
            with suppress(Unreadable, *_BAD_TYPES):
                found = decode(entry.raw, entry.revision)
                if usage.matches(evaluator, spec, found):
                    total = usage.added(total, evaluator.usage(found))
            await loop_budget.pause()
        return total


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(raw)
    except ValueError:  # another program stored an invalid object; reads report the error
        return {"metadata": {}}
    return found if isinstance(found, dict) else {"metadata": {}}


def _uses_less(change: Change) -> bool:
    """Report whether a changed object may use less of a quota than before.

    Return True if its spec, status.phase or status.allocatedResources have changed, or if the earlier state is unknown.
    """
    if change.previous is None:
        return True
    new, old = _parsed(change.entry.raw), _parsed(change.previous.raw)
    if new.get("spec") != old.get("spec"):
        return True
    now, before = (one.get("status") or {} for one in (new, old))
    try:
        return any(now.get(field) != before.get(field) for field in ("phase", "allocatedResources"))
    except _BAD_TYPES:
        return True
