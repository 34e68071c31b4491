"""Types of built-in kinds, from the YAML under types/: Go types, OpenAPI schemas, defaults and merge keys of each.

A field is ``<type> | <description>``. A type is a scalar (SCALARS) or another type of the file or of meta.yaml, then
``[]`` for a list, ``{}`` for a map by text, and last ``?`` for a pointer (shown when given), ``!`` for one that is
always shown or ``?!`` for both (null when not given); all others are shown unless empty. A type that is itself a text
names a scalar, or a list of them, with a Go name of its own, and after it the values that clients are told of, if it is
an enumeration (``''`` is the empty one).
``embedded`` names the structs inside a type in whose name Go tells of some of its fields.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from apiext.catalog.builtin.scalars import IntOrText, Quantity
from apiext.crd.typed import INT32, Bool, Bytes, Field, Float, GoType, Integer, Json, List, Map, Struct, Text, Time
from apiext.crd.types import METADATA
from apiext.documents.document import Document, clone
from apiext.meta import time

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times faster; wheels have it
_SHARED = "meta"

SCALARS: Mapping[str, GoType] = {
    "string": Text(),
    "bool": Bool(),
    "int32": INT32,
    "int64": Integer(),
    "float": Float(),
    "bytes": Bytes(),
    "json": Json(go="runtime.RawExtension"),
    "Time": Time(),
    "MicroTime": Time("v1.MicroTime", read=time.normalize_micros),  # with exactly six digits of a second
    "IntOrString": IntOrText(),
    "Quantity": Quantity(),
    "ObjectMeta": METADATA,
}
_PACKAGES = {"UID": "types"}  # of texts with names of their own, where it is not v1
_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "json": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "IntOrString": {
        "x-kubernetes-int-or-string": True,  # for expressions; documents refer to the type
        "allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}],
    },
    "Quantity": {"type": "string"},
    "ObjectMeta": {"type": "object"},
}


def read_yaml(name: str) -> Any:
    """Return what a YAML file of this package holds."""
    return yaml.load(files(__package__).joinpath(name).read_text(encoding="utf-8"), Loader)


@cache
def types_of(file: str) -> "Types":
    """Return the types of a file, read when first asked for."""
    shared = read_yaml(f"types/{_SHARED}.yaml")
    return Types({**shared, **read_yaml(f"types/{file}.yaml")})


def split(text: str) -> tuple[str, str, str]:
    """Return (type, flags, description) of a field; the flags are ``?``, ``!``, ``?!`` or empty."""
    written, _, description = text.partition("|")
    written = written.strip()
    name = written.rstrip("?!")
    return name, written[len(name) :], description.strip()


class Types:
    """The types of one file; each is built when it is first asked for."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._table = table
        self._structs: dict[str, Struct] = {}
        self._defaults: dict[str, Callable[[Document], None] | None] = {}

    # --- Go types ---

    def struct(self, name: str) -> Struct:
        """Return the Go struct of a type."""
        found = self._structs.get(name)
        if found is None:
            found = self._structs[name] = Struct(name, {})
            row = self._table[name]
            within = {field: struct for struct, fields in (row.get("embedded") or {}).items() for field in fields}
            found.define({field: self._field(text, within.get(field, "")) for field, text in row["fields"].items()})
        return found

    def root(self, kind: str) -> Struct:
        """Return the Go struct of a kind: its type with kind, apiVersion and metadata."""
        own = self.struct(kind).fields
        text = Field(SCALARS["string"])
        return Struct(kind, {"kind": text, "apiVersion": text, "metadata": Field(METADATA, always=True), **own})

    def _field(self, text: str, within: str) -> Field:
        name, flags, _ = split(text)
        type_, pointer = self._type(name), "?" in flags
        return Field(
            type_,
            always="!" in flags or (isinstance(type_, Struct) and not pointer),  # Go never leaves out a struct
            pointer=pointer,
            within=tuple(within.split(".")) if within else (),
        )

    def _type(self, name: str) -> GoType:
        if name.endswith("[]"):
            return List(self._type(name[:-2]))
        if name.endswith("{}"):
            return Map(self._type(name[:-2]))
        if name in SCALARS:
            return SCALARS[name]
        row = self._table[name]
        if isinstance(row, str):
            return replace(self._type(row.split()[0]), go=f"{_PACKAGES.get(name, 'v1')}.{name}")  # type: ignore[type-var]  # all of them are dataclasses
        return self.struct(name)

    # --- OpenAPI ---

    def schema(self, name: str) -> Document:
        """Return the OpenAPI schema of a type, with those that it is made of inside."""
        row = self._table[name]
        fields: Mapping[str, str] = row["fields"]
        lists = row.get("lists") or {}
        found: Document = {"description": row["doc"], "type": "object"}
        if row.get("required"):
            found["required"] = list(row["required"])
        if row.get("atomic"):
            found["x-kubernetes-map-type"] = "atomic"
        found["properties"] = {field: self._property(text, lists.get(field)) for field, text in fields.items()}
        for field, value in (row.get("defaults") or {}).items():
            found["properties"][field]["default"] = clone(value)
        return found

    def _property(self, text: str, semantics: Mapping[str, Any] | None) -> Document:
        name, _, description = split(text)
        found = self._shape(name)
        if description:
            found["description"] = description
        if found.get("type") == "array":
            found |= _list_type(semantics or {})
            _default_keys(found)
        elif (semantics or {}).get("atomic"):
            found["x-kubernetes-map-type"] = "atomic"
        return found

    def _shape(self, name: str) -> Document:
        if name.endswith("[]"):
            return {"type": "array", "items": self._shape(name[:-2])}
        if name.endswith("{}"):
            return {"type": "object", "additionalProperties": self._shape(name[:-2])}
        if name in _SCHEMAS:
            return dict(_SCHEMAS[name])
        row = self._table[name]
        if not isinstance(row, str):
            return self.schema(name)
        scalar, *values = row.split()
        told = ["" if value == "''" else value for value in values]
        return {**self._shape(scalar), "enum": told} if told else self._shape(scalar)

    # --- strategic merge ---

    def merge_keys(self, name: str, path: str = "") -> dict[str, str]:
        """Return the lists of a type that strategic merge patch merges: dotted path → key, empty for a set."""
        found: dict[str, str] = {}
        row = self._table[name]
        lists = row.get("lists") or {}
        for field, text in row["fields"].items():
            here = f"{path}.{field}" if path else field
            inner = split(text)[0].removesuffix("[]").removesuffix("{}")
            if "merge" in lists.get(field, {}):
                found[here] = lists[field]["merge"]
            if isinstance(self._table.get(inner), Mapping):
                found |= self.merge_keys(inner, here)
        return found

    # --- defaults ---

    def default(self, name: str, document: Document) -> None:
        """Fill in, in place, what the tables say of fields that are absent."""
        fill = self._filler(name)
        if fill is not None:
            fill(document)

    def _filler(self, name: str) -> Callable[[Document], None] | None:
        if name not in self._defaults:
            self._defaults[name] = self._make_filler(name)
        return self._defaults[name]

    def _make_filler(self, name: str) -> Callable[[Document], None] | None:
        row = self._table[name]
        own: Mapping[str, Any] = row.get("defaults") or {}
        below: list[tuple[str, bool, Callable[[Document], None]]] = []
        for field, text in row["fields"].items():
            written = split(text)[0]
            inner = written.removesuffix("[]")
            fill = self._filler(inner) if isinstance(self._table.get(inner), Mapping) else None
            if fill is not None:
                below.append((field, written != inner, fill))
        if not own and not below:
            return None

        def fill_in(document: Document) -> None:
            for field, value in own.items():
                if document.get(field) is None:
                    document[field] = clone(value)
            for field, many, fill in below:
                found = document.get(field)
                for each in (found or ()) if many else (found,):
                    if each is not None:
                        fill(each)

        return fill_in


def _list_type(semantics: Mapping[str, Any]) -> Document:
    """Return what a list's schema says of merging; kubectl makes its patches by it."""
    if semantics.get("keys"):
        found: Document = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(semantics["keys"])}
    else:
        found = {"x-kubernetes-list-type": "set" if semantics.get("set") else "atomic"}
    if semantics.get("merge"):
        found["x-kubernetes-patch-merge-key"] = semantics["merge"]
    if "merge" in semantics:
        found["x-kubernetes-patch-strategy"] = "merge"
    return found


def _default_keys(found: Document) -> None:
    """Note the zero values of a list's keys that Go always shows: an item without such a key has that one."""
    for key in found.get("x-kubernetes-list-map-keys", ()):
        shown = found["items"]["properties"][key]
        if key in found["items"].get("required", ()):
            shown.setdefault("default", "" if shown["type"] == "string" else 0)
