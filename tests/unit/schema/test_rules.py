"""Rules of schemas: validation of rules, and errors of objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from apiext.cel.limit import PER_CALL_LIMIT
from apiext.conformance.support.cases import Case, case_name, load
from apiext.documents.document import clone
from apiext.meta import fields
from apiext.meta.fields import FieldError
from apiext.schema.cel_types import REQUEST, Types
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors, ratchets, rule_warnings
from apiext.schema.options import STRICT
from apiext.schema.parse import parse
from apiext.schema.rules import Run, scope_of
from apiext.schema.work_budget import Stopped, WorkBudget, within_budget

ROOT = "spec.validation.openAPIV3Schema"


def table(name: str) -> Any:
    """Return a mark that parametrizes a test with a table."""
    return pytest.mark.parametrize("case", load(__file__, name), ids=case_name)


@pytest.mark.rows(
    "CEL-002", "CEL-003", "CEL-004", "CEL-005", "CEL-006", "CEL-008", "CEL-009", "CEL-010", "CEL-015", "CEL-016",
    "CEL-020", "RAT-003", "DIS-02",
)  # fmt: skip
@table("rules")
def test_object_rules_give_expected_errors_and_warnings(case: Case) -> None:
    compiled = compile_schema(case.schema)
    others = [FieldError(reason, "x", "broken") for reason in case.others or ()]
    for _ in range(2):  # the second run uses cached state
        errors, warnings = compiled.rules(case.new, case.old, others)
        assert [str(error) for error in errors] == (case.errors or [])
        assert warnings == (case.warnings or [])


def _in_spec(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": schema}}


@pytest.mark.rows(
    "CEL-001", "CEL-007", "CEL-008", "CEL-011", "CEL-012", "CEL-013", "DIS-03", "DIS-04", "DIS-13", "DIS-19",
    "DEF-004", "UPD-003",
)  # fmt: skip
@table("rules_definition")
def test_definition_rules_give_expected_errors_and_warnings(case: Case) -> None:
    schema, place = _in_spec(case.schema), f"{ROOT}.properties[spec]"
    options = ratchets([_in_spec(case.old)]) if case.old else STRICT
    found = [str(error) for error in definition_errors(schema, ROOT, options)]
    wanted = [text.replace("P.", f"{place}.").replace("ROOT:", f"{ROOT}:") for text in case.errors or ()]
    assert found == wanted
    if not found:
        assert rule_warnings(schema, ROOT, options) == [text.replace("P.", f"{place}.") for text in case.warnings or ()]


@pytest.mark.rows("UPD-003")
def test_unlimited_options_accept_rules_over_the_cost_limit() -> None:
    rule = {"rule": "self.all(x, self.all(y, x == y && x == y))", "message": "m"}
    items = {"type": "string", "maxLength": 100}
    schema = _in_spec({"type": "array", "maxItems": 1000, "items": items, "x-kubernetes-validations": [rule]})
    reasons = [error.body[:30] for error in definition_errors(schema, ROOT)]
    assert reasons == ["Forbidden: estimated rule cost"]
    assert definition_errors(schema, ROOT, replace(STRICT, limited_rules=False)) == []


@pytest.mark.rows("CEL-010", "CEL-011")
def test_one_rule_evaluation_has_a_cost_limit() -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [
        {"rule": "self.all(x, self.all(y, x > y || true))", "message": "quadratic"}, {"rule": "false"}
    ]}  # fmt: skip
    run = Run()
    scope = scope_of(parse({"type": "object", "properties": {"l": schema}}))
    assert scope is not None
    run.visit(scope, {"l": list(range(700))}, None)
    assert [str(error) for error in run.errors] == [
        "l: Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules"
        " will be run due to call cost exceeds limit for rule: quadratic"
    ]
    assert run.budget < 0


@pytest.mark.rows("CEL-010", "CEL-011")
def test_all_rule_evaluations_share_a_cost_budget() -> None:
    items = {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= 0 && self < 100"}]}
    scope = scope_of(parse({"type": "object", "properties": {"l": {"type": "array", "items": items}}}))
    assert scope is not None
    run = Run(20)
    run.visit(scope, {"l": [1, 2, 3, 4, 5, 6, 7]}, None)
    assert [str(error) for error in run.errors] == [
        'l[5]: Invalid value: "integer": validation failed due to running out of cost budget, no further validation'
        " rules will be run"
    ]
    assert run.budget < 0
    assert PER_CALL_LIMIT == 1_000_000


@pytest.mark.rows("CEL-009", "CEL-010", "CEL-011")
def test_message_expressions_count_toward_cost_limits() -> None:
    quadratic = "self.all(x, self.all(y, x >= y || true)) ? 'a' : 'b'"
    broken = [{"rule": "false", "messageExpression": quadratic}, {"rule": "1 > 2"}]
    array = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": broken}
    schema = {"type": "object", "properties": {"m": {"type": "object", "additionalProperties": array}}}
    scope = scope_of(parse(schema))
    assert scope is not None
    run = Run()
    run.visit(scope, {"m": {"a": list(range(700)), "b": [1]}}, None)
    assert [str(error) for error in run.errors] == [
        'm[a]: Invalid value: "array": no further validation rules will be run due to call cost exceeds limit for'
        f' messageExpression: "{quadratic}"'
    ]
    run = Run(100)
    run.visit(scope, {"m": {"a": [1, 2, 3, 4, 5], "b": [1]}}, None)
    assert [str(error) for error in run.errors] == [
        'm[a]: Invalid value: "array": messageExpression evaluation failed due to running out of cost budget, no'
        " further validation rules will be run"
    ]


def test_stopped_budget_prevents_rule_evaluation() -> None:
    compiled = compile_schema({"type": "object", "x-kubernetes-validations": [{"rule": "true"}]})
    budget = WorkBudget()
    budget.stop()
    with pytest.raises(Stopped):
        within_budget(budget, compiled.rules, {}, None, [])
    assert compiled.rules({}, None, []) == ([], [])


def test_rules_compile_at_their_first_use() -> None:
    schema = {"type": "object", "properties": {
        name: {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]} for name in ("a", "b")
    }}  # fmt: skip
    scope = scope_of(parse(schema))
    assert scope is not None
    Run().visit(scope, {"a": 2}, None)
    assert [below._compiled is not None for below in scope.properties.values()] == [True, False]


def test_code_is_generated_only_for_evaluated_rules() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "x-kubernetes-validations": [
        {"rule": "self > 1"}, {"rule": "self >= oldSelf"}, {"rule": "self > 2", "messageExpression": "'it is small'"},
    ]}}}  # fmt: skip
    scope = scope_of(parse(schema))
    assert scope is not None
    Run().visit(scope, {"a": 3}, None)
    compiled = scope.properties["a"].compiled()
    programs = [(made.program, made.message) for made in compiled]
    assert [program is not None and program.generated for program, _ in programs] == [True, False, True]
    assert [message is not None and message.generated for _, message in programs] == [False, False, False]


@pytest.mark.rows("CEL-013")
@pytest.mark.parametrize(("limits", "most"), [({"maxLength": 7}, 28), ({}, REQUEST - 2)])
def test_int_or_string_size_is_limited_by_max_length(limits: dict[str, Any], most: int) -> None:
    node = parse({"x-kubernetes-int-or-string": True, **limits})
    declared = Types().declare(node)
    assert declared is not None
    assert declared.max_elements == most


def test_second_rule_evaluation_counts_toward_the_budget() -> None:
    """With an old item of another type, the server evaluates the rule again without the item.

    It is an item of ``a``.
    """
    rules = [{"rule": "size(oldSelf.a) == 0 && self.b.all(x, x >= 0)"}, {"rule": "self.b.size() < 5"}]
    numbers = {"type": "array", "maxItems": 100, "items": {"type": "integer"}}
    schema = {"type": "object", "x-kubernetes-validations": rules, "properties": {"a": numbers, "b": numbers}}
    scope = scope_of(parse(schema))
    assert scope is not None
    new, old = {"a": [], "b": [1] * 100}, {"a": ["text"], "b": []}
    for budget, wanted in ((1000, ["size() < 5"]), (100, ["size(oldSelf.a) == 0", "out of cost budget"])):
        run = Run(budget)
        run.visit(scope, new, old)
        texts = [str(error) for error in run.errors]
        assert len(texts) == len(wanted)
        assert all(part in text for part, text in zip(wanted, texts, strict=True)), texts


def test_only_paths_of_failed_rules_are_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    number: dict[str, Any] = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 9"}]}
    numbers = {"type": "object", "additionalProperties": {"type": "array", "items": number}}
    keyed = {"type": "object", "properties": {"k": number}}
    each = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": keyed}
    compiled = compile_schema(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": {"m": numbers, "l": each}}}}
    )
    made: list[str] = []

    def counted(tell: Callable[[str, Any], str]) -> Callable[[str, Any], str]:
        def count(path: str, step: Any) -> str:
            made.append(tell(path, step))
            return made[-1]

        return count

    monkeypatch.setattr(fields, "child", counted(fields.child))
    monkeypatch.setattr(fields, "item", counted(fields.item))
    good = {"spec": {"m": {f"n{number}": [1, 2] for number in range(50)}, "l": [{"k": 1}, {"k": 2}]}}
    assert compiled.rules(good, None, []) == ([], [])
    assert compiled.rules(good, clone(good), []) == ([], [])
    assert made == []
    bad = clone(good)
    bad["spec"]["m"]["n7"][1] = bad["spec"]["l"][1]["k"] = 9
    errors, warnings = compiled.rules(bad, good, [])
    assert ([error.field for error in errors], warnings) == (["spec.m[n7][1]", "spec.l[1].k"], [])
    assert made == ["spec", "spec.m", "spec.m[n7]", "spec.m[n7][1]", "spec", "spec.l", "spec.l[1]", "spec.l[1].k"]
    assert len(compiled.rules(bad, clone(bad), [])[1]) == 2
