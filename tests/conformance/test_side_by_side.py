"""What random requests to the real server and to this one, side by side, showed to differ; the real one's answers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.definitions import Resource, definition, establish, fresh_group, serve
from tests.support.http_client import APPLY, DEFINITIONS, MERGE, TABLE, Answer, Client

TEXT, EITHER = {"type": "string"}, {"x-kubernetes-int-or-string": True}


def schema(spec: dict[str, Any], **properties: Any) -> dict[str, Any]:
    """Return the schema of an object whose spec has these properties."""
    spec_schema = {"type": "object", "properties": spec}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec_schema, **properties}}}


def apply(kind: Resource, manager: str, spec: dict[str, Any], version: str = "v1") -> Answer:
    body = kind.make("x", **spec) | {"apiVersion": f"{kind.group}/{version}"}
    path = kind.path("x").replace("/v1/", f"/{version}/")
    return kind.api.patch(path, body, APPLY, fieldManager=manager, force="true")


@pytest.fixture
def two(api: Client) -> Resource:
    """A kind whose v1 knows a text that v2, where objects are stored, has as a number."""
    wanted = definition(fresh_group(), schema=schema({"a": TEXT, "b": TEXT}), storage=False)
    newer = {"name": "v2", "served": True, "storage": True, "schema": schema({"a": {"type": "number"}, "b": TEXT})}
    wanted["spec"]["versions"].append(newer)
    return Resource(api, establish(api, wanted)["spec"]["group"], "widgets", "Widget")


@pytest.mark.rows("SSA-011", "SSA-014")
def test_an_apply_says_at_which_conversion_it_failed(two: Resource) -> None:
    fault = ".spec.a: expected numeric (int or float), got string"
    apply(two, "m", {"b": "x"}, "v2").expect(201)
    assert apply(two, "n", {"a": "x"}).expect(500)["message"] == f"failed to convert new object: {fault}"
    pruning = "failed to prune fields: failed to convert merged object to last applied version: "
    assert apply(two, "m", {"a": "x"}).expect(500)["message"] == pruning + fault


@pytest.mark.rows("SSA-001", "WRI-006")
def test_a_default_of_the_status_is_stored_by_the_first_update(api: Client) -> None:
    status = {"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}}}
    widgets = serve(api, schema=schema({"a": TEXT}, status=status), subresources={"status": {}})
    made = apply(widgets, "m", {}).expect(201)
    assert made["status"] == {"a": 1}
    again = api.put(widgets.path("x"), made).expect(200)
    assert again["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert api.put(widgets.path("x"), again).expect(200) == again


@pytest.mark.rows("DEC-001", "WRI-006", "TAB-003")
def test_integers_beyond_int64_are_floats_in_the_store_too(api: Client) -> None:
    columns = [{"name": kind, "type": kind, "jsonPath": ".spec.a"} for kind in ("integer", "string")]
    widgets = serve(api, schema=schema({"a": {"type": "number"}}), additionalPrinterColumns=columns)
    made = widgets.create("x", a=2**63)
    assert api.put(widgets.path("x"), made).expect(200) == made
    assert api.patch(widgets.path("x"), {"spec": {"a": 2**63}}, MERGE).expect(200) == made
    # upstream: Go's conversion of what is too large
    (row,) = api.get(widgets.path(), {"Accept": TABLE}).expect(200)["rows"]
    assert row["cells"] == ["x", -(2**63), "9.223372036854776e+18"]


@pytest.mark.rows("DEF-001")
@pytest.mark.parametrize(
    "field",
    [
        {**EITHER, "default": True},
        {"type": "array", "items": EITHER, "default": [None, 1.5]},
        {"type": "object", "additionalProperties": EITHER, "default": {"a": []}},
    ],
)
def test_defaults_of_integers_or_text_may_be_anything(api: Client, field: dict[str, Any]) -> None:
    api.post(DEFINITIONS, definition(fresh_group(), schema=schema({"a": field})), dryRun="All").expect(201)


@pytest.mark.rows("NEG-001")
def test_yaml_of_a_list_is_folded_like_that_of_an_object(api: Client) -> None:
    widgets = serve(api)
    widgets.create("x", color="word " * 30 + "end\n\n  more\n", note="word " * 30 + "end")
    lines = api.get(widgets.path(), {"Accept": "application/yaml"}).text.splitlines()
    start = lines.index("  spec:")
    assert lines[start + 1 : start + 7] == [
        "    color: |",
        "      " + "word " * 30 + "end",
        "",
        "        more",
        "    note: " + " ".join(["word"] * 15),
        "      " + " ".join(["word"] * 15) + " end",
    ]


@pytest.mark.rows("SRV-005", "RAT-001")
def test_a_null_may_be_applied_where_no_status_was(api: Client) -> None:
    status = {"type": "object", "properties": {"a": TEXT}}
    widgets = serve(api, schema=schema({"a": TEXT}, status=status), subresources={"status": {}})
    apply(widgets, "m", {}).expect(201)
    path = f"{widgets.path('x')}/status"

    def write(value: Any) -> Answer:
        body = {name: part for name, part in widgets.make("x").items() if name != "spec"} | {"status": value}
        return api.patch(path, body, APPLY, fieldManager="m")

    # upstream: a null where no status was is no change
    write(None).expect(200)
    write({"a": "x"}).expect(200)
    refused = write(None).expect(422)["message"]
    assert refused.endswith('status: Invalid value: "null":  in body must be of type object: "null"')
