"""Which requested names a definition gets (CND-001…003): a pure function of it and its group's accepted names."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from apiext.crd.conditions import condition, find
from apiext.crd.definition import ESTABLISHED, NAMES_ACCEPTED, CustomResourceDefinition, Names
from apiext.documents.document import View
from apiext.documents.quotes import go_quote
from apiext.meta.fields import aggregate


@dataclass(frozen=True, slots=True)
class Naming:
    """The outcome: names accepted now, and the two conditions, without transition times."""

    accepted: Names
    names_condition: View
    established_condition: View


def accepted_names(definitions: Iterable[CustomResourceDefinition]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the resource names and the kinds that the definitions of one group have (CND-001)."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for definition in definitions:
        names = definition.accepted
        resources.update((names.plural, names.singular, *names.short_names))
        kinds.update((names.kind, names.list_kind))
    return frozenset(resources), frozenset(kinds)


_SCALARS = (  # field of Names, whether it is a kind, the reason of its conflict; short names come between
    ("plural", False, "PluralConflict"),
    ("singular", False, "SingularConflict"),
    ("short_names", False, "ShortNamesConflict"),
    ("kind", True, "KindConflict"),
    ("list_kind", True, "ListKindConflict"),
)


def decide_names(definition: CustomResourceDefinition, group: Iterable[CustomResourceDefinition]) -> Naming:
    """Return the names that the definition gets among those of its group (itself included), and its conditions."""
    resources, kinds = accepted_names(group)
    requested, accepted = definition.names, definition.accepted
    names = accepted
    conflict: tuple[str, str] | None = None
    for name, is_kind, reason in _SCALARS:
        taken = kinds if is_kind else resources
        wanted, had = getattr(requested, name), getattr(accepted, name)
        fresh = [wanted] if isinstance(wanted, str) else _fresh(wanted, had)
        used = [f"{go_quote(value)} is already in use" for value in fresh if value != had and value in taken]
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


def _fresh(wanted: Sequence[str], had: Sequence[str]) -> list[str]:
    """Return the short names that a definition has not got yet."""
    known = frozenset(had)
    return [short for short in wanted if short not in known]


def _established(definition: CustomResourceDefinition, accepted: bool) -> View:
    old = find(definition.conditions, ESTABLISHED)
    if accepted and (old is None or old.get("status") != "True"):
        return condition(ESTABLISHED, "False", "Installing", "the initial names have been accepted")
    if old is not None:
        return old
    return condition(ESTABLISHED, "False", "NotAccepted", "not all names are accepted")
