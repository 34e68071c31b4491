"""The controller of the condition Established (CND-004, CRD-037).

The controller sets the condition of a definition only after the catalog has the resource of the definition.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from apiext import logs
from apiext.catalog.served import LiveCatalog
from apiext.controllers.definitions import Definitions
from apiext.controllers.statuses import Statuses, set_condition
from apiext.crd.bundles import bundle_fault
from apiext.crd.conditions import condition, find, same_condition
from apiext.crd.definition import ESTABLISHED
from apiext.documents.document import Document, View
from apiext.storage.store import Entry

log = logging.getLogger(__name__)

IS_ESTABLISHED = condition(ESTABLISHED, "True", "InitialNamesAccepted", "the initial names have been accepted")
BAD_BUNDLE = condition(ESTABLISHED, "False", "InvalidCABundle", "The conversion webhook CABundle is invalid")


class Establishing:
    """Sets Established on a definition with accepted names, once the catalog has its resource."""

    def __init__(
        self,
        live: LiveCatalog,
        definitions: Definitions,
        statuses: Statuses,
        clock: Callable[[], str],
        everywhere: Callable[[], Awaitable[None]],
    ) -> None:
        """``everywhere()`` waits until all workers behind the port serve the same definitions.

        It waits at most storage_limits.FRESH_WAIT seconds (``Peers.everywhere``).
        """
        self._live = live
        self._definitions = definitions
        self._statuses = statuses
        self._clock = clock
        self._everywhere = everywhere

    def wanted(self, name: str) -> bool:
        """Report whether the catalog has the resource of a definition that is not Established.

        The names must be accepted, and the definition must not be deleted. A built-in resource of the same name counts
        as the resource of the definition.
        """
        facts = self._definitions.get(name)
        if facts is None or facts.deleting or facts.established or not facts.served:
            return False
        served = self._live.current.resource(facts.resource.group, facts.resource.resource)
        return served is not None and (served.builtin or served.definition.uid == facts.uid)

    async def reconcile(self, name: str) -> None:
        """Write the condition if ``wanted`` returns True.

        The status of the condition is False if the conversion webhook has an invalid CA bundle.
        """
        entry = self._definitions.entry(name)
        if entry is None or not self.wanted(name):
            return
        await self._everywhere()
        # A thread parses the certificates of the bundle, since the first parse is slow.
        wanted = await asyncio.to_thread(self._condition_of, entry) if b'"caBundle"' in entry.raw else IS_ESTABLISHED

        def amend(document: Document) -> Document | None:
            if same_condition(find((document.get("status") or {}).get("conditions"), ESTABLISHED), wanted):
                return None
            return set_condition(document, wanted, self._clock())

        if await self._statuses.amend(entry, amend) is not None and wanted is IS_ESTABLISHED:
            log.info("definition %s is established", name, extra=logs.fields(event="established", definition=name))

    def _condition_of(self, entry: Entry) -> View:
        conversion = self._statuses.decode(entry)["spec"].get("conversion") or {}
        bundle = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("caBundle")
        return BAD_BUNDLE if bundle and bundle_fault(bundle) else IS_ESTABLISHED
