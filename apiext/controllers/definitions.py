"""Facts about stored definitions for controllers.

Each revision of a definition is decoded once. The fast paths do not decode the schemas of a large definition.
"""

import hashlib
import logging
import re
from typing import Any

import orjson
from msgspec import Struct
from msgspec.structs import replace

from apiext.crd.conditions import find
from apiext.crd.definition import (
    ESTABLISHED,
    NAMES_ACCEPTED,
    NON_STRUCTURAL,
    CustomResourceDefinition,
    from_document,
)
from apiext.crd.encoding import V1BETA1, check_version, from_stored_form
from apiext.documents.document import View
from apiext.meta.names import GroupResource
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry, Malformed

# Bytes of a spec above which fast paths avoid decoding its schemas.
SPEC_SEARCHED = 32 * 1024

log = logging.getLogger(__name__)

DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")

_OUTLINE = ("group", "scope", "names", "preserveUnknownFields")
_PER_VERSION = frozenset(
    ("names", "version", "versions", "validation", "subresources", "additionalPrinterColumns", "selectableFields")
)
# fields on which watches and tables depend: name in a version → name at the top level of the spec (v1beta1)
_STREAMED = {
    "schema": "validation",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
_NO_SPEC = b'"spec":null'
_MEMBERS = ["apiVersion", "kind", "metadata", "spec", "status"]
_FIRST = frozenset(("group", "names", "scope"))  # fields that every spec has, and that sort before the schemas
_SCHEMAS_OF_SPEC = re.compile(rb',"(?:validation|versions)":')
_PROSE = frozenset(("description", "title", "externalDocs", "example"))
_SCHEMA_MAPS = frozenset(("properties", "patternProperties", "definitions", "dependencies"))
_SCHEMA_LISTS = frozenset(("allOf", "anyOf", "oneOf"))
_SCHEMAS = frozenset(("items", "additionalProperties", "additionalItems", "not", "openAPIV3Schema"))


class Spec(Struct, frozen=True):
    """A stored spec: its outline (the fields in _OUTLINE), its digest, and its position.

    ``position`` is the slice of ``"spec":…`` in the stored bytes if the spec is large, else empty.
    """

    outline: dict[str, Any]
    digest: str
    position: slice


class Facts(Struct, frozen=True):
    """Facts about a stored definition.

    ``outline`` is the definition without versions and conversion. ``digest`` changes with each field on which the
    compiled resource depends. ``suspect`` is false if the stored form shows that a server has found the schema
    structural (CND-007). ``size`` is the number of stored bytes.
    """

    name: str
    revision: int
    outline: CustomResourceDefinition
    finalizers: tuple[str, ...]
    digest: bytes
    size: int
    suspect: bool
    spec: "Spec"

    @property
    def uid(self) -> str:
        """The metadata.uid of the definition."""
        return self.outline.uid

    @property
    def generation(self) -> int:
        """The metadata.generation of the definition."""
        return self.outline.generation

    @property
    def deleting(self) -> bool:
        """True if the definition has a deletionTimestamp."""
        return self.outline.deleting

    @property
    def resource(self) -> GroupResource:
        """The resource that the definition defines."""
        return GroupResource(self.outline.group, self.outline.names.plural)

    @property
    def established(self) -> bool:
        """True if discovery lists the resource (CND-005)."""
        return self.outline.is_true(ESTABLISHED)

    @property
    def served(self) -> bool:
        """True if the server serves the endpoints of the resource (CND-005)."""
        return (self.outline.is_true(NAMES_ACCEPTED) or self.established) and self.name == str(self.resource)

    def reason(self, condition: str) -> str:
        """Return the reason of a condition, "" if the condition or its reason is absent."""
        found = find(self.outline.conditions, condition)
        return str(found.get("reason") or "") if found is not None else ""


class Definitions:
    """The cached definitions, and their facts by name."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self._facts: dict[str, tuple[Entry, Facts | None]] = {}
        self._groups: dict[str, dict[str, None]] = {}

    def start(self) -> None:
        """Subscribe to the collection.

        Call this when it is filled, before other controllers subscribe to it.
        """
        for entry in self.collection.state.readable():
            self._groups.setdefault(group_of(entry.name), {})[entry.name] = None
        self.collection.feed.subscribe(self._changed)

    def entry(self, name: str) -> Entry | None:
        """Return a stored definition; None if it does not exist or is unreadable."""
        try:
            return self.collection.state.get("", name)
        except Malformed:
            return None

    def missing(self, name: str) -> bool:
        """Report whether no definition has this name, not even an unreadable definition."""
        try:
            return self.collection.state.get("", name) is None
        except Malformed:
            return False

    def get(self, name: str) -> Facts | None:
        """Return the facts of a definition; None if it does not exist, or is unreadable or invalid."""
        entry = self.entry(name)
        if entry is None:
            self._facts.pop(name, None)
            return None
        known = self._facts.get(name)
        if known is None or known[0] is not entry:
            known = self._facts[name] = (entry, self.of(entry))
        return known[1]

    def of(self, entry: Entry) -> Facts | None:
        """Return the facts of a definition's entry; None if the definition is invalid."""
        before, facts = self._facts.get(entry.name) or (entry, None)
        if facts is None:
            return read(entry)
        return facts if before is entry else read(entry, before, facts)

    def names(self) -> list[str]:
        """Return the names of all stored definitions that this server could ever read."""
        return [name for group in self._groups.values() for name in group]

    def groups(self) -> list[str]:
        """Return the groups of the definitions in ``names()``."""
        return list(self._groups)

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


def read(entry: Entry, before: Entry | None = None, facts: Facts | None = None) -> Facts | None:
    """Return the facts of a stored definition (v1 or v1beta1); None if it is invalid.

    ``facts`` are the facts of the previous state ``before``. With them, an unchanged spec is not decoded again.
    """
    try:
        if before is not None and facts is not None and (again := _with_same_spec(entry, before, facts)) is not None:
            return again
        return _read_large(entry) or _read(entry, orjson.loads(entry.raw))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("the stored definition %s cannot be read: %s", entry.name, error)
        return None


def _with_same_spec(entry: Entry, before: Entry, facts: Facts) -> Facts | None:
    """Fast path: return the facts of a large definition with an unchanged spec.

    None means: use the slow path.
    """
    raw, text = entry.raw, before.raw[facts.spec.position]
    at = raw.find(text) if text else -1
    if at < 0:
        return None
    document = orjson.loads(b"%b%b%b" % (raw[:at], _NO_SPEC, raw[at + len(text) :]))
    if document.get("spec", "") is not None:  # the bytes that were found are not the spec of the document
        return None
    return _facts(entry, document, replace(facts.spec, position=slice(at, at + len(text))))


def _read_large(entry: Entry) -> Facts | None:
    """Fast path: return the facts of a large definition without decoding its schemas.

    None means: use the slow path. This server stores objects with sorted keys. So validation and versions (an array)
    are the last fields of the spec, and the status follows. If another program stored a schema with keys in another
    order, the digest differs, which at worst causes a needless compilation.
    """
    raw = entry.raw
    start, end = raw.find(b',"spec":{') + 1, raw.rfind(b']},"status":{') + 2
    schemas = _SCHEMAS_OF_SPEC.search(raw, start, end) if start and end - start > SPEC_SEARCHED else None
    if schemas is None:
        return None
    value, cut = start + len(b'"spec":'), schemas.start()
    try:
        document = orjson.loads(raw[:cut] + raw[end - 1 :])
        spec = orjson.loads(raw[value:cut] + b"}")
    except orjson.JSONDecodeError:
        return None
    if [*document] != _MEMBERS or document["spec"] != spec or not spec.keys() >= _FIRST:
        return None
    if orjson.dumps(spec, option=orjson.OPT_SORT_KEYS) != raw[value:cut] + b"}":
        return None
    text = raw[value:end]
    return _facts(entry, document, Spec(_outline(spec), _hash(text), slice(start, end)))


def _outline(spec: View) -> dict[str, Any]:
    return {key: spec[key] for key in _OUTLINE if key in spec}


def _hash(spec: bytes) -> str:
    return hashlib.blake2b(spec, digest_size=16).hexdigest()


def _read(entry: Entry, document: Any) -> Facts:
    spec = document["spec"]
    if not isinstance(spec, dict):
        raise TypeError("its spec is not an object")
    text = orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)
    position = slice(0)
    if len(text) > SPEC_SEARCHED:
        member = b'"spec":' + text
        at = entry.raw.find(member)
        position = slice(at, at + len(member)) if at >= 0 else position
    return _facts(entry, document, Spec(_outline(spec), _hash(text), position))


