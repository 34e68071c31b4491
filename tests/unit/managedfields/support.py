"""Writes to one object of a small kind that has fields of each type."""

from typing import Any

from apiext.documents.document import Document, View, clone
from apiext.managedfields import manager
from apiext.managedfields.fieldset import EMPTY, FieldSet
from apiext.managedfields.manager import Writer
from apiext.managedfields.schemas import merge_type
from apiext.managedfields.types import Type

NOW = "2026-01-01T00:00:00Z"
BASE = {"apiVersion": "g/v1", "kind": "K"}
_NUMBER = {"type": "integer"}
SCHEMA: View = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "a": _NUMBER,
                "b": _NUMBER,
                "text": {"type": "string"},
                "map": {"type": "object", "additionalProperties": _NUMBER},
                "list": {"type": "array", "items": _NUMBER},
                "set": {"type": "array", "x-kubernetes-list-type": "set", "items": _NUMBER},
                "items": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": _NUMBER, "v": _NUMBER}},
                },
                "ports": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["p"],
                    "items": {"type": "object", "properties": {"p": {**_NUMBER, "default": 1}, "n": _NUMBER}},
                },
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
TYPE = merge_type(SCHEMA)


class OneVersion:
    """A resource of one version; ``ignored`` are the fields that its endpoint resets."""

    def __init__(self, ignored: FieldSet = EMPTY) -> None:
        self.ignored = ignored

    def type_of(self, api_version: str) -> Type:
        """Return the type."""
        return TYPE

    def reset(self, api_version: str) -> FieldSet:
        """Return the reset fields of the endpoint."""
        return self.ignored

    def convert(self, document: View, api_version: str, doing: str) -> Document:
        """Return the object, as there is no other version."""
        return dict(document)


def writer(name: str, now: str = NOW, *, subresource: str = "", ignored: FieldSet = EMPTY) -> Writer:
    return Writer(OneVersion(ignored), "g/v1", "K", name, subresource, now)


def configuration(spec: View) -> Document:
    named = {**BASE, "metadata": {"name": "o"}}
    return {**named, "spec": clone(spec)} if spec else named


def applied(live: View | None, name: str, spec: View, *, force: bool = False, now: str = NOW) -> Any:
    """Return the object after an apply."""
    return manager.apply(writer(name, now), live or BASE, configuration(spec), BASE, force=force)[0]


def updated(live: View | None, name: str, spec: View, now: str = NOW) -> Document:
    """Return the object after a PUT, or after a POST if there is no live object."""
    before = live or {**BASE, "metadata": {"name": "o"}}
    new = {**before, "spec": clone(spec)}
    owners = manager.track(writer(name, now), live or BASE, new, creating=live is None)
    kept = {key: value for key, value in before["metadata"].items() if key != "managedFields"}
    new["metadata"] = {**kept, "managedFields": owners} if owners else kept
    return new


def owners_of(document: View) -> dict[str, Any]:
    """Return the fields of each manager."""
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"].get("managedFields", ())}
