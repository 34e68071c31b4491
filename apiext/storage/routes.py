"""Route changes to the watch groups of one collection, by namespace and selector values.

A term is one condition of a selector; its dimension is the label or field that it tests (indexes.py). A position is the
place of a change in the history of the collection.
"""

from collections.abc import Hashable, Iterable
from typing import Protocol, TypeVar

from apiext.storage import limits
from apiext.storage.history import Change
from apiext.storage.indexes import Dimension, Term
from apiext.storage.store import Entry

K = TypeVar("K")


class Routed(Protocol):
    """A watch group, to which changes are delivered."""

    def add_change(self, position: int) -> None:
        """Record that the group may select the change at a position.

        A second call for the same position has no effect.
        """


Place = tuple[str | None, str | None]
"""(namespace, value); namespace None means all namespaces."""


class _Row:
    """The groups that select a few values of one dimension: (namespace, value) → groups."""

    __slots__ = ("_namespaces", "_places", "dimension")

    def __init__(self, dimension: Dimension) -> None:
        self.dimension = dimension
        self._places: dict[Place, dict[Routed, None]] = {}
        self._namespaces: dict[str | None, int] = {}  # namespace → number of groups

    def add(self, group: Routed, namespace: str | None, values: Iterable[str]) -> None:
        self._namespaces[namespace] = self._namespaces.get(namespace, 0) + 1
        for value in values:
            self._places.setdefault((namespace, value), {})[group] = None

    def remove(self, group: Routed, namespace: str | None, values: Iterable[str]) -> bool:
        """Remove a group. Return True if this was the last group."""
        self._namespaces[namespace] -= 1
        if not self._namespaces[namespace]:
            del self._namespaces[namespace]
        for value in values:
            _discard(self._places, (namespace, value), group)
        return not self._namespaces

    def deliver(self, position: int, entry: Entry) -> None:
        """Deliver the change at a position to the groups that may select ``entry``.

        ``entry`` is one of the two states of the change.
        """
        within = [place for place in (None, entry.namespace) if place in self._namespaces]
        if not within:
            return  # reading the value could be slow, since a field requires a parsed object
        try:
            value = self.dimension.read(entry)
            found = [self._places.get((namespace, value), ()) for namespace in within]
        except Exception:  # every group must get the change: a group reports the error when it reads the object
            found = [groups for (namespace, _), groups in self._places.items() if namespace in within]
        for groups in found:
            for group in groups:
                group.add_change(position)


class Routes:
    """The routes to all groups.

    Delivering a change costs time only for groups that may select it (decisions/0032).
    """

    __slots__ = ("_everywhere", "_fields", "_inside", "_labels")

    def __init__(self) -> None:
        self._everywhere: dict[Routed, None] = {}
        self._inside: dict[str, dict[Routed, None]] = {}
        self._fields: dict[Hashable, _Row] = {}  # key of the dimension → groups
        self._labels: dict[Hashable, _Row] = {}  # label → groups

    def add(self, group: Routed, namespace: str | None, term: Term | None) -> None:
        """Add a route: from now on, a group gets the changes of a namespace for which a term holds.

        None as ``namespace`` means all namespaces, and None as ``term`` means all changes. If the term lists no values,
        or too many, the group gets all changes of the namespace, and tests each of them.
        """
        values = _values(term)
        if term is None or values is None:
            (self._everywhere if namespace is None else self._inside.setdefault(namespace, {}))[group] = None
            return
        rows, key = self._rows(term.dimension)
        row = rows.get(key)
        if row is None:
            row = rows[key] = _Row(term.dimension)
        row.add(group, namespace, values)

    def remove(self, group: Routed, namespace: str | None, term: Term | None) -> None:
        """Undo ``add`` with the same arguments."""
        values = _values(term)
        if term is None or values is None:
            if namespace is None:
                del self._everywhere[group]
            else:
                _discard(self._inside, namespace, group)
            return
        rows, key = self._rows(term.dimension)
        if rows[key].remove(group, namespace, values):
            del rows[key]

    def deliver(self, position: int, change: Change) -> None:
        """Deliver a change to all groups whose namespace and value match the old or the new state."""
        entry, previous = change.entry, change.previous
        for group in self._everywhere:
            group.add_change(position)
        for group in self._inside.get(entry.namespace, ()):
            group.add_change(position)
        if not self._fields and not self._labels:
            return
        for state in (entry,) if previous is None else (entry, previous):
            for row in self._fields.values():
                row.deliver(position, state)
            if self._labels:
                # iterates over the smaller set, so watches of a thousand labels cost no more than watches of one label
                for label in self._labels.keys() & state.labels.keys():
                    self._labels[label].deliver(position, state)

    def _rows(self, dimension: Dimension) -> tuple[dict[Hashable, _Row], Hashable]:
        return (self._labels, dimension.label) if dimension.label else (self._fields, dimension.key)


def _values(term: Term | None) -> Iterable[str] | None:
    """Return the values for the route of a term.

    Return None if the term lists no values or more than limits.ROUTE_VALUES.
    """
    return None if term is None or term.values is None or len(term.values) > limits.ROUTE_VALUES else term.values


def _discard(places: dict[K, dict[Routed, None]], place: K, group: Routed) -> None:
    groups = places[place]
    del groups[group]
    if not groups:
        del places[place]
