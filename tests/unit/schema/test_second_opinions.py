"""Comparison with the jsonschema package for shared keywords.

There are also cases like those of the JSON-Schema-Test-Suite.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given

from apiext.conformance.support.cases import Case, case_name, load
from apiext.schema import validate
from apiext.schema.parse import parse
from tests.unit.schema.strategies import VALUES, schemas

# draft 4 has boolean exclusive bounds, like OpenAPI; only since draft 6 is 1.0 an integer
Checker = jsonschema.validators.extend(jsonschema.Draft4Validator, type_checker=jsonschema.Draft6Validator.TYPE_CHECKER)
# reasons by name of case, where the meaning of Kubernetes' OpenAPI differs from JSON Schema's
DIFFERENT = {
    "null is no object": "null passes only where nullable says so, other types are not asked",
    "a fractional factor of an integer value": "the factor is cut to an integer when the value is one",
    "a null in an enumeration": "null is never one of an enumeration",
}


def _jsonschema_result(schema: dict[str, Any], value: Any) -> bool | None:
    """Return the result of jsonschema; None if the meaning of a keyword differs."""
    if _has_differing_keyword(schema):
        return None
    return bool(Checker(_to_json_schema(schema)).is_valid(value))


def _has_differing_keyword(schema: Any) -> bool:
    """Report whether a schema uses a keyword with a different meaning in Kubernetes."""
    if isinstance(schema, dict):
        return any(name in schema for name in ("enum",)) or any(map(_has_differing_keyword, schema.values()))
    return isinstance(schema, list) and any(map(_has_differing_keyword, schema))


def _to_json_schema(schema: Any) -> Any:
    """Return the schema as JSON Schema: nullable is a type, and defaults are removed."""
    if isinstance(schema, list):
        return [_to_json_schema(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: {key: _to_json_schema(item) for key, item in value.items()}
        if name == "properties"
        else _to_json_schema(value)
        for name, value in schema.items()
        if name not in ("nullable", "default", "x-kubernetes-preserve-unknown-fields") and value != []
    }
    if "type" not in schema:
        return found
    if not schema.get("nullable"):
        return found
    return {"anyOf": [{"type": "null"}, found]}


@pytest.mark.rows("VAL-001", "VAL-003", "VAL-004")
@given(schemas(), VALUES)
def test_the_jsonschema_package_agrees(schema: dict[str, Any], value: Any) -> None:
    other = _jsonschema_result(schema, value)
    if other is not None:
        assert validate.passes(parse(schema), value) == other


@pytest.mark.rows("VAL-001", "VAL-003", "VAL-004", "VAL-008", "VAL-009")
@pytest.mark.parametrize("case", load(__file__, "suite"), ids=case_name)
def test_json_schema_suite_cases(case: Case) -> None:
    node = parse(case.schema)
    for value in case.valid or ():
        assert validate.passes(node, value), value
    for value in case.invalid or ():
        assert not validate.passes(node, value), value
    if case.name not in DIFFERENT:
        assert _jsonschema_agrees(case)


def _jsonschema_agrees(case: Case) -> bool:
    checker = Checker(case.schema)
    return all(map(checker.is_valid, case.valid or ())) and not any(map(checker.is_valid, case.invalid or ()))


def test_listed_differences_to_jsonschema_still_differ() -> None:
    cases = {case.name: case for case in load(__file__, "suite")}
    assert [name for name in DIFFERENT if _jsonschema_agrees(cases[name])] == []
