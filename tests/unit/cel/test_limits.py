"""Hostile expressions and data: the expected error or a bounded cost, but no crash."""

from __future__ import annotations

import threading
import time
from types import CodeType

import pytest

from apiext.cel import generate
from apiext.cel import limits as cel_limits
from apiext.cel.declared import Declared
from apiext.cel.environment import Environment, Evaluation, Program, Rejected
from apiext.cel.limit import Limit

pytestmark = pytest.mark.rows("CEL-010", "CEL-011")
NUMBERS = Declared("list", element=Declared("int"), max_elements=1000)
WORDS = Declared("list", element=Declared("string", max_elements=4000), max_elements=1000)
ENV = Environment({"self": Declared("object", "T", *[{"numbers": NUMBERS, "words": WORDS}] * 2)})


def compiled(text: str) -> Program:
    program = ENV.compile(text)
    assert isinstance(program, Program), program.text
    return program


def compile_error(text: str) -> str:
    program = ENV.compile(text)
    assert isinstance(program, Rejected)
    return program.text


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("(" * 300 + "1" + ")" * 300, "ERROR: <input>:-1:0: "),
        ("[" * 240 + "]" * 240 + " == 1", "ERROR: <input>:1:"),
        ("-(" * 200 + "x" + ")" * 200, "ERROR: <input>:1:"),
        ("1" + " + 1" * 300, "ERROR: <input>:-1:0: max recursion depth exceeded"),
        ("self." + "a." * 260 + "b", "ERROR: <input>:-1:0: max recursion depth exceeded"),
        ("'" + "a" * 100_000 + "'", "ERROR: <input>:-1:0: expression code point size exceeds limit"),
        ("{" * 30_000, "ERROR: <input>:-1:0: "),
        ("a b " * 20_000, "ERROR: <input>:"),
        ("1" * 401 + " == 1", "ERROR: <input>:1:1: invalid int literal"),
    ],
    ids=["parentheses", "lists", "signs", "sum", "selections", "long", "braces", "words", "digits"],
)
def test_deep_or_long_expressions_are_refused(text: str, error: str) -> None:
    assert compile_error(text).startswith(error)


def terms(count: int) -> str:
    return " && ".join(f"self.numbers[{number}] == {number}" for number in range(count))


