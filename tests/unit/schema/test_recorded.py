"""Recorded responses about schemas and values.

The engine returns the same causes and the same pruned objects.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.documents.document import clone
from tests.support.shared import shared
from tests.unit.schema.recordings import (
    DEFINITIONS,
    World,
    body_of,
    causes,
    judged,
    merge,
    replace,
    scenarios,
    warnings,
    without_metadata,
)

FILES = ("crd-schema", "crd-defaults", "crd-parts", "cr-values", "cr-objects", "ratcheting", "crd-rules",
         "cr-rules", "cel-functions")  # fmt: skip
ROWS = [f"SCH-{n:03}" for n in range(1, 15)] + [f"STR-{n:03}" for n in range(1, 13)]
ROWS += ["DEF-001", "DEF-002", "DEF-003", "DIS-01", "DIS-06", "DIS-20"]
ROWS += [f"VAL-{n:03}" for n in range(1, 12)] + ["LST-001", "LST-002", "LST-003"]
ROWS += ["PRU-001", "PRU-002", "PRU-003", "PRU-004", "PRU-005", "PRU-008"]
ROWS += [
    "NUL-001",
    "NUL-002",
    "NUL-003",
    "NUL-004",
    "NUL-007",
    "MET-004",
    "RAT-001",
    "RAT-002",
    "RAT-003",
    "RAT-004",
    "RAT-005",
]
ROWS += ["CEL-001", "CEL-007", "CEL-008", "CEL-009", "CEL-010", "CEL-012", "CEL-015", "DEF-004"]
pytestmark = pytest.mark.rows(*ROWS)


def _recorded_scenarios() -> list[tuple[str, list[dict[str, Any]]]]:
    paths = [shared(f"data/reference/{name}.json") for name in FILES]
    return [scenario for path in paths if path is not None for scenario in scenarios(path)]


RECORDED = _recorded_scenarios()


@pytest.mark.parametrize("steps", [steps for _, steps in RECORDED], ids=[name for name, _ in RECORDED])
def test_recorded_steps_have_recorded_results(steps: list[dict[str, Any]]) -> None:
    """Each step within the engine's scope has the recorded causes, values and warnings."""
    world = World()
    wrong: list[str] = []
    for index, step in enumerate(steps):
        path = step["path"]
        if step["method"] == "GET" or "differs" in step:
            continue
        judge = _definition_fault if path.startswith(DEFINITIONS) else _object_fault
        fault = judge(world, step)
        if fault:
            wrong.append(f"step {index} {step.get('name', '')}: {fault}")
    assert not wrong, "\n".join(wrong)


def _definition_fault(world: World, step: dict[str, Any]) -> str:
    body = body_of(step)
    name = step["path"].removeprefix(DEFINITIONS).strip("/").partition("?")[0]
    if step["method"] == "PATCH" and name in world.definitions and isinstance(body, list):
        body = replace(world.definitions[name], body)
    elif step["method"] not in ("POST", "PUT") or not isinstance(body, dict) or "spec" not in body:
        return ""
    answer = step["answer"]
    if answer["status"] >= 400 and answer["status"] != 422:
        return ""
    expected = {cause for cause in causes(answer) if _is_schema_cause(cause)}
    found = world.judge_definition(body)
    if answer["status"] < 400 and "dryRun" not in step["path"]:
        world.define(body)
    return "" if found == expected else f"\n  expected {sorted(expected)}\n  found    {sorted(found)}"


def _is_schema_cause(cause: tuple[str, str, str]) -> bool:
    _, field, message = cause
    if "status subresource is enabled" in message or field.endswith("openAPIV3Schema.nullable"):
        return False  # validation of the definition, not of the schema
    return "openAPIV3Schema" in field and not message.startswith("Required value: because otherwise")


def _object_fault(world: World, step: dict[str, Any]) -> str:
    found = world.schema_of(step["path"])
    body, answer = body_of(step), step["answer"]
    kind = (step.get("headers") or {}).get("Content-Type", "application/json")
    if found is None or body is None or step["method"] not in ("POST", "PUT", "PATCH") or "yaml" in kind:
        return ""
    schema, is_status = found
    if is_status or answer["status"] not in (200, 201, 422, 400) or "json-patch" in kind:
        return ""
    old = world.objects.get(step["path"].partition("?")[0]) if step["method"] != "POST" else None
    document = merge(old, body) if step["method"] == "PATCH" else clone(body)
    return _validation_fault(world, schema, step, document, old)


def _validation_fault(world: World, schema: Any, step: dict[str, Any], document: Any, old: Any) -> str:
    answer = step["answer"]
    try:
        unknown = schema.normalize(document)
    except ValueError as error:
        message = str((answer.get("body") or {}).get("message"))
        return "" if answer["status"] == 400 and str(error) in message else f"raised {error}"
    if answer["status"] == 400 or any(cause[1] == "patch" for cause in causes(answer)):
        return ""  # strict field validation, or a body that is refused before validation
    found, noted = judged(schema, document, old)
    expected = causes(answer)
    if found != expected:
        return f"\n  expected {sorted(expected)}\n  found    {sorted(found)}"
    given = [text for text in warnings(answer) if "Invalid value" in text]
    if noted != given:
        return f"warnings of rules: expected {given}, found {noted}"
    if "fieldValidation=Ignore" not in step["path"]:
        noted = sorted(f'unknown field "{path}"' for path in unknown)
        given = [text for text in warnings(answer) if text.startswith("unknown field") and '"metadata' not in text]
        if noted != sorted(given):
            return f"warnings: expected {given}, found {noted}"
    if answer["status"] < 400:
        return _storage_fault(world, step, document)
    return ""


def _storage_fault(world: World, step: dict[str, Any], document: Any) -> str:
    if "dryRun" not in step["path"]:
        name = document["metadata"].get("name", "")
        path = step["path"].partition("?")[0]
        world.objects[f"{path}/{name}" if step["method"] == "POST" else path] = document
    shown = step["answer"].get("body")
    if not isinstance(shown, dict) or "compare" in step:
        return ""
    expected, found = without_metadata(shown), without_metadata(document)
    return "" if expected == found else f"\n  expected {expected}\n  found    {found}"
