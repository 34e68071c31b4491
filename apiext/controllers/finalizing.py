"""The deletion of a definition: change its guard, delete its objects, remove its finalizer.

See CND-009, DEL-001…005. The guard is a key in the store that each put of an object compares (see ``guards``). After
the change of the guard, no server can create further objects.
"""

import asyncio
from collections.abc import Callable

from apiext.catalog.served import LiveCatalog
from apiext.controllers import limits
from apiext.controllers.definitions import Definitions, Facts
from apiext.controllers.guards import Guards
from apiext.controllers.instances import Emptied, Sweep
from apiext.controllers.statuses import Statuses, set_condition
from apiext.crd.conditions import condition
from apiext.crd.definition import FINALIZER, TERMINATING
from apiext.documents.document import Document, View
from apiext.meta.fields import aggregate
from apiext.storage.cached_store import CachedStore
from apiext.storage.store import Guard, OutOfSpace, StoreError
from apiext.storage.values import custom_object

IN_PROGRESS = condition(TERMINATING, "True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
_FAILED = "InstanceDeletionFailed"
COMPLETED = condition(TERMINATING, "False", "InstanceDeletionCompleted", "removed all instances")
NEVER_ESTABLISHED = condition(TERMINATING, "False", "NeverEstablished", "resource was never established")
OVERLAPPING = condition(
    TERMINATING, "False", "OverlappingBuiltInResource", "instances overlap with built-in resources in storage"
)
STUCK = condition(
    TERMINATING,
    "True",
    "InstanceDeletionCheck",
    "could not confirm zero CustomResources remaining: timed out waiting for the condition",
)


class Finalizing:
    """The controller that deletes the objects of a deleted definition, then its finalizer."""

    def __init__(
        self,
        store: CachedStore,
        live: LiveCatalog,
        definitions: Definitions,
        guards: Guards,
        statuses: Statuses,
        clock: Callable[[], str],
    ) -> None:
        self._store = store
        self._live = live
        self._definitions = definitions
        self._guards = guards
        self._statuses = statuses
        self._clock = clock
        # name of the definition → (uid, event loop time of the start, sweep)
        self._sweeps: dict[str, tuple[str, float, Sweep]] = {}
        self.wake: Callable[[str], None] = lambda _: None
        self.wake_after: Callable[[str, float], None] = lambda _, __: None

    def wanted(self, name: str) -> bool:
        """Report whether a definition waits for the deletion of its objects, or has an open Sweep."""
        return name in self._sweeps or self._waiting(name) is not None

    def _waiting(self, name: str) -> Facts | None:
        facts = self._definitions.get(name)
        return facts if facts is not None and facts.deleting and FINALIZER in facts.finalizers else None

    async def reconcile(self, name: str) -> None:
        """Continue the deletion as far as possible. Later changes of the objects start another run."""
        facts = self._waiting(name)
        if facts is None:
            self._close(name)
            return
        guard = await self._guards.terminate(name, facts.uid)
        if self._overlaps(facts):
            await self._release(facts, OVERLAPPING)
            return
        await self._set_in_progress(facts)
        if not self._is_ending(facts):
            self._close(name)  # another server has completed the deletion; a new definition may have this name now
            return
        sweep = await self._sweep(facts, guard)
        errors = await sweep.run()
        if errors:
            await self._set_failed(facts, f"could not issue all deletes: {aggregate(list(map(str, errors)))}")
            raise errors[0]
        # After ``fresh``, the cache has all objects that were put before the change of the guard. A later put fails,
        # since it compares the old revision of the guard.
        await self._store.fresh()
        if sweep.remaining:
            await self._set_stuck(facts, sweep)
            return
        await self._release(facts, COMPLETED if facts.established else NEVER_ESTABLISHED)

    def _overlaps(self, facts: Facts) -> bool:
        found = self._live.current.resource(facts.resource.group, facts.resource.resource)
        return found is not None and found.builtin

    async def _sweep(self, facts: Facts, guard: Guard) -> Sweep:
        known = self._sweeps.get(facts.name)
        if known is not None and known[0] == facts.uid:
            return known[2]
        self._close(facts.name)
        collection = self._store.add(facts.resource, facts.outline.namespaced, custom_object)
        await collection.wait_ready()
        await self._store.fresh()
        emptied = Emptied(
            due=lambda: self._is_ending(facts),
            guard=lambda: self._newest(facts.name, guard),
            wake=lambda: self.wake(facts.name),
        )
        sweep = Sweep(self._store, collection, None, emptied, self._clock)
        self._sweeps[facts.name] = (facts.uid, asyncio.get_running_loop().time(), sweep)
        return sweep

    def _newest(self, name: str, guard: Guard) -> Guard:
        cached = self._guards.cached(name)
        return Guard(guard.key, max(guard.revision, cached.revision if cached is not None else 0))

    def _is_ending(self, facts: Facts) -> bool:
        """Report whether the definition still exists with the same uid and is being deleted."""
        now = self._definitions.get(facts.name)
        return now is not None and now.uid == facts.uid and now.deleting

    async def _release(self, facts: Facts, wanted: View) -> None:
        """Delete the definition.

        If it has other finalizers, only remove FINALIZER and set the condition ``wanted``.
        """
        entry = self._definitions.entry(facts.name)
        now = self._definitions.get(facts.name)
        if entry is None or now is None or not self._is_ending(facts):
            # the sweep must end here, since there may be no later change that starts another run
            self._close(facts.name)
            return
        if set(now.finalizers) - {FINALIZER}:
            await self._statuses.amend(entry, lambda document: self._finished(document, wanted))
            self._close(facts.name)
            return
        if await self._statuses.remove(entry):
            self._close(facts.name)
            await self._guards.release(facts.name)

    def _finished(self, document: Document, wanted: View) -> Document:
        metadata = document["metadata"]
        metadata["finalizers"] = [one for one in metadata["finalizers"] if one != FINALIZER]
        return set_condition(document, wanted, self._clock())

    async def _set_in_progress(self, facts: Facts) -> None:
        if facts.reason(TERMINATING) in (IN_PROGRESS["reason"], STUCK["reason"], _FAILED):
            return
        try:
            await self._set_condition(facts, IN_PROGRESS)
        except OutOfSpace:
            return  # the deletions free space, so they continue without the condition

    async def _set_failed(self, facts: Facts, message: str) -> None:
        try:
            await self._set_condition(facts, condition(TERMINATING, "True", _FAILED, message))
        except StoreError:
            return  # the caller raises the first error

    async def _set_stuck(self, facts: Facts, sweep: Sweep) -> None:
        waited = asyncio.get_running_loop().time() - self._sweeps[facts.name][1]
        unreadable = sweep.unreadable()
        if unreadable is not None:
            await self._set_failed(facts, f"could not list instances: {unreadable}")
            raise unreadable  # so that the loop retries, since the deletion of an unreadable object may cause no event
        if waited < limits.CLEANUP_WAIT:
            now = self._definitions.get(facts.name)
            if now is not None and now.reason(TERMINATING) == _FAILED:
                await self._set_condition(facts, IN_PROGRESS)
            self.wake_after(facts.name, limits.CLEANUP_WAIT - waited)
        else:
            await self._set_condition(facts, STUCK)

    async def _set_condition(self, facts: Facts, wanted: View) -> None:
        entry = self._definitions.entry(facts.name)
        if entry is not None and self._is_ending(facts):
            await self._statuses.amend(entry, lambda document: set_condition(document, wanted, self._clock()))

    def _close(self, name: str) -> None:
        known = self._sweeps.pop(name, None)
        if known is not None:
            known[2].close()
