"""Delete empty lists and maps in versions, schemas and conversions.

Go omits such lists and maps from JSON (omitempty). The server deletes them after validation.
"""

from typing import Any

from apiext.documents.document import Document, View

_MARKS = (b":[]", b'"properties":{}', b'"patternProperties":{}', b'"definitions":{}', b'"dependencies":{}')
_ONE = ("not", "items", "additionalProperties", "additionalItems")
_LISTS = ("allOf", "anyOf", "oneOf", "items")
_MAPS = ("properties", "patternProperties", "definitions", "dependencies")
_PRINTED_IF_FULL = frozenset(
    ("allOf", "anyOf", "oneOf", *_MAPS, "enum", "required", "x-kubernetes-list-map-keys", "x-kubernetes-validations")
)


def may_hold_empty(raw: bytes) -> bool:
    """Report whether a definition's JSON may contain an empty list or map that Go omits."""
    return any(mark in raw for mark in _MARKS)


def without_empty(document: View) -> Document:
    """Return a v1 or v1beta1 definition without empty lists and maps.

    Those in its versions, schemas and conversion are deleted.
    """
    spec: Document = dict(document["spec"])
    if spec.get("validation"):
        spec["validation"] = clean_holder(spec["validation"])
    if spec.get("versions"):
        spec["versions"] = [_clean_version(version) for version in spec["versions"]]
    if spec.get("conversion"):
        spec["conversion"] = _clean_conversion(spec["conversion"])
    return {**document, "spec": spec}


def _clean_version(version: View) -> Document:
    found = {name: value for name, value in version.items() if value != []}
    if found.get("schema"):
        found["schema"] = clean_holder(found["schema"])
    return found


def _clean_conversion(conversion: View) -> Document:
    """Return a conversion without empty lists, and without a webhook that is then empty."""
    found = {name: value for name, value in conversion.items() if value != []}
    if found.get("webhook"):
        found["webhook"] = {name: value for name, value in found["webhook"].items() if value != []}
        if not found["webhook"]:
            del found["webhook"]
    return found


def clean_holder(holder: View) -> Document:
    """Return the field ``schema`` of a version, or ``validation``, without empty lists and maps.

    Those in its openAPIV3Schema are deleted.
    """
    schema = holder.get("openAPIV3Schema")
    return {**holder, "openAPIV3Schema": _clean(schema)} if schema else dict(holder)


def _clean(schema: Any) -> Any:
    if schema.__class__ is not dict:
        return schema
    found = {name: value for name, value in schema.items() if value or name not in _PRINTED_IF_FULL}
    for name in _ONE:
        if found.get(name).__class__ is dict:
            found[name] = _clean(found[name])
    for name in _LISTS:
        if found.get(name).__class__ is list:
            found[name] = [_clean(part) for part in found[name]]
    for name in _MAPS:
        if found.get(name).__class__ is dict:
            found[name] = {key: _clean(part) for key, part in found[name].items()}
    return found
