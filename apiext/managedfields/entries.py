"""Decode and encode metadata.managedFields: the fields of each manager, in upstream's order.

See SSA-002…005.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from apiext.documents.document import Document, View
from apiext.managedfields import fieldsv1
from apiext.managedfields.fieldset import FieldSet, union_of
from apiext.text.quotes import go_quote

APPLY, UPDATE = "Apply", "Update"
MAX_UPDATERS = 10  # upstream: DefaultMaxUpdateManagers
_ANCIENT = "ancient-changes"


class Manager(NamedTuple):
    """The identity of a manager.

    An applier is a manager with the operation Apply, an updater one with the operation Update. Only the identity of an
    updater contains the API version. Upstream sorts updaters with equal times by these fields, in this order.
    """

    name: str
    operation: str
    api_version: str = ""  # empty for appliers
    subresource: str = ""

    def __str__(self) -> str:
        shown = go_quote(self.name)
        if self.subresource:
            shown += f" with subresource {go_quote(self.subresource)}"
        return shown if self.operation == APPLY else f"{shown} using {self.api_version}"


class Owned(Struct, frozen=True):
    """The fields that a manager owns, and the time of their last change.

    The fields are paths in one API version. The time is in RFC 3339 format, or empty if the entry has no time.
    """

    api_version: str
    fields: FieldSet
    time: str = ""

    def having(self, fields: FieldSet) -> "Owned":
        """Return a copy with these fields."""
        return Owned(self.api_version, fields, self.time)


Managers = dict[Manager, Owned]


class EntryError(ValueError):
    """The error of managedFields that cannot be decoded."""


def manager_of(name: str, operation: str, api_version: str, subresource: str) -> Manager:
    """Return the manager of a request; its name is ``unknown`` if the request names no manager."""
    return Manager(name or "unknown", operation, "" if operation == APPLY else api_version, subresource)


def decode(entries: Sequence[View] | None) -> Managers:
    """Return manager → owned fields. Raise EntryError with upstream's text."""
    found: Managers = {}
    for index, entry in enumerate(entries or ()):
        operation, api_version = entry.get("operation", ""), entry.get("apiVersion", "")
        if operation not in (APPLY, UPDATE):
            raise EntryError("operation must be `Apply` or `Update`")
        if not api_version:
            raise EntryError("apiVersion must not be empty")
        kind = entry.get("fieldsType", "")
        if kind != "FieldsV1":
            text = f"invalid fieldsType {go_quote(kind)} in" if kind else "missing fieldsType in"
            raise EntryError(f"{text} managed fields entry {index}")
        try:
            fields = fieldsv1.decode(entry.get("fieldsV1"))
        except fieldsv1.FieldsError as error:
            raise EntryError(f"error decoding set: {error}") from error
        version = "" if operation == APPLY else api_version
        manager = Manager(entry.get("manager", ""), operation, version, entry.get("subresource", ""))
        found[manager] = Owned(api_version, fields, entry.get("time") or "")
    return found


def readable(entries: Sequence[View] | None) -> Managers:
    """Return manager → owned fields, or an empty dict if the entries cannot be decoded."""
    try:
        return decode(entries)
    except EntryError:
        return {}


def is_reset(entries: Any) -> bool:
    """Return whether a client requests the deletion of all managers (SSA-007).

    An empty list or one empty entry requests it.
    """
    return entries in ([], [{}])


def encode(managers: Managers) -> list[Document]:
    """Return the sorted entries of managedFields (SSA-003).

    The order is by operation (Apply first), time, name, version and subresource.
    """
    return [entry(manager, owned) for manager, owned in sorted(managers.items(), key=_order)]


def _order(item: tuple[Manager, Owned]) -> tuple[str, ...]:
    manager, owned = item
    return (manager.operation, owned.time, manager.name, owned.api_version, manager.subresource)


def entry(manager: Manager, owned: Owned) -> Document:
    """Return the entry of a manager."""
    members = {
        "manager": manager.name,
        "operation": manager.operation,
        "apiVersion": owned.api_version,
        "time": owned.time,
        "fieldsType": "FieldsV1",
        "fieldsV1": dict(owned.fields),
        "subresource": manager.subresource,
    }
    return {name: value for name, value in members.items() if value or name == "fieldsV1"}


def capped(managers: Managers) -> Managers:
    """Merge the oldest updaters until at most MAX_UPDATERS remain (SSA-006).

    Only updaters with the same API version are merged, so more may remain.
    """
    updaters = [item for item in managers.items() if item[0].operation == UPDATE]
    left = len(updaters)
    if left <= MAX_UPDATERS:
        return managers
    found = dict(managers)
    first: dict[str, Manager] = {}
    merged: dict[Manager, list[FieldSet]] = {}  # merged entry → the sets of its updaters, the oldest first
    for manager, owned in sorted(updaters, key=lambda item: (item[1].time, item[0])):
        if left <= MAX_UPDATERS:
            break
        version = owned.api_version
        if version not in first:
            first[version] = manager
            continue
        bucket = Manager(_ANCIENT, UPDATE, version)
        into = bucket if bucket in found and bucket != manager else first[version]
        sets = merged.pop(into, None) or [found[into].fields]
        del found[into]
        found.pop(manager, None)
        sets.append(owned.fields)
        found[bucket], merged[bucket] = owned, sets
        left -= 1
    for bucket, sets in merged.items():
        found[bucket] = found[bucket].having(union_of(sets))
    return found


def same_but_for_times(left: Sequence[View], right: Sequence[View]) -> bool:
    """Return whether two lists of entries differ only in their times (SSA-015)."""
    if len(left) != len(right):
        return False
    return all({**one, "time": ""} == {**other, "time": ""} for one, other in zip(left, right, strict=True))
