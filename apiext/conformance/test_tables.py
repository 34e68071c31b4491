"""Tables, which kubectl prints, and objects reduced to their metadata.

The tests cover columns, cells, and paths of columns.
"""

from __future__ import annotations

import re

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import DEFINITIONS, TABLE, Client

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
        ("Name", "string", 0),
        ("Color", "string", 0),
        ("Size", "integer", 1),
        ("Age", "date", 0),
    ]
    cells = [row["cells"] for row in table["rows"]]
    assert [row[:3] for row in cells] == [["a", "red", 3], ["b", None, None]]
    assert all(re.fullmatch(r"\d+s", row[3]) for row in cells)
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    whole = api.get(widgets.path("a"), {"Accept": TABLE}, includeObject="Object").expect(200)
    assert whole["rows"][0]["object"]["spec"]["color"] == "red"
    bare = api.get(widgets.path("a"), {"Accept": TABLE}, includeObject="None").expect(200)
    assert bare["rows"][0].get("object") is None


NUMBERS = [
    ("5", "5", "5"), ("2.0", "2", "2"), ("-2.9", "-2", "-2.9"), ("1e3", "1000", "1000"), ("true", "null", "null"),
    ("9007199254740993", "9007199254740993", "9007199254740992"), ('"5"', "null", "null"),
    ("9223372036854775807", "9223372036854775807", "9223372036854776000"), ("1e21", "-9223372036854775808", "1e+21"),
]  # fmt: skip


@pytest.mark.rows("TAB-003")
@pytest.mark.parametrize(("given", "integer", "number"), NUMBERS)
def test_integers_are_cut_and_numbers_are_doubles(numbered: Resource, given: str, integer: str, number: str) -> None:
    kind = f'"apiVersion":"{numbered.group}/v1","kind":"Widget"'
    body = f'{{{kind},"metadata":{{"name":"a"}},"spec":{{"n":{given}}}}}'.encode()
    text = numbered.api.request("POST", f"{numbered.path()}?dryRun=All", body, {"Accept": TABLE}).text
    assert f'"cells":["a",{integer},{number}]' in text


@pytest.fixture(scope="module")
def numbered(request: pytest.FixtureRequest) -> Resource:
    """A resource whose Table shows one value as an integer and as a number."""
    columns = [{"name": kind, "type": kind, "jsonPath": ".spec.n"} for kind in ("integer", "number")]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return serve(request.getfixturevalue("server").client(), schema=schema, additionalPrinterColumns=columns)


PATHS = {
    ".spec.a.b": "deep", ".spec['a'].b": "deep", ".spec['x\\.y']": "dotted", ".spec.x\\.y": "dotted",
    ".spec.none": None,
    ".spec['x.y']": None, ".spec.none.deeper": None, ".spec.list[1]": "2", ".spec.list[-1]": "3", ".spec.list[9]": None,
    ".spec.list[0:2]": "1", ".spec.list[1:]": "2", ".spec.list[::2]": "1", ".spec.list[2,0]": "3",
    ".spec.list": "[1,2,3]", ".spec.list[*]": "1", ".spec.items[*].name": "one",
    '.spec.items[?(@.type=="B")].name': "two", '.spec.items[?(@.type=="C")].name': None,
    ".spec.items[?(@.size>1)].name": "two", ".spec.items[?(@.on)].name": "one", "..b": "deep",
    ".spec.a": '{"b":"deep"}', ".spec['a','x.y']": '{"b":"deep"}', ".metadata.labels.l": "label",
    ".spec['$a']": None, ".spec.a$b": None, ".spec.a$true": "true",
    ".spec.items[?(@.size=2)].name": None, ".spec.items[?(@.name[0])].name": "one", ".spec.list[0]}.x": "1",
    ".spec.list[9223372036854775807]": None,
}  # fmt: skip
SPEC = {
    "a": {"b": "deep"},
    "x.y": "dotted",
    "list": [1, 2, 3],
    "items": [{"name": "one", "type": "A", "size": 1, "on": True}, {"name": "two", "type": "B", "size": 2}],
}


@pytest.mark.rows("TAB-007", "TAB-003")
def test_paths_of_columns(api: Client) -> None:
    columns = [{"name": path, "type": "string", "jsonPath": path} for path in PATHS]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    widgets = serve(api, schema=schema, additionalPrinterColumns=columns)
    body = widgets.make("a", **SPEC)
    body["metadata"]["labels"] = {"l": "label"}
    api.post(widgets.path(), body).expect(201)
    table = api.get(widgets.path("a"), {"Accept": TABLE}).expect(200)
    shown = dict(zip(PATHS, table["rows"][0]["cells"][1:], strict=True))
    assert shown == PATHS


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