def _facts(entry: Entry, document: Any, spec: Spec) -> Facts:
    check_version(document)
    metadata, status = document["metadata"], document.get("status") or {}
    outline = from_document({**document, "spec": spec.outline})
    names = outline.names
    outline = replace(  # sets the defaults of fields that a stored definition may omit (CRD-002)
        outline,
        name=entry.name,
        scope=outline.scope or "Namespaced",
        names=replace(
            names, singular=names.singular or names.kind.lower(), list_kind=names.list_kind or f"{names.kind}List"
        ),
    )
    old_form = document.get("apiVersion") == V1BETA1
    checked = {"checked": True} if find(outline.conditions, NON_STRUCTURAL) is not None else {}
    return Facts(
        name=entry.name,
        revision=entry.revision,
        outline=outline,
        finalizers=tuple(metadata.get("finalizers") or ()),
        digest=_digest({"spec": spec.digest, "accepted": status.get("acceptedNames"), "uid": outline.uid, **checked}),
        size=len(entry.raw),
        suspect=not old_form or spec.outline.get("preserveUnknownFields") is not False,
        spec=spec,
    )


def trusted(raw: bytes) -> View | None:
    """Fast path: return the v1 form of stored v1beta1 bytes, without checks of types.

    Call this only for bytes that a server has already decoded with these checks.

    None means: use the slow path.
    """
    try:
        document = orjson.loads(raw)
        return from_stored_form(document) if document["apiVersion"] == V1BETA1 else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def shape(raw: bytes) -> str:
    """Return a digest of spec (without ``names``), accepted names and uid.

    Descriptions in schemas have no effect.
    """
    document = orjson.loads(raw)
    spec = {key: value for key, value in document["spec"].items() if key != "names"}
    for holder in (spec, *(spec.get("versions") or ())):
        for key in ("schema", "validation"):
            if isinstance(holder.get(key), dict):
                holder[key] = _without_prose(holder[key])
    accepted = (document.get("status") or {}).get("acceptedNames")
    return _digest({"spec": spec, "accepted": accepted, "uid": document["metadata"].get("uid")}).hex()


