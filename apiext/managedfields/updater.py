"""Who owns what after a write: the rules of update and apply over sets of paths (SSA-008, SSA-009, SSA-014)."""

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from apiext.documents.document import Document, View
from apiext.managedfields import fieldset
from apiext.managedfields.comparison import Comparison, compare
from apiext.managedfields.entries import Manager, Managers, Owned
from apiext.managedfields.fieldset import (
    FieldSet,
    difference,
    intersection,
    recursive_difference,
    union,
    union_of,
)
from apiext.managedfields.merging import merge, remove, with_emptied
from apiext.managedfields.path import SELF, order
from apiext.managedfields.typed import check, fields_of, leaves_fit, part_at, reconciled, with_named_fields
from apiext.managedfields.types import Type, equal

_METADATA = "f:metadata"
_PRUNING = "failed to prune fields: "
_LAST = " to last applied version: "


class MissingVersion(Exception):
    """A manager's version is one that the resource does not have any more."""


Losses = tuple[FieldSet, FieldSet]
"""What others lose by a change if they own it: what has another value now, and what is gone."""


class Conflicts(Exception):
    """Somebody else owns fields that an apply would change: ``count`` paths, those of each manager in ``owned``."""

    def __init__(self, owned: Mapping[Manager, FieldSet]) -> None:
        self.owned = owned
        self.count = sum(map(fieldset.size, owned.values()))
        super().__init__(f"{self.count} conflicts")

    def paths(self) -> Iterator[tuple[Manager, tuple[str, ...]]]:
        """Yield pairs of manager and path, by manager; all of them may take much more memory than the sets."""
        for manager in sorted(self.owned):
            for path in in_order(self.owned[manager]):
                yield manager, path


class Versions(Protocol):
    """The versions of a resource, as seen by one endpoint."""

    def type_of(self, api_version: str) -> Type:
        """Return the merge type of a version; raises MissingVersion."""

    def reset(self, api_version: str) -> FieldSet:
        """Return the paths that the endpoint does not let anybody own in a version (SSA-013)."""

    def convert(self, document: View, api_version: str, doing: str) -> Document:
        """Return the object in another version; raises MissingVersion, or ValueError with the text of a 500.

        ``doing`` begins the text where another exception tells of what went wrong.
        """


class Write(Struct, frozen=True):
    """One write: of whom, in which version, among which versions."""

    versions: Versions
    api_version: str
    type: Type  # the merge type of that version
    manager: Manager


def converted(versions: Versions, document: View | None, api_version: str, doing: str = "") -> View:
    """Return the object in a version, checked unless it is in that version already; ``doing`` begins what is told.

    None is what pruning leaves of an object that is owned as one.
    """
    if document is None:
        raise ValueError(f"{doing}failed to convert value to unstructured for type <nil>")
    if document.get("apiVersion") == api_version:
        return document
    of = versions.type_of(api_version)
    try:
        found = versions.convert(document, api_version, doing)
        check(of, found, duplicates=False)
    except ValueError as fault:
        raise ValueError(f"{doing}{fault}") from fault
    return found


def compared(write: Write, live: View, new: View) -> Comparison:
    """Return what a write changes; the new object fits its type, TypeFault when the live one does not."""
    seen = compare(write.type, live, new)
    before = union(seen.removed, seen.modified)
    if before and not leaves_fit(write.type.map, live, before):  # all else of the live object is as in the new one
        check(write.type, part_at(write.type, live, before))
    return seen


def after(write: Write, live: View, new: View, managers: Managers, seen: Comparison) -> tuple[Managers, Losses]:
    """Return the managers after a write that is no apply, the writer as it was, and what all others have lost.

    ``seen`` is what ``compared`` says of the write.
    """
    losses = _losses(_ownable(write, seen))
    if managers:  # a new object has none
        managers = _taken(write, live, new, _reconciled(write.versions, live, managers), losses)
    return managers, losses


def apply(
    write: Write, live: View, config: View, managers: Managers, *, force: bool
) -> tuple[Document | None, Managers]:
    """Return the object with the configuration applied, None when that changes nothing, and the managers after it.

    Raises Conflicts unless ``force``.
    """
    of = write.type
    managers = _reconciled(write.versions, live, managers)
    merged = merge(of, live, config)
    last = managers.get(write.manager)
    fields = recursive_difference(fields_of(of, config), write.versions.reset(write.api_version))
    managers[write.manager] = Owned(write.api_version, fields, last.time if last else "")
    new: Document = merged
    if last is not None and (_abroad(write, managers, last) or _gone(last.fields, fields)):
        new = with_emptied(of, config, _pruned(write, merged, managers, last))
    changes = _ownable(write, compare(of, live, new))
    managers = _taken(write, live, new, managers, _losses(changes), force=force)
    same = live == new and equal(live, new)  # most differ, and the first of the two sees it soonest
    return (None if same else new), managers


def _abroad(write: Write, managers: Managers, last: Owned) -> bool:
    """Tell whether anybody owns in another version: upstream finds there what the object has and that version lacks."""
    own = write.api_version
    return last.api_version != own or any(one.api_version != own for one in managers.values())


