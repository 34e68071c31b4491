"""Variables of admission expressions: untyped objects, the request, and the authorizer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.admission.expressions import Budget, OutOfBudget, evaluate
from apiext.catalog.admission_cel import compiled, environment
from apiext.cel.dynamic import dynamic
from apiext.cel.environment import Evaluation, Program
from apiext.cel.library.authorization import Question, authorizer, resource_check
from apiext.cel.library.named_formats import FORMATS
from apiext.cel.limit import Limit
from apiext.cel.values import Fault, equal, size
from apiext.conformance.support.waiting import prompt

SCALARS = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def program(text: str) -> Program:
    found = compiled(text, environment())
    assert isinstance(found, Program), found
    return found


@given(JSON)
def test_a_document_equals_itself(document: Any) -> None:
    assert equal(dynamic(document), dynamic(document)) is True


@given(st.dictionaries(st.text(), SCALARS, min_size=1), st.text())
def test_documents_that_differ_in_one_field_are_unequal(document: dict[str, Any], name: str) -> None:
    other = {key: value for key, value in document.items() if key != name}
    same = equal(dynamic(document), dynamic(other)) is True
    assert same == (name not in document)


@given(st.lists(JSON))
def test_lists_have_their_size_and_elements(items: list[Any]) -> None:
    found = dynamic(items)
    assert size(found) == len(items)
    assert [equal(one, dynamic(item)) for one, item in zip(found.items(), items, strict=True)] == [True] * len(items)


DOCUMENT = {
    "metadata": {"labels": {"a": "b"}},
    "spec": {"n": 3, "x": 1.5, "on": True, "list": [1, {"k": "v"}], "no": None},
}
EXPRESSIONS = [
    "object.metadata.labels == {'a': 'b'}",
    "object.spec.n + 1 == 4 && object.spec.x > 1.0 && object.spec.on",
    "object.spec.list[1].k == 'v' && object.spec.list.size() == 2",
    "has(object.spec.n) && !has(object.spec.m) && object.spec.no == null",
    "(object.spec.list + [2]).size() == 3 && object.spec.list == oldObject.spec.list",
    "object.spec.map(k, k).exists(k, k == 'list')",
    "1 in object.spec.list && 'n' in object.spec",
    "object == oldObject && object.?spec.?m.orValue('none') == 'none'",
    "namespaceObject == null || namespaceObject.metadata.name == 'x'",
    "request.name == 'a' && !has(request.subResource) && request.userInfo.groups.exists(g, g == 'g')",
    "request.options.fieldManager == 'me'",
]


@pytest.mark.rows("ADM-006")
@pytest.mark.parametrize("text", EXPRESSIONS)
async def test_expressions_read_admission_variables(text: str) -> None:
    known = {
        "object": dynamic(DOCUMENT),
        "oldObject": dynamic(DOCUMENT),
        "namespaceObject": None,
        "request": dynamic({"name": "a", "userInfo": {"groups": ["g"]}, "options": {"fieldManager": "me"}}),
    }
    found = await evaluate(program(text), known, Budget(10_000))
    assert (found.error, found.value) == (None, True)
    assert program(text).interpret(known).value is True


async def test_authorizer_checks_pass_all_attributes() -> None:
    asked: list[Question] = []

    def allow(question: Question) -> tuple[bool, str]:
        asked.append(question)
        return question.verb == "get", "because"

    known = {
        "authorizer": authorizer(allow),
        "authorizer.requestResource": resource_check(allow, Question(resource="own")),
    }
    texts = (
        "authorizer.group('g').resource('r').subresource('s').namespace('n').name('x').check('get').allowed()",
        "!authorizer.serviceAccount('ns', 'sa').path('/p').check('post').allowed()",
        "authorizer.requestResource.fieldSelector('a=b').labelSelector('c').check('get').reason() == 'because'",
        "authorizer.requestResource.check('x').error() == '' && !authorizer.requestResource.check('y').errored()",
    )
    for text in texts:
        found = await evaluate(program(text), known, Budget(10_000_000))
        assert (found.error, found.value) == (None, True), text
        assert found.cost >= 350_000
    assert Question("get", group="g", resource="r", subresource="s", namespace="n", name="x") in asked
    assert Question("post", path="/p", user="system:serviceaccount:ns:sa") in asked
    assert {question.resource for question in asked if question.verb in "xy"} == {"own"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("authorizer.serviceAccount('a', 'b:c')", "Invalid service account name"),
        ("authorizer.serviceAccount('', '')", "Invalid service account name"),
        ("authorizer.serviceAccount('A', 'b.c')", "Invalid service account namespace"),
        ("authorizer.serviceAccount('a.b', 'c')", "Invalid service account namespace"),
        ("authorizer.group('').resource(' ')", "resource must not be empty"),
        ("authorizer.path('')", "path must not be empty"),
        ("authorizer.path('\\t ')", "path must not be empty"),
    ],
)
async def test_invalid_authorizer_checks_return_errors(text: str, error: str) -> None:
    known = {"authorizer": authorizer(lambda _: (True, ""))}
    found = await evaluate(program(f"type({text}) == string"), known, Budget(10_000_000))
    assert found.error == error


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("authorizer == authorizer", "no such overload"),
        ("authorizer.path('/x').check('get') == authorizer.path('/x').check('get')", "no such overload"),
        ("optional.of(authorizer) == optional.of(authorizer)", "no such overload"),
        ("authorizer != authorizer", True),
        ("authorizer in [authorizer]", False),
        ("[authorizer] == [authorizer] && {'a': authorizer} == {'a': authorizer}", True),
    ],
)
async def test_comparisons_of_authorizer_values(text: str, found: str | bool) -> None:
    known = {"authorizer": authorizer(lambda _: (True, ""))}
    made = await evaluate(program(text), known, Budget(10_000_000))
    assert (made.error or made.value) == found
    assert program(text).interpret(known).error == made.error


async def test_evaluations_share_one_cost_budget() -> None:
    text, probe = "[1, 2, 3].all(x, x > 0)", Budget(1000)
    await evaluate(program(text), {}, probe)
    cost = 1000 - probe.left
    assert cost > 1
    budget = Budget(2 * cost - 1)
    await evaluate(program(text), {}, budget)
    with pytest.raises(OutOfBudget, match="running out of cost budget"):
        await evaluate(program(text), {}, budget)


async def test_long_evaluation_does_not_block_the_event_loop() -> None:
    import asyncio

    ten = "[1,2,3,4,5,6,7,8,9,10]"
    text = f"{ten}.all(a, {ten}.all(b, {ten}.all(c, {ten}.all(d, a + b + c + d > 0))))"
    loop, longest = asyncio.get_running_loop(), 0.0
    task = evaluate(program(text), {}, Budget(10_000_000))
    async with asyncio.TaskGroup() as group:
        done = group.create_task(task)
        while not done.done():
            began = loop.time()
            await asyncio.sleep(0)
            longest = max(longest, loop.time() - began)
    assert done.result().value is True
    prompt(longest, 0.2)


LARGE = {
    "object.matches('(?:.{0,10}a.{0,10}b){0,40}c$')": "ab" * 1000,
    "object.find('(?:.{0,10}a.{0,10}b){0,40}c$') != ''": "ab" * 1000,
    "object.findAll('(?:.{0,10}a.{0,10}b){0,40}c$') != []": "ab" * 1000,
    "isURL(object) && object == ''": "http://" + "a" * 10_000,
    "url(object).getHost() == ''": "http://" + "a" * 10_000,
    "isSemver(object) && object == ''": "1.2.3-" + "1." * 5_000 + "1",
    "semver(object, true).major() == 2": "1.2.3-" + "1." * 5_000 + "1",
    "duration(object) == duration('0')": "1s" * 5_000,
    "object.lowerAscii() == ''": "A" * 10_000,
    "object.upperAscii() == ''": "a" * 10_000,
    "strings.quote(object) == ''": "a" * 10_000,
}


class Watched:
    """A program that records for each evaluation whether it ran on the event loop."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.on_loop: list[bool] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.program, name)

    def evaluate(self, known: Mapping[str, Any], limit: Limit) -> Evaluation:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        return self.program.evaluate(known, limit)

    def interpret(self, known: Mapping[str, Any], limit: Limit) -> Evaluation:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        return self.program.interpret(known, limit)


