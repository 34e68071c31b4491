"""Short rules are evaluated on the event loop.

The errors equal those of a thread, and the work is limited.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.cel import effort
from apiext.conformance.support.cases import Case, case_name, load
from apiext.schema import limits
from apiext.schema.compile import compile_schema
from apiext.schema.timing import evaluations
from apiext.schema.work_budget import BudgetExhausted, WorkBudget, within_budget, within_loop_budget


@pytest.mark.rows("CEL-006", "CEL-008")
@pytest.mark.parametrize("case", load(__file__, "brief_rules"), ids=case_name)
def test_rules_give_equal_results_on_loop_and_in_thread(case: Case) -> None:
    compiled = compile_schema(case.schema)
    for before in case.before or ():
        compiled.rules(before, None)
    if case.thread:
        with pytest.raises(BudgetExhausted):
            within_loop_budget(compiled.rules, case.new, case.old)
    else:
        assert (within_loop_budget(compiled.rules, case.new, case.old) == ([], [])) is bool(case.holds)
    found = within_budget(WorkBudget(), compiled.rules, case.new, case.old)
    assert (found == ([], [])) is bool(case.holds)
    assert within_loop_budget(compiled.rules, case.new, case.old) == found


LONG = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "self.all(x, x < 5)"}]}


def test_long_rules_exhaust_the_loop_budget() -> None:
    compiled = compile_schema({"type": "object", "properties": {"a": LONG, "b": LONG}})
    few, many = [1], [1] * (limits.LOOP_UNITS // 7)
    assert compiled.rules({"a": few, "b": few}, None) == ([], [])
    assert within_loop_budget(compiled.rules, {"a": few, "b": few}, None) == ([], [])
    assert within_loop_budget(compiled.rules, {"a": few, "b": many}, None) == ([], [])
    with pytest.raises(BudgetExhausted):
        within_loop_budget(compiled.rules, {"a": many, "b": many}, None)
    with pytest.raises(BudgetExhausted):
        within_loop_budget(compiled.rules, {"a": many * 3}, None)
    assert compiled.rules({"a": many, "b": many}, None) == ([], [])


def test_traversal_to_rules_counts_toward_the_loop_budget() -> None:
    of_few = {
        "type": "object",
        "properties": {"n": {"type": "integer", "x-kubernetes-validations": [{"rule": "true"}]}},
    }
    compiled = compile_schema({"type": "object", "properties": {"l": {"type": "array", "items": of_few}}})
    assert compiled.rules({"l": [{}, {"n": 1}]}, None) == ([], [])
    assert within_loop_budget(compiled.rules, {"l": [{}] * 100}, None) == ([], [])
    with pytest.raises(BudgetExhausted):
        within_loop_budget(compiled.rules, {"l": [{}] * limits.LOOP_UNITS}, None)


def test_failed_rule_is_evaluated_once_within_loop_budget() -> None:
    compiled = compile_schema({"type": "object", "properties": {"a": LONG}})
    assert compiled.rules({"a": [1]}, None) == ([], [])
    broken = {"a": [*([1] * (limits.LOOP_UNITS // 7)), 5]}  # the loop's budget is enough for one evaluation
    found = within_loop_budget(compiled.rules, broken, None)
    assert len(found[0]) == 1
    assert found == compiled.rules(broken, None)


def test_list_elements_count_toward_one_budget_of_all_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "self == self"}]}
    compiled = compile_schema({"type": "object", "properties": dict.fromkeys("ab", same)})
    new = {"a": [1] * 50, "b": [2] * 50}
    assert compiled.rules(new, None) == ([], [])
    begin, begun = effort.begin, list[int]()

    def noted(most: int, limit: Any) -> None:
        begun.append(most)
        begin(most, limit)

    monkeypatch.setattr(effort, "begin", noted)
    for _ in range(2):
        assert within_loop_budget(compiled.rules, new, None) == ([], [])
    first, second = begun[:2]
    assert second <= first - 50
    assert begun == [first, second] * 2


@pytest.mark.rows("CEL-019")
def test_evaluation_metric_counts_each_value_once() -> None:
    compiled = compile_schema({"type": "object", "properties": dict.fromkeys("ab", LONG)})
    new: dict[str, Any] = {"a": [1], "b": [2]}
    compiled.rules(new, None)
    before, took = evaluations.count, evaluations.sum
    assert within_loop_budget(compiled.rules, new, None) == ([], [])
    assert evaluations.count == before + 2
    assert evaluations.sum > took
    assert len(within_loop_budget(compiled.rules, {"a": [1], "b": [7]}, None)[0]) == 1
    assert evaluations.count == before + 4
