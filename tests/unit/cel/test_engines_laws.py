"""The interpreter and the generated code agree on random expressions."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.cel.base import base
from apiext.cel.declared import Declared
from apiext.cel.environment import Environment, Evaluation, Program
from apiext.cel.limit import Limit
from apiext.cel.values import type_name
from tests.unit.cel.printer import parse_text, text_of
from tests.unit.cel.spec_values import same
from tests.unit.cel.test_syntax import shape

TEXT = Declared("string", max_elements=40)
ITEM = {"name": TEXT, "size": Declared("int"), "tag": Declared("string", nullable=True)}
FIELDS = {
    "n": Declared("int"), "d": Declared("double"), "s": Declared("string", max_elements=400), "b": Declared("bool"),
    "p": Declared("int_or_string", max_elements=100), "names": Declared("list", element=TEXT, max_elements=10),
    "set": Declared("list", element=TEXT, max_elements=10, list_type="set"),
    "labels": Declared("map", element=TEXT, max_elements=10),
    "counts": Declared("map", element=Declared("int"), max_elements=10),
    "items": Declared("list", element=Declared("object", "T.items.@idx", ITEM, ITEM), max_elements=10),
    "when": Declared("timestamp", format="date-time"), "o": Declared("object", "T.o", ITEM, ITEM),
}  # fmt: skip
ENV = Environment({"self": Declared("object", "T", FIELDS, FIELDS)})

words = st.sampled_from(["", "a", "b", "abc", "Ä", "x-1", "a longer text"])
items = st.fixed_dictionaries({"name": words}, optional={"size": st.integers(-3, 3), "tag": st.none() | words})
data = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63)]) | st.just(2.0),
        "d": st.sampled_from([0, 1, 1.5, -2.5]), "s": words | st.none(), "b": st.booleans(),
        "p": words | st.integers(0, 3), "names": st.lists(words, max_size=4),
        "set": st.lists(words, max_size=3, unique=True), "labels": st.dictionaries(words, words, max_size=3),
        "counts": st.dictionaries(words, st.integers(-2, 2), max_size=3), "items": st.lists(items, max_size=3),
        "when": st.sampled_from(["2020-01-01T00:00:00Z", "2021-06-01T12:00:00.5+02:00"]), "o": items,
    },
)  # fmt: skip

TEXTS = ["self.s", "'a'", "''", "self.o.name", "'abc'", "string(self.n)", "self.s + self.o.name", "v.name", "w"]
NUMBERS = ["self.n", "1", "0", "self.o.size", "size(self.names)", "self.n + 1", "self.n * 2 - 1", "self.s.size()"]
LISTS = ["self.names", "self.set", "['a', 'b']", "self.names + self.set", "self.names.filter(w, w != 'a')"]
TESTS = [
    "self.b", "true", "has(self.s)", "has(self.o.tag)", "'a' in self.labels", "{t} in {l}", "{t} == {t}", "{t} < {t}",
    "{n} == {n}", "{n} <= {n}", "{t}.startsWith({t})", "{t}.contains('a')", "{t}.matches('^[a-z]*$')",
    "{n} / {n} > 0", "self.d > 0.5", "type(self.p) == string", "self.p == 'a'", "self.labels['a'] == {t}",
    "self.items.all(v, {b})", "self.items.exists(v, v.name == {t})", "self.items.exists_one(v, v.size > {n})",
    "{l}.all(w, {b})", "self.labels.all(k, k != self.labels[k])", "self.counts.exists(k, c, c > {n} && k != {t})",
    "{l}.map(w, w + 'x').size() > {n}", "self.names == self.set", "self.set == self.names", "self.names[{n}] == {t}",
    "self.?o.?tag.orValue('none') == {t}", "{l}.isSorted()", "{l}.join('-') != {t}",
    "self.when > timestamp('2020-06-01T00:00:00Z')", "self.items.map(v, v.name).distinct() == {l}",
    "self.items[0] == self.items[size(self.items) - 1]", "{t} in ['a', 'b', 'abc']",
    "self.counts.transformMap(k, c, c + 1).size() == {n}",
]  # fmt: skip

WHOLE: dict[str, Any] = {
    "n": 1, "d": 1.5, "s": "abc", "b": True, "p": "a", "names": ["a", "b"], "set": ["a", "b"], "labels": {"a": "x"},
    "counts": {"a": 1}, "items": [{"name": "a", "size": 1}], "when": "2021-06-01T12:00:00Z", "o": {"name": "a"},
}  # fmt: skip


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    def fill(text: str, left: int) -> str:
        out = ""
        for part in text.replace("}", "{").split("{"):
            if part == "t":
                out += draw(st.sampled_from(TEXTS))
            elif part == "n":
                out += draw(st.sampled_from(NUMBERS))
            elif part == "l":
                out += draw(st.sampled_from(LISTS))
            elif part == "b":
                out += "(" + test(left - 1) + ")"
            else:
                out += part
        return out

    def test(left: int) -> str:
        kind = draw(st.integers(0, 6)) if left > 0 else 0
        if kind == 1:
            return f"({test(left - 1)}) && ({test(left - 1)})"
        if kind == 2:
            return f"({test(left - 1)}) || ({test(left - 1)})"
        if kind == 3:
            return f"!({test(left - 1)})"
        if kind == 4:
            return f"({test(left - 1)}) ? ({test(left - 1)}) : ({test(left - 1)})"
        return fill(draw(st.sampled_from(TESTS)), left)

    return test(depth)


def outcome(found: Evaluation) -> tuple[object, ...]:
    return (found.error, found.cost, found.cancelled, type_name(found.value) if found.error is None else "")


@given(expressions(), data)
def test_engines_agree(text: str, obj: dict[str, Any]) -> None:
    program = ENV.compile(text)
    if not isinstance(program, Program):
        return
    interpreted = program.interpret({"self": obj}, Limit(100_000))
    generated = program.evaluate({"self": obj}, Limit(100_000))
    if interpreted.cancelled:
        assert generated.cancelled
        assert generated.error == interpreted.error
        return
    assert outcome(generated) == outcome(interpreted)
    assert interpreted.error is not None or same(generated.value, interpreted.value)


class Nothing:
    """An exhausted budget of steps."""

    def eval(self, frame: object, tracker: object) -> NoReturn:
        raise AssertionError("it is interpreted")


def test_law_forms_run_as_generated_code() -> None:
    """All forms of the laws above have generated code.

    Otherwise they would compare the interpreter with itself.
    """
    for form in TESTS:
        text = form.format(t="self.s", n="self.n", l="self.names", b="self.b")
        program = ENV.compile(text)
        assert isinstance(program, Program), program.text
        interpreted = program.interpret({"self": WHOLE})
        assert program.evaluate({"self": WHOLE}).error is None
        program.step = Nothing()
        assert outcome(program.evaluate({"self": WHOLE})) == outcome(interpreted)
        with pytest.raises(AssertionError, match="it is interpreted"):
            program.interpret({"self": WHOLE})


@given(expressions())
def test_printed_expressions_parse_again(text: str) -> None:
    parsed, _ = parse_text(text, base().macros)
    assert parsed is not None
    again, _ = parse_text(text_of(parsed), base().macros)
    assert again is not None
    assert shape(again.root) == shape(parsed.root)


@given(expressions())
def test_minimum_estimate_is_at_most_the_maximum(text: str) -> None:
    program = ENV.compile(text)
    if isinstance(program, Program):
        least, most = ENV.estimate(program.checked)
        assert 0 <= least <= most


@given(expressions(), data)
def test_cost_exceeds_the_estimate_only_as_upstream(text: str, obj: dict[str, Any]) -> None:
    """Estimates cover costs, with the exceptions of upstream.

    The exceptions are a unit per comparison or conditional, and filtered lists.
    """
    program = ENV.compile(text)
    if not isinstance(program, Program) or ".filter(" in text:
        return
    most = ENV.estimate(program.checked)[1]
    short = sum(map(text.count, ("==", "!=", " ? "))) * 10  # once for each iteration of a loop
    assert program.interpret({"self": obj}, Limit(1 << 60)).cost <= most + short


odd = st.sampled_from(
    [None, True, 0, 2**63 - 1, 2.0, 1.5, -0.0, float(2**70), "", "a", "9" * 500, "\ud800", "1h", "2024-13-45", [], {}]
)
misfits = st.fixed_dictionaries(
    {}, optional={name: odd | st.lists(odd, max_size=3) | st.dictionaries(words, odd, max_size=3) for name in FIELDS}
)


@given(expressions(), misfits)
def test_engines_agree_on_data_of_wrong_types(text: str, obj: dict[str, Any]) -> None:
    """Both engines agree on data that does not match its types.

    It is data of older definitions, or has floats in place of integers.
    """
    program = ENV.compile(text)
    if isinstance(program, Program):
        assert outcome(program.evaluate({"self": obj})) == outcome(program.interpret({"self": obj}))


def test_engines_agree_on_floats_in_integer_lists() -> None:
    """Wrong items are reported when they are read, as upstream.

    Some functions do not read them.
    """
    listed = Declared("list", element=Declared("int"), max_elements=5)
    fields = {"n": listed, "l": Declared("list", element=Declared("object", "T.l", ITEM, ITEM), max_elements=5)}
    environment = Environment({"self": Declared("object", "T", fields, fields)})
    for text in (
        "self.n.max() == 2",
        "self.n.sort() == [1, 2]",
        "2 in self.n",
        "self.n == [1, 2]",
        "[1, 2] == self.n",
        "self.n + [4] == [1, 2, 4]",
        "'%s'.format([self.n]) == ''",
        "self.n.sortBy(x, x).size() == 2",
        "self.n.distinct().size() == 2",
        "self.l.lastIndexOf(self.l[0]) == 1",
        "dyn(self.l[0]).all(k, v, k != '')",
    ):
        program = environment.compile(text)
        assert isinstance(program, Program), program.text
        given = {"self": {"n": [1, 2.0], "l": [{"name": "a", "tag": None}, {"name": "a"}]}}
        assert outcome(program.evaluate(given)) == outcome(program.interpret(given))
