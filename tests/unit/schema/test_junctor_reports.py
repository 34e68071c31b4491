"""Errors inside allOf, anyOf, oneOf and not: only reported errors are built.

The other errors are counted.
"""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from apiext.conformance.support.waiting import prompt
from apiext.meta import limits as meta_limits
from apiext.schema import limits as schema_limits
from apiext.schema.compile import compile_schema

pytestmark = pytest.mark.rows("VAL-003")
_CUT = "<nil>: Invalid value: too many errors: the rest is not shown"


def _error_texts(schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    return [str(error) for error in compile_schema(schema).validate(document, None)]


def _list_schema(**junctor: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"l": {"type": "array", "items": {"type": "string"}}}, **junctor}


def _size_of_values(texts: list[str]) -> int:
    return sum(len(text.partition(": ")[2]) for text in texts)


@pytest.mark.parametrize("junctor", ["anyOf", "oneOf", "allOf"])
def test_long_enums_are_rendered_only_in_reported_errors(junctor: str) -> None:
    words = [f"e{index:08}" for index in range(2_000)]
    count = 4_000
    schema = _list_schema(**{junctor: [{"properties": {"l": {"items": {"enum": words}}}}]})
    began = time.process_time()
    told = _error_texts(schema, {"l": [f"x{index}" for index in range(count)]})
    prompt(time.process_time() - began, 0.4)
    supported = ", ".join(f'"{word}"' for word in words)
    wanted = [f'l[{index}]: Unsupported value: "x{index}": supported values: {supported}' for index in range(count)]
    assert told[-1] == _CUT
    assert [text for text in told[:-1] if " must validate " not in text] == wanted[
        : len(told) - 1 - (junctor != "allOf")
    ]
    assert (
        _size_of_values(told[:-1])
        <= meta_limits.MAX_FIELD_ERROR_BYTES
        < _size_of_values(told[:-1]) + len(supported) + 60
    )


def test_errors_of_a_long_value_stay_within_memory_bound() -> None:
    patterns = [{"properties": {"s": {"pattern": f"q{index}"}}} for index in range(200)]
    schema = {"type": "object", "properties": {"s": {"type": "string"}}, "allOf": patterns}
    compiled = compile_schema(schema)
    document = {"s": "x" * 300_000}
    compiled.validate({"s": ""}, None)
    tracemalloc.start()
    told = [str(error) for error in compiled.validate(document, None)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert told == [
        *(f"s: Invalid value: \"{document['s']}\": s in body should match 'q{index}'" for index in range(3)),
        _CUT,
    ]
    assert peak < 12 * 1024 * 1024


def test_any_of_reports_the_branch_with_most_checks() -> None:
    """The best branch is the branch with most checks, also if only its first errors are built."""
    shallow = {"properties": {"l": {"maxItems": 1}}}
    deep = {"properties": {"l": {"items": {"minLength": 5, "pattern": "^a"}}}}
    for branches in ([shallow, deep], [deep, shallow]):
        told = _error_texts(_list_schema(anyOf=branches), {"l": ["b"] * 3_000})
        assert told[0] == '<nil>: Invalid value: "": "" must validate at least one schema (anyOf)'
        assert told[1] == 'l[0]: Invalid value: "b": l[0] in body should be at least 5 chars long'
        assert told[meta_limits.MAX_FIELD_ERRORS :] == [_CUT]


def test_branches_are_validated_beyond_the_error_limit() -> None:
    """Branches above the limit of errors still count as valid or invalid."""
    branch = {"properties": {"l": {"items": {"enum": ["a"]}}}}
    good = {"properties": {"m": {"type": "string", "pattern": "^a", "enum": ["a"]}}}
    members = {"l": {"type": "array", "items": {"type": "string"}}, "m": {"type": "string"}}
    schema = {"type": "object", "properties": members, "allOf": [branch, {"anyOf": [good]}]}
    told = _error_texts(schema, {"l": ["b"] * 2_000, "m": "a"})
    assert told[meta_limits.MAX_FIELD_ERRORS :] == [_CUT]
    assert told[0] == 'l[0]: Unsupported value: "b": supported values: "a"'
    assert _error_texts(schema, {"l": ["a"] * 2_000, "m": "a"}) == []
    assert len(_error_texts(schema, {"l": ["a"], "m": "b"})) == 4


def test_any_of_with_many_patterns_exhausts_validation_steps() -> None:
    branches = [{"properties": {"l": {"items": {"pattern": f"q{index}"}}}} for index in range(1_000)]
    began = time.process_time()
    told = _error_texts(_list_schema(anyOf=branches), {"l": ["x" * 20_000] * 40})
    prompt(time.process_time() - began, 2.0)
    assert told == [
        '<nil>: Invalid value: "": validating the object against allOf, anyOf, oneOf and not takes more than'
        f" {schema_limits.MAX_VALIDATION_STEPS} steps"
    ]
