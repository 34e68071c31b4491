"""Normalize and validate apiVersion, kind and metadata of embedded resources.

See MET-004, MET-005. An embedded resource is a value whose schema has x-kubernetes-embedded-resource; a node is a part
of the schema.
"""

from collections.abc import Iterator
from typing import Any

from apiext.documents.document import Document
from apiext.meta import objectmeta
from apiext.meta.fields import FieldError, as_many_as_shown, child, invalid, item, required
from apiext.meta.names import parse_group_version
from apiext.meta.syntax import dns1035_label, lower, path_segment
from apiext.schema.structural import Structural, anywhere


class CoerceError(ValueError):
    """The error of an embedded resource whose apiVersion, kind or metadata cannot be decoded."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


_NO_TEXT = "must be a string"
_KIND_TEXT = "may have mixed case, but should otherwise match: "


applies_to = anywhere("embedded", lambda node: node.extensions.embedded)
"""Returns whether the schema declares an embedded resource at or below a node."""


def coerce(
    node: Structural, value: Any, path: str = "", *, drop_invalid: bool = False, root: bool = False
) -> list[str]:
    """Normalize embedded resources at and below a node in place.

    Return the sorted paths of unknown metadata fields. Raise CoerceError with upstream's text if apiVersion, kind,
    metadata or a field of metadata has a wrong type. With ``drop_invalid``, delete the field instead; ``metadata`` that
    is not an object stays unchanged. ``root`` is true if the value is a whole custom object.
    """
    unknown: list[str] = []
    _coerce(node, value, path, drop_invalid, unknown, root)
    return sorted(unknown)


def _coerce(node: Structural, value: Any, path: str, drop: bool, unknown: list[str], root: bool) -> None:
    if not (root or applies_to(node)):
        return
    if isinstance(value, dict):
        if root or node.extensions.embedded:
            _type_meta(value, path, drop)
            if "metadata" in value:
                _metadata(value, path, drop, unknown)
        for name, below, where in _members(node, value, path):
            _coerce(below, value[name], where, drop, unknown, False)
    elif isinstance(value, list) and node.items is not None:
        for index, part in enumerate(value):
            if isinstance(part, (dict, list)):
                _coerce(node.items, part, item(path, index), drop, unknown, False)


def _members(node: Structural, value: Document, path: str) -> Iterator[tuple[str, Structural, str]]:
    """Yield (name, schema, path) of each dict or list whose schema declares embedded resources."""
    for name, part in value.items():
        if isinstance(part, (dict, list)):
            below = node.properties.get(name)
            if below is not None:
                if applies_to(below):
                    yield name, below, child(path, name)
            elif applies_to(node.map_values):
                assert node.map_values is not None
                yield name, node.map_values, item(path, name)


def _type_meta(value: Document, path: str, drop: bool) -> None:
    for name in ("apiVersion", "kind"):
        if name in value and not isinstance(value[name], str):
            if not drop:
                raise CoerceError(invalid(child(path, name), value[name], _NO_TEXT))
            del value[name]


def _metadata(value: Document, path: str, drop: bool, unknown: list[str]) -> None:
    metadata = value["metadata"]
    where = child(path, "metadata")
    try:
        made, extra = objectmeta.coerce(metadata, where)
    except ValueError as error:
        if not drop:
            raise CoerceError(invalid(where, metadata, str(error))) from error
        if isinstance(metadata, dict):
            value["metadata"] = objectmeta.repair(metadata)
        return
    value["metadata"] = made
    unknown.extend(extra)


def errors(node: Structural, value: Any, path: str = "", *, root: bool = False) -> list[FieldError]:
    """Return the errors of embedded resources at and below a node (MET-005).

    The result contains the errors of resources that an update does not change.

    Type errors occur if ``coerce`` was not called before, as for the result of an apply. They also occur if ``coerce``
    with ``drop_invalid`` has left ``metadata`` that is not an object. Return at most one error more than a response
    shows.
    """
    return list(as_many_as_shown(_errors(node, value, path, root)))


def _errors(node: Structural, value: Any, path: str, root: bool) -> Iterator[FieldError]:
    if not (root or applies_to(node)):
        return
    if isinstance(value, dict):
        if root or node.extensions.embedded:
            yield from _resource_errors(value, path)
        for name, below, where in _members(node, value, path):
            yield from _errors(below, value[name], where, False)
    elif isinstance(value, list) and node.items is not None:
        for index, part in enumerate(value):
            if isinstance(part, (dict, list)):
                yield from _errors(node.items, part, item(path, index), False)


def _resource_errors(value: Document, path: str) -> list[FieldError]:
    found = [required(child(path, name)) for name in ("apiVersion", "kind") if name not in value]
    if "apiVersion" in value:
        found += _api_version_errors(value["apiVersion"], child(path, "apiVersion"))
    if "kind" in value:
        found += _kind_errors(value["kind"], child(path, "kind"))
    if "metadata" in value:
        found += _metadata_errors(value["metadata"], child(path, "metadata"))
    return found


def _api_version_errors(text: Any, path: str) -> list[FieldError]:
    if not isinstance(text, str):
        return [invalid(path, text, _NO_TEXT)]
    if not text:
        return [invalid(path, text, "must not be empty")]
    if parse_group_version(text) is None:
        return [invalid(path, text, f"unexpected GroupVersion string: {text}")]
    return []


def _kind_errors(text: Any, path: str) -> list[FieldError]:
    if not isinstance(text, str):
        return [invalid(path, text, _NO_TEXT)]
    if not text:
        return [invalid(path, text, "must not be empty")]
    faults = dns1035_label(lower(text))
    return [invalid(path, text, _KIND_TEXT + ",".join(faults))] if faults else []


def _metadata_errors(metadata: Any, path: str) -> list[FieldError]:
    try:
        made, _ = objectmeta.coerce(metadata, path)
    except ValueError as error:
        return [invalid(path, metadata, str(error))]
    if not made.get("name"):
        # a valid name, since ``validate`` would report a missing name
        made["name"] = "fakename"  # upstream: requires no name in an embedded resource
    return objectmeta.validate(made, bool(made.get("namespace")), path_segment, path)