@pytest.mark.parametrize(("count", "compiles"), [(200, True), (1_200, False)])
def test_long_generated_code_is_not_compiled(count: int, compiles: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = list[int]()

    def spy(source: str, *rest: str) -> CodeType:
        sizes.append(len(source))
        return compile(source, *rest)

    monkeypatch.setattr(generate, "compile", spy, raising=False)
    program, data = compiled(terms(count)), {"self": {"numbers": list(range(count))}}
    found, steps = program.evaluate(data), program.interpret(data)
    assert bool(sizes) is compiles
    assert all(size <= cel_limits.MAX_SOURCE for size in sizes)
    assert (found.value, found.error, found.cost) == (steps.value, steps.error, steps.cost)
    assert found.value is True


def chain(link: str, count: int) -> str:
    """Return an expression whose value doubles in size with each link."""
    first, last = ("optional.of(1)", "hasValue()") if "opt" in link else ("[[]]", "size() == 1")
    return f"{first}{link * count}.{last}"


@pytest.mark.parametrize(
    ("link", "most", "error"),
    [
        (".optMap(x, x + 1)", 10, "macros repeat more than 20000 nodes"),
        (".optFlatMap(x, optional.of(x))", 10, "macros repeat more than 20000 nodes"),
        (".map(a, {a: a})", 12, "a type names more than 20000 others"),
    ],
)
def test_expressions_that_grow_during_compilation_are_refused(link: str, most: int, error: str) -> None:
    for text in (chain(link, most + 1), chain(link, 30), "(" + chain(link, 30)):
        wanted = "Syntax error" if error.startswith("a type") and text[0] == "(" else f"size exceeds limit: {error}"
        assert wanted in compile_error(text)
    assert compiled(chain(link, most - 3)).evaluate({}).value is True
    assert isinstance(ENV.compile(chain(link, most)), Program)


def test_at_most_100_errors_are_reported() -> None:
    assert compile_error("[" + "x, " * 101 + "x] == []").endswith("\n2 more errors were truncated")


def test_evaluation_works_with_full_type_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apiext.cel.limits.MAX_RESOLVED", 1)
    monkeypatch.setattr("apiext.cel.types._MAX_KNOWN", 0)
    program = compiled("[[1.5]] != [[0.5]] && [{'a': [b'a']}] == [{'a': [b'a']}] && optional.of([1u]).hasValue()")
    assert program.evaluate({}).value is True


def test_cancelled_limit_interrupts_an_evaluation_at_once() -> None:
    limit = Limit(1_000_000)
    limit.cancel()
    for run in (Program.interpret, Program.evaluate):
        found = run(compiled("[3, 1, 2].sort().size() == 3"), {}, limit)
        assert (found.cancelled, found.error) == (True, "operation interrupted")


def test_long_logical_chains_evaluate() -> None:
    program = compiled(" && ".join(["size(self.numbers) >= 0"] * 3000))
    assert program.evaluate({"self": {"numbers": []}}).value is True


def test_nesting_within_the_limit_is_fine() -> None:
    assert compiled("(" * 200 + "true" + ")" * 200).evaluate({}).value is True


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Program.interpret, Program.evaluate])
def test_evaluation_over_the_per_call_limit_is_cancelled(engine: object) -> None:
    program = compiled("self.numbers.all(a, self.numbers.all(b, self.numbers.all(c, a + b + c < 0 || true)))")
    found: Evaluation = engine(program, {"self": {"numbers": list(range(200))}})  # type: ignore[operator]
    assert (found.cancelled, found.error) == (True, "operation cancelled: actual cost limit exceeded")
    assert found.cost > 1_000_000


def test_list_concatenation_takes_linear_time() -> None:
    program = compiled("self.numbers.map(a, [a] + [a] + [a]).flatten().size() == 60000")
    numbers = list(range(20_000))
    began = time.process_time()
    found = program.evaluate({"self": {"numbers": numbers}}, Limit(10_000_000))
    assert found.value is True
    assert time.process_time() - began < 5


def test_an_evaluation_is_cancelled_from_another_thread() -> None:
    program = compiled("self.numbers.all(a, self.numbers.all(b, self.numbers.all(c, a + b + c >= 0)))")
    limit = Limit(100_000_000)  # the cost limit ends it without a cancellation, too
    timer = threading.Timer(0.05, limit.cancel)
    timer.start()
    found = program.evaluate({"self": {"numbers": list(range(1000))}}, limit)
    timer.join()
    assert (found.cancelled, found.error) == (True, "operation interrupted")


def test_format_precision_is_limited() -> None:
    assert "precision 99999 exceeds maximum" in compile_error("'%.99999f'.format([1.0]) == ''")
    assert compiled("'%.100f'.format([1.0]).size() == 102").evaluate({}).value is True


def test_patterns_take_linear_time() -> None:
    program = compiled("self.words.all(w, w.matches('(x+x+)+y') || true)")
    began = time.process_time()
    assert program.evaluate({"self": {"words": ["x" * 2000] * 10}}).value is True
    assert time.process_time() - began < 1


def test_logical_operators_absorb_errors() -> None:
    for text in ("self.numbers[5] == 1 || true", "true || self.numbers[5] == 1", "!(false && 1 / 0 == 1)"):
        found = compiled(text).evaluate({"self": {"numbers": []}})
        assert found.value is True


def test_cancelled_evaluation_does_not_affect_compilation() -> None:
    limit = Limit(1000)
    limit.cancel()
    found = compiled("self.numbers.map(x, x).size() > 0").evaluate({"self": {"numbers": list(range(900))}}, limit)
    assert found.cancelled
    compiled("duration('1000000000s') > duration('1s') && 'a'.matches('a{10}bcdefghijk')")
    assert compile_error("timestamp('a text of some length') == timestamp(0)").startswith(
        "ERROR: <input>:1:11: invalid"
    )
