"""Objects and patches constructed by expressions have upstream's results, in both engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiext.catalog.admission_cel import environment
from apiext.cel.constructed import Open, Patch, name_of, natural
from apiext.cel.conversions import shortest
from apiext.cel.dynamic import dynamic
from apiext.cel.environment import Environment, Evaluation, Program, Rejected
from apiext.cel.limit import Limit
from apiext.cel.objects import applied, json_of, mismatches
from apiext.cel.source import Issues
from apiext.cel.types import Type
from apiext.cel.values import Duration, Optional, Timestamp, Uint, Value, elements, is_list, is_map, type_name
from apiext.conformance.support.cases import Case, read

pytestmark = pytest.mark.rows("CEL-007", "ADM-020")
TABLE = read(Path(__file__).parent / "cases" / "objects.yaml")
CASES = [Case(row) for row in TABLE["cases"]]
ENV = environment(params=True, variables={}, patches=True)
OBJECT = {"object": dynamic(TABLE["object"]), "oldObject": None}

_DESCRIBED: dict[type, Callable[[Any], list[Any]]] = {
    type(None): lambda _: ["null"],
    bool: lambda value: ["bool", value],
    int: lambda value: ["int", value],
    Uint: lambda value: ["uint", str(int(value))],
    float: lambda value: ["double", shortest(value)],
    str: lambda value: ["string", value],
    bytes: lambda value: ["bytes", value.hex()],
    Duration: lambda value: ["duration", str(value.ns)],
    Timestamp: lambda value: ["timestamp", str(value.ns)],
    Optional: lambda value: ["optional", describe(value.value)] if value.present else ["optional"],
    Open: lambda value: ["object", value.type_name, {name: describe(it) for name, it in value.fields.items()}],
    Patch: lambda value: [
        "patch",
        *(value.fields[name] for name in ("op", "path", "from")),
        *(describe(value.fields[name]) for name in ("value",) if name in value.fields),
    ],
}


def describe(value: Value) -> list[Any]:
    """Return a value in the notation of the table."""
    known = _DESCRIBED.get(type(value))
    if known is not None:
        return known(value)
    if isinstance(value, Type):
        return ["type", value.name]
    if is_list(value):
        return ["list", [describe(inner) for inner in elements(value)]]
    if is_map(value):
        rows = [[describe(key), describe(value.find(key)[1])] for key in elements(value)]
        return ["map", sorted(rows, key=lambda row: json.dumps(row, separators=(",", ":"), ensure_ascii=False))]
    return [type_name(value)]


def go_notation(raw: Any) -> Any:
    """Return Go data in the notation of the table."""
    if isinstance(raw, dict):
        return {name: go_notation(inner) for name, inner in raw.items()}
    if isinstance(raw, list):
        return [go_notation(inner) for inner in raw]
    if type(raw) is float:
        text = shortest(raw)
        return {"!double": text} if text[-1].isdigit() else f"!{text}"
    return raw if raw is None or type(raw) in (bool, int, str) else f"!{name_of(raw)}"


def applied_as(value: Open) -> Any:
    """Return an apply configuration in the notation of the table."""
    raw = natural(value)
    if isinstance(raw, dict):
        return go_notation(applied(value))
    with pytest.raises(ValueError, match=r"^invalid return type: \*dynamic\.ObjectVal$"):
        applied(value)
    return f"!{raw.value.message}"


def exact(document: Any) -> str:
    """Return a document as text, in which an int and an equal double differ."""
    return json.dumps(document, sort_keys=True)


def check_json(case: Case, value: Value) -> None:
    """Compare the JSON of a value, or the error of the conversion, with the case."""
    if case.no_json:
        with pytest.raises(ValueError, match=r".") as caught:
            json_of(value)
        assert str(caught.value) == case.no_json
    elif "json" in case:
        assert exact(json_of(value)) == exact(case["json"])


@pytest.mark.parametrize("case", CASES, ids=[f"{number}: {case.text}" for number, case in enumerate(CASES)])
def test_object_expressions_match_upstream(case: Case) -> None:
    checked = ENV.check(case.text)
    if case.refused:
        assert isinstance(checked, Issues)
        assert checked.text() == case.refused
        return
    assert not isinstance(checked, Issues), checked.text()
    assert list(ENV.estimate(checked)) == case.static
    program = ENV.compile(case.text)
    if case.unplanned:
        assert isinstance(program, Rejected)
        assert (program.stage, program.text) == ("instantiation", case.unplanned)
        return
    assert isinstance(program, Program), program.text
    for found in (program.evaluate(OBJECT), program.interpret(OBJECT)):
        assert found.cost == case.cost
        assert found.error == case.error
        if case.error is None:
            check_value(case, found)


def check_value(case: Case, found: Evaluation) -> None:
    """Compare a value and its forms with the case."""
    assert describe(found.value) == case.value
    if type(found.value) is Open:
        assert mismatches(found.value) == (case.mismatches or [])
        assert applied_as(found.value) == case.applied
    check_json(case, found.value)


@pytest.mark.parametrize(
    "text",
    ["Object{}", "Object.spec{replicas: 1}", "JSONPatch{op: 'add'}", "jsonpatch.escapeKey('a')", "type(1) == Object"],
)
def test_object_types_exist_only_in_patch_environments(text: str) -> None:
    for env in (environment(), environment(variables={}), Environment({})):
        refused = env.compile(text)
        assert isinstance(refused, Rejected)
        assert "undeclared reference to" in refused.text
    assert not isinstance(ENV.check(text), Issues)


def test_objects_are_constructed_by_generated_code() -> None:
    """Expressions that construct objects run as generated code, without the interpreter."""
    program = ENV.compile("[Object{a: 1, b: 'x' + 'y'}, Object{a: 2}].exists(o, o.a == 2 && !has(o.b))")
    assert isinstance(program, Program)
    assert program.evaluate(OBJECT).value is True
    assert program._run is not None
    assert not program._mixed


def test_doubling_objects_exceed_the_cost_limit() -> None:
    """The cost limit also bounds expressions with objects that double in size."""
    text = "[[1]]" + ".map(v, [v, v].flatten())" * 20 + ".map(v, v.map(w, Object{a: w}) == v.map(w, Object{a: w}))"
    program = ENV.compile(text + " == []")
    assert isinstance(program, Program)
    found = program.evaluate(OBJECT, Limit(1_000_000))
    assert found.cancelled


@pytest.mark.slow
def test_conversions_of_values_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversions of values with shared parts are bounded.

    A part is visited once for each of its uses.
    """
    monkeypatch.setattr("apiext.cel.limits.MAX_ELEMENTS", 10_000)
    inner: Value = Open("Object.a", {})
    for _ in range(40):
        inner = Open("Object.a", {"a": inner, "b": inner})
    assert mismatches(inner) == ["operation cancelled: actual cost limit exceeded"]
    for made in (json_of, applied):
        with pytest.raises(ValueError, match=r"^operation cancelled: actual cost limit exceeded$"):
            made(inner)


def test_deeply_nested_data_is_converted_to_json() -> None:
    deep: Any = 1
    for _ in range(2_000):
        deep = {"a": [deep]}
    found = json_of(dynamic(deep))
    for _ in range(2_000):
        found = found["a"][0]
    assert found == 1
