"""Route changes to watch groups by labels or fields of converted objects.

A watch group is a set of watchers with equal parameters. All groups that watch the same version share a conversion. A
term (indexes.py) is a condition of a group's selector: a dimension, which is a label or field, and its accepted values.
"""

from collections import deque
from collections.abc import Callable, Hashable
from itertools import islice
from typing import NamedTuple

from apiext.storage import limits
from apiext.storage.history import History
from apiext.storage.indexes import Term
from apiext.storage.pump import Pump
from apiext.storage.routes import Routed, Routes
from apiext.storage.staging import Stage, Staging


class ConvertedRoute(NamedTuple):
    """The condition ``term`` of a watch group on objects in one version.

    ``version`` is equal for groups of the same version. ``stage`` converts objects to this version.
    """

    version: Hashable
    stage: Stage
    term: Term


Condition = tuple[str | None, Hashable]
"""A condition on stored changes: (namespace or None for all, (dimension, values) of a term or None for any values)."""


class _Needed:
    """A condition on stored changes that a number of groups (``groups``) share.

    ``add_change`` is called for changes that meet the condition. Each condition has its own route, so that the removal
    of a condition does not affect a condition that overlaps it.
    """

    __slots__ = ("add_change", "groups")

    def __init__(self, add_change: Callable[[int], None]) -> None:
        self.add_change = add_change
        self.groups = 0


class ConvertedRoutes:
    """The routes to the watch groups of one version.

    Before a change is delivered, a webhook converts the old and the new object. The routes ``stored`` deliver the
    positions of changes in the history. This class queues the positions until the changes are converted.
    """

    def __init__(self, stored: Routes, history: History, pump: Pump, stage: Stage) -> None:
        self._history = history
        self._pump = pump
        self._pending: deque[int] = deque()
        self._needed: dict[Condition, _Needed] = {}
        self._routes = Routes()
        self._staging = Staging(stage, lambda: pump.add(self), self._failed)
        self._stored = stored
        self._groups: dict[Routed, None] = {}
        self._waiting: list[Callable[[], None]] = []
        self.queued = False

    @property
    def end(self) -> int:
        """The first position that is not delivered yet: the groups have all changes before it."""
        return self._pending[0] if self._pending else self._history.end

    def add(self, group: Routed, namespace: str | None, stored: Term | None, converted: Term) -> None:
        """Deliver changes of a namespace (None: of all) to a group if both terms hold.

        ``stored`` (None: holds always) is tested on stored objects, ``converted`` on converted objects.
        """
        self._groups[group] = None
        self._routes.add(group, namespace, converted)
        key = _condition(namespace, stored)
        needed = self._needed.get(key)
        if needed is None:
            needed = self._needed[key] = _Needed(self.add_change)
            self._stored.add(needed, namespace, stored)
        needed.groups += 1

    def remove(self, group: Routed, namespace: str | None, stored: Term | None, converted: Term) -> bool:
        """Undo ``add`` with the same arguments. Return True if this was the last group."""
        del self._groups[group]
        self._routes.remove(group, namespace, converted)
        key = _condition(namespace, stored)
        needed = self._needed[key]
        needed.groups -= 1
        if not needed.groups:
            del self._needed[key]
            self._stored.remove(needed, namespace, stored)
        return not self._groups

    def add_change(self, position: int) -> None:
        """Queue the change at a position for a later ``step``."""
        if not self._pending or self._pending[-1] != position:
            self._pending.append(position)
            self._pump.add(self)

    def when_advanced(self, then: Callable[[], None]) -> None:
        """Call ``then`` once, when ``end`` may have advanced."""
        self._waiting.append(then)

    # -- called by the pump

    @property
    def busy(self) -> bool:
        """True if a change can be routed now."""
        return bool(self._pending) and not self._staging.waiting

    def step(self, budget: int) -> int:
        """Deliver one change, or begin the conversion of the next changes.

        Return 1, since the step counts as one write.
        """
        if not self.busy:
            return 1
        position = self._pending[0]
        if not self._groups:
            self._pending.clear()
        elif position < self._history.first:
            self._deliver_to_all()  # the history has dropped the change, so each group ends its watches with 410
        else:
            following = (self._history.at(at) for at in islice(self._pending, limits.SEGMENT))
            change = self._staging.change(self._history.at(position), True, following)
            if change is None:
                self._wake()
                return 1
            self._routes.deliver(position, change)
            self._pending.popleft()
        if not self._pending:
            self._wake()
        return 1

    def on_idle(self) -> None:
        """Drop the converted objects."""
        self._staging.on_idle()

    def fail(self, error: Exception) -> bool:
        """Deliver the next change to all groups, since it cannot be converted.

        Each group then ends its watches with an ERROR event. Return True: the error is handled.
        """
        self._deliver_to_all()
        return True

    def _failed(self, _: bytes) -> None:
        self._deliver_to_all()
        self._pump.add(self)

    def _deliver_to_all(self) -> None:
        if self._pending:
            position = self._pending.popleft()
            for group in self._groups:
                group.add_change(position)
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            then()


def _condition(namespace: str | None, term: Term | None) -> Condition:
    if term is None or term.values is None:
        return namespace, None  # without listed values, all changes of the namespace are delivered
    return namespace, (term.dimension, frozenset(term.values))
