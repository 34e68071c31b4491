"""Strategic merge patch: maps merge, other values are replaced.

Lists with a merge key merge by key.
"""

from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, load
from apiext.documents.document import clone
from apiext.documents.strategic_merge import StrategicPatchError, apply, remainder

pytestmark = pytest.mark.rows("KUB-003")

LISTS = {"metadata.finalizers": "", "metadata.ownerReferences": "uid", "status.conditions": "type"}

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "maps merge and null removes": ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
    "a plain list is replaced": ({"xs": [1, 2]}, {"xs": [3]}, {"xs": [3]}),
    "scalars merge as a set": (
        {"metadata": {"finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b", "a"]}},
        {"metadata": {"finalizers": ["b", "a"]}},
    ),
    "scalars are deleted by name": (
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b"]}},
    ),
    # upstream: items that are maps are merged, not deleted
    "map items in a deletion list are merged": (
        {"status": {"conditions": [{"type": "A"}]}},
        {"status": {"$deleteFromPrimitiveList/conditions": [{"type": "A", "reason": "x"}]}},
        {"status": {"conditions": [{"type": "A", "reason": "x"}]}},
    ),
    "a list is deleted by null": (
        {"metadata": {"finalizers": ["a"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": None}},
        {"metadata": {}},
    ),
    "items merge by key": (
        {"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]}},
        {"status": {"conditions": [{"type": "A", "reason": "x"}, {"type": "C"}]}},
        {"status": {"conditions": [{"type": "A", "status": "True", "reason": "x"}, {"type": "C"}, {"type": "B"}]}},
    ),
    "an item is deleted by its key": (
        {"status": {"conditions": [{"type": "A"}, {"type": "B"}]}},
        {"status": {"conditions": [{"type": "A", "$patch": "delete"}]}},
        {"status": {"conditions": [{"type": "B"}]}},
    ),
    "the order of items is set": (
        {"status": {"conditions": [{"type": "A"}, {"type": "B"}]}},
        {"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]}},
        {"status": {"conditions": [{"type": "B"}, {"type": "A"}]}},
    ),
    "a keyed list is replaced": (
        {"status": {"conditions": [{"type": "A"}]}},
        {"status": {"conditions": [{"$patch": "replace"}, {"type": "C"}]}},
        {"status": {"conditions": [{"type": "C"}]}},
    ),
    "a map is replaced": ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}, {"a": {"c": 2}}),
    "a map is emptied": ({"a": {"b": 1}, "z": 1}, {"a": {"$patch": "delete"}}, {"a": {}, "z": 1}),
    "a deletion of an absent map is ignored": ({"z": 1}, {"a": {"$patch": "delete"}}, {"z": 1}),
    "new values lose nulls and directives": (
        {},
        {"a": {"b": None, "c": [{"x": None}, {"$patch": "delete"}], "d": {"$patch": "replace"}}},
        {"a": {"c": [{}]}},
    ),
    "only retained keys stay": ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["c"]}}, {"a": {"c": 2}}),
    "live items outside a set order keep their place": (
        {"status": {"conditions": [{"type": "X"}, {"type": "A"}, {"type": "Y"}, {"type": "B"}]}},
        {
            "status": {
                "$setElementOrder/conditions": [{"type": "B"}, {"type": "C"}, {"type": "A"}],
                "conditions": [{"type": "C"}, {"type": "A", "$patch": "delete"}],
            }
        },
        {"status": {"conditions": [{"type": "X"}, {"type": "Y"}, {"type": "B"}, {"type": "C"}]}},
    ),
    "new items come before live items": (
        {"status": {"conditions": [{"type": "A"}, {"type": "B"}]}},
        {"status": {"conditions": [{"type": "C"}]}},
        {"status": {"conditions": [{"type": "C"}, {"type": "A"}, {"type": "B"}]}},
    ),
    "new maps keep their order directives": (
        {},
        {"metadata": {"$setElementOrder/finalizers": ["b", "a"], "finalizers": ["b", "a"]}},
        {"metadata": {"$setElementOrder/finalizers": ["b", "a"], "finalizers": ["b", "a"]}},
    ),
    "an order of an absent list is ignored": (
        {"metadata": {}},
        {"metadata": {"$setElementOrder/finalizers": ["b"]}},
        {"metadata": {}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_strategic_patch_is_applied(name: str) -> None:
    live, patch, wanted = CASES[name]
    assert apply(live, patch, LISTS) == wanted


def test_the_live_object_is_not_changed() -> None:
    live = {"a": {"b": [1]}}
    apply(live, {"a": {"b": [2], "c": 1}}, LISTS)
    assert live == {"a": {"b": [1]}}


LIVE: dict[str, Any] = {
    "a": {},
    "metadata": {"finalizers": ["a"]},
    "status": {"conditions": [{"type": "A"}]},
    "plain": [{}],
}
CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"a": {"$patch": "melt"}}, "unknown patch type: V in map: V"),
    ({"a": {"$patch": "merge"}}, "unknown patch type: V in map: V"),
    ({"a": {"$retainKeys": "b"}}, "invalid patch format of retainKeys"),
    ({"a": {"$retainKeys": ["b"], "c": 1}}, "invalid patch format of retainKeys"),
    ({"$deleteFromPrimitiveList": ["a"]}, "invalid patch format of primitive list"),
    ({"$deleteFromPrimitiveList/plain": [{"b": 1}]}, "cannot merge lists without merge key for struct"),
    ({"$setElementOrders/a": ["a"]}, "invalid patch format of setElementOrder list"),
    ({"$setElementOrder/a": 1}, "expected a []interface {}, but received a int64"),
    ({"$setElementOrder/a": []}, "expected a []interface {}, but received a map[string]interface {}"),
    ({"metadata": {"finalizers": [["b"]]}}, "list element types are not identical: V"),
    ({"metadata": {"finalizers": [1]}}, "list element types are not identical: V"),
    ({"$setElementOrder/x": [], "x": []}, "no elements in any of the given slices"),
    ({"status": {"conditions": [{"reason": "x"}]}}, "map: V does not contain declared merge key: type"),
    ({"status": {"conditions": [{"$patch": "delete"}]}}, "map: V does not contain declared merge key: type"),
    ({"status": {"conditions": [{"$patch": "merge"}]}}, "merging lists cannot yet be specified in the patch"),
    ({"status": {"conditions": [{"$patch": "melt"}]}}, "unknown patch type: V in map: V"),
    ({"status": {"$setElementOrder/conditions": [1], "conditions": [{"type": "B"}]}},
     "expected a map[string]interface {}, but received a int64"),
    ({"metadata": {"$setElementOrder/finalizers": ["b", "c"], "finalizers": ["c", "b"]}},
     "The order in patch list:\nV\n doesn't match $setElementOrder list:\nV\n"),
]  # fmt: skip


