"""Patches and paths: tables in cases/, and limits."""

import time
import tracemalloc
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, load
from apiext.conformance.support.waiting import prompt
from apiext.documents import json_patch, jsonpath, limits, merge_patch
from apiext.documents.document import clone


@pytest.mark.rows("WRI-007")
@pytest.mark.parametrize("case", load(__file__, "json_patch"), ids=case_name)
def test_json_patch_operations_are_applied(case: Case) -> None:
    if case.invalid:
        with pytest.raises(json_patch.PatchInvalid) as caught:
            json_patch.apply(case.given, case.patch)
        assert case.invalid in (True, str(caught.value))
    elif case.malformed:
        with pytest.raises(json_patch.PatchMalformed) as malformed:
            json_patch.apply(case.given, case.patch)
        assert case.malformed == str(malformed.value)
    else:
        before = clone({"given": case.given, "patch": case.patch})
        assert json_patch.apply(case.given, case.patch) == case.then
        assert {"given": case.given, "patch": case.patch} == before, "a patch is put on again after a conflict"


@pytest.mark.rows("WRI-007", "LIM-002")
def test_json_patch_operations_are_limited() -> None:
    text = "The allowed maximum operations in a JSON patch is 10000, got 10001"
    many = [{"op": "add", "path": "/q", "value": 1}] * 10_001
    with pytest.raises(json_patch.PatchTooBig, match=text):
        json_patch.check(many)
    assert json_patch.check(many[1:]) == json_patch.check(many, bounded=False) == []
    assert json_patch.apply({}, many) == {"q": 1}


MOVES: list[tuple[int, dict[str, Any]]] = [  # number of elements that move, in a list of 10
    (10, {"op": "add", "path": "/d/0", "value": 1}),
    (7, {"op": "add", "path": "/d/3", "value": 1}),
    (0, {"op": "add", "path": "/d/-", "value": 1}),
    (0, {"op": "add", "path": "/d/10", "value": 1}),
    (1, {"op": "add", "path": "/d/-1", "value": 1}),
    (10, {"op": "remove", "path": "/d/0"}),
    (1, {"op": "remove", "path": "/d/-1"}),
    (10, {"op": "move", "from": "/d/0", "path": "/d/-"}),
    (19, {"op": "move", "from": "/d/0", "path": "/d/0"}),
    (10, {"op": "copy", "from": "/d/9", "path": "/d/0"}),
    (0, {"op": "replace", "path": "/d/0", "value": 2}),
    (0, {"op": "test", "path": "/d/0", "value": 0}),
    (0, {"op": "add", "path": "/e", "value": 1}),
    (0, {"op": "remove", "path": "/0"}),
]


@pytest.mark.rows("LIM-002")
@pytest.mark.parametrize(("moved", "operation"), MOVES)
def test_moved_list_elements_are_limited(
    moved: int, operation: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"d": list(range(10)), "0": 0}
    monkeypatch.setattr(limits, "MAX_JSON_PATCH_MOVED", moved)
    json_patch.apply(given, [operation])
    monkeypatch.setattr(limits, "MAX_JSON_PATCH_MOVED", moved - 1)
    if not moved:
        return
    text = f"the patch shifts {moved} list elements, exceeding the limit {moved - 1}"
    with pytest.raises(json_patch.PatchInvalid, match=f"^{text}$"):
        json_patch.apply(given, [operation])


@pytest.mark.rows("LIM-002")
def test_size_of_json_patch_copies_is_limited() -> None:
    doubling = [{"op": "add", "path": "/a", "value": ["x" * 1000]}]
    doubling += [{"op": "copy", "from": "/a", "path": "/a/-"}] * 40
    text = "Unable to complete the copy, the accumulated size increase of copy is 4115463, exceeding the limit 3145728"
    with pytest.raises(json_patch.PatchInvalid, match=f"^{text}$"):
        json_patch.apply({}, doubling)


def test_depth_of_json_patch_result_is_limited() -> None:
    before = time.perf_counter()
    digging = [{"op": "add", "path": "/a" * (n + 1), "value": {}} for n in range(2_000)]
    with pytest.raises(json_patch.PatchInvalid, match="exceeds max depth"):
        json_patch.apply({}, digging)
    nesting = [{"op": "move", "from": "", "path": "/a"}, {"op": "copy", "from": "/a", "path": "/a/a"}]
    with pytest.raises(json_patch.PatchInvalid):
        json_patch.apply({"a": {}}, nesting)
    wrapping = [{"op": "copy", "from": "/a", "path": "/a/a"}] * 600
    with pytest.raises(json_patch.PatchInvalid):
        json_patch.apply({"a": {}}, wrapping)
    prompt(time.perf_counter() - before, 5)


