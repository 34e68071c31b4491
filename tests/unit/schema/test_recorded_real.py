"""Definitions and objects of other projects, with recorded results.

The engine returns the recorded results, values and warnings.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from apiext.documents.document import clone
from apiext.documents.yaml_text import decode_yaml
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors, format_warnings
from tests.support.shared import SHARED, shared
from tests.unit.schema.recordings import causes, judged, schemas_of, warnings, without_metadata

pytestmark = pytest.mark.rows("PRU-007", "NUL-005", "VAL-001", "VAL-002", "UPD-009", "STR-001")

_ANSWERS = shared("data/real/answers", 402)
PROJECTS = sorted(path.stem for path in _ANSWERS.glob("*.json")) if _ANSWERS else []
_SAMPLES = ("create-strict-dryrun", "create", "invalid")


@lru_cache(maxsize=64)
def _document(file: str) -> Any:
    return decode_yaml((SHARED / "data/real" / file).read_bytes())[0]


def _steps(scenario: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps about samples, each with the response body that it refers to."""
    steps = scenario["steps"]
    found = []
    for step in steps:
        if step["what"] in _SAMPLES:
            same = step["answer"].get("same")
            body = steps[same]["answer"].get("body") if same is not None else step["answer"].get("body")
            found.append(step | {"answer": step["answer"] | {"body": body}})
    return found


def _body(step: dict[str, Any]) -> dict[str, Any]:
    body = step["body"]
    document: dict[str, Any] = clone(_document(body["object"]))
    for path, value in body.get("set", ()):
        place: Any = document
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = clone(value)
    return document


@pytest.mark.parametrize("project", PROJECTS)
def test_real_definitions_and_samples_match_recordings(project: str) -> None:
    """Accepted definitions are valid; valid and invalid samples have the recorded results."""
    assert _ANSWERS is not None
    wrong: list[str] = []
    for scenario in json.loads(Path(_ANSWERS, f"{project}.json").read_text(encoding="utf-8"))["scenarios"]:
        definition = clone(_document(scenario["file"]))
        wrong += [f"{scenario['crd']}: {fault}" for fault in _definition_faults(scenario, definition)]
        compiled = {
            version["name"]: compile_schema((version.get("schema") or {}).get("openAPIV3Schema"))
            for version in definition["spec"]["versions"]
        }
        stored = next(version["name"] for version in definition["spec"]["versions"] if version["storage"])
        for step in _steps(scenario):
            version = step["path"].split("/")[3]
            if version != stored:
                continue  # the recorded object was stored in the storage version
            has_status = _has_status(definition, version)
            fault = _sample_fault(compiled[version], step, has_status)
            if fault:
                wrong.append(f"{scenario['crd']} {step['what']} {step.get('sample')}: {fault}")
    assert not wrong, "\n".join(wrong)


def _definition_faults(scenario: dict[str, Any], definition: dict[str, Any]) -> list[str]:
    schemas = schemas_of(definition)
    found = [str(error) for path, schema in schemas for error in definition_errors(schema, path)]
    defined = next(step for step in scenario["steps"] if step["what"] == "define")
    expected = [text for text in defined["answer"].get("warnings", ()) if "unrecognized format" in text]
    noted = format_warnings([schema for _, schema in schemas])
    given = sorted(text.partition('"')[2][:-1].replace('\\"', '"') for text in expected)
    return found + ([] if sorted(noted) == given else [f"warnings {noted}, recorded {given}"])


def _has_status(definition: dict[str, Any], name: str) -> bool:
    """Report whether a version has the status subresource, so that creates drop the status."""
    version = next(version for version in definition["spec"]["versions"] if version["name"] == name)
    return "status" in (version.get("subresources") or {})


def _sample_fault(schema: Any, step: dict[str, Any], has_status: bool) -> str:
    answer = step["answer"]
    if answer["status"] not in (201, 422):
        return ""
    document = _body(step)
    if has_status:
        document.pop("status", None)
    recorded = {
        cause for cause in causes(answer) if not (cause[1].startswith("metadata") or "accessor error" in cause[2])
    }
    unknown = schema.normalize(document)
    found, _ = judged(schema, document, None)
    if answer["status"] == 201:
        recorded = set()
    if found != recorded:
        return f"\n  recorded {sorted(recorded)}\n  found    {sorted(found)}"
    if answer["status"] == 201:
        texts = [text for text in _unknown_field_warnings(answer) if '"metadata' not in text]
        if step["what"] == "create" and sorted(f'unknown field "{path}"' for path in unknown) != sorted(texts):
            return f"unknown {unknown}, recorded {texts}"
        shown = without_metadata(answer["body"])
        if shown != without_metadata(document):
            return f"\n  recorded {shown}\n  found    {without_metadata(document)}"
    return ""


def _unknown_field_warnings(answer: dict[str, Any]) -> list[str]:
    given = warnings({"headers": {"Warning": answer.get("warnings", [])}})
    return [text for text in given if text.startswith("unknown field")]
