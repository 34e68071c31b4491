"""The NamesAccepted condition: which names the definitions of a group get (CND-001…003)."""

import logging
from collections.abc import Callable

from apiext.catalog.stored import Unreadable
from apiext.controllers.definitions import Definitions, Facts
from apiext.controllers.statuses import Statuses
from apiext.crd.conditions import find, same_condition, with_condition, with_status
from apiext.crd.definition import NAMES_ACCEPTED, CustomResourceDefinition, Names
from apiext.crd.naming import decide_names
from apiext.crd.rules_of_parts import name_errors
from apiext.documents.document import Document

log = logging.getLogger(__name__)


class Naming:
    """Decides the names of one group at a time.

    Those that waited longest come first. So two servers that decide at the same time never give a name to two
    definitions: whoever sees the later definition sees the earlier one too, and an acceptance in between makes the
    other's write fail. Before them come those whose names were taken away by hand: whoever sees the names free sees
    that, too, unless it has only just started.
    """

    def __init__(self, definitions: Definitions, statuses: Statuses, clock: Callable[[], str]) -> None:
        self._definitions = definitions
        self._statuses = statuses
        self._clock = clock
        self._had: dict[str, Names] = {}  # what a definition has, or had and still asks for

    def notice(self, name: str) -> None:
        """Remember which names a definition had; to be told of each change, and of all definitions at the start."""
        facts = self._definitions.get(name)
        if facts is None:
            self._had.pop(name, None)
        elif facts.outline.names == facts.outline.accepted:
            self._had[name] = facts.outline.names
        elif self._had.get(name) != facts.outline.names:
            self._had.pop(name, None)  # it asks for others

    async def reconcile(self, group: str) -> None:
        """Write what is not decided yet; a name that became free is a change that asks again."""
        passed: set[str] = set()
        while True:
            facts = self._next(group, passed)
            if facts is None:
                return
            passed.add(facts.name)
            if not await self._decide(facts):
                return  # somebody came between: that change asks again, and those behind wait for it

    def _next(self, group: str, passed: set[str]) -> Facts | None:
        """Return the definition to decide next, by what is stored now."""
        open_ones = [
            facts
            for facts in self._definitions.of_group(group)
            if facts.name not in passed and not _is_decided(facts.outline)
        ]
        # upstream: who changed is decided before those who wait for what the change made free
        robbed = (facts for facts in open_ones if self._had.get(facts.name) == facts.outline.names)
        return next(robbed, open_ones[0] if open_ones else None)

    async def _decide(self, facts: Facts) -> bool:
        entry = self._definitions.entry(facts.name)
        if entry is None or entry.revision != facts.revision:
            return False
        group = [other.outline for other in self._definitions.of_group(facts.outline.group)]
        naming = decide_names(facts.outline, group)
        same = same_condition(find(facts.outline.conditions, NAMES_ACCEPTED), naming.names_condition)
        if same and naming.accepted == facts.outline.accepted:
            return True
        faults = [str(fault) for fault in name_errors(naming.accepted.document(), "status.acceptedNames")]
        if faults:  # others made such a definition; upstream: no status with these names can be written
            log.warning("the names of the stored definition %s cannot be accepted: %s", facts.name, "; ".join(faults))
            return True

        def amend(document: Document) -> Document:
            conditions = (document.get("status") or {}).get("conditions")
            for told in (naming.names_condition, naming.established_condition):
                conditions = with_condition(conditions, told, self._clock())
            return with_status(document, acceptedNames=naming.accepted.document(), conditions=conditions)

        try:
            return await self._statuses.amend(entry, amend) is not None
        except Unreadable as error:  # others made it; those behind it need not wait
            log.warning("the stored definition %s cannot be named: %s", facts.name, error)
            return True


def _is_decided(definition: CustomResourceDefinition) -> bool:
    return definition.names == definition.accepted and definition.is_true(NAMES_ACCEPTED)
