"""Strategic merge patch: maps merge, listed lists merge by key, the rest is replaced."""

import pytest

from apiext.documents.strategic_merge import StrategicPatchError, apply

pytestmark = pytest.mark.rows("KUB-003")

LISTS = {"metadata.finalizers": "", "metadata.ownerReferences": "uid", "status.conditions": "type"}

CASES = {
    "maps merge and null removes": ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
    "a plain list is replaced": ({"xs": [1, 2]}, {"xs": [3]}, {"xs": [3]}),
    "scalars merge as a set": (
        {"metadata": {"finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b", "a"]}},
        {"metadata": {"finalizers": ["a", "b"]}},
    ),
    "scalars are deleted by name": (
        {"metadata": {"finalizers": ["a", "b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}},
        {"metadata": {"finalizers": ["b"]}},
    ),
    "items merge by key": (
        {"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]}},
        {"status": {"conditions": [{"type": "A", "reason": "x"}, {"type": "C"}]}},
        {"status": {"conditions": [{"type": "A", "status": "True", "reason": "x"}, {"type": "B"}, {"type": "C"}]}},
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
    "a map is deleted": ({"a": {"b": 1}, "z": 1}, {"a": {"$patch": "delete"}}, {"z": 1}),
    "only retained keys stay": ({"a": {"b": 1, "c": 2}}, {"a": {"$retainKeys": ["c"]}}, {"a": {"c": 2}}),
}


@pytest.mark.parametrize("name", CASES)
def test_apply(name: str) -> None:
    live, patch, wanted = CASES[name]
    assert apply(live, patch, LISTS) == wanted


def test_the_live_object_is_not_changed() -> None:
    live = {"a": {"b": [1]}}
    apply(live, {"a": {"b": [2], "c": 1}}, LISTS)
    assert live == {"a": {"b": [1]}}


@pytest.mark.parametrize("patch", [{"a": {"$patch": "melt"}}, {"status": {"conditions": [{"reason": "x"}]}}])
def test_contradictions_are_refused(patch: dict[str, object]) -> None:
    with pytest.raises(StrategicPatchError):
        apply({}, patch, LISTS)
