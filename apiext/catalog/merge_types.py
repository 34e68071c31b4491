"""Merge types of Go types, from their tables (SSA-019; the markers are those of upstream's Go sources)."""

from collections.abc import Mapping
from typing import Any

from apiext.go_types.scalars import METADATA
from apiext.go_types.typed import Bool, Bytes, Float, GoType, Integer, List, Map, Struct, Text, Time
from apiext.managedfields.schemas import OBJECT_META, merge_type
from apiext.managedfields.types import ATOMIC, BOOLEAN, DEDUCED, NUMERIC, STRING, UNTYPED, ListType, MapType, Type

_SCALARS: Mapping[type[Any], str] = {
    Text: STRING,
    Bool: BOOLEAN,
    Integer: NUMERIC,
    Float: NUMERIC,
    Bytes: STRING,
    Time: UNTYPED,
}


def go_merge_type(of: GoType) -> Type:
    """Return the merge type of a Go type; types that refer to themselves may."""
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
    if not isinstance(of, Struct):  # any JSON, or a type with its own decoder: upstream's OpenAPI says nothing of it
        return Type(UNTYPED, ListType(ATOMIC), DEDUCED.map)
    if not of.fields:  # an object of which nothing is known takes every field
        return merge_type({"type": "object"}, preserve_unknown_fields=True)
    found = known.get(id(of))
    if found is None:
        fields: dict[str, Type] = {}
        found = known[id(of)] = Type(map=MapType(fields))
        for name, field in of.fields.items():
            fields[name] = _of(field.type, known, field.keys)
    return found
