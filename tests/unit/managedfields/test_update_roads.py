"""The fast paths of an update have the same results as the slow paths (SSA-006, SSA-007)."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.waiting import prompt
from apiext.documents.document import Document, View
from apiext.managedfields import manager, typed, updater
from apiext.managedfields.comparison import compare
from apiext.managedfields.entries import UPDATE, manager_of
from apiext.managedfields.fieldset import FieldSet, union
from apiext.managedfields.schemas import PRESERVE, merge_type
from apiext.managedfields.typed import TypeFault, check
from apiext.managedfields.types import equal
from apiext.managedfields.updater import Write
from tests.unit.managedfields.support import BASE, NOW, SCHEMA, TYPE, OneVersion, applied, owners_of, updated, writer
from tests.unit.managedfields.test_apply_laws import NAMES, NUMBERS, SPECS

pytestmark = pytest.mark.rows("SSA-006", "SSA-007")

VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.just("text"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES | st.sampled_from("kv"), inner, max_size=2),
)
MISFITS = st.dictionaries(st.sampled_from(["a", "text", "map", "list", "set", "items", "free", "unknown"]), VALUES)


def fits(value: Any, of: Any = TYPE) -> bool:
    try:
        check(of, value)
    except TypeFault:
        return False
    return True


@given(SPECS, SPECS, SPECS)
def test_repeated_update_owns_kept_and_changed_fields(first: View, second: View, third: View) -> None:
    live = updated(applied(None, "m1", first), "m2", second)
    again, others = owners_of(updated(live, "m2", third)), owners_of(updated(live, "stranger", third))
    left, taken = others.pop("m2", {}), others.pop("stranger", {})
    assert again.pop("m2", {}) == union(left, taken)
    assert again == others


def test_repeated_update_drops_owned_system_fields() -> None:
    owned = {"f:metadata": {"f:generation": {}, "f:labels": {".": {}, "f:a": {}}}}
    entry = {"manager": "m", "operation": "Update", "apiVersion": "g/v1", "fieldsType": "FieldsV1", "fieldsV1": owned}
    live = {**BASE, "metadata": {"name": "o", "generation": 1, "labels": {"a": "1"}, "managedFields": [entry]}}
    new = {**BASE, "metadata": {"name": "o", "generation": 2, "labels": {"a": "2"}}}
    assert manager.track(writer("m"), live, new, creating=False)[0]["fieldsV1"] == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}}
    }


@given(MISFITS | SPECS, SPECS, st.booleans())
def test_invalid_stored_object_fails_the_comparison(before: Any, after: View, same: bool) -> None:
    live = {**BASE, "spec": {**after, **before} if same else before}
    write = Write(OneVersion(), "g/v1", TYPE, manager_of("m", UPDATE, "g/v1", ""))
    if fits(live):
        updater.compared(write, live, {**BASE, "spec": after})
    else:
        with pytest.raises(ValueError):  # noqa: PT011 (the comparison reports a list without names first)
            updater.compared(write, live, {**BASE, "spec": after})


def test_replaced_field_is_a_removal_and_an_addition() -> None:
    found = compare(TYPE, {"spec": {"a": 1}}, {"spec": {"b": 1}})
    assert (found.removed, found.modified, found.added) == ({"f:spec": {"f:a": {}}}, {}, {"f:spec": {"f:b": {}}})


class OneWay(OneVersion):
    """A resource that cannot be converted if it has the field b."""

    def convert(self, document: View, api_version: str, doing: str) -> Document:
        if "b" in document["spec"]:
            raise ValueError("no way")
        return dict(document)


@pytest.mark.parametrize(
    ("owner", "text"),
    [
        ("m", "failed to prune fields: failed to convert merged object to last applied version: no way"),
        ("another", "failed to convert new object: no way"),
    ],
)
def test_the_failed_conversion_is_reported(owner: str, text: str) -> None:
    entry = {"manager": owner, "operation": "Apply", "apiVersion": "g/v2", "fieldsType": "FieldsV1"}
    owners = [{**entry, "fieldsV1": {"f:spec": {"f:a": {}}}}]
    live = {**BASE, "metadata": {"name": "o", "managedFields": owners}, "spec": {"a": 1}}
    who = manager.Writer(OneWay(), "g/v1", "K", "m", "", NOW)
    with pytest.raises(manager.ApplyError, match=text):
        manager.apply(who, live, {**BASE, "metadata": {"name": "o"}, "spec": {"b": 1}}, BASE, force=True)


@given(st.lists(MISFITS, max_size=3))
def test_cached_type_checks_equal_uncached_checks(specs: list[Any]) -> None:
    found = []
    for few in (-1, 1_000):
        of = merge_type(SCHEMA)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(typed, "FEW", few)
            found.append([fits({**BASE, "spec": spec}, of) for spec in (*specs, *specs)])
    assert found[0] == found[1]


def _pairs(*values: int) -> list[View]:
    return [{"k": 1, "v": value} for value in values]


ONCE: View = {"f:v": {}, "f:k": {}, ".": {}}
WHOLE: View = {}


@pytest.mark.parametrize(
    ("field", "before", "after", "removed", "modified", "added"),
    [
        ("set", [1], [1, 1], {"v:1": {}}, {}, {"v:1": {}}),
        ("set", [1, 1], [1], {"v:1": {}}, {}, {"v:1": {}}),
        ("set", [1, 1], [], {"v:1": {}}, {}, {}),
        ("set", [], [1, 1], {}, {}, {"v:1": {}}),
        ("set", [1, 1], [1, 1], {}, {}, {}),
        ("items", _pairs(1, 2), _pairs(1, 3), {}, {'k:{"k":1}': WHOLE}, {}),
        ("items", _pairs(1), _pairs(1, 2), {'k:{"k":1}': ONCE}, {}, {'k:{"k":1}': WHOLE}),
        ("items", _pairs(1, 2), _pairs(1), {'k:{"k":1}': WHOLE}, {}, {'k:{"k":1}': ONCE}),
        ("items", _pairs(1, 2), _pairs(), {'k:{"k":1}': WHOLE}, {}, {}),
        ("map", {"p": 1}, {}, {"f:p": {}}, {}, {}),
        ("map", None, {"p": 1}, {}, {}, {"f:p": {}}),
    ],
)
def test_duplicate_elements_change_as_one(
    field: str, before: Any, after: Any, removed: View, modified: View, added: View
) -> None:
    found = compare(TYPE, {"spec": {field: before}}, {"spec": {field: after}})
    wanted = [{"f:spec": {f"f:{field}": below}} if below else {} for below in (removed, modified, added)]
    assert [found.removed, found.modified, found.added] == wanted


@pytest.mark.parametrize(
    ("field", "before", "after", "removed"),
    [("map", None, {}, {}), ("map", {}, None, {}), ("free", {"a": {}}, [1], {"f:spec": {"f:free": {"f:a": {}}}})],
)
def test_value_of_another_type_is_modified(field: str, before: Any, after: Any, removed: View) -> None:
    found = compare(TYPE, {"spec": {field: before}}, {"spec": {field: after}})
    assert (found.removed, found.modified, found.added) == (removed, {"f:spec": {f"f:{field}": {}}}, {})


def test_equal_distinguishes_numbers_from_booleans() -> None:
    both: list[Any] = [1, "text", {"a": [None, True]}]
    assert equal(both, both)
    assert equal([1, "text"], [1, "text"])
    assert not equal([1], [True])


@pytest.mark.parametrize("above", ["f:map", "f:list"])
def test_nested_map_that_became_atomic_is_owned_as_a_whole(above: str) -> None:
    one = {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "integer"}}
    item = {"type": "object", "properties": {"k": {"type": "integer"}, "one": one}}
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    of = merge_type({
        "type": "object",
        "properties": {
            "map": {"type": "object", "additionalProperties": item}, "list": {"type": "array", **keyed, "items": item},
        },
    })  # fmt: skip
    element = "f:x" if above == "f:map" else 'k:{"k":1}'
    assert typed.reconciled({above: {element: {"f:one": {"f:p": {}}}}}, of) == {above: {element: {"f:one": {}}}}


@pytest.mark.parametrize(
    ("element", "kept"),
    [
        ({"x-kubernetes-int-or-string": True}, True),
        ({PRESERVE: True}, True),
        ({"type": "string", "format": "date"}, True),
        ({"type": "string"}, False),
        ({"type": "object"}, False),
    ],
)
def test_atomic_map_of_untyped_values_stays_owned_by_field(element: View, kept: bool) -> None:
    one = {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": element}
    of = merge_type({"type": "object", "properties": {"one": one}})
    before: FieldSet = {"f:one": {"f:p": {}}}
    assert typed.reconciled(before, of) == (before if kept else {"f:one": {}})


def test_fields_below_an_atomic_root_are_unchanged() -> None:
    one = {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": {"type": "integer"}}
    of = merge_type({"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"one": one}})
    before: FieldSet = {"f:one": {"f:p": {}}}
    assert typed.reconciled(before, of) is before


def test_many_atomic_fields_are_reconciled_in_little_time() -> None:
    atomic = {**MAP_OF_TEXTS, "x-kubernetes-map-type": "atomic"}
    of = merge_type({"type": "object", "properties": {"m": {"type": "object", "additionalProperties": atomic}}})
    names = [f"f:k{number}" for number in range(24_000)]
    before = {"f:m": {name: {"f:x": {}} for name in names}}
    began = time.process_time()
    assert typed.reconciled(before, of) == {"f:m": {name: {} for name in names}}
    prompt(time.process_time() - began, 1.0)  # copying the map for each would take 5 or more
    assert before["f:m"]["f:k0"] == {"f:x": {}}


MAP_OF_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
