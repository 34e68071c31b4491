"""Tables: what kubectl prints."""

from __future__ import annotations

import re

import pytest

from tests.support.definitions import serve
from tests.support.http_client import DEFINITIONS, TABLE, Client

KUBECTL = f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
COLUMNS = [
    {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size", "priority": 1},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]


@pytest.mark.rows("TAB-001", "TAB-002", "TAB-003", "TAB-004")
def test_columns_come_from_the_definition(api: Client) -> None:
    widgets = serve(api, additionalPrinterColumns=COLUMNS)
    widgets.create("a", color="red", size=3)
    widgets.create("b")
    table = api.get(widgets.path(), {"Accept": KUBECTL}).expect(200)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [(it["name"], it["type"], it["priority"]) for it in table["columnDefinitions"]] == [
        ("Name", "string", 0), ("Color", "string", 0), ("Size", "integer", 1), ("Age", "date", 0),
    ]  # fmt: skip
    cells = [row["cells"] for row in table["rows"]]
    assert [row[:3] for row in cells] == [["a", "red", 3], ["b", None, None]]
    assert all(re.fullmatch(r"\d+s", row[3]) for row in cells)
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = api.get(widgets.path("a"), {"Accept": TABLE}, includeObject="Object").expect(200)
    assert whole["rows"][0]["object"]["spec"]["color"] == "red"
    bare = api.get(widgets.path("a"), {"Accept": TABLE}, includeObject="None").expect(200)
    assert bare["rows"][0].get("object") is None


@pytest.mark.rows("UPD-011")
def test_definitions_have_columns_of_their_own(api: Client) -> None:
    widgets = serve(api)
    table = api.get(f"{DEFINITIONS}/widgets.{widgets.group}", {"Accept": TABLE}).expect(200)
    names = [column["name"] for column in table["columnDefinitions"]]
    assert names[0] == "Name"
    assert "Created At" in names
    assert table["rows"][0]["cells"][0] == f"widgets.{widgets.group}"


@pytest.mark.rows("PAR-001")
def test_metadata_alone(api: Client) -> None:
    widgets = serve(api)
    made = widgets.create("a", color="red")
    partial = api.get(
        widgets.path("a"), {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}
    ).expect(200)
    assert partial == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }
