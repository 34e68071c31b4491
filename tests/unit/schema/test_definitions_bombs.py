"""Expensive definitions: validation time grows linearly with their size."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.catalog.admission_cel import compiled, environment
from apiext.cel.environment import Program
from apiext.conformance.support.waiting import prompt
from apiext.schema.definitions import definition_errors
from apiext.schema.forms import Forms
from apiext.schema.options import STRICT
from apiext.schema.parse import parse
from apiext.schema.rules_check import Check
from apiext.schema.rules_of_structure import unsupported
from apiext.schema.traverse import subschemas
from apiext.schema.work_budget import BudgetExhausted, WorkBudget, within_loop_budget

pytestmark = pytest.mark.rows("SCH-014", "CEL-018")

_RULE = "x-kubernetes-validations"
_TEXT = {"type": "string"}


def _error_texts(schema: dict[str, Any]) -> list[str]:
    return [str(error) for error in definition_errors(schema, "S")]


def test_field_paths_of_unsupported_schema_are_skipped_quickly() -> None:
    count = 1_000
    rules = [{"rule": "true", "fieldPath": ".nowhere"}] * count
    members = {"z": {"type": "object", "$ref": "x"}, **{f"p{index}": _TEXT for index in range(count)}}
    began = time.process_time()
    told = _error_texts({"type": "object", _RULE: rules, "properties": members})
    assert told == ["S.properties[z].$ref: Forbidden: $ref is not supported"]
    prompt(time.process_time() - began, 0.3)


@pytest.mark.parametrize("wrong", [False, True], ids=["structural", "not structural"])
def test_field_paths_at_nested_levels_are_checked_quickly(wrong: bool) -> None:
    members: dict[str, Any] = {f"p{index}": {**_TEXT, "maxLength": index} for index in range(4_000)}
    if wrong:
        members["z"] = {"type": "object", "$ref": "x"}
    node: dict[str, Any] = {"type": "object", "properties": members}
    for _ in range(100):
        node = {"type": "object", "properties": {"q": node}, _RULE: [{"rule": "true", "fieldPath": ".q"}]}
    began = time.process_time()
    assert len(_error_texts(node)) == wrong
    prompt(time.process_time() - began, 0.8)


def test_field_paths_below_unsupported_nodes_are_checked() -> None:
    rules = [{"rule": "true", "fieldPath": ".b"}]
    inner = {"type": "object", "properties": {"a": _TEXT}, _RULE: rules}
    schema = {"type": "object", "$ref": "x", _RULE: rules, "properties": {"p": inner, "q": inner}}
    wrong = 'x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path'
    assert _error_texts(schema) == [
        "S.$ref: Forbidden: $ref is not supported",
        f"S.properties[p].{wrong}",
        f"S.properties[q].{wrong}",
    ]


_SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([{}, {"type": "string"}, {"$ref": "x"}, None, {"items": [{}]}]),
    lambda below: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), below, max_size=3),
            "items": below,
            "additionalProperties": below | st.booleans(),
            "allOf": st.lists(below, max_size=2),
            "anyOf": st.lists(below, max_size=2),
            "not": below,
            "definitions": st.dictionaries(st.sampled_from("ab"), below, min_size=1, max_size=1),
        },
    ),
    max_leaves=12,
)


@given(_SCHEMAS.filter(bool), st.randoms(use_true_random=False))
def test_forms_equal_separately_parsed_schemas(schema: dict[str, Any], random: Any) -> None:
    forms = Forms()
    nodes = list(subschemas(schema))
    random.shuffle(nodes)
    for node in nodes:
        alone = None if unsupported(node) else parse(node)
        assert forms.of(node) is alone
        assert forms.of(node) is alone


def test_is_broken_is_quick_with_many_broken_nodes() -> None:
    count = 20_000
    rule = {"rule": "self > 1"}
    members = {f"r{index}": {"type": "integer", _RULE: [rule]} for index in range(1_000)}
    check = Check(parse({"type": "object", "properties": members}), "S", [f"S.properties[b{n}]" for n in range(count)])
    began = time.process_time()
    broken = [check._is_broken(f"S.properties[r{index}]") for index in range(1_000)]
    prompt(time.process_time() - began, 0.1)
    assert not any(broken)


@pytest.mark.parametrize(
    ("path", "broken"),
    [("S", True), ("S.a", True), ("S.a.b", True), ("S.a.b.c", False), ("S.a.bc", False), ("S.a-", False), ("S.z", True),
     ("S.zz", False), ("", False), ("S.y", False)],
)  # fmt: skip
def test_is_broken_holds_at_and_above_broken_nodes(path: str, broken: bool) -> None:
    nodes = ["S.z", "S.a.b", "S.a-.b", "S.a-b"]
    for given_nodes, wanted in ((nodes, broken or path == "S.a-"), ([], False)):
        check = Check(parse({"type": "object"}), "S", given_nodes, STRICT)
        assert check._is_broken(path) is wanted


def test_valid_schema_with_long_paths_needs_little_memory() -> None:
    lists = {"type": "array", "items": {"type": "array", "items": {"type": "string", "pattern": "a"}}}
    node: dict[str, Any] = {"type": "object", "properties": {f"a{index}": lists for index in range(1_000)}}
    for _ in range(100):
        node = {"type": "object", "properties": {"p" * 1_000: node}}
    tracemalloc.start()
    assert _error_texts(node) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50 * 1024 * 1024


GROWING = "optional.of(1)" + ".optMap(x, x + 1)" * 7 + ".hasValue()"


def test_rules_of_a_definition_share_the_macro_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apiext.schema.limits.MAX_RULE_COPIES", 2_000)
    told = _error_texts({"type": "object", _RULE: [{"rule": GROWING}] * 4})
    text = "compilation failed: expression size exceeds limit: macros repeat more than 100000 nodes in all rules"
    assert [error.partition(": ")[0] for error in told] == [f"S.{_RULE}[{index}].rule" for index in (2, 3)]
    assert all(error.endswith(text) for error in told), told


@pytest.mark.parametrize("rule", [GROWING, " && ".join(["self == self"] * 20)], ids=["repeated", "long"])
def test_slow_rule_compilation_exhausts_the_loop_budget(rule: str) -> None:
    def rule_errors(rule: str) -> list[str]:
        return _error_texts({"type": "object", _RULE: [{"rule": rule}]})

    assert within_loop_budget(rule_errors, "self == self") == []
    with pytest.raises(BudgetExhausted):
        within_loop_budget(rule_errors, rule)
    with pytest.raises(BudgetExhausted):
        within_loop_budget(compiled, rule.replace("self", "object"), environment())
    assert rule_errors(rule) == []


def test_slow_code_generation_exhausts_the_loop_budget() -> None:
    program = compiled(GROWING, environment())
    assert isinstance(program, Program)
    with pytest.raises(BudgetExhausted):
        WorkBudget(brief=True).evaluate(program, {})
    assert not program.generated
    assert WorkBudget().evaluate(program, {}).value is True
    assert program.generated
