"""Decide which of its requested names a definition gets (CND-001…003).

The decision depends on the accepted names of its group.
"""

from collections.abc import Container, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from apiext.crd.conditions import condition, find
from apiext.crd.definition import ESTABLISHED, NAMES_ACCEPTED, CustomResourceDefinition, Names
from apiext.documents.document import View
from apiext.meta.fields import aggregate
from apiext.text.quotes import go_quote


class Naming(Struct, frozen=True):
    """The accepted names of a definition, and its conditions without times.

    The conditions are NamesAccepted and Established.
    """

    accepted: Names
    names_condition: View
    established_condition: View


Name = tuple[bool, str]
"""(whether it is a kind or list kind, name). A kind never conflicts with a resource name."""


def distinct_names(names: Names) -> set[Name]:
    """Return the names that must be unique in the group (CND-001)."""
    resources = (names.plural, names.singular, *names.short_names)
    return {*((False, name) for name in resources), (True, names.kind), (True, names.list_kind)}


class NameIndex:
    """Indexes of all definitions by accepted names, and of undecided ones by requested names.

    A definition is undecided if ``is_decided`` returns False. The cost of a change is proportional to the names of one
    definition, independent of the size of its group.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, CustomResourceDefinition]] = {}
        self._taken: dict[str, dict[Name, int]] = {}  # group → name → number of definitions with this accepted name
        self._requested: dict[str, dict[Name, dict[str, None]]] = {}  # group → name → undecided definitions

    def taken(self, group: str) -> Container[Name]:
        """Return the accepted names of all definitions of a group.

        The result may change with the index.
        """
        return self._taken.get(group, ())

    def put(self, name: str, group: str, definition: CustomResourceDefinition | None) -> list[str]:
        """Add or replace the definition ``name``, or remove it if ``definition`` is None.

        The accepted names of the definition count in ``group``. Return the names of other undecided definitions: those
        that request a name which this change has reserved or released.
        """
        before, had, has = self._known.pop(name, None), set[Name](), set[Name]()
        if before is not None:
            had = distinct_names(before[1].accepted)
            self._remove_requests(name, before[1])
        if definition is not None:
            self._known[name] = (group, definition)
            has = distinct_names(definition.accepted)
        changed = [
            *self._count(before[0] if before is not None else group, had - has, -1),
            *self._count(group, has - had, 1),
        ]
        requested = self._requested.get(group, {})
        affected = {other: None for one in changed for other in requested.get(one, ())}
        if definition is not None and not is_decided(definition):
            wanted = self._requested.setdefault(definition.group, {})
            for one in distinct_names(definition.names):
                wanted.setdefault(one, {})[name] = None
        return list(affected)

    def _count(self, group: str, names: set[Name], more: int) -> Iterator[Name]:
        """Add ``more`` to the counts of names.

        Yield the names that this change has reserved or released.
        """
        taken = self._taken.setdefault(group, {})
        for one in names:
            count = taken.get(one, 0) + more
            if count:
                taken[one] = count
            else:
                del taken[one]
            if count == max(more, 0):
                yield one
        if not taken:
            del self._taken[group]

    def _remove_requests(self, name: str, definition: CustomResourceDefinition) -> None:
        requested = self._requested.get(definition.group, {})
        for one in distinct_names(definition.names):
            others = requested.get(one)
            if others is not None and others.pop(name, self) is None and not others:
                del requested[one]
        if not requested:
            self._requested.pop(definition.group, None)


def is_decided(definition: CustomResourceDefinition) -> bool:
    """Return whether a definition has all requested names and NamesAccepted is true."""
    return definition.names == definition.accepted and definition.is_true(NAMES_ACCEPTED)


_NAME_FIELDS = (  # (field of Names, whether it is a kind, reason of a conflict), in upstream's order
    ("plural", False, "PluralConflict"),
    ("singular", False, "SingularConflict"),
    ("short_names", False, "ShortNamesConflict"),
    ("kind", True, "KindConflict"),
    ("list_kind", True, "ListKindConflict"),
)


def decide_names(definition: CustomResourceDefinition, taken: Container[Name]) -> Naming:
    """Return the names that the definition gets, and its conditions.

    ``taken`` contains the accepted names of all definitions of the group, including this definition.
    """
    requested, accepted = definition.names, definition.accepted
    names = accepted
    conflict: tuple[str, str] | None = None
    for name, is_kind, reason in _NAME_FIELDS:
        wanted, had = getattr(requested, name), getattr(accepted, name)
        fresh = [wanted] if isinstance(wanted, str) else _missing(wanted, had)
        used = [f"{go_quote(value)} is already in use" for value in fresh if value != had and (is_kind, value) in taken]
        if used and wanted != had:
            conflict = (reason, aggregate(used))
        else:
            names = replace(names, **{name: wanted})
    names = replace(names, categories=requested.categories)
    if conflict is None:
        naming = condition(NAMES_ACCEPTED, "True", "NoConflicts", "no conflicts found")
    else:
        naming = condition(NAMES_ACCEPTED, "False", *conflict)
    return Naming(names, naming, _established(definition, conflict is None))


def _missing(wanted: Sequence[str], had: Sequence[str]) -> list[str]:
    """Return the requested short names that a definition does not have yet."""
    known = frozenset(had)
    return [short for short in wanted if short not in known]


def _established(definition: CustomResourceDefinition, accepted: bool) -> View:
    old = find(definition.conditions, ESTABLISHED)
    if accepted and (old is None or old.get("status") != "True"):
        return condition(ESTABLISHED, "False", "Installing", "the initial names have been accepted")
    if old is not None:
        return old
    return condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
