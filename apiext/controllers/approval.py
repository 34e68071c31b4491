"""The controller of the approval condition of protected definitions (CND-008).

A definition is protected by its group, such as *.k8s.io.
"""

import asyncio
from collections.abc import Callable
from importlib import import_module

from apiext.controllers.definitions import Definitions
from apiext.controllers.statuses import Statuses, set_condition
from apiext.crd.approval import approval_condition, is_protected
from apiext.crd.conditions import find, same_condition
from apiext.crd.definition import APPROVAL, NAMES_ACCEPTED
from apiext.documents.document import Document


class Approval:
    """The controller that writes the approval condition of each definition in a protected group."""

    def __init__(self, definitions: Definitions, statuses: Statuses, clock: Callable[[], str]) -> None:
        self._definitions = definitions
        self._statuses = statuses
        self._clock = clock

    def wanted(self, name: str) -> bool:
        """Report whether the group is protected and the naming controller has written NamesAccepted.

        See CND-010.
        """
        facts = self._definitions.get(name)
        return facts is not None and is_protected(facts.outline.group) and bool(facts.reason(NAMES_ACCEPTED))

    async def reconcile(self, name: str) -> None:
        """Write the condition if it does not match the approval annotation."""
        entry = self._definitions.entry(name)
        if entry is not None and self.wanted(name):
            # ``approval_condition`` needs the module ``urls``; a thread imports it, since the first import is slow
            await asyncio.to_thread(import_module, "apiext.cel.library.urls")
            await self._statuses.amend(entry, self._amend)

    def _amend(self, document: Document) -> Document | None:
        wanted = approval_condition(document)
        conditions = (document.get("status") or {}).get("conditions")
        if wanted is None or same_condition(find(conditions, APPROVAL), wanted):
            return None
        return set_condition(document, wanted, self._clock())
