"""Whether an object keeps all rules, asked at once: the answer, and the time that it takes, are those of all rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext import limits
from apiext.cel import effort
from apiext.conformance.support.cases import Case, case_name, load
from apiext.schema.compile import compile_schema
from apiext.schema.held import keeps
from apiext.schema.parse import parse
from apiext.schema.patience import Patience, TooLong, briefly, current, working
from apiext.schema.rules import Run, Scope, scope_of
from apiext.schema.timing import evaluations

RULES = {
    "integer": ["self < 3", "self >= 0", "self != oldSelf", "10 / self > 2"],
    "string": ["self != 'b'", "self.startsWith('a')", "self == oldSelf"],
    "array": ["size(self) < 3", "self.all(x, x == self[0])", "size(self) >= size(oldSelf)"],
    "object": ["size(self) < 3", "!('a' in self) || 'b' in self", "size(self) >= size(oldSelf)"],
    "members": ["has(self.a)", "!has(self.b) || has(self.a)", "has(self.a) == has(oldSelf.a)", "self.a == self.a"],
}


def _scope(schema: dict[str, Any]) -> Scope:
    found = scope_of(parse(schema))
    assert found is not None
    return found


def _seen(scope: Scope, new: Any, old: Any) -> tuple[bool, int]:
    """Return what all rules say, and the units that it took."""

    def look() -> tuple[bool, int]:
        run = Run()
        run.visit(scope, new, old)
        return not run.errors and not run.warnings, current().left

    return briefly(look)


def _warm(scope: Scope, new: Any, old: Any = None) -> bool:
    """Have code made for the rules of what is there; return whether all are kept."""
    run = Run()
    run.visit(scope, new, old)
    return not run.errors and not run.warnings


def _asked(scope: Scope, new: Any, old: Any) -> tuple[bool, int]:
    return briefly(lambda: (keeps(scope, new, anew=old is None), current().left))


@pytest.mark.rows("CEL-006", "CEL-008")
@pytest.mark.parametrize("case", load(__file__, "rules"), ids=case_name)
def test_what_keeps_all_rules_has_no_errors(case: Case) -> None:
    scope = scope_of(parse(case.schema))
    if scope is None or not scope.judges:
        assert not case.errors
        return
    right = _warm(scope, case.new, case.old)
    kept, _ = _asked(scope, case.new, case.old)
    assert right or not kept


@pytest.mark.rows("CEL-006", "CEL-008")
@pytest.mark.parametrize("case", load(__file__, "held"), ids=case_name)
def test_kept(case: Case) -> None:
    scope = _scope(case.schema)
    for before in case.before or ():
        _warm(scope, before)
    assert _asked(scope, case.new, case.old)[0] is bool(case.kept)


@st.composite
def _schemas(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    kind = draw(st.sampled_from(["integer", "string", *(["array", "object", "members"] if depth else [])]))
    texts = draw(st.lists(st.sampled_from(RULES[kind]), max_size=2, unique=True))
    schema: dict[str, Any] = {"type": "object" if kind == "members" else kind}
    if texts:
        optional = draw(st.booleans())
        schema["x-kubernetes-validations"] = [
            {"rule": text, "optionalOldSelf": True} if optional and "oldSelf" not in text else {"rule": text}
            for text in texts
        ]
    if kind == "array":
        schema["items"] = draw(_schemas(depth - 1))
    elif kind == "object":
        schema["additionalProperties"] = draw(_schemas(depth - 1))
    elif kind == "members":
        schema["properties"] = draw(st.dictionaries(st.sampled_from("abc"), _schemas(depth - 1), min_size=1))
    return schema


def _fitting(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if schema["type"] == "integer":
        return st.integers(-1, 3)
    if schema["type"] == "string":
        return st.sampled_from(["a", "ab", "b"])
    if schema["type"] == "array":
        return st.lists(_fitting(schema["items"]) | st.none(), max_size=3)
    if "properties" in schema:
        return st.fixed_dictionaries({}, optional={n: _fitting(s) | st.none() for n, s in schema["properties"].items()})
    return st.dictionaries(st.sampled_from("abc"), _fitting(schema["additionalProperties"]), max_size=3)


@given(st.data())
def test_both_ways_agree_and_take_the_same(data: st.DataObject) -> None:
    schema: dict[str, Any] = {"type": "object", "properties": {"spec": data.draw(_schemas())}}
    scope = scope_of(parse(schema))
    if scope is None or not scope.judges:
        return
    for _ in range(3):
        spec = _fitting(schema["properties"]["spec"])
        new, old = {"spec": data.draw(spec)}, data.draw(st.none() | st.fixed_dictionaries({"spec": spec}))
        _warm(scope, new, old)
        seen, asked = _seen(scope, new, old), _asked(scope, new, old)
        transitions = old is not None and "oldSelf" in str(schema)
        assert asked == seen if asked[0] else transitions or not seen[0]
        assert asked[1] >= seen[1]


LONG = {"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": [{"rule": "self.all(x, x < 5)"}]}


def test_what_takes_long_is_left_to_a_thread() -> None:
    compiled = compile_schema({"type": "object", "properties": {"a": LONG, "b": LONG}})
    few, many = [1], [1] * (limits.LOOP_UNITS // 7)
    assert compiled.rules({"a": few, "b": few}, None) == ([], [])
    assert briefly(compiled.rules, {"a": few, "b": few}, None) == ([], [])
    assert briefly(compiled.rules, {"a": few, "b": many}, None) == ([], [])
    with pytest.raises(TooLong):
        briefly(compiled.rules, {"a": many, "b": many}, None)
    with pytest.raises(TooLong):
        briefly(compiled.rules, {"a": many * 3}, None)
    assert compiled.rules({"a": many, "b": many}, None) == ([], [])


def test_what_ran_out_of_patience_is_not_begun_again() -> None:
    scope = _scope({"type": "object", "properties": {"a": LONG}})
    _warm(scope, {"a": [1]})
    kept, left = _asked(scope, {"a": [1] * limits.LOOP_UNITS}, None)
    assert not kept
    assert left < 0


def test_the_way_to_rules_takes_time_too() -> None:
    of_few = {
        "type": "object",
        "properties": {"n": {"type": "integer", "x-kubernetes-validations": [{"rule": "true"}]}},
    }
    compiled = compile_schema({"type": "object", "properties": {"l": {"type": "array", "items": of_few}}})
    assert compiled.rules({"l": [{}, {"n": 1}]}, None) == ([], [])
    assert briefly(compiled.rules, {"l": [{}] * 100}, None) == ([], [])
    with pytest.raises(TooLong):
        briefly(compiled.rules, {"l": [{}] * limits.LOOP_UNITS}, None)


def test_what_was_spent_in_vain_is_spent() -> None:
    compiled = compile_schema({"type": "object", "properties": {"a": LONG}})
    assert compiled.rules({"a": [1]}, None) == ([], [])
    broken = {"a": [*([1] * (limits.LOOP_UNITS // 7)), 5]}
    with pytest.raises(TooLong):  # once it would be brief, but twice
        briefly(compiled.rules, broken, None)
    assert len(compiled.rules(broken, None)[0]) == 1


def test_elements_count_for_all_rules_together() -> None:
    scope = _scope({"type": "object", "properties": dict.fromkeys("ab", LONG)})
    new = {"a": [1], "b": [2]}
    _warm(scope, new)
    begun: list[int] = []

    def look() -> bool:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(effort, "begin", lambda most, _: begun.append(most))
            return keeps(scope, new, anew=True)

    assert briefly(look)
    assert len(begun) == 1


@pytest.mark.rows("CEL-019")
def test_places_are_counted_once() -> None:
    scope = _scope({"type": "object", "properties": dict.fromkeys("ab", LONG)})
    new: dict[str, Any] = {"a": [1], "b": [2]}
    _warm(scope, new)
    before, took = evaluations.count, evaluations.sum
    assert _asked(scope, new, None)[0]
    assert evaluations.count == before + 2
    assert evaluations.sum > took
    assert not _asked(scope, {"a": [1], "b": [7]}, None)[0]
    assert evaluations.count == before + 2


def test_work_that_may_be_stopped_is_not_asked_at_once() -> None:
    scope = _scope({"type": "object", "properties": {"a": LONG}})
    new = {"a": [1]}
    _warm(scope, new)
    assert not working(Patience(), lambda: keeps(scope, new, anew=True))
    assert _asked(scope, new, None)[0]