def streams(raw: bytes) -> dict[str, str]:
    """Return version → digest.

    If the digest changes, the open watches of the version must end (SRV-015). The digest covers schema, columns and
    selectable fields of the version, and the fields that all versions share, such as the list of versions. The digest
    also covers the schemas of stored versions, since a watch converts objects with the definition at its start.
    """
    document = orjson.loads(raw)
    spec, status = document["spec"], document.get("status") or {}
    by_version = {version["name"]: _watched_fields(version, spec) for version in spec.get("versions") or ()}
    stored = {version["name"] for version in spec.get("versions") or () if version.get("storage")}
    stored.update(status.get("storedVersions") or ())
    shared = {
        **{key: value for key, value in spec.items() if key not in _PER_VERSION},
        "preserveUnknownFields": bool(spec.get("preserveUnknownFields")),
        "accepted": status.get("acceptedNames"),
        "uid": document["metadata"].get("uid"),
        "stored": {name: by_version[name]["schema"] for name in stored if name in by_version},
        "versions": sorted(by_version),
    }
    return {name: _digest([parts, shared]).hex() for name, parts in by_version.items()}


def _watched_fields(version: View, spec: View) -> dict[str, Any]:
    """Return the fields of a version on which its watches depend.

    A field that the version lacks is taken from the top of the spec.
    """
    return {below: _without_prose(version.get(below, spec.get(above))) for below, above in _STREAMED.items()}


def _without_prose(schema: Any) -> Any:
    """Return a schema without descriptions, titles, examples and external documentation."""
    if not isinstance(schema, dict):
        return schema
    bare: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _PROSE:
            continue
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            bare[key] = {name: _without_prose(inner) for name, inner in value.items()}
        elif key in _SCHEMA_LISTS and isinstance(value, list):
            bare[key] = [_without_prose(inner) for inner in value]
        elif key in _SCHEMAS:
            bare[key] = [_without_prose(inner) for inner in value] if isinstance(value, list) else _without_prose(value)
        else:
            bare[key] = value
    return bare


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
