"""An applier can empty a list or map that it owns alone.

In a custom object, the empty list or map remains.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import APPLY, Answer, Client

TEXT = {"type": "string"}
MAP = {"type": "object", "additionalProperties": TEXT}
SET = {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}
ITEM = {"type": "object", "required": ["name"], "properties": {"name": TEXT, "map": MAP, "set": SET}}
MAPS = {"type": "array", "items": ITEM, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
PARTS: dict[str, Any] = {
    "map": MAP,
    "set": SET,
    "maps": MAPS,
    "inner": {"type": "object", "properties": {"map": MAP, "set": SET}},
    "nullable": {**MAP, "nullable": True},
    "atomic": {**MAP, "x-kubernetes-map-type": "atomic"},
    "list": {"type": "array", "items": TEXT},
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "kept": {"type": "object", "properties": {"a": TEXT}, "x-kubernetes-preserve-unknown-fields": True},
}
FULL_THEN_EMPTY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "map": ({"map": {"a": "1"}}, {"map": {}}),
    "set": ({"set": ["a", "b"]}, {"set": []}),
    "list of maps": ({"maps": [{"name": "a"}]}, {"maps": []}),
    "nested": ({"inner": {"map": {"a": "1"}, "set": ["a"]}}, {"inner": {"map": {}, "set": []}}),
    "around": ({"inner": {"map": {"a": "1"}, "set": ["a"]}}, {"inner": {}}),
    "in an item": (
        {"maps": [{"name": "a", "map": {"b": "1"}, "set": ["c"]}, {"name": "d", "set": ["e"]}]},
        {"maps": [{"name": "a", "map": {}, "set": []}, {"name": "d"}]},
    ),
    "nullable": ({"nullable": {"a": "1"}}, {"nullable": {}}),
    "atomic": ({"atomic": {"a": "1"}, "list": ["a"]}, {"atomic": {}, "list": []}),
    "untyped": ({"free": {"m": {"a": {"b": 1}}, "l": [1]}}, {"free": {"m": {"a": {}}, "l": []}}),
    "unknown": ({"kept": {"a": "a", "m": {"b": 1}}}, {"kept": {"m": {}}}),
    "all": ({"map": {"a": "1"}, "set": ["a"]}, {}),
}


def send(of: Resource, content: dict[str, Any], subresource: str = "", manager: str = "m") -> Answer:
    """Apply ``content`` to the object x, with force."""
    body = {**of.make("x"), **content}
    if "spec" not in content:
        del body["spec"]
    path = f"{of.path('x')}{subresource}"
    return of.api.request("PATCH", path, body, {"Content-Type": APPLY}, fieldManager=manager, force="true")


@pytest.mark.rows("SSA-009")
@pytest.mark.parametrize("part", ["spec", "status"])
@pytest.mark.parametrize("case", list(FULL_THEN_EMPTY))
@pytest.mark.differs("an emptied container that the applier owned alone becomes null")
def test_an_applier_empties_what_it_owns_alone(api: Client, case: str, part: str) -> None:
    schema = {"type": "object", "properties": {part: {"type": "object", "properties": PARTS}}}
    more: dict[str, Any] = {"subresources": {"status": {}}} if part == "status" else {}
    widgets = serve(api, schema={"openAPIV3Schema": schema}, **more)
    widgets.api.post(widgets.path(), {name: value for name, value in widgets.make("x").items() if name != "spec"})
    subresource = "/status" if part == "status" else ""
    full, empty = FULL_THEN_EMPTY[case]
    assert send(widgets, {part: full}, subresource).expect(200)[part] == full
    assert send(widgets, {part: empty}, subresource).expect(200)[part] == empty
    # upstream: the first apply of an empty list records no owner of the list, so the second may change managedFields
    # Therefore only later applies must leave the metadata unchanged.
    found = send(widgets, {part: empty}, subresource).expect(200)
    assert found[part] == empty
    assert send(widgets, {part: empty}, subresource).expect(200)["metadata"] == found["metadata"]
    assert send(widgets, {part: full}, subresource).expect(200)[part] == full


@pytest.mark.rows("SSA-009")
def test_fields_of_another_manager_stay(api: Client) -> None:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": PARTS}}}
    widgets = serve(api, schema={"openAPIV3Schema": schema})
    send(widgets, {"spec": {"map": {"a": "1"}, "set": ["a"]}}).expect(201)
    send(widgets, {"spec": {"map": {"b": "2"}, "set": ["a"]}}, manager="other").expect(200)
    found = send(widgets, {"spec": {"map": {}, "set": []}}).expect(200)
    assert found["spec"] == {"map": {"b": "2"}, "set": ["a"]}


@pytest.mark.rows("SSA-009", "KUB-001")
def test_maps_of_builtin_kinds_are_emptied(api: Client) -> None:
    path, headers = "/api/v1/namespaces/default/configmaps/emptied", {"Content-Type": APPLY}
    api.delete(path)

    def apply(**content: Any) -> Any:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "emptied"}, **content}
        answer = api.request("PATCH", path, body, headers, fieldManager="m", force="true")
        assert answer.status in (200, 201), answer.text
        return answer.json

    assert apply(data={"a": "1"}, binaryData={"b": "MQ=="})["data"] == {"a": "1"}
    found = apply(data={}, binaryData={})
    assert not found.get("data")
    assert not found.get("binaryData")
    assert apply(data={"a": "1"})["data"] == {"a": "1"}
    api.delete(path).expect(200)
