"""Long rules run in a thread, return to the loop if short, and stop with their request."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from apiext import app, limits
from apiext.auth.user import SUPERUSER
from apiext.catalog.compile import compile_definition
from apiext.conformance.support.definitions import definition
from apiext.conformance.support.waiting import prompt
from apiext.documents.document import Document
from apiext.meta.status import StatusError
from apiext.verbs import decoding, threads
from apiext.verbs.call import Call

pytestmark = pytest.mark.rows("CEL-011")
NUMBERS = {"type": "array", "items": {"type": "integer"}}
PAIRS = "self.all(a, self.all(b, a + b >= 0))"
TRIPLES = "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))"
SLOW = "(?:.{0,10}a.{0,10}b){0,40}c$"  # too large for an automaton: 15 µs per character
RULE_OF_SLOW = {"x-kubernetes-validations": [{"rule": f"self.matches('{SLOW}')"}]}
UNKNOWN = "self.all(a, self.all(b, a >= 0 || b / 0 == 1))"


def a_call(rule: str, deadline: float = 0.0) -> Call:
    """Return a call of a resource whose spec is a list of integers with a rule."""
    return a_call_of({**NUMBERS, "x-kubernetes-validations": [{"rule": rule}]}, deadline)


def a_call_of(spec: Document, deadline: float = 0.0) -> Call:
    """Return a call of a resource whose spec has a schema."""
    resource = compile_definition(
        definition("example.com", schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    )
    served = resource.versions["v1"]
    return Call("create", served, resource, served.endpoints[""], "default", "", {}, SUPERUSER, deadline=deadline)


def evaluate_rules(call: Call, document: Document, seen: list[int]) -> list[str]:
    """Return the errors of the rules, and add the thread to ``seen``."""
    seen.append(threading.get_ident())
    return [str(error) for error in call.served.validation.rules(document, None, [])[0]]


async def run_rules(call: Call, numbers: list[int]) -> tuple[list[str], list[bool]]:
    """Return the errors, and for each evaluation whether it was on the loop."""
    seen: list[int] = []
    call.size = 4 * len(numbers)
    errors = await threads.run(call, evaluate_rules, call, {"spec": numbers}, seen)
    return errors, [ident == threading.get_ident() for ident in seen]


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner() as runner:
        runner.run(work())


def test_short_rules_leave_thread_after_first_use() -> None:
    async def work() -> None:
        call = a_call(PAIRS)
        assert await run_rules(call, [1, 2]) == ([], [False])
        assert await run_rules(call, [1, 2]) == ([], [True])

    run(work)


def test_rules_over_the_budget_of_the_loop_are_evaluated_in_a_thread() -> None:
    async def work() -> None:
        call = a_call(PAIRS)
        await run_rules(call, [1])
        assert await run_rules(call, [1] * 300) == ([], [True, False]), "tried, then done again"
        assert await run_rules(call, [1] * 300) == ([], [False]), "known to be long"
        assert await run_rules(call, [1] * 5) == ([], [True]), "smaller objects stay"
        assert not call.served.work.slow(4 * 299)
        call.served.work.report(limits.WORK_INLINE * 9, False)
        assert call.served.work.slow(limits.WORK_INLINE), "large objects never stay"

    run(work)


def test_rules_that_became_short_return_to_the_loop() -> None:
    async def work() -> None:
        call = a_call(PAIRS)
        await run_rules(call, [1])
        call.served.work.report(40, True)
        assert await run_rules(call, [1] * 10) == ([], [False])
        assert await run_rules(call, [1] * 10) == ([], [True])

    run(work)


def test_interpreted_rules_move_to_thread_earlier() -> None:
    async def work() -> None:
        call = a_call(UNKNOWN)
        await run_rules(call, [1])
        assert await run_rules(call, [1] * 44) == ([], [True]), "about 9,000 units of generated code"
        errors, where = await run_rules(call, [*[1] * 43, -1])
        assert errors == ['spec: Invalid value: "array": division by zero evaluating rule: ' + UNKNOWN]
        assert where == [True, False], "a fault is looked for step by step"

    run(work)


@pytest.mark.rows("STR-010")
@pytest.mark.parametrize("schema", [{"pattern": SLOW}, RULE_OF_SLOW], ids=["pattern", "rule"])
def test_patterns_over_the_budget_of_the_loop_are_searched_in_a_thread(schema: Document) -> None:
    async def work() -> None:
        call = a_call_of({"type": "string", **schema})

        def told(text: str, seen: list[int]) -> list[str]:
            seen.append(threading.get_ident())
            served, document = call.served, {"spec": text}
            return [
                str(error)
                for error in [
                    *served.validation.validate(document, None),
                    *served.validation.rules(document, None, [])[0],
                ]
            ]

        async def searched(text: str) -> tuple[bool, list[bool]]:
            seen: list[int] = []
            call.size = len(text)
            errors = await threads.run(call, told, text, seen)
            return bool(errors), [ident == threading.get_ident() for ident in seen]

        await searched("abc")
        assert await searched("abc") == (False, [True])
        assert await searched("ab" * 1000) == (True, [True, False])
        assert await searched("ab" * 1000 + "c" * 3) == (False, [False]), "known to be long"

    run(work)


def test_rule_cost_limit_applies_in_thread() -> None:
    async def work() -> None:
        errors, _ = await run_rules(a_call(TRIPLES), [1] * 200)
        assert len(errors) == 1
        assert "no further validation rules will be run due to call cost exceeds limit for rule" in errors[0]

    run(work)


def endless(call: Call, started: threading.Event, ended: threading.Event) -> None:
    """Evaluate rules repeatedly until the test stops it."""
    started.set()
    late = time.monotonic() + 10
    try:
        while time.monotonic() < late:
            call.served.validation.rules({"spec": [1] * 200}, None, [])
    finally:
        ended.set()


def test_offloaded_work_ends_at_deadline() -> None:
    async def work() -> None:
        call = a_call(PAIRS, asyncio.get_running_loop().time() + 0.2)
        started, ended = threading.Event(), threading.Event()
        with pytest.raises(StatusError) as late:
            await threads.run(call, endless, call, started, ended)
        assert (late.value.code, late.value.message) == (504, f"Timeout: {threads.DEADLINE_EXCEEDED}")
        assert await asyncio.to_thread(ended.wait, 5), "the thread is free again"

    run(work)


def test_offloaded_work_ends_with_cancelled_request() -> None:
    async def work() -> None:
        call = a_call(PAIRS)
        started, ended = threading.Event(), threading.Event()
        async with asyncio.TaskGroup() as group:
            task = group.create_task(threads.run(call, endless, call, started, ended))
            await asyncio.to_thread(started.wait, 5)
            task.cancel()
        assert await asyncio.to_thread(ended.wait, 5)

    run(work)


def test_event_loop_stays_responsive_during_long_rule() -> None:
    """The loop stays responsive during a rule of 10 million cost units."""
    gaps = [0.0]

    async def beat(over: asyncio.Event) -> None:
        before = time.perf_counter()
        while not over.is_set():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            gaps.append(now - before)
            before = now

    async def work() -> None:
        call = a_call(TRIPLES)
        await run_rules(call, [1] * 2)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(beat(over))
            for size in (45, 45, 100, 45):
                errors, _ = await run_rules(call, [1] * size)
                assert bool(errors) is (size >= 100), errors
            over.set()

    before = sys.getswitchinterval()
    sys.setswitchinterval(app.SWITCH_INTERVAL)
    try:
        run(work)
    finally:
        sys.setswitchinterval(before)
    usual = sorted(gaps)[len(gaps) * 9 // 10]
    prompt(usual, 0.02, "the budget is 5 ms, on a machine that nobody else uses")
    assert len(gaps) > 20


@pytest.mark.rows("NUL-002")
def test_lists_with_large_item_defaults_run_in_thread() -> None:
    item = {"type": "object", "properties": {"a": {"type": "string", "default": "x" * 2_000}}}
    schema = {"type": "object", "properties": {"spec": {"type": "array", "items": item}}}
    served = compile_definition(definition("example.com", schema={"openAPIV3Schema": schema})).versions["v1"]
    assert served.work.slow(10), "nothing is compiled yet"
    document: Document = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {}, "spec": [{}]}
    served.model.normalize(document)
    assert served.validation.rules(document, None, []) == ([], [])
    assert not served.work.slow(50)
    assert served.work.slow(500), "500 bytes may be 160 items"


@pytest.mark.rows("NUL-002")
def test_object_size_includes_defaults() -> None:
    call = a_call(PAIRS)
    schema = {"type": "object", "properties": {"spec": {"type": "string", "default": "x" * 5_000}}}
    served = compile_definition(definition("example.com", schema={"openAPIV3Schema": schema})).versions["v1"]
    call.served, call.endpoint, call.size, call.name = served, served.endpoints[""], 100, "a"
    decoding.normalize_patched(
        call, {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}, [], decoding.IGNORE, str
    )
    assert 5_000 < call.size < 6_000
