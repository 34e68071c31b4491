"""Print parts of definitions as upstream prints its internal types in errors (DIS-04).

The internal types have the fields of v1beta1, with the field names of Go.
"""

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Any

from apiext.documents.document import View
from apiext.documents.go_json import FLAG, NUMBER, POINTER, TEXT, Render, by_name, go_json, in_order, many, optional
from apiext.go_types.tables import split, types_of

_TYPES = types_of("apiextensions_v1beta1")
_SCHEMA = "JSONSchemaProps"
_ZERO: Mapping[str, Render] = {"string": TEXT, "bool": FLAG, "int32": NUMBER, "int64": NUMBER, "float": NUMBER}
_INITIALS = {"id": "ID", "url": "URL", "jsonPath": "JSONPath"}
_EXTENSION = "x-kubernetes"
_BEHIND = {"nullable": "type"}
"""Field → the field that it follows in the internal JSONSchemaProps."""


def internal(name: str, value: View) -> dict[str, Any]:
    """Return a value of the type ``name`` with all fields of the internal type.

    The fields have their Go names.
    """
    return {go: show(value.get(field)) for go, field, show in _fields(name)}


@cache
def _fields(name: str) -> tuple[tuple[str, str, Render], ...]:
    """Return (Go name, JSON name, printer) of each field, in the order of the internal type."""
    fields = dict(_TYPES.row(name)["fields"])
    order = [field for field in fields if field not in _BEHIND]
    for field in fields.keys() & _BEHIND.keys():
        order.insert(order.index(_BEHIND[field]) + 1, field)
    return tuple((_go_name(field), field, _render(*split(fields[field])[:2])) for field in order)


def _go_name(field: str) -> str:
    if field.startswith(_EXTENSION):
        return "X" + "".join(part.capitalize() for part in field.removeprefix(_EXTENSION).split("-"))
    name = field.removeprefix("$")
    return _INITIALS.get(name) or name[0].upper() + name[1:]


def _render(name: str, flags: str = "") -> Render:
    if name.endswith("[]"):
        return many(_render(name[:-2]))
    if name.endswith("{}"):
        return by_name(_render(name[:-2]))
    if name in _ZERO:
        return POINTER if flags == "?" else _ZERO[name]
    row = _TYPES.table.get(name)
    if row is None:
        return in_order  # the type JSON has no row, since its values may have any type
    if isinstance(row, str):
        return _render(row, flags)
    if row.get("union"):
        return lambda value: None if value is None else dict(_union(name, value))
    return optional(partial(internal, name)) if flags == "?" else partial(internal, name)


def _union(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (Go name, value) of each field of a union type.

    The fields are ``schema`` and the alternative to a schema. For example, the alternative in JSONSchemaPropsOrArray is
    an array of schemas. A JSONSchemaPropsOrBool with a schema also has ``allows: true``.
    """
    for go, field, show in _fields(name):
        if field == "schema":
            yield go, internal(_SCHEMA, value) if isinstance(value, Mapping) else None
        elif isinstance(value, Mapping):
            yield go, True if field == "allows" else None
        else:
            yield go, show(value)


SCHEMA_FIELDS = tuple((go, name) for go, name, _ in _fields(_SCHEMA))
"""(Go name, JSON name) of each schema field, in Go's order."""


def schema_text(schema: View) -> str:
    """Return the JSON of a schema in its internal form."""
    return go_json(internal(_SCHEMA, schema))


def items_text(items: Any) -> str:
    """Return the JSON of ``items``, a schema or an array of schemas, in its internal form."""
    return go_json(_render("JSONSchemaPropsOrArray", "?")(items))
