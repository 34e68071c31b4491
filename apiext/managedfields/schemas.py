"""Convert the schemas of definitions to merge types.

See SSA-010; upstream: kube-openapi's schemaconv. A merge type (types.py) describes the values of a field and their
owners. An atomic list or object has one owner; a granular one has an owner for each item or field. A deduced type is
found from the value itself, without a schema.
"""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.documents.document import View
from apiext.managedfields.types import ATOMIC, BOOLEAN, DEDUCED, NUMERIC, STRING, UNTYPED, ListType, MapType, Type

PRESERVE = "x-kubernetes-preserve-unknown-fields"
_SCALARS = {"integer": NUMERIC, "number": NUMERIC, "boolean": BOOLEAN}
_PLAIN_FORMATS = ("", "byte")  # upstream: strings of any other format merge like untyped scalars
_TEXT, _NUMBER, _TRUTH, _ANY = Type(STRING), Type(NUMERIC), Type(BOOLEAN), Type(UNTYPED)


def record(fields: Mapping[str, Type], *, granular: bool = True, element: Type | None = None) -> Type:
    """Return the type of an object with these fields."""
    return Type(map=MapType(fields, element, granular))


def list_of(item: Type, *keys: str, is_set: bool = False) -> Type:
    """Return the type of a list: granular if it has keys or is a set, else atomic."""
    return Type(list=ListType(item, bool(keys) or is_set, keys))


_OWNER = record(
    {
        **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT),
        **dict.fromkeys(("controller", "blockOwnerDeletion"), _TRUTH),
    },
    granular=False,
)
_ENTRY = record(
    {
        **dict.fromkeys(("manager", "operation", "apiVersion", "fieldsType", "subresource"), _TEXT),
        "time": _ANY,
        "fieldsV1": Type(map=DEDUCED.map),
    }
)
_STRINGS = record({}, element=_TEXT)
OBJECT_META = record(
    {
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"), _TEXT),
        **dict.fromkeys(("generation", "deletionGracePeriodSeconds"), _NUMBER),
        **dict.fromkeys(("creationTimestamp", "deletionTimestamp"), _ANY),
        **dict.fromkeys(("labels", "annotations"), _STRINGS),
        # upstream: the uid of an owner defaults to the empty string
        "ownerReferences": Type(list=ListType(_OWNER, True, ("uid",), {"uid": ""})),
        "finalizers": list_of(_TEXT, is_set=True),
        "managedFields": list_of(_ENTRY),
    }
)
_TYPE_META = {"apiVersion": _TEXT, "kind": _TEXT}


class _UnknownType(ValueError):
    """The error of a schema with an unknown type, which an old definition may contain."""


def merge_type(schema: View | None, *, preserve_unknown_fields: bool = False) -> Type:
    """Return the merge type of a custom object.

    Without a schema, or if the schema contains an unknown type, the type of each value is deduced from the value.
    """
    if schema is None:
        return Type(map=DEDUCED.map)
    properties = {
        "metadata": {},
        **(schema.get("properties") or {}),
    }  # upstream: the root always has ``properties``, so types of unknown fields are not deduced
    try:
        found = convert({**schema, "properties": properties}, preserve_unknown_fields)
    except _UnknownType:
        return Type(map=DEDUCED.map)  # upstream: a schema that is not structural is ignored
    if found.map is not None:
        found.map = with_meta(found.map)
    return found


def with_meta(type_: MapType) -> MapType:
    """Return the type of an object with apiVersion, kind and metadata."""
    return MapType({**type_.fields, **_TYPE_META, "metadata": OBJECT_META}, type_.element, type_.granular)


def convert(schema: View, preserve: bool = False) -> Type:
    """Return the merge type for values of a schema; raise _UnknownType.

    ``preserve`` is true if a schema around this schema preserves unknown fields.
    """
    preserve = preserve or bool(schema.get(PRESERVE))
    kind = schema.get("type") or ""
    if kind == "object":
        return Type(map=_map(schema, preserve))
    if kind == "array":
        return Type(list=_list(schema, preserve))
    if kind == "string":
        return _TEXT if (schema.get("format") or "") in _PLAIN_FORMATS else _ANY
    if kind in _SCALARS:
        return Type(_SCALARS[kind])
    if kind:
        raise _UnknownType(kind)
    return Type(UNTYPED, _list(schema, preserve), _map(schema, preserve))


def _map(schema: View, preserve: bool) -> MapType:
    properties: Mapping[str, View] = schema.get("properties") or {}
    fields = {name: convert(member, preserve) for name, member in properties.items()}
    additional = schema.get("additionalProperties")
    if additional is None:
        element = DEDUCED if preserve or not properties else None
    elif isinstance(additional, Mapping):
        element = convert(additional, preserve)
    else:
        element = DEDUCED if additional else None
    granular = schema.get("x-kubernetes-map-type") != "atomic"
    type_ = MapType(fields, element, granular, deduced=bool(not fields and element and element.scalar == UNTYPED))
    if schema.get("x-kubernetes-embedded-resource"):
        type_ = with_meta(type_)
    return type_


def _list(schema: View, preserve: bool) -> ListType:
    items: Any = schema.get("items")
    item = convert(items, preserve) if isinstance(items, Mapping) else ATOMIC
    kind = schema.get("x-kubernetes-list-type") or "atomic"
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else ()
    properties: Mapping[str, View] = (items.get("properties") if isinstance(items, Mapping) else None) or {}
    defaults = {key: properties[key]["default"] for key in keys if "default" in properties.get(key, {})}
    return ListType(item, kind != "atomic", keys, defaults)


def lazily(make: Callable[[], Type]) -> Callable[[], Type]:
    """Return a function that calls ``make`` at its first call, caches the type and returns it."""
    made: list[Type] = []

    def get() -> Type:
        if not made:
            made.append(make())
        return made[0]

    return get
