"""Compute the owners of fields after a write, as upstream does for update and apply.

See SSA-008, SSA-009 and SSA-014. A merge type (types.py) says which values a field may have, and whether their parts
have separate owners.
"""

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
    """The error of a version that the resource no longer has."""


Losses = tuple[FieldSet, FieldSet]
"""(changed and added fields, deleted fields) of a write: other managers lose these fields."""


class Conflicts(Exception):
    """The error of an apply that would change fields of other managers.

    ``count`` is the number of paths; ``owned`` maps each manager to its paths.
    """

    def __init__(self, owned: Mapping[Manager, FieldSet]) -> None:
        self.owned = owned
        self.count = sum(map(fieldset.size, owned.values()))
        super().__init__(f"{self.count} conflicts")

    def paths(self) -> Iterator[tuple[Manager, tuple[str, ...]]]:
        """Yield (manager, path) of each conflict, sorted by manager.

        The result is an iterator, since all paths together may need much more memory than the sets.
        """
        for manager in sorted(self.owned):
            for path in in_order(self.owned[manager]):
                yield manager, path


class Versions(Protocol):
    """The versions of a resource, for one endpoint: the resource or a subresource."""

    def type_of(self, api_version: str) -> Type:
        """Return the merge type of a version. Raise MissingVersion."""

    def reset(self, api_version: str) -> FieldSet:
        """Return the paths of a version that no manager of the endpoint may own (SSA-013)."""

    def convert(self, document: View, api_version: str, doing: str) -> Document:
        """Return the object in another version.

        Raise MissingVersion, or ValueError with the text of a 500. Some texts begin with ``doing``.
        """


class Write(Struct, frozen=True):
    """One write: its manager, its version, and the versions of the resource."""

    versions: Versions
    api_version: str
    type: Type  # the merge type of ``api_version``
    manager: Manager


def converted(versions: Versions, document: View | None, api_version: str, doing: str = "") -> View:
    """Convert an object to a version and validate the result.

    Return an object of this version unchanged. Raise MissingVersion, or ValueError with a text that begins with
    ``doing``. ``document`` is None if pruning has deleted the whole object; then raise ValueError, too.
    """
    if document is None:
        raise ValueError(f"{doing}failed to convert value to unstructured for type <nil>")
    if document.get("apiVersion") == api_version:
        return document
    type_ = versions.type_of(api_version)
    try:
        found = versions.convert(document, api_version, doing)
        check(type_, found, duplicates=False)
    except ValueError as fault:
        raise ValueError(f"{doing}{fault}") from fault
    return found


def compared(write: Write, live: View, new: View) -> Comparison:
    """Return the changes of a write.

    The new object must fit its type. Raise TypeFault if the live object does not fit the type.
    """
    changes = compare(write.type, live, new)
    before = union(changes.removed, changes.modified)
    # all other fields of the live object are equal in the new object, which fits its type
    if before and not leaves_fit(write.type.map, live, before):
        check(write.type, part_at(write.type, live, before))
    return changes


def after(write: Write, live: View, new: View, managers: Managers, changes: Comparison) -> tuple[Managers, Losses]:
    """Return the managers after a write that is not an apply, and the losses of other managers.

    The writer's own entry loses no fields by the write. ``changes`` is the result of ``compared``.
    """
    losses = _losses(_ownable(write, changes))
    if managers:  # a new object has no managers
        managers = _without_taken(write, live, new, _reconciled(write.versions, live, managers), losses)
    return managers, losses


def apply(
    write: Write, live: View, config: View, managers: Managers, *, force: bool
) -> tuple[Document | None, Managers]:
    """Apply a configuration; return (merged object, managers).

    The object is None if it equals the live object. If ``force`` is false, raise Conflicts for changed fields of other
    managers.
    """
    type_ = write.type
    managers = _reconciled(write.versions, live, managers)
    merged = merge(type_, live, config)
    last = managers.get(write.manager)
    fields = recursive_difference(fields_of(type_, config), write.versions.reset(write.api_version))
    managers[write.manager] = Owned(write.api_version, fields, last.time if last else "")
    new: Document = merged
    if last is not None and (_owned_in_other_version(write, managers, last) or _has_lost(last.fields, fields)):
        new = with_emptied(type_, config, _pruned(write, merged, managers, last))
    changes = _ownable(write, compare(type_, live, new))
    managers = _without_taken(write, live, new, managers, _losses(changes), force=force)
    same = live == new and equal(live, new)  # the common case is a difference, which ``==`` finds fast
    return (None if same else new), managers


