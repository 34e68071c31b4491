"""The published schemas of served versions in OpenAPI v3 and v2 (OAS-003…006, OAS-010)."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from apiext.catalog.served import ServedVersion
from apiext.discovery import types
from apiext.documents.document import Document, View
from apiext.documents.strategic_merge import REPLACED
from apiext.go_types.rows import rows
from apiext.go_types.sources import KIND
from apiext.go_types.tables import model, model_files, types_of
from apiext.schema.options import has_invalid_types
from apiext.schema.rules_of_structure import is_structural

V2_PREFIX = "#/definitions/"
V3_PREFIX = "#/components/schemas/"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED = "x-kubernetes-embedded-resource"
_INT_OR_STRING = "x-kubernetes-int-or-string"
_INT_OR_STRING_BRANCHES = [{"type": "integer"}, {"type": "string"}]
_JUNCTORS = ("allOf", "anyOf", "oneOf", "not")
_AS_IS = frozenset(
    (
        "description",
        "type",
        "title",
        "externalDocs",
        "nullable",
        "format",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "multipleOf",
        "enum",
        "maxProperties",
        "minProperties",
        "required",
        "$ref",
        _PRESERVE,
        _EMBEDDED,
        _INT_OR_STRING,
        "x-kubernetes-list-map-keys",
        "x-kubernetes-list-type",
        "x-kubernetes-map-type",
        "x-kubernetes-patch-merge-key",
        "x-kubernetes-patch-strategy",
        "x-kubernetes-validations",
    )
)
_ZERO_COUNTS = frozenset(
    (
        "maximum",
        "minimum",
        "maxLength",
        "minLength",
        "maxItems",
        "minItems",
        "maxProperties",
        "minProperties",
        "multipleOf",
    )
)


def kinds(served: ServedVersion, *, v2: bool) -> dict[str, Document]:
    """Return model name → published schema for all kinds of a version.

    These are the kind itself, its list, and those of its subresources that have no resource of their own.
    """
    found = {types.model_name(served, served.names.kind): object_schema(served, v2=v2)}
    if "list" in served.published.verbs:
        found[types.model_name(served, served.names.list_kind)] = list_schema(served, v2=v2)
    for one in served.endpoints.values():
        model = one.model
        # the model of Scale returns no schema, since Scale is published once for all resources
        known = (model.group, model.version, model.kind) in _with_resource()
        if one.partial and not known and (schema := model.schema()) is not None:
            name = types.typed_model_name(model.group, model.version, model.kind)
            found[name] = _object(schema, v2) | _named(model.group, model.version, model.kind)
    return found


def model_names(served: Iterable[ServedVersion]) -> tuple[str, ...]:
    """Return the sorted names of the models to which the schemas of served versions refer.

    The names include models to which only other models refer, but not the models of the kinds themselves.
    """
    own: set[str] = set()
    todo: set[str] = set()
    for one in served:
        if one.model.typed and one.names.group in _with_models():
            own |= {types.model_name(one, one.names.kind)}
            todo |= types.models_in(one.model.open_api)
    found: set[str] = set()
    while todo:
        found |= todo
        todo = {below for name in todo for below in _models_within(name)} - found
    return tuple(sorted(found - own))


@cache
def _with_resource() -> frozenset[tuple[str, str, str]]:
    """Return (group, version, kind) of all built-in kinds that have a resource."""
    return frozenset((one.group, one.version, one.kind) for row in rows() for one in row.all_versions())


@cache
def _with_models() -> frozenset[str]:
    """Return the groups whose built-in kinds have types in separate models."""
    return frozenset(row.group for row in rows() if types_of(row.types).models)


@cache
def _models_within(name: str) -> frozenset[str]:
    return frozenset(types.models_in(model(name)))


def model_schemas(names: Iterable[str], *, v2: bool) -> dict[str, Document]:
    """Return name → published schema of the models of built-in kinds with these names."""
    found: dict[str, Document] = {}
    for name in names:
        _package, _, kind = name.rpartition(".")
        file = types_of(model_files()[name])
        schema = file.schema(kind)
        found[name] = _object(schema, v2) if KIND in file.row(kind) else _published(schema, v2)
    return found


def object_schema(served: ServedVersion, *, v2: bool) -> Document:
    """Return the published schema of a kind (OAS-003).

    Return only ``type: object`` and x-kubernetes extensions if there is no schema, if the schema of a custom kind is
    not structural or has invalid types, or (in v2) if it preserves unknown fields.
    """
    schema = served.model.open_api
    anything = v2 and (served.published.preserve or (schema or {}).get(_PRESERVE))
    if not schema or anything or not (served.model.typed or _publishable(schema)):
        found: Document = {"type": "object"}  # if this had properties, kubectl would refuse all other fields
    else:
        found = _object(schema, v2)
        _merged(found, served.model.merge_keys)
    return found | _extensions(served, served.names.kind)


def _publishable(schema: View) -> bool:
    return not has_invalid_types([schema]) and is_structural(schema)


def _object(schema: View, v2: bool) -> Document:
    """Return a published schema with the fields that all objects have."""
    found = _published(schema, v2)
    own: Document = {
        "apiVersion": {"description": types.API_VERSION, "type": "string"},
        "kind": {"description": types.KIND, "type": "string"},
        "metadata": _described_reference(types.METADATA, types.OBJECT_META, v2),
    }
    declared = found.get("properties", {})
    properties = declared | own
    # a root that is also marked as an embedded resource has the descriptions of embedded resources
    if _is_embedded(found, v2):
        properties |= {name: declared[name] for name in own}
    return found | {"properties": dict(sorted(properties.items()))}


def list_schema(served: ServedVersion, *, v2: bool) -> Document:
    """Return the published schema of the list of a kind (OAS-006)."""
    item = {"$ref": reference(types.model_name(served, served.names.kind), v2)}
    return {
        "description": f"{served.names.list_kind} is a list of {served.names.kind}",
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"description": types.API_VERSION, "type": "string"},
            "items": {
                "description": f"List of {served.names.resource}. More info: "
                "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
                "type": "array",
                "items": item,
            },
            "kind": {"description": types.KIND, "type": "string"},
            "metadata": _described_reference(types.LIST_METADATA, types.LIST_META, v2),
        },
    } | _extensions(served, served.names.list_kind)


def body_schema(model: str, v2: bool) -> Document:
    """Return the schema of a body: a reference to a model, or a string."""
    return {"type": "string"} if model == types.TEXT else {"$ref": reference(model, v2)}


def reference(model: str, v2: bool) -> str:
    """Return the reference to a model."""
    return (V2_PREFIX if v2 else V3_PREFIX) + model


def _extensions(served: ServedVersion, kind: str) -> Document:
    found = _named(served.names.group, served.names.version, kind)
    fields = [{"fieldPath": path} for path in served.published.selectable if not path.startswith("metadata.")]
    if fields and not served.model.typed:
        found["x-kubernetes-selectable-fields"] = fields
    return found


def _merged(found: Document, keys: Mapping[str, str]) -> None:
    """Add the merge keys of lists for strategic merge patches.

    ``keys`` is dotted path → merge key, "" for a set. Ignore fields in separate models and maps that a patch
    replaces, since their schemas have the patch strategies.
    """
    for path, key in keys.items():
        at: Document | None = found
        for name in path.split("."):
            at = (at or {}).get("items", at or {}).get("properties", {}).get(name)
        if at is None or key == REPLACED:
            continue
        at["x-kubernetes-patch-strategy"] = "merge"
        if key:
            at["x-kubernetes-patch-merge-key"] = key


def _named(group: str, version: str, kind: str) -> Document:
    return {"x-kubernetes-group-version-kind": [{"group": group, "kind": kind, "version": version}]}


def _described_reference(description: str, model: str, v2: bool) -> Document:
    target = {"$ref": reference(model, v2)}
    return {"description": description, **target} if v2 else {"description": description, "allOf": [target]}


def _published(schema: View, v2: bool, in_junctor: bool = False) -> Document:
    """Return the published form of a schema.

    Unknown keywords are dropped. For int-or-string and embedded resources, keywords are added.
    """
    if v2 and (reference := types.reference_in_v2(schema)) is not None:
        return reference
    found: Document = {key: value for key, value in schema.items() if key in _AS_IS and _counts(key, value)}
    if not v2 and schema.get("default") is not None:
        found["default"] = schema["default"]
    if schema.get("example") not in (None, "", [], {}):
        found["example"] = schema["example"]
    _below(found, schema, v2, in_junctor)
    if v2:
        _reduce(found, schema)
    else:
        _unfold(found)
    if _is_embedded(found, v2):
        _embed(found, v2)
    return found


def _is_embedded(found: View, v2: bool) -> bool:
    return bool(found.get(_EMBEDDED)) and not (v2 and found.get(_PRESERVE))


def _counts(key: str, value: Any) -> bool:
    """Report whether Go encodes a value.

    Go omits empty values, but not zero if the field is a pointer.
    """
    if not value and key == "externalDocs":
        return value is not None
    return value is not None and (bool(value) or (key in _ZERO_COUNTS and value == 0 and value is not False))


def _below(found: Document, schema: View, v2: bool, in_junctor: bool) -> None:
    if schema.get("properties"):
        found["properties"] = {name: _published(below, v2, in_junctor) for name, below in schema["properties"].items()}
    if isinstance(schema.get("items"), dict):
        found["items"] = _published(schema["items"], v2, in_junctor)
    # as upstream, additionalProperties are not published below allOf, anyOf, oneOf and not
    values = None if in_junctor else schema.get("additionalProperties")
    if isinstance(values, dict):
        found["additionalProperties"] = _published(values, v2)
    elif values is not None:
        found["additionalProperties"] = values
    if v2:
        return
    for key in _JUNCTORS:
        branches = schema.get(key)
        if isinstance(branches, dict):
            found[key] = _published(branches, v2, in_junctor=True)
        elif branches:
            found[key] = [_published(branch, v2, in_junctor=True) for branch in branches]


def _unfold(found: Document) -> None:
    """Add the standard keywords of an int-or-string: anyOf integer and string (OAS-004)."""
    branches = found.get("allOf", [])
    # in a built-in kind, the referenced type has the standard keywords
    if any("$ref" in branch for branch in branches):
        found.pop(_INT_OR_STRING, None)
        return
    said = [found.get("anyOf"), *(branch.get("anyOf") for branch in branches[:1])]
    if not found.get(_INT_OR_STRING) or _INT_OR_STRING_BRANCHES in said:
        return
    if "anyOf" in found:
        found["allOf"] = [{"anyOf": list(_INT_OR_STRING_BRANCHES)}, *branches]
    else:
        found["anyOf"] = list(_INT_OR_STRING_BRANCHES)


def _reduce(found: Document, schema: View) -> None:
    """Delete keywords that OpenAPI v2 or kubectl's parser of OpenAPI v2 does not support.

    See OAS-005.
    """
    if found.pop("nullable", False):
        for key in ("type", "items", "properties"):
            found.pop(key, None)
    if found.get(_PRESERVE):
        found.pop("items", None)
        found.pop("properties", None)
        if found.get("type") == "object":
            del found["type"]
    if found.get("type") == "array" and "items" not in found:
        del found["type"]
    if "required" not in found:
        return
    properties = schema.get("properties") or {} if "properties" in found else {}
    values = schema.get("additionalProperties")
    nullable = {name for name, below in properties.items() if below.get("nullable")}
    kept = [name for name in found["required"] if name not in nullable]
    if not kept or (isinstance(values, dict) and values.get("nullable")):
        del found["required"]
    else:
        found["required"] = kept


def _embed(found: Document, v2: bool) -> None:
    properties = found.setdefault("properties", {})
    properties["apiVersion"] = {"description": types.EMBEDDED_API_VERSION, "type": "string"}
    properties["kind"] = {"description": types.EMBEDDED_KIND, "type": "string"}
    properties["metadata"] = _described_reference(types.METADATA, types.OBJECT_META, v2)
    required = found.get("required", [])
    found["required"] = [*required, *(name for name in ("kind", "apiVersion") if name not in required)]
