"""The controller of the condition NamesAccepted.

It decides the names of the definitions of a group (CND-001…003).
"""

import logging
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from apiext.catalog.stored import Unreadable
from apiext.controllers.definitions import Definitions, Facts, group_of
from apiext.controllers.statuses import Statuses
from apiext.crd.conditions import find, same_condition, with_condition, with_status
from apiext.crd.definition import NAMES_ACCEPTED, Names
from apiext.crd.naming import NameIndex, decide_names, is_decided
from apiext.crd.rules_of_parts import name_errors
from apiext.documents.document import Document

log = logging.getLogger(__name__)


Due = tuple[bool, int, str]
"""The sort key of decisions: (False if a client has removed the accepted names, else True; revision; name)."""


class _Run:
    """The progress of one run over the undecided definitions of a group.

    A run processes a definition at most once.
    """

    def __init__(self) -> None:
        self._processed: set[str] = set()
        # first item of Due (False: 0, True: 1) → revision up to which this run has passed definitions with this item
        self._processed_up_to = [0, 0]
        self.later: list[Due] = []

    def has_passed(self, due: Due) -> bool:
        """Report whether this run has processed a definition, or has passed its place.

        The place of the definition is that of ``due`` in the order of decisions.
        """
        late, revision, name = due
        return name in self._processed or revision <= self._processed_up_to[late]

    def record_change(self, due: Due) -> None:
        """Record a change of a definition that this run has passed.

        Then only the next run processes the definition again.
        """
        if self.has_passed(due):
            self._processed.add(due[2])

    def begin(self, due: Due, now: int) -> bool:
        """Return whether this run must process a definition. If not, the next run processes it.

        ``now`` is the revision of the cache. After the first definition with True in ``Due``, this run has also passed
        the definitions with False up to this revision.
        """
        if self.has_passed(due):
            self.later.append(due)
            return False
        late, revision, name = due
        self._processed.add(name)
        self._processed_up_to[late] = revision
        if late:
            self._processed_up_to[False] = max(self._processed_up_to[False], now)
        return True


class Naming:
    """Decides the names of the definitions of a group, in the order of their revisions.

    Because of this order, two servers that decide at the same time never accept one name for two definitions. A cache
    gets changes in the order of revisions. So a server that has read the newer of two definitions has also read the
    older definition, and writes the older definition first. If both servers write it, the second write conflicts. The
    server of the second write decides nothing more in this group until it has read the first write.

    A definition whose accepted names a client removed is decided first. A server for which these names are free has
    read the removal, so it also decides this definition first. Only a server that has started after the removal does
    not know which definition had the names.

    A definition is decided when it has changed, or when a name that it requests was accepted or freed. If the current
    run has processed the definition already, the next run decides it.
    """

    def __init__(self, definitions: Definitions, statuses: Statuses, clock: Callable[[], str]) -> None:
        self._definitions = definitions
        self._statuses = statuses
        self._clock = clock
        # name of the definition → names that are accepted, or that were accepted and are still requested
        self._own_names: dict[str, Names] = {}
        self._index = NameIndex()
        self._undecided: dict[str, Due] = {}
        self._due: set[str] = set()  # names of undecided definitions whose outcome may have changed
        self._queues: dict[str, list[Due]] = {}  # group → heap of definitions to decide; some items are outdated
        self._runs: dict[str, _Run] = {}  # group → its current run

    def record(self, name: str) -> None:
        """Record the names of a definition.

        Called for each change, and for all definitions at the start.
        """
        facts = self._definitions.get(name)
        if facts is None:
            self._own_names.pop(name, None)
        elif facts.outline.names == facts.outline.accepted:
            self._own_names[name] = facts.outline.names
        elif self._own_names.get(name) != facts.outline.names:
            self._own_names.pop(name, None)  # the definition now requests other names than the accepted names
        self._put(name, facts)

    def everything(self) -> Iterable[str]:
        """Return all groups, and queue each undecided definition again."""
        for name in self._undecided:
            self._enqueue(name)
        return self._definitions.groups()

    async def reconcile(self, group: str) -> None:
        """Decide the undecided definitions of a group.

        If a decision frees a name, the event of its write queues another run.
        """
        # a definition that becomes unreadable causes no event, so its names are removed here
        for name in list(self._definitions.collection.state.broken):
            self._put(name, None)
        run = self._runs[group] = _Run()
        try:
            while (due := self._next(group, run)) is not None:
                if not await self._process(due):
                    return  # the conflicting write queues another run, which decides the later definitions
        finally:
            del self._runs[group]
            for due in run.later:
                self._queue(group, due)

    def _put(self, name: str, facts: Facts | None) -> None:
        before, run = self._undecided.pop(name, None), self._runs.get(group_of(name))
        if before is not None and run is not None:
            run.record_change(before)
        self._due.discard(name)
        if facts is not None and not is_decided(facts.outline):
            # As upstream, a definition whose accepted names were removed by a client is decided before definitions that
            # wait for these names.
            lost_names = self._own_names.get(name) == facts.outline.names
            self._undecided[name] = (not lost_names, facts.revision, name)
        for other in self._index.put(name, group_of(name), facts.outline if facts is not None else None):
            self._enqueue(other)
        self._enqueue(name)

    def _enqueue(self, name: str) -> None:
        """Queue an undecided definition."""
        due = self._undecided.get(name)
        if due is not None and name not in self._due:
            self._due.add(name)
            self._queue(group_of(name), due)

    def _queue(self, group: str, due: Due) -> None:
        heappush(self._queues.setdefault(group, []), due)

    def _next(self, group: str, run: _Run) -> Due | None:
        """Remove and return the next definition to decide from the queue of a group.

        Return None if there is none.
        """
        queue = self._queues.get(group, [])
        while queue:
            due = heappop(queue)
            name = due[2]
            if name in self._due and self._undecided[name] == due and run.begin(due, self._revision):
                self._due.remove(name)
                return due
        self._queues.pop(group, None)
        return None

    async def _process(self, due: Due) -> bool:
        """Decide a definition. After a conflict, queue it again and return False."""
        name, done = due[2], False
        try:
            facts = self._definitions.get(name)
            done = facts is None or await self._decide(facts)
        finally:
            if not done:
                self._enqueue(name)
        return done

    @property
    def _revision(self) -> int:
        return self._definitions.collection.state.revision

    async def _decide(self, facts: Facts) -> bool:
        entry = self._definitions.entry(facts.name)
        if entry is None or entry.revision != facts.revision:
            return False
        naming = decide_names(facts.outline, self._index.taken(facts.outline.group))
        same = same_condition(find(facts.outline.conditions, NAMES_ACCEPTED), naming.names_condition)
        if same and naming.accepted == facts.outline.accepted:
            return True
        faults = [str(fault) for fault in name_errors(naming.accepted.document(), "status.acceptedNames")]
        # another program stored these names; as upstream, a status with them is invalid, so it is not written
        if faults:
            log.warning("the names of the stored definition %s cannot be accepted: %s", facts.name, "; ".join(faults))
            return True

        def amend(document: Document) -> Document:
            conditions = (document.get("status") or {}).get("conditions")
            for wanted in (naming.names_condition, naming.established_condition):
                conditions = with_condition(conditions, wanted, self._clock())
            return with_status(document, acceptedNames=naming.accepted.document(), conditions=conditions)

        try:
            return await self._statuses.amend(entry, amend) is not None
        except Unreadable as error:  # another program stored the definition; it must not block later definitions
            log.warning("the names of the stored definition %s cannot be decided: %s", facts.name, error)
            return True
