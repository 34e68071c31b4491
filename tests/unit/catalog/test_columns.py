"""The columns of Tables and the values of their cells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.columns import (
    AGE,
    BUILTIN_AGE,
    CREATED_DESCRIPTION,
    NAME,
    NAME_DESCRIPTION,
    SCALE_COLUMNS,
    custom_columns,
)
from apiext.catalog.selectable import selectable_fields
from apiext.conformance.support.cases import Case, case_name, load
from apiext.meta.time import Ages, render

pytestmark = pytest.mark.rows("TAB-002", "TAB-003", "TAB-006", "TAB-007")

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
DOCUMENT: dict[str, Any] = {
    "metadata": {"name": "a", "labels": {"l": "1"}},
    "spec": {
        "s": "text",
        "i": 5,
        "f": 1.5,
        "big": 1e21,
        "long": 2**63,
        "odd": 2**53 + 1,
        "whole": 2.0,
        "b": True,
        "none": None,
        "l": [1, "two", {"three": 3}],
        "o": {"k": "v", "a": 1.0},
        "bad": "yesterday",
        "empty": [],
        "markup": ["<&>\u2028é"],
        "dotted.key": "dots",
    },
    "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "False"}]},
}


@pytest.mark.parametrize("case", load(__file__, "cells"), ids=case_name)
def test_cell_values_of_custom_columns(case: Case) -> None:
    (_, column) = custom_columns([{"name": "X", "type": case.type, "jsonPath": case.path}])
    cell = column.shown(Ages(MOMENT.timestamp()))(DOCUMENT)
    assert cell == case.cell
    assert cell.__class__ is case.cell.__class__


def test_date_columns_show_ages() -> None:
    (_, column) = custom_columns([{"name": "X", "type": "date", "jsonPath": ".spec.d"}])
    cell = column.shown(Ages(MOMENT.timestamp()))
    for ago, shown in (
        (timedelta(seconds=5), "5s"),
        (timedelta(minutes=3), "3m"),
        (timedelta(days=2, hours=3), "2d3h"),
    ):
        assert cell({"spec": {"d": render(MOMENT - ago)}}) == shown
    # upstream: empty and null texts are decoded as the zero time
    assert [cell({"spec": {"d": text}}) for text in ("", "null", "x", 5)] == [
        "<unknown>",
        "<unknown>",
        "<invalid>",
        None,
    ]


def test_ages_of_objects() -> None:
    document = {"metadata": {"creationTimestamp": render(MOMENT - timedelta(seconds=5))}}
    for column, without in ((AGE, None), (BUILTIN_AGE, "<unknown>")):
        cell = column.shown(Ages(MOMENT.timestamp()))
        assert (cell(document), cell({"metadata": {}})) == ("5s", without)
        assert column.shown(Ages(MOMENT.timestamp() - 3600))(document) == "<invalid>"


def test_age_columns_have_the_age_flag() -> None:
    """Cells of other columns do not depend on the time."""
    columns = [
        (resource.resource, column)
        for resource in builtin_resources()
        for served in resource.versions.values()
        for column in served.model.columns
    ]
    named = {column.name for _, column in columns if column.shows_age}
    ages = {"Age", "Duration", "First Seen", "Last Schedule", "Last Seen", "Restarts", "TimeAdded"}
    assert named == ages, "a column with `age: true` and a new name needs an entry in `ages`"
    without = [(resource, column.name) for resource, column in columns if column.name in ages and not column.shows_age]
    assert without == [], "columns with the name of an age need `age: true`"
    (*_, custom) = custom_columns([{"name": "X", "type": "date", "jsonPath": ".spec.d"}])
    assert custom.shows_age
    assert [column.name for column in SCALE_COLUMNS if column.shows_age] == ["Age"]


def test_definitions_of_columns() -> None:
    name, first, second = custom_columns(
        [
            {"name": "I", "type": "integer", "jsonPath": ".spec.i", "description": "an int", "priority": 1},
            {"name": "F", "type": "number", "format": "double", "jsonPath": ".spec.f"},
        ]
    )
    assert (name.name, name.type, name.format, name.description) == ("Name", "string", "name", NAME_DESCRIPTION)
    assert (first.name, first.type, first.format, first.description, first.priority) == (
        "I",
        "integer",
        "",
        "an int",
        1,
    )
    assert (second.format, second.priority) == ("double", 0)
    assert second.description == "Custom resource definition column (in JSONPath format): .spec.f"


def test_default_columns_are_name_and_age() -> None:
    assert custom_columns([]) == (NAME, AGE)
    assert AGE.description == CREATED_DESCRIPTION


def test_columns_after_an_invalid_path_are_omitted() -> None:
    columns = [
        {"name": name, "type": "string", "jsonPath": path} for name, path in (("A", ".a"), ("B", ".b["), ("C", ".c"))
    ]
    assert [column.name for column in custom_columns(columns)] == ["Name", "A"]


def test_the_budget_of_a_row_is_divided_among_searching_columns() -> None:
    document = {"spec": {"s": "text", "l": [[1]] * 90_000}, "metadata": {"name": "a"}}
    last, simple, search = ({"name": "X", "type": "string", "jsonPath": path} for path in ("..s", ".spec.s", "..q"))
    for searches, found in ((0, "text"), (1, "text"), (39, None)):
        columns = custom_columns([*[search] * searches, *[simple] * 1000, last])
        cells = [column.cell(document) for column in columns]
        assert cells == ["a", *[None] * searches, *["text"] * 1000, found]
    assert custom_columns([*[search] * 39, last])[-1].cell({"spec": {"s": "text", "l": [[1]] * 1000}}) == "text"


@pytest.mark.rows("SRV-011")
def test_columns_of_scales() -> None:
    scale = {"metadata": {"name": "a"}, "spec": {"replicas": 2}, "status": {"replicas": 1}}
    assert [column.name for column in SCALE_COLUMNS] == ["Name", "Desired", "Available", "Age"]
    assert [column.shown(Ages(MOMENT.timestamp()))(scale) for column in SCALE_COLUMNS] == ["a", 2, 1, "<unknown>"]
    assert SCALE_COLUMNS[1].cell({"spec": {}}) is None


@pytest.mark.rows("SEL-001")
def test_selectable_fields() -> None:
    fields = selectable_fields(
        [".spec.s", ".spec.i", ".spec.b", ".spec.f", ".spec.zz.y", ".spec.none"], namespaced=True
    )
    document = {**DOCUMENT, "metadata": {"name": "a", "namespace": "n"}}
    assert {name: get(document) for name, get in fields.items()} == {
        "metadata.name": "a",
        "metadata.namespace": "n",
        "spec.s": "text",
        "spec.i": "5",
        "spec.b": "true",
        "spec.f": "1.5",
        "spec.zz.y": "",
        "spec.none": "",
    }
    assert list(selectable_fields([], namespaced=False)) == ["metadata.name"]
    odd = selectable_fields([".spec.a b", ".spec.*", ".spec.a-b"], namespaced=False)
    document = {"metadata": {"name": "a"}, "spec": {"a b": 1, "*": 2, "a-b": 3, "a": 4}}
    assert [get(document) for get in odd.values()] == ["a", "1", "2", "3"]
