"""What controllers need to know of the stored definitions, read once per revision and without their schemas."""

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from apiext.crd.definition import FINALIZER, Names, names_of
from apiext.meta.names import GroupResource
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry, Malformed

log = logging.getLogger(__name__)

DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")

_PROSE = frozenset(("description", "title", "externalDocs", "example"))
_SCHEMA_MAPS = frozenset(("properties", "patternProperties", "definitions", "dependencies"))
_SCHEMA_LISTS = frozenset(("allOf", "anyOf", "oneOf"))
_SCHEMAS = frozenset(("items", "additionalProperties", "additionalItems", "not", "openAPIV3Schema"))


@dataclass(frozen=True, slots=True)
class Facts:
    """A stored definition as controllers see it; ``digest`` covers everything that serving it depends on."""

    name: str
    revision: int
    uid: str
    generation: int
    group: str
    plural: str
    namespaced: bool
    deleting: bool
    finalizers: tuple[str, ...]
    conditions: Mapping[str, tuple[str, str, str]]  # type → (status, reason, message)
    digest: bytes
    size: int  # bytes stored
    suspect: bool  # its schema may break rules that v1 enforces (CND-007)
    names: Names
    accepted: Names
    annotations: Mapping[str, str]

    @property
    def resource(self) -> GroupResource:
        """The resource that it defines."""
        return GroupResource(self.group, self.plural)

    @property
    def established(self) -> bool:
        """Whether discovery may list it (CND-005)."""
        return self.holds("Established")

    @property
    def served(self) -> bool:
        """Whether its endpoints are served (CND-005)."""
        return (self.holds("NamesAccepted") or self.established) and self.name == str(self.resource)

    def holds(self, condition: str) -> bool:
        """Whether a condition is True."""
        return self.conditions.get(condition, ("", "", ""))[0] == "True"


class Definitions:
    """The stored definitions by name, as the cache has them now."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._facts: dict[str, Facts] = {}
        self._groups: dict[str, dict[str, None]] = {}

    def start(self) -> None:
        """Follow the collection, which is ready; ahead of everybody who asks because of a change."""
        for entry in self.collection.readable():
            self._groups.setdefault(group_of(entry.name), {})[entry.name] = None
        self.collection.subscribe(self._changed)

    def entry(self, name: str) -> Entry | None:
        """Return a stored definition; None when there is none, or it is not JSON."""
        try:
            return self.collection.get("", name)
        except Malformed:
            return None

    def missing(self, name: str) -> bool:
        """Whether there is no such definition, not even one that cannot be read."""
        try:
            return self.collection.get("", name) is None
        except Malformed:
            return False

    def get(self, name: str) -> Facts | None:
        """Return what is known of a definition; None when there is none, or it cannot be read."""
        entry = self.entry(name)
        if entry is None:
            self._facts.pop(name, None)
            return None
        known = self._facts.get(name)
        if known is not None and known.revision == entry.revision:
            return known
        facts = read(entry)
        if facts is None:
            self._facts.pop(name, None)
        else:
            self._facts[name] = facts
        return facts

    def names(self) -> list[str]:
        """Return the names of all stored definitions."""
        return [name for group in self._groups.values() for name in group]

    def groups(self) -> list[str]:
        """Return the groups of all stored definitions."""
        return list(self._groups)

    def of_group(self, group: str) -> list[Facts]:
        """Return the definitions of a group, those that changed longest ago first."""
        found = (self.get(name) for name in self._groups.get(group, ()))
        return sorted((facts for facts in found if facts is not None), key=lambda facts: facts.revision)

    def _changed(self, change: Change) -> None:
        name = change.entry.name
        group = self._groups.setdefault(group_of(name), {})
        if change.kind == "DELETED":
            group.pop(name, None)
            self._facts.pop(name, None)
            if not group:
                del self._groups[group_of(name)]
        else:
            group[name] = None


def group_of(name: str) -> str:
    """Return the group in a definition's name, ``<plural>.<group>`` (CRD-020)."""
    return name.partition(".")[2]


def read(entry: Entry) -> Facts | None:
    """Return the facts of a stored definition in either API version; None when it is not one."""
    try:
        return _read(entry, orjson.loads(entry.raw))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the stored definition %s cannot be read: %s", entry.name, error)
        return None


def _read(entry: Entry, document: Any) -> Facts:
    metadata, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    old_form = document.get("apiVersion") == "apiextensions.k8s.io/v1beta1"
    return Facts(
        name=entry.name,
        revision=entry.revision,
        uid=str(metadata.get("uid", "")),
        generation=int(metadata.get("generation") or 0),
        group=str(spec["group"]),
        plural=str(spec["names"]["plural"]),
        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
        deleting=bool(metadata.get("deletionTimestamp")),
        finalizers=tuple(metadata.get("finalizers") or ()),
        conditions={
            str(one["type"]): (str(one["status"]), str(one.get("reason", "")), str(one.get("message", "")))
            for one in status.get("conditions") or ()
        },
        digest=_digest({"spec": spec, "accepted": status.get("acceptedNames"), "uid": metadata.get("uid")}),
        size=len(entry.raw),
        suspect=not old_form or spec.get("preserveUnknownFields") is not False,
        names=_completed(names_of(spec["names"])),
        accepted=names_of(status.get("acceptedNames")),
        annotations=metadata.get("annotations") or {},
    )


def _completed(names: Names) -> Names:
    """Return the names with those that a stored definition may leave out (CRD-002)."""
    return replace(
        names, singular=names.singular or names.kind.lower(), list_kind=names.list_kind or f"{names.kind}List"
    )


def shape(raw: bytes) -> str:
    """Return a text that changes when open watches must end: anything of the spec but prose, or accepted names."""
    document = orjson.loads(raw)
    spec = {key: value for key, value in document["spec"].items() if key != "names"}
    for holder in (spec, *(spec.get("versions") or ())):
        for key in ("schema", "validation"):
            if isinstance(holder.get(key), dict):
                holder[key] = _bare(holder[key])
    accepted = (document.get("status") or {}).get("acceptedNames")
    return _digest({"spec": spec, "accepted": accepted, "uid": document["metadata"].get("uid")}).hex()


def _bare(schema: Any) -> Any:
    """Return a schema without the texts that only people read."""
    if not isinstance(schema, dict):
        return schema
    bare: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _PROSE:
            continue
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            bare[key] = {name: _bare(inner) for name, inner in value.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            bare[key] = [_bare(inner) for inner in value]
        elif key in _SCHEMAS:
            bare[key] = [_bare(inner) for inner in value] if isinstance(value, list) else _bare(value)
        else:
            bare[key] = value
    return bare


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
