"""Replay recorded steps with the schema engine, without a server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apiext.documents.document import clone
from apiext.documents.encoding import decode_json
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_TYPE_NAME = re.compile(r"selfType\d+")  # kube-apiserver numbers them by the time
_LONG = re.compile(r"@LONG([0-9]+)@")
_META = ("apiVersion", "kind", "metadata")


def scenarios(path: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield name and steps of each scenario of a file."""
    for scenario in json.loads(path.read_text(encoding="utf-8"))["scenarios"]:
        yield f"{path.stem}: {scenario['name']}", scenario["steps"]


def body_of(step: dict[str, Any]) -> Any:
    """Return the JSON body of a step; None if it has no valid JSON body."""
    text = json.dumps(step["body"]) if "body" in step else step.get("raw")
    if not isinstance(text, str):
        return None
    text = _LONG.sub(lambda match: "a" * int(match[1]), text)
    try:
        return decode_json(text.encode())[0]
    except ValueError:
        return None


def schemas_of(definition: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return path and schema of each version.

    Equal schemas are one entry, with the path of v1beta1 (CRD-005).
    """
    versions = definition["spec"].get("versions") or []
    found = [(version.get("schema") or {}).get("openAPIV3Schema") for version in versions]
    if found and all(schema == found[0] for schema in found):
        return [("spec.validation.openAPIV3Schema", found[0])] if found[0] else []
    return [(f"spec.versions[{index}].schema.openAPIV3Schema", schema) for index, schema in enumerate(found) if schema]


def causes(answer: dict[str, Any]) -> set[tuple[str, str, str]]:
    """Return reason, field and message of each cause."""
    details = (answer.get("body") or {}).get("details") or {}
    return {
        (cause.get("reason", ""), "" if cause["field"] == "<nil>" else cause["field"], cause["message"])
        for cause in details.get("causes") or []
    }


def warnings(answer: dict[str, Any]) -> list[str]:
    """Return the texts of the Warning headers."""
    found = (answer.get("headers") or {}).get("Warning") or []
    return [re.sub(r"\\(.)", r"\1", text.partition('"')[2][:-1]) for text in found]


class World:
    """The definitions and objects that the steps have stored."""

    def __init__(self) -> None:
        self.schemas: dict[tuple[str, str, str], Any] = {}
        self.objects: dict[str, Any] = {}
        self.definitions: dict[str, Any] = {}

    def define(self, definition: dict[str, Any]) -> None:
        """Serve the versions of a definition."""
        spec = definition["spec"]
        self.definitions[definition["metadata"]["name"]] = definition
        for version in spec["versions"]:
            key = (spec["group"], version["name"], spec["names"]["plural"])
            self.schemas[key] = compile_schema((version.get("schema") or {}).get("openAPIV3Schema"))

    def judge_definition(self, definition: dict[str, Any]) -> set[tuple[str, str, str]]:
        """Return the engine's causes for the schemas of a definition."""
        return {
            (error.reason, error.field, _TYPE_NAME.sub("selfType<n>", error.body))
            for path, schema in schemas_of(definition)
            for error in definition_errors(schema, path)
        }

    def schema_of(self, path: str) -> tuple[Any, bool] | None:
        """Return the schema for an object's path, and whether the path is of its status subresource."""
        match = re.match(r"/apis/([^/]+)/([^/]+)/(?:namespaces/[^/]+/)?([^/?]+)(?:/[^/?]+)?(/status)?(?:\?|$)", path)
        found = self.schemas.get((match[1], match[2], match[3])) if match else None
        return (found, bool(match and match[4])) if found else None


def judged(schema: Any, new: Any, old: Any) -> tuple[set[tuple[str, str, str]], list[str]]:
    """Return the causes from values and rules of an object, and the warnings of rules."""
    errors = schema.validate(new, old)
    broken, noted = schema.rules(new, old, errors)
    return {(error.reason, error.field, error.body) for error in [*errors, *broken]}, noted


def without_metadata(document: dict[str, Any]) -> dict[str, Any]:
    """Return all fields except apiVersion, kind and metadata."""
    return {key: value for key, value in document.items() if key not in _META}


def merge(target: Any, patch: Any) -> Any:
    """Return the target with a merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return clone(patch)
    result = clone(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def replace(target: Any, operations: list[dict[str, Any]]) -> Any:
    """Return the target with replace and add operations of a JSON patch applied."""
    result = clone(target)
    for operation in operations:
        *way, last = operation["path"].split("/")[1:]
        place = result
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[int(last) if isinstance(place, list) else last] = clone(operation["value"])
    return result