@pytest.mark.rows("WRI-013")
def test_unknown_json_patch_fields_are_reported() -> None:
    operations: list[Any] = [{"op": "test", "path": "/a"}, {"op": "add", "path": "/a", "value": 1, "foo": 1}]
    assert json_patch.check(operations) == ['unknown field "[1].foo"']


MERGES = [
    ("null removes", {"a": 1, "b": 2}, {"a": None}, {"b": 2}),
    ("null of an absent field", {"b": 2}, {"a": None}, {"b": 2}),
    ("objects merge", {"a": {"x": 1, "y": 2}}, {"a": {"y": 3}}, {"a": {"x": 1, "y": 3}}),
    ("lists are replaced", {"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
    ("an object replaces a list without its nulls", {"a": [1]}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ("nulls of a new object are dropped", {}, {"a": {"b": {"c": None}}}, {"a": {"b": {}}}),
    (
        "nulls in objects of a list are dropped, null elements stay",
        {"a": [1]},
        {"a": [None, {"b": None}]},
        {"a": [None, {}]},
    ),
    ("a list in place of an object keeps nulls of its objects", {"a": {}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}),
    ("an empty object in place of a scalar", {"a": 1}, {"a": {}}, {"a": {}}),
]


@pytest.mark.rows("WRI-007")
@pytest.mark.parametrize(("name", "given", "patch", "then"), MERGES, ids=[row[0] for row in MERGES])
def test_merge_patch_is_applied(name: str, given: Any, patch: Any, then: Any) -> None:
    assert merge_patch.apply(given, patch) == then


@pytest.mark.rows("TAB-007")
@pytest.mark.parametrize("case", load(__file__, "jsonpath"), ids=case_name)
def test_jsonpath_is_evaluated_as_upstream(case: Case) -> None:
    if case.error is not None:
        with pytest.raises(jsonpath.JSONPathError) as refused:
            jsonpath.compile(case.path)
        assert str(refused.value) == case.error
    else:
        assert jsonpath.compile(case.path)(case.given) == case.then


def test_exponential_jsonpath_returns_nothing() -> None:
    document: Any = {"a": 1}
    for _ in range(60):
        document = {"a": document, "b": [1, 2, 3]}
    before = time.perf_counter()
    assert jsonpath.compile("...*...*...*...*")(document) == []
    prompt(time.perf_counter() - before, 5)


TIMES = "','".join(["l"] * 10_000)
MULTIPLYING = {
    "a union in one list": f".l[{','.join('*' * 10_000)}]",
    "a union of absent names": f".o[*]['{TIMES}']",
    "slices of one list taken many times": f"['{TIMES}'][0:]",
    "children of one list taken many times": f"['{TIMES}'].*",
    "descents into one list taken many times": f"['{TIMES}']..x",
    "a filter of one list taken many times": f"['{TIMES}'][?(@.x==1)]",
    "an existence filter of one list taken many times": f"['{TIMES}'][?(@.x)]",
    "an empty filter": f"['{TIMES}'][?()].x",
}


@pytest.mark.slow
@pytest.mark.parametrize("path", MULTIPLYING.values(), ids=MULTIPLYING)
def test_expensive_jsonpath_exhausts_budget_in_bounded_memory(path: str) -> None:
    find = jsonpath.compile(path, limits.JSONPATH_WORK // 10)
    tracemalloc.start()
    before = time.process_time()
    try:
        assert find({"l": [1] * 90_000, "o": [{}] * 90_000}) == []
        spent, (_, peak) = time.process_time() - before, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * 1024 * 1024
    prompt(spent, 5)


def test_jsonpath_budget_limits_visited_values() -> None:
    path, document = ".l[?(@.x==1)].x", {"l": [{"x": 1}] * 1000}
    assert jsonpath.compile(path)(document) == [1] * 1000
    assert jsonpath.compile(path, 10_000)(document) == [1] * 1000
    assert jsonpath.compile(path, 1000)(document) == []
    assert jsonpath.compile(".l[0].x", 10)(document) == [1]
    assert jsonpath.compile("..x", 999)(document) == []