@pytest.mark.parametrize(("patch", "says"), CONTRADICTIONS)
def test_contradictory_strategic_patch_is_refused(patch: dict[str, Any], says: str) -> None:
    with pytest.raises(StrategicPatchError) as refused:
        apply(LIVE, patch, LISTS)
    assert refused.value.text_with(lambda value: "V") == says


GIVEN = {"l": [1, 2]}


@pytest.mark.parametrize("case", load(__file__, "strategic_merge"), ids=case_name)
def test_strategic_merge_matches_upstream_cases(case: Case) -> None:
    given = GIVEN if case.given is None else case.given
    if case.invalid:
        with pytest.raises(StrategicPatchError) as refused:
            apply(given, case.patch, LISTS)
        assert refused.value.text_with(lambda value: "V") == case.invalid
    else:
        assert apply(given, case.patch, LISTS) == case.then


def _scribble(value: Any) -> None:
    for member in list(value.values() if isinstance(value, dict) else value):
        if isinstance(member, dict | list):
            _scribble(member)
    if isinstance(value, dict):
        value["scribbled"] = 1
    else:
        value.append("scribbled")


def test_strategic_merge_result_shares_nothing_with_patch() -> None:
    # a patch is applied again after a conflict with another write
    patch: dict[str, Any] = {
        "a": {"$patch": "replace", "b": {"c": [{}]}},
        "new": {"b": [{"c": {}}]},
        "plain": [{"b": {}}],
        "metadata": {"ownerReferences": [{"uid": "1", "x": {}}, {"uid": "2", "x": {}}]},
        "$setElementOrder/xs": [[2]],
        "status": {"conditions": [{"$patch": "replace"}, {"type": "C", "x": [{}]}]},
    }
    before = clone(patch)
    live = {**clone(LIVE), "metadata": {"ownerReferences": [{"uid": "2", "y": {}}, {"uid": "3", "y": {}}]}}
    _scribble(apply(live, patch, LISTS))
    assert patch == before


