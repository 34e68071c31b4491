"""Who owns what after an update, remembered: most objects of a resource are owned alike, and change alike (SSA-006)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import orjson

from apiext import limits
from apiext.documents.document import Document, View
from apiext.managedfields import entries, updater
from apiext.managedfields.comparison import Comparison
from apiext.managedfields.entries import EntryError, Manager, Managers, Owned
from apiext.managedfields.fieldset import EMPTY, FieldSet, difference, includes, of, union
from apiext.managedfields.fieldsv1 import MAX_DEPTH, is_too_deep
from apiext.managedfields.types import Type
from apiext.managedfields.updater import Losses, MissingVersion, Write

NEVER_OWNED = of(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in (
            "name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation", "managedFields",
            "resourceVersion",
        )
    ]
)  # fmt: skip
TOO_DEEP = f"fields are nested deeper than {MAX_DEPTH} levels"
_NOW = -1  # the place of the time of the write behind those of the entries


class TooDeep(ValueError):
    """An update of fields that are nested more deeply than can be stored."""


def claimed(write: Write, managers: Managers, losses: Losses, now: str) -> Managers:
    """Return the managers with the writer owning what it changed; raises TooDeep."""
    changed, gone = losses
    fields = difference(changed, NEVER_OWNED)
    if is_too_deep(fields):
        raise TooDeep(TOO_DEEP)
    own = managers.pop(write.manager, None) or Owned(write.api_version, EMPTY)
    kept = difference(own.fields if fields is changed else difference(own.fields, changed), gone)
    if not includes(kept, fields):  # mostly a writer owns already what it changes
        kept = union(fields, kept)
    if kept:
        managers[write.manager] = Owned(write.api_version, kept, now if fields else own.time)
    return entries.capped(managers)


def after(write: Write, live: View, given: Sequence[View], seen: Comparison, now: str) -> Managers | None:
    """Return the managers after an update that changes what was ``seen``, None where that has to be worked out.

    ``given`` are the entries to start from. What an update does to sets of paths hangs on nothing but these sets, as
    long as all are of the version written in; the times of others stay.
    """
    if not given or live.get("apiVersion") != write.api_version:  # what a creation owns is as quickly worked out
        return None
    try:
        bare = orjson.dumps([{**entry, "time": None} for entry in given])
        changes = orjson.dumps((seen.removed, seen.modified, seen.added))
        reset = orjson.dumps(write.versions.reset(write.api_version))
    except TypeError:  # nested deeper than orjson goes
        return None
    if len(bare) + len(changes) > limits.OWNERSHIP_BYTES:
        return None
    found = _after(write.type, write.manager, write.api_version, bare, changes, reset)
    if found is None:
        return None
    times = [*(entry.get("time") or "" for entry in given), now]
    return {manager: Owned(version, orjson.loads(fields), times[place]) for manager, version, fields, place in found}


@dataclass(slots=True)
class _OneVersion:
    """A version of whose objects nothing is in another one (apiext.managedfields.updater.Versions)."""

    type: Type
    fields: FieldSet

    def type_of(self, api_version: str) -> Type:
        return self.type

    def reset(self, api_version: str) -> FieldSet:
        return self.fields

    def convert(self, document: View, api_version: str, doing: str) -> Document:
        raise MissingVersion(api_version)


@lru_cache(limits.OWNERSHIPS_SEEN)
def _after(
    of_type: Type, manager: Manager, api_version: str, given: bytes, changes: bytes, reset: bytes
) -> list[tuple[Manager, str, bytes, int]] | None:
    """Return each manager with its version, its fieldsV1, and whose time it has; None for what is not so simple."""
    listed = orjson.loads(given)
    for place, entry in enumerate(listed):
        entry["time"] = str(place)
    try:
        managers = entries.decode(listed)
    except EntryError:
        return None
    alone = all(owned.api_version == api_version for owned in managers.values())
    if not alone or len(managers) < len(listed) or len(listed) >= entries.MAX_UPDATERS:
        return None
    write = Write(_OneVersion(of_type, orjson.loads(reset)), api_version, of_type, manager)
    here = {"apiVersion": api_version}
    managers, losses = updater.after(write, here, here, managers, Comparison(*orjson.loads(changes)))
    managers = claimed(write, managers, losses, str(_NOW))
    return [(one, owned.api_version, orjson.dumps(owned.fields), int(owned.time)) for one, owned in managers.items()]
