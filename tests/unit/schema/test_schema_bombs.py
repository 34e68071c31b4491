"""Expensive schemas and objects: each has a clear result after little work."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace

from apiext.cel import regexes
from apiext.conformance.support.waiting import prompt
from apiext.meta import limits as meta_limits
from apiext.schema import limits as schema_limits
from apiext.schema import rules_of_schema
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors
from apiext.schema.options import STRICT
from apiext.schema.parse import parse
from apiext.schema.report import Reporter
from apiext.schema.validate import passes
from apiext.schema.work_budget import Stopped, WorkBudget, within_budget

pytestmark = pytest.mark.rows("VAL-001", "SCH-014", "STR-010")
SECOND = 1.0


@pytest.fixture(autouse=True)
def _limit_cpu_time() -> Any:
    start = time.process_time()
    yield
    assert time.process_time() - start < 3 * SECOND  # the limit is one second on an idle machine


def _nested_schema(levels: int, leaf: dict[str, Any]) -> dict[str, Any]:
    for _ in range(levels):
        leaf = {"type": "object", "properties": {"a": leaf}}
    return leaf


def _error_texts(schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    return [str(error) for error in compile_schema(schema).validate(document, None)]


def _array_schema(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": {"type": "array", "items": items}}}


def test_deep_schema_with_5000_defaults_is_processed_quickly() -> None:
    leaf = {"type": "object", "properties": {f"p{i}": {"type": "string", "default": "x"} for i in range(5000)}}
    schema = _nested_schema(100, leaf)
    assert definition_errors(schema, "S") == []
    compiled = compile_schema(schema)
    document: dict[str, Any] = {}
    inner = document
    for _ in range(100):
        inner["a"] = {}
        inner = inner["a"]
    assert compiled.normalize(document) == []
    assert len(inner) == 5000
    assert compiled.validate(document, None) == []
    assert not compiled.from_storage(document)


def test_schema_over_the_nesting_limit_is_refused() -> None:
    texts = [str(error) for error in definition_errors(_nested_schema(5000, {"type": "string"}), "S")]
    assert texts == [f"S: Forbidden: must not be nested deeper than {schema_limits.MAX_SCHEMA_NESTING} levels"]


def test_schema_at_the_nesting_limit_is_accepted() -> None:
    schema = _nested_schema((schema_limits.MAX_SCHEMA_NESTING - 1) // 2, {"type": "string"})
    assert definition_errors(schema, "S") == []
    assert compile_schema(schema).normalize({"a": {"b": 1}}) == ["a.b"]


def test_many_list_map_keys_are_checked_quickly() -> None:
    keys = [f"k{number}" for number in range(40_000)]
    items = {"type": "object", "properties": {key: {"type": "string"} for key in keys}, "required": keys}
    node = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items}
    began = time.process_time()
    found = rules_of_schema.map_key_errors({**node, "items": {**items, "required": keys[:-1]}}, "S")
    prompt(time.process_time() - began, 0.5)  # a search in the list would take ten times as long
    assert rules_of_schema.map_key_errors(node, "S") == []
    assert [error.field for error in found] == [f"S.items.properties[{keys[-1]}].default"]


def test_validation_errors_are_limited_by_count_and_bytes() -> None:
    schema = {"type": "object", "properties": {f"p{i}": {"format": "x"} for i in range(20000)}}
    assert len(definition_errors(schema, "S")) == meta_limits.MAX_FIELD_ERRORS + 1
    assert (
        len(_error_texts(_array_schema({"type": "string"}), {"a": [0] * 100_000})) <= meta_limits.MAX_FIELD_ERRORS + 1
    )
    long = _error_texts(
        _array_schema({"type": "string", "enum": [str(i) for i in range(10_000)]}), {"a": ["x"] * 10_000}
    )
    assert sum(map(len, long)) < 2 * meta_limits.MAX_FIELD_ERROR_BYTES
    sets = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "integer"}}
    twice = _error_texts({"type": "object", "properties": {"a": sets}}, {"a": [i // 2 for i in range(20_000)]})
    assert len(twice) == meta_limits.MAX_FIELD_ERRORS + 1


def test_reporter_stops_at_the_byte_limit_of_errors() -> None:
    node = parse(_array_schema({"type": "string", "enum": [str(i) for i in range(10_000)]}))
    found = Reporter("").report(node, {"a": ["x"] * 10_000}, "", None, counted=False)
    assert 1 < len(found.errors) < 100


def test_ratcheted_errors_do_not_count_toward_the_error_limit() -> None:
    texts = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 2}}
    old = {f"k{i}": "long" for i in range(3 * meta_limits.MAX_FIELD_ERRORS)}
    new = {**old, "z1": "long", "z2": "long"}
    schema = compile_schema({"type": "object", "properties": {"m": texts}})
    assert [error.field for error in schema.validate({"m": new}, {"m": old})] == ["m.z1", "m.z2"]


def test_wide_junctor_over_long_list_exhausts_validation_steps() -> None:
    schema = _array_schema({"type": "integer", "anyOf": [{"minimum": i} for i in range(1000, 3000)]})
    texts = _error_texts(schema, {"a": [0] * 100_000})
    assert len(texts) == 1
    assert f"takes more than {schema_limits.MAX_VALIDATION_STEPS} steps" in texts[0]
    assert _error_texts(schema, {"a": [5000] * 100}) == []


def test_nested_junctors_exhaust_validation_steps() -> None:
    inner = {"anyOf": [{"items": {"minimum": 1}} for _ in range(100)]}
    schema = _array_schema({})
    schema["properties"]["a"] = {"x-kubernetes-preserve-unknown-fields": True, "allOf": [inner] * 100}
    assert any("steps" in text for text in _error_texts(schema, {"a": [0] * 10_000}))


def test_defaults_over_the_size_limit_are_refused() -> None:
    schema = _array_schema({"type": "object", "properties": {"b": {"type": "string", "default": "x" * 100_000}}})
    compiled = compile_schema(schema)
    with pytest.raises(ValueError, match="would add more than"):
        compiled.normalize({"a": [{} for _ in range(300_000)]})
    assert compiled.normalize({"a": [{} for _ in range(20)]}) == []


def test_deeply_nested_unknown_values_are_pruned_or_kept() -> None:
    deep: list[Any] = []
    for _ in range(9000):
        deep = [deep]
    compiled = compile_schema(_array_schema({"type": "string"}))
    assert compiled.normalize({"z": deep}) == ["z"]
    assert compiled.normalize({"a": deep}) == []
    assert [error.field for error in compiled.validate({"a": deep}, None)] == ["a[0]"]
    keep = {"x-kubernetes-preserve-unknown-fields": True}
    kept = compile_schema({"type": "object", "properties": {"a": keep}})
    assert kept.normalize({"a": deep}) == []
    assert kept.validate({"a": deep}, None) == []


def test_stored_values_over_the_nesting_limit_are_read() -> None:
    deep: Any = {}
    for _ in range(300):
        deep = {"a": deep}
    keep = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    sets = {"type": "array", "x-kubernetes-list-type": "set", "items": keep}
    members = {"a": {**keep, "default": deep}, "s": sets, "e": {**keep, "x-kubernetes-embedded-resource": True}}
    compiled = compile_schema({"type": "object", "properties": members})
    document: dict[str, Any] = {"e": deep}
    assert compiled.from_storage(document)
    assert document == {"a": deep, "e": deep}
    twice = [str(error) for error in compiled.validate({"s": [{}, {}]}, {"s": [deep, {}]})]
    assert twice == ["s[1]: Duplicate value: {}"]


def test_status_and_default_validation_exhausts_steps() -> None:
    one = {"type": "array", "items": {"type": "integer", "anyOf": [{"minimum": i} for i in range(1000, 3000)]}}
    compiled = compile_schema({"type": "object", "properties": {"status": one}})
    texts = [str(error) for error in compiled.validate_status({"status": [5000] * 1000}, None)]
    assert len(texts) == 1
    assert texts[0].startswith("status: Invalid value: ")
    assert f"takes more than {schema_limits.MAX_VALIDATION_STEPS} steps" in texts[0]
    schema = {"type": "object", "properties": {"a": {**one, "default": [0] * 1000}}}
    texts = [error.body for error in definition_errors(schema, "S")]
    assert any(f"takes more than {schema_limits.MAX_VALIDATION_STEPS} steps" in text for text in texts)


def test_errors_of_embedded_resources_and_maps_are_limited() -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    assert (
        len(_error_texts(_array_schema(embedded), {"a": [{} for _ in range(5000)]})) <= meta_limits.MAX_FIELD_ERRORS + 2
    )
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    found = _error_texts({"type": "object", "properties": {"m": texts}}, {"m": {f"k{n}": n for n in range(20_000)}})
    assert len(found) <= meta_limits.MAX_FIELD_ERRORS + 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -0.0, 1e308, 2**63, 2**64, -(2**63), 10**400])
def test_extreme_numbers_are_validated_without_exception(number: float) -> None:
    bounds = {"minimum": -5, "maximum": 5, "multipleOf": 2}
    members = {
        "i": {"type": "integer", **bounds},
        "n": {"type": "number", **bounds, "multipleOf": 0.1},
        "e": {"x-kubernetes-preserve-unknown-fields": True, "enum": [1, 2.5, "a"]},
        "f": {"type": "number", "format": "float"},
        "z": {"type": "integer", "format": "int32"},
    }
    compiled = compile_schema({"type": "object", "properties": members})
    for name in members:
        errors = compiled.validate({name: number}, None)
        assert bool(errors) == (number != 0 or name == "e") or name == "f"


def test_backtracking_pattern_matches_in_linear_time() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(([a-z0-9]+)*\.)*$"}}}
    assert len(_error_texts(schema, {"a": "a" * 1_000_000 + "!"})) == 1


def test_long_enums_are_checked_quickly() -> None:
    items = {"x-kubernetes-int-or-string": True, "enum": [*range(5000), *map(str, range(5000))]}
    assert _error_texts(_array_schema(items), {"a": [4999] * 100_000 + ["4999"] * 100_000}) == []


def test_field_paths_into_wide_schema_are_checked_quickly() -> None:
    schema = {
        "type": "object",
        "properties": {f"p{i}": {"type": "string"} for i in range(5000)},
        "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".p1"} for _ in range(2000)],
    }
    assert definition_errors(schema, "S") == []


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ([{"rule": "true"}] * 10_000, "must not have more than 2000 x-kubernetes-validations in all"),
        ([{"rule": "true", "messageExpression": f"'{'x' * 90_000}'"}] * 5, "must not be longer than 400000 characters"),
    ],
    ids=["many", "long"],
)
def test_oversized_rules_are_refused_unless_stored(rules: list[dict[str, str]], text: str) -> None:
    began = time.process_time()
    found = definition_errors({"type": "object", "x-kubernetes-validations": rules}, "S")
    assert [text in str(error) for error in found] == [True]
    assert time.process_time() - began < 1
    stored = replace(STRICT, limited_rules=False)
    assert definition_errors({"type": "object", "x-kubernetes-validations": rules}, "S", stored) == []


def test_normalize_reports_the_first_unknown_fields_by_path() -> None:
    compiled = compile_schema(
        {"type": "object", "properties": {"a": _array_schema({"type": "object"})["properties"]["a"]}}
    )
    document = {"a": [{"x": 1} for _ in range(9_000)], **{f"z{number}": 1 for number in range(9_000)}}
    told = compiled.normalize(document)
    everything = [f"a[{number}].x" for number in range(9_000)] + [f"z{number}" for number in range(9_000)]
    assert told == sorted(everything)[:1_000]
    assert document == {"a": [{}] * 9_000}


SLOW = "[^x]{1000}y"
TOO_SLOW = (
    '<nil>: Invalid value: "": matching the texts of the object with patterns may take more than 1000000000 steps, '
    "a step for each byte of a text and each instruction of its pattern"
)


@pytest.mark.parametrize(
    ("text", "node"),
    [
        ("ab" * 700_000, {"pattern": SLOW}),  # once took 15 seconds
        ("ab" * 7_500, {"allOf": [{"pattern": f"{SLOW}{number}"} for number in range(20)]}),
        ("ab" * 7_500, {"anyOf": [{"pattern": f"{SLOW}{number}"} for number in range(20)]}),
    ],
    ids=["one", "all of", "any of"],
)
def test_one_pattern_exhausts_the_steps_of_an_object(text: str, node: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", **node}}}
    assert _error_texts(schema, {"a": text}) == [TOO_SLOW]


def test_patterns_of_one_object_share_the_step_limit() -> None:
    items = {"type": "string", "pattern": SLOW}
    assert _error_texts(_array_schema(items), {"a": ["ab" * 1_000] * 100}) == [TOO_SLOW]
    assert TOO_SLOW not in _error_texts(_array_schema(items), {"a": ["ab" * 1_000] * 10})


@pytest.mark.parametrize("branches", [{"pattern": SLOW}, {"allOf": [{"pattern": SLOW}] * 3}])
def test_string_over_max_length_is_not_matched_to_patterns(branches: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 10, **branches}}}
    compiled = compile_schema(schema)
    assert compiled.validate({"a": "b" * 10}, None) != []
    began = time.process_time()
    assert not passes(compiled.root, {"a": "ab" * 700_000})
    assert time.process_time() - began < 0.5


def test_stopped_budget_ends_validation_between_patterns() -> None:
    budget = WorkBudget()
    budget.stop()
    compiled = compile_schema({"type": "object", "properties": {"a": {"type": "string", "pattern": SLOW}}})
    with pytest.raises(Stopped):
        within_budget(budget, compiled.validate, {"a": "ab" * 1_000}, None)


def test_schema_patterns_share_an_instruction_limit() -> None:
    """The total size of patterns is limited.

    A definition of 31 KB once kept 200 MB, six of them 860 MB.
    """

    def schema(count: int) -> dict[str, Any]:
        fields = {f"p{number}": {"type": "string", "pattern": r"\pL" * 50 + str(number)} for number in range(count)}
        return {"type": "object", "properties": fields}

    assert definition_errors(schema(7), "S") == []
    texts = [str(error) for error in definition_errors(schema(20), "S")]
    assert texts == ["S: Forbidden: must not have patterns with more than 500000 instructions of RE2 in all"]
    stored = replace(STRICT, limited_rules=False)
    assert definition_errors(schema(9), "S", stored) == []


@pytest.mark.parametrize("call", ["self.a.matches(PATTERN)", "matches(self.a, PATTERN)", "self.a.find(PATTERN) == ''"])
def test_rule_patterns_count_toward_the_instruction_limit(call: str) -> None:
    """Patterns in rules count toward the limit on patterns."""

    def schema(count: int) -> dict[str, Any]:
        patterns = [r"r'" + r"\pL" * 50 + f"{number}'" for number in range(count)]
        rules = [{"rule": call.replace("PATTERN", pattern)} for pattern in patterns]
        text = {"type": "string", "maxLength": 10}
        return {"type": "object", "properties": {"a": text}, "required": ["a"], "x-kubernetes-validations": rules}

    assert definition_errors(schema(3), "S") == []
    texts = [str(error) for error in definition_errors(schema(20), "S")]
    assert texts == ["S: Forbidden: must not have patterns with more than 500000 instructions of RE2 in all"]
    same = {f"p{number}": {"type": "string", "pattern": r"\pL" * 50} for number in range(20)}
    assert definition_errors({"type": "object", "properties": same}, "S") == []


def test_pattern_cache_is_bounded_in_bytes() -> None:
    asked: list[str] = []
    programs = regexes.Programs(3_000_000, asked.append)
    large = [r"\pL" * 20 + str(number) for number in range(5)]
    found = [programs.find(pattern) for pattern in large]
    assert programs.size <= 3_000_000
    assert programs.find(large[-1]) is found[-1]
    assert len(asked) == 5
    assert programs.find(large[0]) is not found[0]
    assert all(str(programs.find(f"({number}")).startswith("error") for number in range(3_000))
    assert programs.size <= 3_000_000


def test_patterns_compile_quickly_or_are_too_large() -> None:
    """Patterns compile fast, as RE2 blocks all other threads while it compiles."""
    for pattern in (r"\pL" * 200, r"[\p{L}\p{N}]{1,60}", "[^x]{1000}y", "a?" * 2_000, "(a{0,30}b){30}"):
        began = time.thread_time()
        regexes.compiled(pattern)
        prompt(time.thread_time() - began, 0.3)
    with pytest.raises(regexes.PatternError, match="expression too large"):
        regexes.compiled(r"\pL" * 400)