MANY = 30_000  # would exceed a budget per pair of items


@pytest.mark.parametrize("key", ["", "uid"])
def test_long_lists_merge_in_linear_time(key: str) -> None:
    def items(start: int) -> list[Any]:
        return [{"uid": str(number)} if key else str(number) for number in range(start, start + MANY)]

    lists, order = {"xs": key}, {"$setElementOrder/xs": items(MANY), "xs": items(MANY)}
    assert apply({"xs": items(0)}, {"xs": items(MANY)}, lists)["xs"] == items(MANY) + items(0)
    assert apply({"xs": items(0)}, order, lists)["xs"] == items(MANY) + items(0)


def test_many_directives_merge_in_linear_time() -> None:
    texts = [str(number) for number in range(MANY)]
    assert apply({"xs": texts}, {"$deleteFromPrimitiveList/xs": texts[1:]}, {"xs": ""}) == {"xs": texts[:1]}
    live = [{"uid": text} for text in texts]
    gone = [{"uid": text, "$patch": "delete"} for text in texts[1:]]
    assert apply({"xs": live}, {"xs": gone}, {"xs": "uid"}) == {"xs": live[:1]}


LEFT_OVER: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "nulls of present fields stay": ({"a": {"b": 1}}, {"a": {"b": None}, "c": None}, {"a": {"b": None}, "c": None}),
    "nulls of new fields are dropped": ({}, {"a": {"b": None, "c": [None, {"d": None}]}}, {"a": {"c": [None, {}]}}),
    "nulls of a map in place of a scalar are dropped": ({"a": 1}, {"a": {"b": None}}, {"a": {}}),
    "a list that replaces another stays": ({"xs": [1]}, {"xs": [{"a": None}]}, {"xs": [{"a": None}]}),
    "nulls of a merged item remain as in a map": (
        {"status": {"conditions": [{"type": "A"}]}},
        {"status": {"conditions": [{"type": "A", "x": {"y": None}, "z": None}, {"type": "B", "x": {"y": None}}]}},
        {"status": {"conditions": [{"type": "A", "x": {}, "z": None}, {"type": "B", "x": {"y": None}}]}},
    ),
    "order directives are removed with their lists": (
        {"metadata": {"finalizers": ["a"]}},
        {"metadata": {"$setElementOrder/finalizers": ["b", "a"], "finalizers": ["b"]}},
        {"metadata": {}},
    ),
    "retained keys are removed": ({"a": {"b": 1}}, {"a": {"$retainKeys": ["b"], "b": 2}}, {"a": {"b": 2}}),
    "a replace directive is removed": ({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": None}}, {"a": {"c": None}}),
    "a deletion stays": ({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {"a": {"$patch": "delete"}}),
}


@pytest.mark.parametrize("case", LEFT_OVER.values(), ids=LEFT_OVER)
def test_remainder_of_applied_patch(case: tuple[dict[str, Any], dict[str, Any], dict[str, Any]]) -> None:
    document, patch, expected = case
    before = clone(document), clone(patch)
    assert remainder(document, patch, LISTS) == expected
    apply(document, patch, LISTS)
    assert (document, patch) == before, "neither is changed"
