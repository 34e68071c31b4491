"""The result of a policy whose expressions exceed their cost budget."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.admission.metrics import Metrics
from apiext.admission.policy import Compiled, PolicyEvaluation
from apiext.admission.validations import Verdict, compile_policy, validate
from apiext.cel.dynamic import dynamic

LONG = "[1, 2, 3, 4, 5].all(a, [1, 2, 3, 4, 5].all(b, a + b > 0))"
OVER = "validation failed due to running out of cost budget, no further validation rules will be run"
OVER_LIMIT = "actual cost limit exceeded"

pytestmark = pytest.mark.rows("ADM-020")


async def validated(spec: list[dict[str, Any]], **more: Any) -> Verdict:
    """Validate an object with ``x: 1``."""
    (policy,) = compile_policy({"metadata": {"name": "p"}, "spec": {"validations": spec, **more}})
    known = {"object": dynamic({"x": 1}), "oldObject": None}
    return await validate(policy, known, "CREATE", Metrics())


async def decisions(spec: list[dict[str, Any]], **more: Any) -> list[tuple[int, str]]:
    """Return (index, message) of each decision for an object with ``x: 1``."""
    return [(decision.index, decision.message) for decision in (await validated(spec, **more)).decisions]


@pytest.mark.parametrize(
    ("units", "found"),
    [
        (10_000, [(0, "true")]),
        (20, [(0, f"failed messageExpression: {OVER}"), (1, f"failed messageExpression: {OVER}")]),
        (3, [(0, OVER)]),
    ],
)
async def test_message_expressions_share_the_cost_budget(
    units: int, found: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apiext.admission.limits.ADMISSION_EXPRESSIONS", units)
    # upstream: if the messages exceed the budget, every validation fails, even if its expression is true
    spec = [{"expression": "object.x == 2", "messageExpression": f"string({LONG})"}, {"expression": "object.x == 1"}]
    assert await decisions(spec) == found
    assert await decisions(spec, failurePolicy="Ignore") == (found if units == 10_000 else [])


async def test_has_of_a_variable_evaluates_the_variable() -> None:
    spec = [{"expression": "!has(variables.a)"}, {"expression": "has(variables.b) && variables.b"}]
    variables = [{"name": "a", "expression": "null"}, {"name": "b", "expression": "has(variables.a)"}]
    assert await decisions(spec, variables=variables) == [(0, "failed expression: !has(variables.a)")]
    variables[0]["expression"] = "object.y"
    fault = 'composited variable "a" fails to evaluate: no such key: y'
    assert await decisions(spec, variables=variables) == [
        (0, f"expression '!has(variables.a)' resulted in error: {fault}"),
        (1, "expression 'has(variables.b) && variables.b' resulted in error: composited variable \"b\" fails to "
         f"evaluate: {fault}"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("units", "found"), [(10_000, []), (20, [(0, f"failed messageExpression: {OVER}")]), (2, [(0, OVER)])]
)
async def test_unused_message_expressions_consume_the_budget(
    units: int, found: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apiext.admission.limits.ADMISSION_EXPRESSIONS", units)
    assert await decisions([{"expression": "object.x == 1", "messageExpression": f"string({LONG})"}]) == found


@pytest.mark.parametrize(("units", "found"), [(500, [(0, "true")]), (300, [(0, f"failed messageExpression: {OVER}")])])
async def test_messages_use_the_budget_left_by_validations(
    units: int, found: list[tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apiext.admission.limits.ADMISSION_EXPRESSIONS", units)
    spec = [{"expression": f"!({LONG})", "messageExpression": f"string({LONG})"}]
    assert await decisions(spec) == found


async def test_unused_messages_are_not_evaluated_within_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    async def run(self: PolicyEvaluation, text: str, program: Compiled) -> tuple[Any, str]:
        made.append(text)
        return await PolicyEvaluation.run(self, text, program)

    monkeypatch.setattr(
        "apiext.admission.validations.PolicyEvaluation", type("Noted", (PolicyEvaluation,), {"run": run})
    )
    spec = [
        {"expression": "object.x == 1", "messageExpression": "'a'"},
        {"expression": "object.x == 2", "messageExpression": "'b'"},
    ]
    assert await decisions(spec) == [(1, "b")]
    assert made == ["object.x == 1", "object.x == 2", ""]


@pytest.mark.parametrize(("units", "denied"), [(10_000, False), (200, False), (100, True)])
async def test_audit_annotations_have_a_separate_cost_budget(
    units: int, denied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("apiext.admission.limits.ADMISSION_EXPRESSIONS", units)
    notes = [{"key": "a", "valueExpression": f"string({LONG})"}]
    assert await decisions([{"expression": LONG}], auditAnnotations=notes) == ([(0, OVER)] if denied else [])


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        ("éééééé", "ééééé"),
        ("aéééééé", "aéééé\ufffd"),
        ("aaa€€€€", "aaa€€\ufffd"),
        ("aa€€€€", "aa€€\ufffd\ufffd"),
        ("aéé ", "aéé"),
    ],
)
async def test_audit_annotation_is_cut_after_a_number_of_bytes(
    value: str, annotation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte that remains of a cut character becomes U+FFFD, as in Go's JSON."""
    monkeypatch.setattr("apiext.admission.limits.ADMISSION_ANNOTATION", 10)
    notes = [{"key": "a", "valueExpression": f"'{value}'"}]
    assert (await validated([], auditAnnotations=notes)).annotations == [("a", annotation)]


async def test_variables_object_is_not_a_map() -> None:
    variables = [{"name": name, "expression": text} for name, text in (("n", "null"), ("s", "'x'"), ("a__dot__b", "1"))]
    rows = [
        ("variables.?n.hasValue()", ""),
        ("dyn(variables)['n'] == null", ""),
        ("type(variables) != type({}) && type(variables) != type(1)", ""),
        ("variables == variables", ""),
        ("dyn(variables) == {}", "no such overload"),
        ("'s' in dyn(variables)", "no such overload"),
        ("size(dyn(variables)) == 3", "no such overload: size"),
        ("dyn(variables)[1] == 1", "no such overload"),
        ("variables.a__dot__b == 1", "no such key: a__dot__b"),
        ("!has(variables.a__dot__b)", ""),
    ]
    found = dict(await decisions([{"expression": text} for text, _ in rows], variables=variables))
    wanted = {
        index: f"expression '{text}' resulted in error: {fault}" for index, (text, fault) in enumerate(rows) if fault
    }
    assert found == wanted


@pytest.mark.parametrize(("elements", "told"), [(5_000_000, []), (10_000, [OVER_LIMIT])])
async def test_variables_share_one_element_limit(
    elements: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All variables share one budget, since their values stay in memory until the write ends."""
    monkeypatch.setattr("apiext.cel.limits.MAX_ELEMENTS", elements)
    variables = [{"name": "v", "expression": "[[1]]" + ".map(a, a + a)" * 9}]  # 512 elements for a small cost
    variables += [{"name": f"v{n}", "expression": "variables.v[0] + variables.v[0]"} for n in range(20)]
    spec = [{"expression": " && ".join(f"variables.v{n}.size() == 1024" for n in range(20))}]
    assert [message.rpartition(": ")[2] for _, message in await decisions(spec, variables=variables)] == told
