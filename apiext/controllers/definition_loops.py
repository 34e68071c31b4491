"""The controllers of definitions. Each has a loop (see ``loop.Loop``)."""

import asyncio
from collections.abc import Callable, Iterable

from apiext.catalog.served import LiveCatalog
from apiext.controllers.approval import Approval
from apiext.controllers.definitions import Definitions, group_of
from apiext.controllers.establishing import Establishing
from apiext.controllers.finalizing import Finalizing
from apiext.controllers.guards import Guards
from apiext.controllers.loop import Loop
from apiext.controllers.naming import Naming
from apiext.controllers.nonstructural import NonStructural
from apiext.controllers.serving import Serving
from apiext.controllers.statuses import Statuses
from apiext.storage.cached_store import CachedStore


class DefinitionLoops:
    """Queues each definition in the loops of the controllers that have work for it."""

    def __init__(
        self,
        store: CachedStore,
        live: LiveCatalog,
        definitions: Definitions,
        guards: Guards,
        serving: Serving,
        clock: Callable[[], str],
        manager: str,
    ) -> None:
        """``manager`` is the field manager of the statuses that the controllers write."""
        statuses = Statuses(store, live, definitions.collection, "v1", manager)
        self._definitions = definitions
        self.naming = Naming(definitions, statuses, clock)
        self.establishing = Establishing(live, definitions, statuses, clock, serving.everywhere)
        self.approval = Approval(definitions, statuses, clock)
        self.nonstructural = NonStructural(definitions, statuses, clock)
        self.finalizing = Finalizing(store, live, definitions, guards, statuses, clock)
        self.loops = {
            "naming": Loop("naming", self.naming.reconcile, width=8),
            "establishing": Loop("establishing", self.establishing.reconcile, width=16),
            "approval": Loop("approval", self.approval.reconcile, width=2),
            "nonstructural": Loop("nonstructural", self.nonstructural.reconcile, width=1),
            "finalizing": Loop("finalizing", self.finalizing.reconcile, width=4),
        }

    def follow(self) -> None:
        """Subscribe to definitions, and reconcile each changed definition."""
        self.finalizing.wake = self.loops["finalizing"].add
        self.finalizing.wake_after = self.loops["finalizing"].add_after
        self._definitions.collection.feed.subscribe(lambda change: self._changed(change.entry.name))

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the loops, and queue all stored definitions."""
        for name, loop in self.loops.items():
            loop.start(group, self._keys(name))
        for name in self._definitions.names():
            self._changed(name)

    async def stop(self) -> None:
        """Stop all loops."""
        for loop in self.loops.values():
            await loop.stop()

    def served(self, name: str) -> None:
        """Queue a definition if it can become Established now.

        The caller calls this when the served versions of the definition may have changed.
        """
        if self.establishing.wanted(name):
            self.loops["establishing"].add(name)

    def _keys(self, loop: str) -> Callable[[], Iterable[str]]:
        return self.naming.everything if loop == "naming" else self._definitions.names

    def _changed(self, name: str) -> None:
        """Queue a definition that was created, updated or deleted."""
        loops = self.loops
        self.naming.record(name)
        loops["naming"].add(group_of(name))
        self.served(name)
        for kind, controller in (
            ("finalizing", self.finalizing),
            ("approval", self.approval),
            ("nonstructural", self.nonstructural),
        ):
            if controller.wanted(name):
                loops[kind].add(name)
