"""The cached managedFields of new objects equal computed ones (SSA-006)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.documents.document import Document, View, clone
from apiext.managedfields import limits as managedfields_limits
from apiext.managedfields import manager, updater
from apiext.managedfields.fieldset import EMPTY, FieldSet
from apiext.schema import limits as schema_limits
from tests.unit.managedfields.support import BASE, NOW, writer
from tests.unit.managedfields.test_apply_laws import SPECS
from tests.unit.managedfields.test_update_roads import MISFITS

pytestmark = pytest.mark.rows("SSA-006")

LATER = "2026-01-02T00:00:00Z"
RESETS: list[FieldSet] = [EMPTY, {"f:status": {}}, {"f:spec": {"f:a": {}}}]


def born(spec: Any, *, reset: FieldSet = EMPTY, live: View = BASE, subresource: str = "", now: str = NOW) -> Any:
    new: Document = {**BASE, "metadata": {"name": "o"}, "spec": clone(spec)}
    who = writer("m", now, subresource=subresource, ignored=reset)
    return manager.track(who, live, new, creating=True)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    fresh: dict[Any, Any] = {}
    monkeypatch.setattr(manager, "_CREATED", fresh)
    return fresh


WRITES = st.fixed_dictionaries(
    {"spec": MISFITS | SPECS | st.just({"list": [1, 2], "free": {"x": [{"y": 1}]}})},
    optional={
        "reset": st.sampled_from(RESETS),
        "subresource": st.sampled_from(["", "status"]),
        "live": st.sampled_from([BASE, {**BASE, "spec": {}}, {**BASE, "spec": {"a": 1}}]),
        "now": st.sampled_from([NOW, LATER]),
    },
)


@given(st.lists(WRITES, max_size=6))
def test_like_objects_are_owned_as_if_each_was_the_first(writes: list[dict[str, Any]]) -> None:
    warm: dict[Any, Any] = {}
    for write in (*writes, *writes):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(manager, "_CREATED", {})
            expected = born(**write)
            patched.setattr(manager, "_CREATED", warm)
            assert born(**write) == expected


NUMBERS = {"a": 1, "b": 2.5, "map": {"x": 1}, "list": [1, 2], "free": {"deep": [{"x": None}]}, "items": []}


def refuse(*_: Any) -> Any:
    raise AssertionError("worked out again")


def test_the_second_of_its_kind_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = born(NUMBERS)
    monkeypatch.setattr(updater, "compared", refuse)
    other = {"a": 7, "b": 0.0, "map": {"x": 9}, "list": [3, 4], "free": {"deep": [{"x": None}]}, "items": []}
    (second,) = born(other, now=LATER)
    assert second == {**first, "time": LATER}
    second["fieldsV1"]["f:more"] = {}
    assert "f:more" not in born(other)[0]["fieldsV1"]


@pytest.mark.parametrize(
    "other",
    [
        {**NUMBERS, "a": 1.5},
        {**NUMBERS, "list": [1]},
        {**NUMBERS, "free": {"deep": [{"y": None}]}},
        {**NUMBERS, "map": {}},
        {"b": 2.5, **NUMBERS},
    ],
    ids=["class", "length", "deep", "empty", "order"],
)
def test_others_are_worked_out(other: View, monkeypatch: pytest.MonkeyPatch) -> None:
    born(NUMBERS)
    monkeypatch.setattr(updater, "compared", refuse)
    with pytest.raises(AssertionError, match="worked out again"):
        born(other)


def test_endpoints_are_told_apart() -> None:
    whole, part, other = born(NUMBERS), born(NUMBERS, reset=RESETS[2]), born(NUMBERS, subresource="status")
    assert "f:a" in whole[0]["fieldsV1"]["f:spec"]
    assert "f:a" not in part[0]["fieldsV1"]["f:spec"]
    assert other == [{**whole[0], "subresource": "status"}]


def test_what_does_not_fit_has_no_owners() -> None:
    born(NUMBERS)
    assert born({**NUMBERS, "a": True}) == born({**NUMBERS, "more": 1}) == []


@pytest.mark.parametrize("spec", [{"set": [1, 2]}, {"items": [{"k": 1}]}, {"ports": [{}]}])
def test_items_that_are_owned_one_by_one_are_named_by_their_values(spec: View, cache: dict[Any, Any]) -> None:
    born(spec)
    assert not cache


def test_only_so_much_is_remembered(cache: dict[Any, Any]) -> None:
    for number in range(2 * managedfields_limits.OWNERSHIPS_SEEN):
        born({"map": {f"n{number}": 1}})
        assert len(cache) <= managedfields_limits.OWNERSHIPS_SEEN
    assert cache
    cache.clear()
    born({"map": {f"n{number}": 1 for number in range(schema_limits.SHAPE_MEMBERS)}})
    born({"list": [1] * schema_limits.SHAPE_MEMBERS})
    deep: Any = 1
    for _ in range(schema_limits.SHAPE_MEMBERS):
        deep = [deep]
    born({"free": deep})
    long = "x" * (managedfields_limits.OWNERSHIP_BYTES // 2)
    born({"map": {f"{long}1": 1, f"{long}2": 1}})
    born({"free": [{long: {long: 1}}]})
    assert not cache
