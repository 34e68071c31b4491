"""Types of built-in kinds, from types/*.yaml.

Each has its Go type, OpenAPI schema, defaults and merge keys.

The text of a field is ``<type><flags> = <number> | <description>``:

- ``<type>`` is a scalar (SCALARS), or a type of the same file, of meta.yaml, or of a file in ``uses``. With ``[]`` at
  the end it is a list, with ``{}`` a map with string keys.
- ``<flags>``: ``?`` is a pointer, which is printed if it is set. ``!`` is always printed. ``?!`` is a pointer that is
  printed as null if it is not set. Without a flag, a field is printed unless it is empty (``omitempty``); a
  struct is always printed. ``&`` is an embedded struct: in JSON, its fields are fields of the outer struct. A field
  without a number changes the description of a field of the embedded struct above it.
- ``<number>`` is the protobuf number.

A type whose entry is a string, such as ``PreemptionPolicy: string``, is a Go name for a scalar, list or map. The words
after the scalar are the values of an enumeration, which OpenAPI publishes; ``''`` is the empty string, and ``'cert
sign'`` is one value.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from threading import RLock
from typing import Any, NamedTuple

from msgspec.structs import replace

from apiext.documents.document import Document, clone
from apiext.documents.strategic_merge import REPLACED
from apiext.go_types import filling
from apiext.go_types.scalars import METADATA, SCHEMA, IntOrText, Quantity, union
from apiext.go_types.sources import KIND, MODEL_FILES, MODELS, PACKAGE, USES, load
from apiext.go_types.typed import INT32, Bool, Bytes, Field, Float, GoType, Integer, Json, List, Map, Struct, Text, Time
from apiext.meta import time

BUILDING = RLock()
"""Lock for building types: a recursive type is in its cache before it has fields, so other threads must wait."""

REFERENCE = "#/components/schemas/"
_SHARED = "meta"
INLINE = "&"
"""Flag of an embedded struct."""
_WORD = re.compile(r"'[^']*'|\S+")
_FIELD = re.compile(r"(?P<type>[^ ?!&]+)(?P<flags>[?!&]*)(?: = (?P<number>\d+))?(?: \| (?P<description>.*))?")

SCALARS: Mapping[str, GoType] = {
    "string": Text(),
    "bool": Bool(),
    "int32": INT32,
    "int64": Integer(),
    "float": Float(),
    "bytes": Bytes(),
    "json": Json(go="runtime.RawExtension"),
    "JSON": Json(),
    "Time": Time(),
    "MicroTime": Time("v1.MicroTime", read=time.normalize_micros),  # with six decimal places of a second
    "IntOrString": IntOrText(),
    "Quantity": Quantity(),
    "MilliQuantity": Quantity(places=3),  # amounts such as cpu; upstream rounds them up to thousandths
    "ObjectMeta": METADATA,
}
_PACKAGES = {"UID": "types"}  # named string → its Go package, if this differs from the package of the file


def _reference(model: str) -> Document:
    return {"allOf": [{"$ref": REFERENCE + model}]}


_QUANTITY = _reference("io.k8s.apimachinery.pkg.api.resource.Quantity")
_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int32": {"type": "integer", "format": "int32"},
    "int64": {"type": "integer", "format": "int64"},
    "float": {"type": "number", "format": "double"},
    "bytes": {"type": "string", "format": "byte"},
    "json": _reference("io.k8s.apimachinery.pkg.runtime.RawExtension"),
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "IntOrString": {
        "x-kubernetes-int-or-string": True,  # CEL uses this; OpenAPI documents use the $ref
        **_reference("io.k8s.apimachinery.pkg.util.intstr.IntOrString"),
    },
    "Quantity": _QUANTITY,
    "MilliQuantity": _QUANTITY,
    "ObjectMeta": _reference("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"),
}


@cache
def types_of(file: str) -> "Types":
    """Return the types of a file; the first call reads the file."""
    return build_types(file, load, types_of)


def build_types(file: str, read: "Callable[[str], dict[str, Any]]", built: "Callable[[str], Types]") -> "Types":
    """Return the types of a file.

    ``read`` returns the content of a file, ``built`` the types of a file in ``uses``.
    """
    own = read(file)
    table = dict(read(_SHARED))
    package, models = own.pop(PACKAGE, "v1"), own.pop(MODELS, "")
    others: dict[str, Types] = {}
    for used in own.pop(USES, ()):
        types = built(used)
        table |= types.table
        if models:  # the types of this file refer to the used types, which are OpenAPI models of their own files
            others |= {**types.others, **dict.fromkeys(types.own, types)}
    others = {name: types for name, types in others.items() if name not in own}
    return Types(table | own, tuple(own), package, models, others)


@cache
def model_files() -> Mapping[str, str]:
    """Return published OpenAPI model → file with its type."""
    found: dict[str, str] = load(MODEL_FILES)
    return found


def model(name: str) -> Document:
    """Return the OpenAPI schema of a published model; it references other models by ``$ref``."""
    return types_of(model_files()[name]).schema(name.rpartition(".")[2])


class FieldText(NamedTuple):
    """The parsed text of a field: ``flags`` is ``?``, ``!``, ``?!``, ``&`` or empty.

    ``number`` is 0 if absent.
    """

    type: str
    flags: str
    number: int
    description: str


@cache
def split(text: str) -> FieldText:
    """Parse the text of a field; raise ValueError for an invalid text."""
    found = _FIELD.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no field: <type><flags> = <number> | <description>")
    return FieldText(found["type"], found["flags"], int(found["number"] or 0), found["description"] or "")


class Types:
    """The types of one file; each Go type is built at its first use."""

    def __init__(
        self,
        table: Mapping[str, Any],
        own: tuple[str, ...] = (),
        package: str = "v1",
        models: str = "",
        others: "Mapping[str, Types] | None" = None,
    ) -> None:
        self.table = table
        self.package = package  # Go package in error messages
        self.own = own  # names of the types that this file defines
        self.models = models  # prefix of the names of OpenAPI models; empty: schemas are inlined, without $ref
        self.others: Mapping[str, Types] = others or {}  # name of a type in another file → the types of that file
        self._flat: dict[str, Mapping[str, Any]] = {}
        self.merge_types: dict[str, Any] = {}  # cache of catalog.merge_types: type → its merge type
        self._structs: dict[str, Struct] = {}
        self._defaults: dict[str, Callable[[Document], None] | None] = {}

    def row(self, name: str) -> Mapping[str, Any]:
        """Return the entry of a struct, merged with the fields of its embedded structs.

        ``required``, ``defaults`` and ``lists`` are merged, too.
        """
        found = self._flat.get(name)
        if found is None:
            found = self._flat[name] = self._with_embedded(self.table[name])
        return found

    def _with_embedded(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        fields: dict[str, str] = {}
        defaults: dict[str, Any] = {}
        required: dict[str, None] = {}
        lists: dict[str, Any] = {}
        special: dict[str, Any] = {}
        within: dict[str, tuple[str, ...]] = {}
        for field, text in row["fields"].items():
            name, flags, *_ = split(text)
            if flags != INLINE:
                fields[field] = text
                continue
            inner = self.row(name)
            fields |= inner["fields"]
            defaults |= inner.get("defaults") or {}
            required |= dict.fromkeys(inner.get("required") or ())
            lists |= inner.get("lists") or {}
            special |= {"fill": inner["fill"]} if "fill" in inner else {}
            within |= {own: (name, *inner["within"].get(own, ())) for own in inner["fields"]}
        return {
            **special,
            **row,
            "fields": fields,
            "defaults": defaults | (row.get("defaults") or {}),
            "required": list(required | dict.fromkeys(row.get("required") or ())),
            "lists": lists | (row.get("lists") or {}),
            "within": within,
        }

    def resolved(self, name: str) -> str:
        """Return the underlying type of a named type: ``string`` for ``UID``."""
        row = self.table.get(name)
        return self.resolved(row.split()[0]) if isinstance(row, str) else name

    def is_struct(self, name: str) -> bool:
        """Report whether this is the name of a struct in the table."""
        return isinstance(self.table.get(name), Mapping)

    # --- Go types ---

    def struct(self, name: str) -> Struct:
        """Return the Go struct of a type."""
        with BUILDING:
            return self._struct(name)

    def _struct(self, name: str) -> Struct:
        found = self._structs.get(name)
        if found is None and name in self.others:
            found = self._structs[name] = self.others[name].struct(name)
        if found is None:
            row = self.row(name)
            holds_empty = row.get("holds_empty", False)
            found = self._structs[name] = Struct(name, {}, package=self.package, holds_empty=holds_empty)
            found.define({field: self._field(text, row, field) for field, text in row["fields"].items()})
        return found

    def root(self, kind: str) -> Struct:
        """Return the Go struct of a kind: the fields of its type, and kind, apiVersion and metadata."""
        own = self.struct(kind).fields
        text = Field(SCALARS["string"])
        fields = {"kind": text, "apiVersion": text, "metadata": Field(METADATA, always=True), **own}
        return Struct(kind, fields, package=self.package)

    def _field(self, text: str, row: Mapping[str, Any], field: str) -> Field:
        name, flags, *_ = split(text)
        type_, pointer = self._type(name), "?" in flags
        return Field(
            type_,
            always="!" in flags or (isinstance(type_, Struct) and not pointer),  # Go always prints a struct
            pointer=pointer,
            within=row["within"].get(field, ()),
            keys=tuple((row.get("lists") or {}).get(field, {}).get("keys", ())),
        )

    def _type(self, name: str) -> GoType:
        if name.endswith("[]"):
            return List(self._type(name[:-2]))
        if name.endswith("{}"):
            return Map(self._type(name[:-2]))
        if name in SCALARS:
            return SCALARS[name]
        row = self.table[name]
        if isinstance(row, str):
            return replace(
                self._type(row.split()[0]), go=f"{_PACKAGES.get(name, self.others.get(name, self).package)}.{name}"
            )  # type: ignore[type-var]  # all of them are Structs
        if row.get("union"):
            return union(name, f"{self.package}.{name}", self.struct(SCHEMA))
        return self.root(name) if KIND in row else self.struct(name)

    # --- OpenAPI ---

    def schema(self, name: str) -> Document:
        """Return the OpenAPI schema of a type."""
        row = self.row(name)
        fields: Mapping[str, str] = row["fields"]
        lists = row.get("lists") or {}
        found: Document = {"description": row["doc"], "type": "object"} if "doc" in row else {"type": "object"}
        if row.get("required"):
            found["required"] = list(row["required"])
        if row.get("atomic"):
            found["x-kubernetes-map-type"] = "atomic"
        found["properties"] = {field: self._property(text, lists.get(field)) for field, text in fields.items()}
        for field, value in (row.get("defaults") or {}).items():
            found["properties"][field]["default"] = clone(value)
        return found

    def _property(self, text: str, semantics: Mapping[str, Any] | None) -> Document:
        name, _, _, description = split(text)
        found = self.shape(name)
        if description:
            found["description"] = description
        if found.get("type") == "array":
            found |= _list_type(semantics or {})
            if "properties" in found["items"]:  # items without properties are a $ref to a model
                for key, value in self.key_defaults(name[:-2], found.get("x-kubernetes-list-map-keys", ())).items():
                    found["items"]["properties"][key].setdefault("default", value)
        elif (semantics or {}).get("atomic") and found.get("format") == "byte":  # a list of bytes in Go
            found["x-kubernetes-list-type"] = "atomic"
        elif (semantics or {}).get("atomic") or (semantics or {}).get("granular"):
            found["x-kubernetes-map-type"] = "atomic" if (semantics or {}).get("atomic") else "granular"
        if strategy := (semantics or {}).get("patch") or ("merge" if "merge" in (semantics or {}) else ""):
            found["x-kubernetes-patch-strategy"] = strategy
        return found

    def shape(self, name: str) -> Document:
        """Return the OpenAPI schema of a field's type.

        It lacks the description and the list type of the field.
        """
        if name.endswith("[]"):
            return {"type": "array", "items": self.shape(name[:-2])}
        if name.endswith("{}"):
            return {"type": "object", "additionalProperties": self.shape(name[:-2])}
        if name in _SCHEMAS:
            return dict(_SCHEMAS[name])
        row = self.table[name]
        if not isinstance(row, str):
            model = row.get("model") or self._model(name)
            return _reference(model) if model else self.schema(name)
        scalar, *values = _WORD.findall(row)
        enum = [value.strip("'") for value in values]
        return {**self.shape(scalar), "enum": enum} if enum else self.shape(scalar)

    def key_defaults(self, item: str, keys: Iterable[str]) -> dict[str, Any]:
        """Return key of a list of type map → value of the key in items that omit the key.

        The value is the default of the key, or the zero value if the key is required or in the list ``zero``. Other
        keys are left out.
        """
        found: dict[str, Any] = {}
        for key in keys:
            row = self.row(item)
            default = (row.get("defaults") or {}).get(key)
            if default is not None:
                found[key] = default
            elif key in (row.get("required") or ()) or key in (row.get("zero") or ()):
                found[key] = "" if self.shape(split(row["fields"][key]).type).get("type") == "string" else 0
        return found

    def _model(self, name: str) -> str:
        """Return the name of the published OpenAPI model of a type, empty if the type has no model."""
        home = self.others.get(name, self)
        return f"{home.models}.{name}" if home.models and name in home.own else ""

    # --- strategic merge ---

    def merge_keys(self, name: str, path: str = "") -> dict[str, str]:
        """Return path of a list → merge key of the list, for strategic merge patches.

        The merge key is empty for a set. The path of a struct that a patch replaces has the value REPLACED.
        """
        found: dict[str, str] = {}
        row = self.row(name)
        lists = row.get("lists") or {}
        for field, text in row["fields"].items():
            here = f"{path}.{field}" if path else field
            inner = split(text).type.removesuffix("[]").removesuffix("{}")
            if "merge" in lists.get(field, {}):
                found[here] = lists[field]["merge"]
            if lists.get(field, {}).get("patch") == "replace":
                found[here] = REPLACED
            if self.is_struct(inner):
                found |= self.merge_keys(inner, here)
        return found

    # --- defaults ---

    def default(self, name: str, document: Document) -> None:
        """Set the defaults of absent fields in place, also in nested structs.

        The zero value of a field that is no pointer counts as absent, as in Go.
        """
        fill = self._filler(name)
        if fill is not None:
            fill(document)

    def _filler(self, name: str) -> Callable[[Document], None] | None:
        if name not in self._defaults:
            others = self.others.get(name)
            self._defaults[name] = self._make_filler(name) if others is None else others._filler(name)
        return self._defaults[name]

    def _make_filler(self, name: str) -> Callable[[Document], None] | None:
        row = self.row(name)
        own = [
            (field, value, "?" in split(row["fields"][field]).flags)
            for field, value in (row.get("defaults") or {}).items()
        ]
        special: Callable[[Document], None] | None = getattr(filling, row["fill"]) if "fill" in row else None
        below: list[tuple[str, bool, Callable[[Document], None]]] = []
        for field, text in row["fields"].items():
            written = split(text).type
            inner = written.removesuffix("[]")
            fill = self._filler(inner) if self.is_struct(inner) else None
            if fill is not None:
                below.append((field, written != inner, fill))
        if not own and not below and special is None:
            return None

        def fill_in(document: Document) -> None:
            if special is not None:
                special(document)
            for field, value, pointer in own:
                found = document.get(field)
                if found is None or not (pointer or found):
                    document[field] = clone(value)
            for field, many, fill in below:
                found = document.get(field)
                for each in (found or ()) if many else (found,):
                    if each is not None:
                        fill(each)

        return fill_in


def _list_type(semantics: Mapping[str, Any]) -> Document:
    """Return the OpenAPI extensions for list types and merge keys.

    kubectl computes patches with them.
    """
    if semantics.get("keys"):
        found: Document = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(semantics["keys"])}
    else:
        found = {"x-kubernetes-list-type": "set" if semantics.get("set") else "atomic"}
    if semantics.get("merge"):
        found["x-kubernetes-patch-merge-key"] = semantics["merge"]
    return found