def _gone(before: FieldSet, now: FieldSet) -> bool:
    """Tell whether a set has lost a path; most are the same, which is seen sooner."""
    return before != now and bool(difference(before, now))


def _reconciled(versions: Versions, live: View, managers: Managers) -> Managers:
    """Return the managers with their sets as today's schemas have them, without those of missing versions."""
    found: Managers = {}
    for manager, owned in managers.items():
        try:
            converted(versions, live, owned.api_version)
            fields = reconciled(owned.fields, versions.type_of(owned.api_version))
        except MissingVersion:
            continue
        found[manager] = owned if fields is owned.fields else owned.having(fields)
    return found


def _ownable(write: Write, changes: Comparison) -> Comparison:
    """Return what changed in the version written in, without what nobody may own."""
    return changes.without(write.versions.reset(write.api_version))


def _taken(write: Write, live: View, new: View, managers: Managers, losses: Losses, *, force: bool = True) -> Managers:
    """Return the managers without what the change takes from all but the writer; raises Conflicts unless forced.

    ``losses`` are those in the version written in.
    """
    versions = write.versions
    by_version = {write.api_version: losses}
    conflicts: dict[Manager, FieldSet] = {}
    removed: dict[Manager, FieldSet] = {}
    found = dict(managers)
    for manager, owned in managers.items():
        if manager == write.manager:
            continue
        lost_in = by_version.get(owned.api_version)
        if lost_in is None:
            try:
                lost_in = _losses(_compared_in(versions, live, new, owned.api_version))
            except MissingVersion:
                del found[manager]
                continue
            by_version[owned.api_version] = lost_in
        changed, gone = lost_in
        lost = intersection(owned.fields, changed)
        if lost:
            conflicts[manager] = lost
        if gone:
            removed[manager] = gone
    if conflicts and not force:
        raise Conflicts(conflicts)
    for taken in (conflicts, removed):
        for manager, lost in taken.items():
            found[manager] = found[manager].having(difference(found[manager].fields, lost))
    return {manager: owned for manager, owned in found.items() if owned.fields}


def _losses(seen: Comparison) -> Losses:
    return union(seen.modified, seen.added), seen.removed


def _compared_in(versions: Versions, live: View, new: View, api_version: str) -> Comparison:
    before = converted(versions, live, api_version, "failed to convert old object: ")
    after = converted(versions, new, api_version, "failed to convert new object: ")
    return compare(versions.type_of(api_version), before, after).without(versions.reset(api_version))


def in_order(paths: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a set as upstream walks it: at each place its members, then what is below each."""
    elements = sorted((name for name in paths if name != SELF), key=order)
    for element in elements:
        if fieldset.is_member(paths[element]):
            yield (*prefix, element)
    for element in elements:
        if paths[element]:
            yield from in_order(paths[element], (*prefix, element))


def _pruned(write: Write, merged: View, managers: Managers, last: Owned) -> View:
    """Return the merged object without what the applier applied last time, not now, and nobody else owns."""
    versions = write.versions
    try:
        whole = converted(versions, merged, last.api_version, f"{_PRUNING}failed to convert merged object{_LAST}")
    except MissingVersion:
        return merged
    of = versions.type_of(last.api_version)
    ours = with_named_fields(last.fields, of)
    pruned = remove(of, whole, ours)
    pruned = _with_owned(versions, whole, pruned, last.api_version, managers)
    pruned = _with_dangling(versions, whole, pruned, last.api_version, ours)
    return converted(versions, pruned, write.api_version, _PRUNING)


def _with_owned(versions: Versions, merged: View, pruned: View, first: str, managers: Managers) -> View:
    """Return the pruned object with what any manager owns put back, version by version."""
    sets: dict[str, list[FieldSet]] = {}
    for one in managers.values():
        sets.setdefault(one.api_version, []).append(one.fields)
    owned = {api_version: union_of(of_version) for api_version, of_version in sets.items()}
    doing = f"{_PRUNING}failed add back owned items: failed to convert "
    # upstream: all but the first in no order
    # who owns metadata comes first: no webhook's answer without them is taken
    for api_version in sorted(owned, key=lambda version: (version != first, _METADATA not in owned[version], version)):
        try:
            merged = converted(versions, merged, api_version, f"{doing}merged object at version {api_version}: ")
            pruned = converted(versions, pruned, api_version, f"{doing}pruned object at version {api_version}: ")
        except MissingVersion:
            continue
        of = versions.type_of(api_version)
        kept = union(_named(of, pruned), with_named_fields(owned[api_version], of))
        pruned = remove(of, merged, difference(_named(of, merged), kept))
    return pruned


def _with_dangling(versions: Versions, merged: View, pruned: View, api_version: str, last: FieldSet) -> View:
    """Return the pruned object with what the applier did not own last time put back."""
    doing = f"{_PRUNING}failed add back dangling items: failed to convert pruned object{_LAST}"
    pruned = converted(versions, pruned, api_version, doing)
    of = versions.type_of(api_version)
    gone = intersection(difference(_named(of, merged), _named(of, pruned)), last)
    return remove(of, merged, gone)  # type: ignore[no-any-return]


def _named(of: Type, value: Any) -> FieldSet:
    return with_named_fields(fields_of(of, value), of)