@pytest.mark.parametrize("fault", [False, True], ids=["generated", "interpreted"])
@pytest.mark.parametrize("text", LARGE)
async def test_calls_with_large_strings_run_in_a_thread(text: str, fault: bool) -> None:
    watched: Any = Watched(program(text))
    known = {"variables.x": Fault("no such key: x")} if fault else {}
    found = await evaluate(watched, {"object": "a", **known}, Budget(10_000_000))
    assert watched.on_loop == [True] or fault, "a short text stays"
    watched.on_loop.clear()
    found = await evaluate(watched, {"object": LARGE[text], **known}, Budget(10_000_000))
    assert (found.error, found.value) == (None, False)
    assert watched.on_loop == [True, False]


async def test_format_checks_of_large_strings_run_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    found, on_loop = FORMATS["dns1123Subdomain"], list[bool]()

    def test(text: str, test: Callable[[str], list[str]] = found.test) -> list[str]:
        on_loop.append(threading.current_thread() is threading.main_thread())
        return test(text)

    monkeypatch.setattr(found, "test", test)
    made = await evaluate(
        program("!format.dns1123Subdomain().validate(object).hasValue()"),
        {"object": "a." * 50_000 + "a"},
        Budget(10_000_000),
    )
    assert (made.error, made.value, on_loop) == (None, False, [False])


async def test_long_programs_are_generated_in_a_thread() -> None:
    watched: Any = Watched(program("object == 'a'" + " || object == 'b'" * 200))
    for _ in range(2):
        assert (await evaluate(watched, {"object": "a"}, Budget(10_000_000))).value is True
    assert watched.on_loop == [False, True]
