"""Who owns what after a write, remembered: most objects of a resource are made, owned and changed alike (SSA-006)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import orjson

from apiext import limits
from apiext.documents.document import Document, View
from apiext.managedfields import entries, updater
from apiext.managedfields.comparison import SIMPLE, Comparison
from apiext.managedfields.entries import EntryError, Manager, Managers, Owned
from apiext.managedfields.fieldset import EMPTY, FieldSet, difference, includes, of, union
from apiext.managedfields.fieldsv1 import MAX_DEPTH, is_too_deep
from apiext.managedfields.types import NOTHING, Type
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


def created(write: Write, seen: Comparison, now: str) -> list[Document]:
    """Return the entry of who makes an object that nobody else has a part of; raises TooDeep."""
    own = seen.without(write.versions.reset(write.api_version))
    fields = difference(union(own.modified, own.added), NEVER_OWNED)
    if is_too_deep(fields):
        raise TooDeep(TOO_DEEP)
    return [entries.entry(write.manager, Owned(write.api_version, fields, now))] if fields else []


@dataclass(slots=True, frozen=True)
class Births:
    """Who owns what of new objects, by their makers and by the names and classes of all that they have.

    Only where their values say nothing of who owns what: items of lists that are owned one by one are named by them.
    """

    _known: dict[Any, tuple[FieldSet, Document]] = field(default_factory=dict)

    def key(self, maker: tuple[str, ...], of_type: Type, live: View, new: View) -> Any:
        """Return by what an object is known, None where it is too large, or more than its kind was there before."""
        if not _NAMED.issuperset(live):
            return None
        room = [limits.SHAPE_MEMBERS]
        try:
            return maker, of_type, _shape(new, room)
        except _TooLarge:
            return None

    def find(self, key: Any, reset: FieldSet, now: str) -> list[Document] | None:
        """Return the entry of a new object's maker, None where it is not known."""
        known = self._known.get(key)
        if known is None or known[0] is not reset:
            return None
        entry = known[1]
        return [{**entry, "time": now, "fieldsV1": {**entry["fieldsV1"]}}]

    def remember(self, key: Any, reset: FieldSet, new: View, found: Sequence[Document]) -> None:
        """Keep the entry of an object's maker."""
        if key is None or len(found) != 1:
            return
        _, of_type, shape = key
        if _length(shape) <= limits.OWNERSHIP_BYTES and _is_settled(of_type, new):
            if len(self._known) >= limits.OWNERSHIPS_SEEN:
                self._known.clear()
            self._known[key] = reset, found[0]


BIRTHS = Births()
_NAMED = frozenset(("apiVersion", "kind"))


class _TooLarge(Exception):
    """An object whose names and classes are not worth remembering."""


def _shape(value: Any, room: list[int]) -> Any:
    """Return the names and classes of all that a map or list has."""
    names, items = ((*value,), value.values()) if value.__class__ is dict else (None, value)
    kinds = (*map(type, items),)
    room[0] -= len(kinds) + 1
    if room[0] < 0:
        raise _TooLarge
    if SIMPLE.issuperset(kinds):
        return names, kinds, ()
    return names, kinds, (*[_shape(one, room) for one in items if one.__class__ in _NESTED],)


_NESTED = frozenset((dict, list))


def _length(shape: Any) -> int:
    """Return how long the names in a shape are together."""
    names, _, below = shape
    return sum(map(len, names or ())) + sum(map(_length, below))


def _is_settled(of: Type, value: Any) -> bool:
    """Tell whether the names and classes of a value say all about who owns what of it."""
    if value.__class__ is list:
        return not value or of.list is None or not of.list.granular
    if value.__class__ is not dict or of.map is None or not of.map.granular:
        return True
    return all(_is_settled(of.map.member(name) or NOTHING, item) for name, item in value.items())


def after(write: Write, live: View, given: Sequence[View], seen: Comparison, now: str) -> list[Document] | None:
    """Return the entries after an update that changes what was ``seen``, None where that has to be worked out.

    ``given`` are the entries to start from. What an update does to sets of paths hangs on nothing but these sets, as
    long as all are of the version written in; the times of others stay.
    """
    if live.get("apiVersion") != write.api_version:
        return None
    try:
        bare = orjson.dumps([{**entry, "time": None} for entry in given])
        changes = orjson.dumps((seen.removed, seen.modified, seen.added))
        reset = orjson.dumps(write.versions.reset(write.api_version))
    except TypeError:  # nested deeper than orjson goes
        return None
    if len(bare) + len(changes) > limits.OWNERSHIP_BYTES:
        return None
    heirs = _after(write.type, write.manager, write.api_version, bare, changes, reset)
    if heirs is None:
        return None
    found = []
    for place, text, anew in heirs:
        entry: Any = given[place] if text is None else orjson.loads(text)
        time = now if anew else given[place].get("time")
        if entry.get("time") != time or not time:
            entry = {**entry, "time": time}
            if not time:
                del entry["time"]
        found.append(entry)
    return found if len(found) == 1 else entries.in_order(found)


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


_Heir = tuple[int, bytes | None, bool]
"""An entry after an update: its place before it (-1: it is new), its text if it has changed, whether it is of now."""


@lru_cache(limits.OWNERSHIPS_SEEN)
def _after(
    of_type: Type, manager: Manager, api_version: str, given: bytes, changes: bytes, reset: bytes
) -> list[_Heir] | None:
    """Return what becomes of the entries; None for what is not so simple."""
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
    places = {one: place for place, one in enumerate(managers)}
    managers, losses = updater.after(write, here, here, managers, Comparison(*orjson.loads(changes)))
    return [
        _heir(entry, listed, places.get(one, -1))
        for one, owned in claimed(write, managers, losses, str(_NOW)).items()
        for entry in entries.encode({one: owned})
    ]


def _heir(entry: Document, listed: Sequence[View], place: int) -> _Heir:
    anew = entry.pop("time") == str(_NOW)
    same = place >= 0 and {**entry, "time": str(place)} == listed[place]
    return place, None if same else orjson.dumps(entry), anew
