"""The Established condition, written once the catalog serves the definition (CND-004)."""

from collections.abc import Callable

from apiext.catalog.served import LiveCatalog
from apiext.controllers.definitions import Definitions
from apiext.controllers.statuses import Statuses, say
from apiext.crd.conditions import condition
from apiext.crd.definition import ESTABLISHED

TOLD = condition(ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted")


class Establishing:
    """Says Established of definitions whose names are accepted and whose resource is in the catalog."""

    def __init__(
        self, live: LiveCatalog, definitions: Definitions, statuses: Statuses, clock: Callable[[], str]
    ) -> None:
        self._live = live
        self._definitions = definitions
        self._statuses = statuses
        self._clock = clock

    def wanted(self, name: str) -> bool:
        """Whether the condition is due: who sees it can use the resource, so the catalog comes first."""
        facts = self._definitions.get(name)
        if facts is None or facts.deleting or facts.established or not facts.served:
            return False
        served = self._live.current.resource(facts.resource.group, facts.resource.resource)
        return served is not None and served.uid == facts.uid

    async def reconcile(self, name: str) -> None:
        """Write the condition when it is due."""
        entry = self._definitions.entry(name)
        if entry is None or not self.wanted(name):
            return
        await self._statuses.amend(entry, lambda document: say(document, TOLD, self._clock()))