def _owned_in_other_version(write: Write, managers: Managers, last: Owned) -> bool:
    """Return whether a manager owns fields in a version other than the version of the write.

    In the other version, the object may have fields that the version of the write lacks.
    """
    own = write.api_version
    return last.api_version != own or any(one.api_version != own for one in managers.values())


def _has_lost(before: FieldSet, now: FieldSet) -> bool:
    """Return whether a set has lost a path; equal sets are the fast path."""
    return before != now and bool(difference(before, now))


def _reconciled(versions: Versions, live: View, managers: Managers) -> Managers:
    """Adapt the sets of managers to the current schemas.

    Omit managers of versions that no longer exist.
    """
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
    """Return the changes in the version of the write, without paths that no manager may own."""
    return changes.without(write.versions.reset(write.api_version))


def _without_taken(
    write: Write, live: View, new: View, managers: Managers, losses: Losses, *, force: bool = True
) -> Managers:
    """Return the managers without the paths that they lose by the write.

    If ``force`` is false, raise Conflicts if a manager loses a changed or added field. ``losses`` are the losses in the
    version of the write.
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


def _losses(changes: Comparison) -> Losses:
    return union(changes.modified, changes.added), changes.removed


def _compared_in(versions: Versions, live: View, new: View, api_version: str) -> Comparison:
    before = converted(versions, live, api_version, "failed to convert old object: ")
    after = converted(versions, new, api_version, "failed to convert new object: ")
    return compare(versions.type_of(api_version), before, after).without(versions.reset(api_version))


def in_order(paths: FieldSet, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of a set in upstream's order.

    At each node, first come the children that are members of the set, then the paths below each child.
    """
    elements = sorted((name for name in paths if name != SELF), key=order)
    for element in elements:
        if fieldset.is_member(paths[element]):
            yield (*prefix, element)
    for element in elements:
        if paths[element]:
            yield from in_order(paths[element], (*prefix, element))


def _pruned(write: Write, merged: View, managers: Managers, last: Owned) -> View:
    """Return the merged object without fields that the applier no longer applies.

    A field that another manager owns stays. ``last`` is the applier's last entry. If its version no longer exists,
    return the object unchanged.
    """
    versions = write.versions
    try:
        whole = converted(versions, merged, last.api_version, f"{_PRUNING}failed to convert merged object{_LAST}")
    except MissingVersion:
        return merged
    type_ = versions.type_of(last.api_version)
    ours = with_named_fields(last.fields, type_)
    pruned = remove(type_, whole, ours)
    pruned = _with_owned(versions, whole, pruned, last.api_version, managers)
    pruned = _with_dangling(versions, whole, pruned, last.api_version, ours)
    return converted(versions, pruned, write.api_version, _PRUNING)


def _with_owned(versions: Versions, merged: View, pruned: View, first: str, managers: Managers) -> View:
    """Restore in the pruned object those fields of the merged object that a manager owns.

    Do this for one version after the other.
    """
    sets: dict[str, list[FieldSet]] = {}
    for one in managers.values():
        sets.setdefault(one.api_version, []).append(one.fields)
    owned = {api_version: union_of(of_version) for api_version, of_version in sets.items()}
    doing = f"{_PRUNING}failed add back owned items: failed to convert "
    # The version ``first`` comes first. Then versions in which metadata has an owner, since a conversion response
    # without metadata is an error.
    # upstream: the order of all versions after the first is random
    for api_version in sorted(owned, key=lambda version: (version != first, _METADATA not in owned[version], version)):
        try:
            merged = converted(versions, merged, api_version, f"{doing}merged object at version {api_version}: ")
            pruned = converted(versions, pruned, api_version, f"{doing}pruned object at version {api_version}: ")
        except MissingVersion:
            continue
        type_ = versions.type_of(api_version)
        kept = union(_named(type_, pruned), with_named_fields(owned[api_version], type_))
        pruned = remove(type_, merged, difference(_named(type_, merged), kept))
    return pruned


def _with_dangling(versions: Versions, merged: View, pruned: View, api_version: str, last: FieldSet) -> View:
    """Restore in the pruned object those fields of the merged object that are not in ``last``.

    ``last`` are the fields that the applier owned before this apply.
    """
    doing = f"{_PRUNING}failed add back dangling items: failed to convert pruned object{_LAST}"
    pruned = converted(versions, pruned, api_version, doing)
    type_ = versions.type_of(api_version)
    gone = intersection(difference(_named(type_, merged), _named(type_, pruned)), last)
    return remove(type_, merged, gone)  # type: ignore[no-any-return]


def _named(type_: Type, value: Any) -> FieldSet:
    return with_named_fields(fields_of(type_, value), type_)
