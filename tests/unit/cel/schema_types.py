"""Convert structural schemas of rule tables to declared types."""

from typing import Any

from apiext.cel.declared import Declared
from apiext.cel.escaping import escape

REQUEST = 3 * 1024 * 1024


def declare(
    schema: dict[str, Any], root: bool = False, name: str = "selfType", capped: bool = True
) -> tuple[Declared, int] | None:
    """Return the declared type of a schema and the minimum size of its JSON.

    Return None if expressions cannot access it.
    """
    nullable = bool(schema.get("nullable"))
    if schema.get("x-kubernetes-int-or-string"):
        most = schema["maxLength"] * 4 if "maxLength" in schema else REQUEST - 2
        return Declared("int_or_string", max_elements=most, nullable=nullable), 1
    if root:
        schema = with_meta(schema, capped)
    kind = schema.get("type")
    return _KINDS[kind](schema, name, nullable) if kind in _KINDS else None  # type: ignore[no-any-return]


def with_meta(schema: dict[str, Any], capped: bool = True) -> dict[str, Any]:
    """Return a schema with the fields that each object has.

    ``capped`` adds the maximum lengths of names, for estimates.
    """
    properties = dict(schema.get("properties") or {})
    known = (properties.get("metadata") or {}).get("properties") or {}
    if (
        all((properties.get(field) or {}).get("type") == "string" for field in ("kind", "apiVersion"))
        and (properties.get("metadata") or {}).get("type") == "object"
        and all((known.get(field) or {}).get("type") == "string" for field in ("name", "generateName"))
    ):
        return schema
    names = {"name": _name(known, "name", 253), "generateName": _name(known, "generateName", 252)}
    properties |= {
        "kind": {"type": "string"},
        "apiVersion": {"type": "string"},
        "metadata": {"type": "object", "properties": names if capped else {key: {"type": "string"} for key in names}},
    }
    return {**schema, "properties": properties}


def _name(known: dict[str, Any], name: str, most: int) -> dict[str, Any]:
    return {"type": "string", "maxLength": min(most, (known.get(name) or {}).get("maxLength", most))}


def _array(schema: dict[str, Any], name: str, nullable: bool) -> tuple[Declared, int] | None:
    items = schema.get("items")
    if not isinstance(items, dict):
        return None
    inner = declare(items, bool(items.get("x-kubernetes-embedded-resource")), f"{name}.@idx")
    if inner is None:
        return None
    most = max(schema["maxItems"], 0) if "maxItems" in schema else (REQUEST - 2) // (inner[1] + 1)
    kind = schema.get("x-kubernetes-list-type", "atomic")
    keys = tuple(schema.get("x-kubernetes-list-map-keys") or ())
    return Declared("list", element=inner[0], max_elements=most, list_type=kind, list_keys=keys, nullable=nullable), 2


def _object(schema: dict[str, Any], name: str, nullable: bool) -> tuple[Declared, int] | None:
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        inner = declare(extra, bool(extra.get("x-kubernetes-embedded-resource")), f"{name}.@elem")
        if inner is None:
            return None
        most = max(schema["maxProperties"], 0) if "maxProperties" in schema else (REQUEST - 2) // (inner[1] + 6)
        return Declared("map", element=inner[0], max_elements=most, nullable=nullable), 2
    fields, properties, least = {}, {}, 2
    required = schema.get("required") or ()
    for field, prop in (schema.get("properties") or {}).items():
        escaped = escape(field)
        inner = declare(prop, bool(prop.get("x-kubernetes-embedded-resource")), f"{name}.{escaped}")
        if inner is None:
            properties[field] = Declared("preserved", nullable=bool(prop.get("nullable")))
            continue
        properties[field] = inner[0]
        if escaped is not None:
            fields[escaped] = inner[0]
        if field in required and "default" not in prop:
            least += len(field) + inner[1] + 4
    return Declared("object", name, fields, properties, nullable=nullable), least


def _string(schema: dict[str, Any], name: str, nullable: bool) -> tuple[Declared, int]:
    form = schema.get("format")
    longest = schema.get("maxLength")
    if form == "byte":
        return Declared("bytes", max_elements=REQUEST - 2 if longest is None else longest, nullable=nullable), 2
    if form == "duration":
        return Declared("duration", max_elements=32, nullable=nullable), 3
    if form in ("date", "date-time"):
        size = 12 if form == "date" else 32
        return Declared("timestamp", max_elements=size, format=form, nullable=nullable), 12 if form == "date" else 21
    if longest is not None:
        most = longest * 4
    elif schema.get("enum"):
        most = max((len(v.encode()) for v in schema["enum"] if isinstance(v, str)), default=0)
    else:
        most = REQUEST - 2
    return Declared("string", max_elements=most, nullable=nullable), 2


_KINDS: Any = {
    "array": _array,
    "object": _object,
    "string": _string,
    "boolean": lambda s, n, nullable: (Declared("bool", nullable=nullable), 4),
    "number": lambda s, n, nullable: (Declared("double", nullable=nullable), 1),
    "integer": lambda s, n, nullable: (Declared("int", nullable=nullable), 1),
}
