"""Calls whose argument types are only known at run time do bounded work for their cost.

A call with arguments of unknown types costs 1, regardless of its work. So each overload is called with large values of
unknown types. The time and the memory of a call are multiplied by the number of calls that the cost limit and the
allowances permit; the products are bounded.
"""

from __future__ import annotations

import itertools
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from apiext.cel import effort, types
from apiext.cel import limits as cel_limits
from apiext.cel.base import base
from apiext.cel.dynamic import dynamic
from apiext.cel.environment import Environment, Evaluation, Program
from apiext.cel.limit import PER_CALL_LIMIT, Limit
from apiext.cel.overloads import Overload
from apiext.cel.types import Type
from tests.support.strain import slowness

pytestmark = pytest.mark.rows("CEL-010", "CEL-011")
Engine = Callable[[Program, dict[str, Any]], Evaluation]
ENGINES = [Program.evaluate, pytest.param(Program.interpret, marks=pytest.mark.long)]
SIZE = 120_000  # characters of a text
CALLS = 3  # measured together
LOOPS = 50_000  # maximum calls in a loop: each iteration costs 20 or more
SECONDS = 10.0  # of all these calls; without allowances it would be minutes
BYTES = 120_000_000  # kept by all these calls
QUICK = 0.0001  # seconds; faster calls are not multiplied, as the evaluation around them takes as long
TEXTS = {
    "wide": '\U0001f600\\"' * (SIZE // 6),
    "url": "https://" + "%41" * (SIZE // 6) + ":80/" + "b%20" * (SIZE // 16) + "?" + "k=v&" * (SIZE // 16),
    "version": "1.2.3-" + "a." * (SIZE // 2) + "a",  # also a list of words
    "duration": "0h" * (SIZE // 2),
    "time": "2021-01-01T00:00:00." + "1" * SIZE + "Z",
    "zone": "0" * SIZE + ":00",
}
ROOT: dict[str, Any] = {
    **TEXTS, "l": list(range(CALLS)), "words": ["x"] * 500, "m": {f"k{number}": "v" for number in range(500)}
}  # fmt: skip
VARIABLES: dict[str, Any] = {"o": dynamic(ROOT), "row": b"\xc3\xa4" * (SIZE // 2)}
ENV = Environment({"o": types.DYN, "row": types.DYN})
VALUES = {
    "bytes": ("row",), "int": ("1",), "uint": ("1u",), "double": ("1.5",), "bool": ("true",), "null": ("null",),
    "map": ("o.m",), "timestamp": ("timestamp('2021-01-01T00:00:00Z')",), "duration": ("duration('1s')",),
    "kubernetes.URL": ("given",), "kubernetes.Semver": ("given",), "net.IP": ("ip('::1')",),
    "net.CIDR": ("cidr('10.0.0.0/8')",), "kubernetes.Quantity": ("quantity('1')",),
}  # fmt: skip
MADE = {"kubernetes.URL": "url", "kubernetes.Semver": "semver"}


def arguments(type: Type, text: str) -> tuple[str, ...]:
    """Return expressions of arguments for a parameter of a type."""
    if type.kind == "string":
        return (f"o.{text}", "'[^x]{100}y'")
    if type.kind == "list":
        return ("o.words", f"[o.{text}]")
    if type.kind in ("dyn", "parameter"):
        return (f"o.{text}", "o.words")
    return VALUES.get(type.name if type.kind in ("opaque", "object") else type.kind, ())


def call(overload: Overload, given: tuple[str, ...]) -> str:
    """Return a call of an overload."""
    name, args = overload.function, [f"dyn({arg})" for arg in given]
    if name == "@in":
        return f"{args[0]} in {args[1]}"
    if name in ("-_", "!_"):
        return f"{name[0]}{args[0]}"
    if name == "_[_]":
        return f"{args[0]}[{args[1]}]"
    if name.startswith("_") and len(args) == 2:
        return f"{args[0]} {name[1:-1]} {args[1]}"
    return f"{args[0]}.{name}({', '.join(args[1:])})" if overload.member else f"{name}({', '.join(args)})"


def expressions(overload: Overload, text: str) -> Iterator[str]:
    """Yield expressions that call an overload repeatedly and keep its results."""
    made = next((MADE[type.name] for type in overload.args if type.name in MADE), "")
    for given in itertools.product(*(arguments(type, text) for type in overload.args)):
        loop = f"o.l.map(i, {call(overload, given)})"
        yield f"[{made}(o.{text})].map(given, {loop})[0]" if made else loop


LARGE = frozenset(("string", "bytes", "list", "map", "dyn", "parameter", "opaque"))
OVERLOADS = {
    overload.id: overload
    for name, function in sorted(base().functions.items())
    for overload in function.overloads
    if LARGE.intersection(type.kind for type in overload.args)
    and name not in ("_<=_", "_>_", "_>=_", "_?_:_", "_&&_", "_||_", "_?._", "_[?_]", "@not_strictly_false")
    and "@map" not in name
}


def measured(program: Program) -> tuple[float, float]:
    """Return the seconds of all calls and the bytes that they keep."""
    limit = Limit(10 * PER_CALL_LIMIT)
    began = time.thread_time()
    found = program.evaluate(VARIABLES, limit)
    took = time.thread_time() - began
    touched = cel_limits.MAX_ELEMENTS - effort.left()
    room = (
        PER_CALL_LIMIT / max(found.cost, 1),
        cel_limits.MAX_ELEMENTS / max(touched, 1),
        cel_limits.MAX_WORK / max(limit.work, 1),
    )
    times = min(*room, LOOPS / CALLS)
    kept = {id(value): sys.getsizeof(value) for value in (found.value if type(found.value) is list else ())}
    return (took * times if took > CALLS * QUICK else 0.0), (sum(kept.values()) * times if len(kept) == CALLS else 0)


@pytest.mark.parametrize("overload", OVERLOADS.values(), ids=OVERLOADS)
def test_a_call_of_unknown_types_is_bounded(overload: Overload) -> None:
    for text in TEXTS:
        for expression in expressions(overload, text):
            program = ENV.compile(expression)
            if not isinstance(program, Program):
                continue  # the compiler refuses such values
            seconds, kept = measured(program)
            if seconds > SECONDS:
                seconds = min(measured(program)[0] for _ in range(5)) / slowness()[0]
            assert seconds < SECONDS, expression
            assert kept < BYTES, expression


JOINED = "o.many.map(i, o.a + i).all(x, x != '')"
ROWS = "o.many.map(i, bytes(o.a)).size() > 0"
MEMBERS = "o.a in o.many.map(i, o.b)"


FOUND = "o.many.all(i, o.a.contains(o.c) || true)"
MATCHED = "o.many.all(i, o.a.matches(o.p) || true)"
ORDERED = "o.many.all(i, o.a < o.b || true)"


@pytest.mark.parametrize("text", [JOINED, ROWS, MEMBERS, FOUND, MATCHED, ORDERED])
@pytest.mark.parametrize("run", ENGINES)
def test_loop_over_large_strings_is_cancelled(text: str, run: Engine) -> None:
    """Evaluations stay within time and memory limits.

    A policy with such a loop was once killed after five seconds, with two gigabytes.
    """
    data = {
        "many": ["x"] * 60_000, "a": "a" * 262_000, "b": "a" * 261_999 + "b", "c": "a" * 2_000 + "b", "p": "[^x]{1000}y"
    }  # fmt: skip
    program = ENV.compile(text)
    assert isinstance(program, Program), program.text
    began = time.thread_time()
    found = run(program, {"o": dynamic(data), "row": b""})
    took = time.thread_time() - began
    assert found.error == effort.CANCELLED, found
    assert took < 6.0 or took < 6.0 * slowness()[0]


@pytest.mark.parametrize("call", ["o.numbers.isSorted()", "o.numbers.max() == 1", "o.numbers.min() == 1",
                                  "o.numbers.sum() == 1", "o.numbers == o.others", "o.map == o.same"])  # fmt: skip
@pytest.mark.parametrize("run", ENGINES)
def test_repeated_list_reads_count_their_elements(call: str, run: Engine) -> None:
    """The work per element is limited.

    An element takes a microsecond, so five million elements took five to seven seconds.
    """
    number = list(range(10_000))
    named = {str(one): one for one in number}
    data = {"many": [1] * 60_000, "numbers": number, "others": [*number], "map": named, "same": {**named}}
    program = ENV.compile(f"o.many.all(i, {call} || true)")
    assert isinstance(program, Program), program.text
    began = time.thread_time()
    found = run(program, {"o": dynamic(data), "row": b""})
    took = time.thread_time() - began
    assert found.error == effort.CANCELLED, found
    assert took < 2.0 or took < 2.0 * slowness()[0]


@pytest.mark.parametrize(
    "made",
    [
        "o.objects + o.objects",
        "[o.objects].flatten()",
        *(pytest.param(made, marks=pytest.mark.long) for made in ("o.objects.slice(0, 1000)", "o.objects.reverse()")),
    ],
)
def test_lists_of_objects_count_their_views(made: str) -> None:
    """Memory for views is limited.

    A view takes 64 bytes and a list item 8, so five million views took 300 MB.
    """
    data = {"many": [1] * 60_000, "objects": [{"a": 1}] * 1_000}
    program = ENV.compile(f"o.many.map(i, {made}).size() > 0")
    assert isinstance(program, Program), program.text
    tracemalloc.start()
    try:
        found = program.evaluate({"o": dynamic(data), "row": b""})
        assert found.error == effort.CANCELLED, found
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
