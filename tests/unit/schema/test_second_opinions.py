"""Second opinions: the jsonschema package on the keywords that both know, and JSON-Schema-Test-Suite-like cases."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given

from apiext.conformance.support.cases import Case, case_name, load
from apiext.schema import validate
from apiext.schema.parse import parse
from tests.unit.schema.strategies import VALUES, schemas

# draft 4 has boolean exclusive bounds, as OpenAPI does; that 1.0 is an integer came later
Checker = jsonschema.validators.extend(jsonschema.Draft4Validator, type_checker=jsonschema.Draft6Validator.TYPE_CHECKER)
# where Kubernetes' OpenAPI means something else than JSON Schema, by the name of a case: the reason
DIFFERENT = {
    "null is no object": "null passes only where nullable says so, other types are not asked",
    "a fractional factor of an integer value": "the factor is cut to an integer when the value is one",
    "a null in an enumeration": "null is never one of an enumeration",
}


def _agrees(schema: dict[str, Any], value: Any) -> bool | None:
    """Return the result of the other implementation; None if its meaning differs."""
    if _differs(schema):
        return None
    return bool(Checker(_plain(schema)).is_valid(value))


def _differs(schema: Any) -> bool:
    """Report whether a schema uses a keyword with a meaning of Kubernetes' own."""
    if isinstance(schema, dict):
        return any(name in schema for name in ("enum",)) or any(map(_differs, schema.values()))
    return isinstance(schema, list) and any(map(_differs, schema))


def _plain(schema: Any) -> Any:
    """Return the schema in the other dialect: nullable as a type, no defaults; an absent null is no violation."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: {key: _plain(item) for key, item in value.items()} if name == "properties" else _plain(value)
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
    other = _agrees(schema, value)
    if other is not None:
        assert validate.passes(parse(schema), value) == other


@pytest.mark.rows("VAL-001", "VAL-003", "VAL-004", "VAL-008", "VAL-009")
@pytest.mark.parametrize("case", load(__file__, "suite"), ids=case_name)
def test_suite(case: Case) -> None:
    node = parse(case.schema)
    for value in case.valid or ():
        assert validate.passes(node, value), value
    for value in case.invalid or ():
        assert not validate.passes(node, value), value
    if case.name not in DIFFERENT:
        assert _other_agrees(case)


def _other_agrees(case: Case) -> bool:
    checker = Checker(case.schema)
    return all(map(checker.is_valid, case.valid or ())) and not any(map(checker.is_valid, case.invalid or ()))


def test_every_difference_is_still_one() -> None:
    cases = {case.name: case for case in load(__file__, "suite")}
    assert [name for name in DIFFERENT if _other_agrees(cases[name])] == []
