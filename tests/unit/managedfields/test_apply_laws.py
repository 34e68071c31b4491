"""Applies are idempotent and change only the manager's fields (SSA-008, SSA-009).

Independent applies commute.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.documents.document import View
from apiext.managedfields.updater import Conflicts
from tests.unit.managedfields.support import applied, owners_of, updated

pytestmark = pytest.mark.rows("SSA-006", "SSA-008", "SSA-009", "SSA-015")

NUMBERS = st.integers(0, 2)
NAMES = st.sampled_from("pqr")
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "a": NUMBERS,
        "b": NUMBERS,
        "map": st.dictionaries(NAMES, NUMBERS, min_size=1, max_size=2),
        "list": st.lists(NUMBERS, max_size=2),
        "set": st.lists(NUMBERS, min_size=1, max_size=2, unique=True),
        "items": st.lists(
            st.fixed_dictionaries({"k": NUMBERS}, optional={"v": NUMBERS}),
            min_size=1,
            max_size=3,
            unique_by=lambda item: item["k"],
        ),
        "free": st.dictionaries(NAMES, NUMBERS | st.dictionaries(NAMES, NUMBERS, min_size=1), min_size=1, max_size=2),
    },
)


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the values of a spec by path, with list items by name: a simple model of ownership."""
    if path[:1] == ("set",) and isinstance(value, list):
        return {(*path, str(item)): item for item in value}
    if path[:1] == ("items",) and isinstance(value, list):
        return {place: leaf for item in value for place, leaf in leaves(item, (*path, str(item["k"]))).items()}
    if isinstance(value, dict) and (value or not path):
        return {place: leaf for name, item in value.items() for place, leaf in leaves(item, (*path, name)).items()}
    return {path: value}


def by_name(spec: View) -> dict[tuple[str, ...], Any]:
    return leaves(dict(spec))


@given(SPECS, SPECS)
def test_repeated_apply_changes_nothing(first: View, second: View) -> None:
    once = applied(applied(None, "m1", first), "m2", second, force=True)
    assert applied(once, "m2", second, now="2027-01-01T00:00:00Z") == once


@given(SPECS, SPECS)
def test_applied_fields_are_stored_and_no_others_are_lost(first: View, second: View) -> None:
    live = applied(None, "m1", first)
    after = by_name(applied(live, "m2", second, force=True).get("spec", {}))
    wanted = by_name(second)
    assert wanted.items() <= after.items()
    hidden = {place[:depth] for place in wanted for depth in range(1, len(place))}
    hidden |= {place for place in by_name(first) if any(place[: len(other)] == other for other in wanted)}
    kept = {place: value for place, value in by_name(first).items() if place not in hidden}
    assert kept.items() <= after.items()


@given(SPECS)
def test_empty_apply_removes_all_fields_of_its_manager(spec: View) -> None:
    after = applied(applied(None, "m1", spec), "m1", {})
    assert by_name(after.get("spec") or {}) == {}
    assert "managedFields" not in after["metadata"]


@given(SPECS, SPECS)
def test_conflicts_arise_only_from_different_values(first: View, second: View) -> None:
    live = applied(None, "m1", first)
    found: list[Any] = []
    after = live
    try:
        after = applied(live, "m2", second)
    except Conflicts as conflicts:
        found = list(conflicts.paths())
    assert {owner.name for owner, _ in found} <= {"m1"}
    if found:
        with pytest.raises(Conflicts):
            applied(live, "m2", second)
        assert applied(live, "m2", second, force=True)["metadata"]["managedFields"]
        return
    before, now = by_name(live.get("spec", {})), by_name(after.get("spec", {}))
    assert all(now.get(place) == value for place, value in before.items() if place in by_name(second))


@given(SPECS, SPECS)
def test_applies_of_different_fields_commute(first: View, second: View) -> None:
    mine = {name: value for name, value in first.items() if name in ("a", "map", "list")}
    yours = {name: value for name, value in second.items() if name in ("b", "set", "items", "free")}
    one = applied(applied(None, "m1", mine), "m2", yours)
    other = applied(applied(None, "m2", yours), "m1", mine)
    assert one.get("spec") == other.get("spec")
    assert owners_of(one) == owners_of(other)


@given(SPECS, SPECS, SPECS)
def test_update_keeps_the_times_of_other_managers(first: View, second: View, third: View) -> None:
    live = updated(applied(None, "m1", first), "m2", second)
    after = updated(live, "m3", third, now="2026-01-02T00:00:00Z")
    owners = {entry["manager"]: entry for entry in after["metadata"].get("managedFields", ())}
    changed = by_name(live.get("spec", {})) != by_name(third)
    if not changed and live.get("spec") == third:
        assert "m3" not in owners
    for name in ("m1", "m2"):
        if name in owners:
            assert owners[name]["time"] == "2026-01-01T00:00:00Z", "losing fields is no change of one's own"
