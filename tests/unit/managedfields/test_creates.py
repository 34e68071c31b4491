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


def track_create(
    spec: Any, *, reset: FieldSet = EMPTY, live: View = BASE, subresource: str = "", now: str = NOW
) -> Any:
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
def test_cached_ownership_equals_computed_ownership(writes: list[dict[str, Any]]) -> None:
    warm: dict[Any, Any] = {}
    for write in (*writes, *writes):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(manager, "_CREATED", {})
            expected = track_create(**write)
            patched.setattr(manager, "_CREATED", warm)
            assert track_create(**write) == expected


NUMBERS = {"a": 1, "b": 2.5, "map": {"x": 1}, "list": [1, 2], "free": {"deep": [{"x": None}]}, "items": []}


def fail_on_compute(*_: Any) -> Any:
    raise AssertionError("worked out again")


def test_second_object_of_equal_shape_is_a_cache_hit(monkeypatch: pytest.MonkeyPatch) -> None:
    (first,) = track_create(NUMBERS)
    monkeypatch.setattr(updater, "compared", fail_on_compute)
    other = {"a": 7, "b": 0.0, "map": {"x": 9}, "list": [3, 4], "free": {"deep": [{"x": None}]}, "items": []}
    (second,) = track_create(other, now=LATER)
    assert second == {**first, "time": LATER}
    second["fieldsV1"]["f:more"] = {}
    assert "f:more" not in track_create(other)[0]["fieldsV1"]


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
def test_object_of_another_shape_is_a_cache_miss(other: View, monkeypatch: pytest.MonkeyPatch) -> None:
    track_create(NUMBERS)
    monkeypatch.setattr(updater, "compared", fail_on_compute)
    with pytest.raises(AssertionError, match="worked out again"):
        track_create(other)


def test_ownership_cache_separates_endpoints() -> None:
    whole, part, other = (
        track_create(NUMBERS),
        track_create(NUMBERS, reset=RESETS[2]),
        track_create(NUMBERS, subresource="status"),
    )
    assert "f:a" in whole[0]["fieldsV1"]["f:spec"]
    assert "f:a" not in part[0]["fieldsV1"]["f:spec"]
    assert other == [{**whole[0], "subresource": "status"}]


def test_object_that_violates_its_schema_has_no_owners() -> None:
    track_create(NUMBERS)
    assert track_create({**NUMBERS, "a": True}) == track_create({**NUMBERS, "more": 1}) == []


@pytest.mark.parametrize("spec", [{"set": [1, 2]}, {"items": [{"k": 1}]}, {"ports": [{}]}])
def test_ownership_of_associative_lists_is_not_cached(spec: View, cache: dict[Any, Any]) -> None:
    track_create(spec)
    assert not cache


def test_ownership_cache_is_bounded(cache: dict[Any, Any]) -> None:
    for number in range(2 * managedfields_limits.OWNERSHIPS_SEEN):
        track_create({"map": {f"n{number}": 1}})
        assert len(cache) <= managedfields_limits.OWNERSHIPS_SEEN
    assert cache
    cache.clear()
    track_create({"map": {f"n{number}": 1 for number in range(schema_limits.SHAPE_MEMBERS)}})
    track_create({"list": [1] * schema_limits.SHAPE_MEMBERS})
    deep: Any = 1
    for _ in range(schema_limits.SHAPE_MEMBERS):
        deep = [deep]
    track_create({"free": deep})
    long = "x" * (managedfields_limits.OWNERSHIP_CHARACTERS // 2)
    track_create({"map": {f"{long}1": 1, f"{long}2": 1}})
    track_create({"free": [{long: {long: 1}}]})
    assert not cache
