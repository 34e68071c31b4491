"""A change through a version with fewer fields keeps the fields that this version lacks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.documents.document import clone
from apiext.documents.encoding import encode
from apiext.managedfields import hidden
from apiext.managedfields.fieldset import EMPTY
from apiext.managedfields.schemas import merge_type
from apiext.schema.compile import compile_schema

pytestmark = pytest.mark.rows("VER-003")

TEXT = {"type": "string"}


def _part(shows: bool, depth: int = 2) -> dict[str, Any]:
    """Return the schema of a part; only if ``shows``, it has the fields ``h`` and ``hidden``."""
    properties: dict[str, Any] = {"k": TEXT, "v": TEXT}
    if depth:
        below = _part(shows, depth - 1)
        properties |= {
            "inner": below,
            "map": {"type": "object", "additionalProperties": below},
            "list": {"type": "array", "items": below},
            "keyed": {
                "type": "array",
                "items": {**below, "required": ["k"]},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
            },
        }
    if shows:
        properties |= {"h": TEXT, "hidden": {"type": "object", "additionalProperties": TEXT}}
    return {"type": "object", "properties": properties}


NEW, OLD = ({"type": "object", "properties": {"spec": _part(shows)}} for shows in (True, False))
TYPE, LESS = merge_type(NEW), compile_schema(OLD)
VALUES, NAMES = st.sampled_from("xyz"), st.sampled_from("mno")


def parts(shows: bool, depth: int = 2) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for values of a part."""
    fields: dict[str, st.SearchStrategy[Any]] = {"v": VALUES}
    if depth:
        below = parts(shows, depth - 1)
        named = st.builds(lambda name, item: {**item, "k": name}, NAMES, below)
        fields |= {
            "inner": below,
            "map": st.dictionaries(NAMES, below, max_size=2),
            "list": st.lists(below, max_size=3),
            "keyed": st.lists(named, max_size=3, unique_by=lambda item: item["k"]),
        }
    if shows:
        fields |= {"h": VALUES, "hidden": st.dictionaries(NAMES, VALUES, min_size=1, max_size=2)}
    return st.fixed_dictionaries({}, optional=fields)


def hidden_leaves(value: Any, path: tuple[str, ...] = (), *, within: bool = False) -> dict[tuple[str, ...], Any]:
    """Return hidden values by path.

    The paths contain items of associative lists by key; values in other lists are left out.
    """
    if isinstance(value, dict):
        return {
            place: leaf
            for name, item in value.items()
            for place, leaf in hidden_leaves(item, (*path, name), within=within or name in ("h", "hidden")).items()
        }
    if isinstance(value, list):
        if path[-1] != "keyed":
            return {}
        return {
            place: leaf
            for item in value
            for place, leaf in hidden_leaves(item, (*path, item["k"]), within=within).items()
        }
    return {path: value} if within else {}


def places(value: Any, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Return all paths of objects, with items of associative lists by key."""
    if isinstance(value, dict):
        return {path}.union(*(places(item, (*path, name)) for name, item in value.items()))
    if isinstance(value, list) and path[-1] == "keyed":
        return {path}.union(*(places(item, (*path, item["k"])) for item in value))
    return {path}


def pruned(document: Any) -> Any:
    """Return an object as the version with fewer fields serves it."""
    found = clone(document)
    LESS.prune(found)
    return found


def restored(stored: Any, new: Any) -> Any:
    """Return a changed object with the hidden fields."""
    return hidden.restore(TYPE, clone(stored), pruned(stored), clone(new), EMPTY)


def parent_path(place: tuple[str, ...]) -> tuple[str, ...]:
    """Return the path of the object that has a hidden field."""
    return place[: min(place.index(name) for name in ("h", "hidden") if name in place)]


def without_empty_objects(value: Any) -> Any:
    """Return a value without empty objects, which clients may omit."""
    if isinstance(value, dict):
        found = {name: without_empty_objects(item) for name, item in value.items()}
        return {name: item for name, item in found.items() if item != {}}
    return [without_empty_objects(item) for item in value] if isinstance(value, list) else value


@given(parts(True), parts(False))
def test_update_by_an_older_version_keeps_hidden_fields(stored: dict[str, Any], wanted: dict[str, Any]) -> None:
    before, new = {"spec": stored}, {"spec": wanted}
    found = restored(before, new)
    assert without_empty_objects(pruned(found)) == without_empty_objects(new)
    left, there = hidden_leaves(found), places(new)
    before_leaves = hidden_leaves(before)
    assert {place: leaf for place, leaf in before_leaves.items() if parent_path(place) in there}.items() <= left.items()
    assert set(left) <= set(before_leaves)


@given(parts(True))
def test_unchanged_update_keeps_the_object(stored: dict[str, Any]) -> None:
    before = {"spec": stored}
    assert restored(before, pruned(before)) == before


@given(parts(True), st.data())
def test_changed_field_keeps_all_other_fields(stored: dict[str, Any], data: st.DataObject) -> None:
    before = {"spec": stored}
    new = pruned(before)
    objects = [new["spec"]]
    for one in objects:
        objects += [item for item in one.values() if isinstance(item, dict)]
        objects += [item for value in one.values() if isinstance(value, list) for item in value]
    data.draw(st.sampled_from(objects))["v"] = "w"
    wanted, found = clone(before), restored(before, new)
    assert pruned(found) == new
    assert _without_v(found) == _without_v(wanted)


def _without_v(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_v(item) for name, item in value.items() if name != "v"}
    return [_without_v(item) for item in value] if isinstance(value, list) else value


@given(parts(True), st.randoms(use_true_random=False))
def test_reordered_items_keep_their_hidden_fields(stored: dict[str, Any], random: Any) -> None:
    before = {"spec": {"list": stored.get("list", []), "keyed": stored.get("keyed", [])}}
    new = pruned(before)
    for items in new["spec"].values():
        random.shuffle(items)
    found = restored(before, new)["spec"]
    for name, items in found.items():
        assert sorted(map(encode, items)) == sorted(map(encode, before["spec"][name]))
