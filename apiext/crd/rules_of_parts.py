"""Validate parts of a definition, such as names, columns and subresources (CRD-023…039)."""

from collections.abc import Iterator, Sequence
from typing import Any

from apiext.documents.document import View
from apiext.documents.go_json import go_json
from apiext.meta.fields import (
    INVALID,
    FieldError,
    as_many_as_shown,
    child,
    duplicate,
    go_value,
    invalid,
    item,
    required,
    too_many,
)
from apiext.meta.syntax import dns1035_label, lower
from apiext.schema.field_paths import PathError, follow
from apiext.schema.structural import Structural
from apiext.text.characters import is_print

MAX_SELECTABLE = 8  # upstream: MaxSelectableFields
MAX_WARNING = 256  # bytes of a deprecation warning
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_MIXED = "may have mixed case, but should otherwise match: "
_SELECTABLE_TYPES = ("string", "boolean", "integer")
_NOT_SELECTABLE = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
)


def invalid_json(path: str, text: str, detail: str) -> FieldError:
    """Return the error of an invalid value; ``text`` is the JSON of this value."""
    return FieldError(INVALID, path, f"Invalid value: {text}: {detail}")


def name_errors(names: View, path: str) -> Iterator[FieldError]:
    """Yield the errors of names that are set (CRD-023); another check reports missing names."""
    for name, prefix in (("plural", ""), ("singular", ""), ("kind", _MIXED), ("listKind", _MIXED)):
        value = names.get(name) or ""
        faults = dns1035_label(lower(value) if prefix else value) if value else []
        if faults:
            yield invalid(child(path, name), value, prefix + ",".join(faults))
    for name in ("shortNames", "categories"):
        yield from _label_errors(names.get(name) or (), child(path, name))
    kind = names.get("kind")
    if kind and kind == names.get("listKind"):
        yield invalid(child(path, "listKind"), kind, "kind and listKind may not be the same")


def _label_errors(labels: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, label in enumerate(labels):
        faults = dns1035_label(label)
        if faults:
            yield invalid(item(path, index), label, ",".join(faults))


def deprecation_errors(version: View, path: str) -> Iterator[FieldError]:
    """Yield the errors of a version's deprecation warning (CRD-031)."""
    warning = version.get("deprecationWarning")
    if warning is None:
        return
    where = child(path, "deprecationWarning")
    for fault in _warning_faults(warning) if version.get("deprecated") else _NOT_DEPRECATED:
        yield invalid_json(where, go_json(warning), fault)


_NOT_DEPRECATED = ("can only be set for deprecated versions",)


def _warning_faults(warning: str) -> Iterator[str]:
    if len(warning.encode()) > MAX_WARNING:
        yield f"must be <= {MAX_WARNING} characters long"
    if not warning:
        yield "must not be an empty string"
    offset = 0
    for char in warning:
        if not is_print(char):
            text = "must only contain printable UTF-8 characters; non-printable character found at index"
            yield f"{text} {offset}"
            return
        offset += len(char.encode())


def column_errors(columns: Sequence[View], path: str) -> Iterator[FieldError]:
    """Yield the errors of printer columns in the stored form, with ``JSONPath`` as in v1beta1.

    See CRD-032.
    """
    for index, column in enumerate(columns):
        where = item(path, index)
        if not column.get("name"):
            yield required(child(where, "name"))
        kind, form = column.get("type") or "", column.get("format") or ""
        types = f"must be one of {','.join(_COLUMN_TYPES)}"
        if not kind:
            yield required(child(where, "type"), types)
        elif kind not in _COLUMN_TYPES:
            yield invalid(child(where, "type"), kind, types)
        if form and form not in _COLUMN_FORMATS:
            yield invalid(child(where, "format"), form, f"must be one of {','.join(_COLUMN_FORMATS)}")
        yield from _path_errors(column.get("JSONPath") or "", child(where, "JSONPath"), ())


def subresource_errors(subresources: View | None, path: str) -> Iterator[FieldError]:
    """Yield the errors of the paths of the scale subresource (CRD-033)."""
    scale = (subresources or {}).get("scale")
    if scale is None:
        return
    where = child(path, "scale")
    for name, under in (("specReplicasPath", "spec"), ("statusReplicasPath", "status")):
        yield from _path_errors(scale.get(name) or "", child(where, name), (under,))
    selector = scale.get("labelSelectorPath")
    if selector:
        yield from _path_errors(selector, child(where, "labelSelectorPath"), ("spec", "status"), pointer=True)


def _path_errors(text: str, path: str, under: tuple[str, ...], *, pointer: bool = False) -> Iterator[FieldError]:
    if not text:
        yield required(path)
    elif not text.startswith("."):
        yield invalid(path, text, "must be a simple json path starting with .")
    elif under and not text.startswith(tuple(f".{name}." for name in under)):
        known = f".{under[0]}" if len(under) == 1 else " or ".join(f".{name}" for name in under)
        detail = f"should be a json path under {'either ' if len(under) > 1 else ''}{known}"
        # upstream: the value of a pointer is printed as JSON
        # (labelSelectorPath is a pointer in Go, the other paths are strings)
        yield invalid_json(path, go_json(text), detail) if pointer else invalid(path, text, detail)


def selectable_errors(
    fields: Sequence[View], node: Structural, path: str, *, limited: bool = True
) -> Iterator[FieldError]:
    """Yield the errors of selectable fields (CRD-034).

    ``node`` is the schema of the objects. If ``limited`` is true, more than MAX_SELECTABLE fields are an error.
    """
    seen: set[str] = set()
    for index, selectable in enumerate(fields):
        text, where = selectable.get("jsonPath") or "", item(path, index)
        if not text:
            yield required(child(where, "jsonPath"))
            continue
        try:
            found, target = follow(text, node, arrays=False)
        except PathError as fault:
            yield invalid(child(where, "jsonPath"), text, f"is an invalid path: {fault}")
            continue
        if found == "metadata" or found.startswith(("metadata.", "metadata[")):
            yield invalid(child(where, "jsonPath"), text, "must not point to fields in metadata")
        if target.type not in _SELECTABLE_TYPES:
            yield invalid(child(where, "jsonPath"), text, _NOT_SELECTABLE)
        if found in seen:
            yield duplicate(child(where, "jsonPath"), text)
        seen.add(found)
    if limited and len(seen) > MAX_SELECTABLE:
        yield too_many(path, len(seen), MAX_SELECTABLE)


def _missing_versions(versions: Sequence[View], known: dict[str, int]) -> Iterator[str]:
    """Yield the name of each storage version that is not in ``known``.

    Remove the names of all ``versions`` from ``known``.
    """
    for version in versions:
        name = version["name"]
        if version["storage"] and name not in known:
            yield name
        known.pop(name, None)


def stored_version_errors(stored: Any, versions: Sequence[View], path: str) -> Iterator[FieldError]:
    """Yield the errors of ``status.storedVersions`` (CRD-039)."""
    if not stored:
        yield invalid(path, stored, "must have at least one stored version")
        return
    known = {name: index for index, name in enumerate(stored)}
    shown = go_value(list(stored))
    lacking = _missing_versions(versions, known)
    yield from as_many_as_shown(invalid_json(path, shown, f"must have the storage version {name}") for name in lacking)
    for version in versions:
        known.pop(version["name"], None)
    for name, index in known.items():
        text = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions"
            f" until a storage migration ensures no data remains persisted in {name} and removes {name} from"
            " status.storedVersions"
        )
        yield invalid(item(path, index), name, text)
