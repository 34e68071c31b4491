"""Merge types of built-in kinds for server-side apply, computed from data files.

See SSA-019; upstream: types.go. A merge type (managedfields/types.py) describes the values of a field, and whether
their parts have separate owners.
"""

from collections.abc import Mapping
from typing import Any

from apiext.go_types.scalars import METADATA
from apiext.go_types.sources import KIND
from apiext.go_types.tables import BUILDING, INLINE, Types, split
from apiext.go_types.typed import Bool, Bytes, Float, GoType, Integer, List, Map, Struct, Text, Time
from apiext.managedfields.schemas import OBJECT_META, convert, merge_type, with_meta
from apiext.managedfields.types import ATOMIC, BOOLEAN, DEDUCED, NUMERIC, STRING, UNTYPED, ListType, MapType, Type

_SCALARS: Mapping[type[Any], str] = {
    Text: STRING,
    Bool: BOOLEAN,
    Integer: NUMERIC,
    Float: NUMERIC,
    Bytes: STRING,
    Time: UNTYPED,
}

_QUANTITIES = ("Quantity", "MilliQuantity")
"""Types that are a string or a number in upstream's OpenAPI v3, so their merge type is untyped."""


def go_merge_type(of: GoType) -> Type:
    """Return the merge type of a Go type. The Go type may be recursive."""
    return _of(of, {})


def _of(of: GoType, known: dict[int, Type], keys: tuple[str, ...] = ()) -> Type:
    scalar = _SCALARS.get(of.__class__)
    if scalar is not None:
        return Type(scalar)
    if of is METADATA:
        return OBJECT_META
    if isinstance(of, List):
        return Type(list=ListType(_of(of.item, known), bool(keys), keys, dict.fromkeys(keys, "")))
    if isinstance(of, Map):
        return Type(map=MapType(element=_of(of.item, known)))
    if not isinstance(of, Struct):  # upstream's OpenAPI has no schema for types with their own decoder
        return Type(UNTYPED, ListType(ATOMIC), DEDUCED.map)
    if not of.fields:  # an object without a schema may have any field
        return merge_type({"type": "object"}, preserve_unknown_fields=True)
    found = known.get(id(of))
    if found is None:
        fields: dict[str, Type] = {}
        found = known[id(of)] = Type(map=MapType(fields))
        for name, field in of.fields.items():
            fields[name] = _of(field.type, known, field.keys)
    return found


def table_type(types: Types, kind: str) -> Type:
    """Return the merge type of a kind from its data file.

    Kinds share the merge types of the structs that they use.
    """
    with BUILDING:
        found = _struct(types, kind)
    return found if KIND in types.row(kind) or found.map is None else Type(map=with_meta(found.map))


def _struct(types: Types, name: str) -> Type:
    home = types.others.get(name, types)
    found: Type | None = home.merge_types.get(name)
    if found is not None:
        return found
    row = home.row(name)
    if not row["fields"]:
        made = convert(home.schema(name))
    else:
        fields: dict[str, Type] = {}
        made = Type(map=MapType(fields, granular=not row.get("atomic")))
    home.merge_types[name] = made
    lists: Mapping[str, Any] = row.get("lists") or {}
    for field, text in row["fields"].items():
        written = split(text)
        assert written.flags != INLINE, "rows have the fields of embedded structs"
        fields[field] = _written(home, written.type, lists.get(field) or {})
    if KIND in row and made.map is not None:
        made.map = with_meta(made.map)
    return made


def _written(types: Types, name: str, semantics: Mapping[str, Any]) -> Type:
    """Return the merge type of a field.

    ``semantics`` is the entry of the field in ``lists`` of the data file.
    """
    entry = types.table.get(name)
    if isinstance(entry, str):  # the name is an alias: the entry begins with the name of the type that it stands for
        return _written(types, entry.split()[0], semantics)
    if name.endswith("[]"):
        keys = tuple(semantics.get("keys") or ())
        item = name[:-2]
        granular = bool(keys or semantics.get("set"))
        return Type(list=ListType(_written(types, item, {}), granular, keys, types.key_defaults(item, keys)))
    if name.endswith("{}"):
        return Type(map=MapType(element=_written(types, name[:-2], {}), granular=not semantics.get("atomic")))
    if types.is_struct(name) and not types.table[name].get("union"):
        struct = _struct(types, name)
        if semantics.get("granular") and struct.map is not None:
            return Type(map=MapType(struct.map.fields))
        return struct
    if name == "ObjectMeta":
        return OBJECT_META
    if name in _QUANTITIES:
        return Type(UNTYPED)
    return ATOMIC if name == "json" else convert(types.shape(name))
