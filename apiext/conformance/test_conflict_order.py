"""Order of an apply's conflicts in list items: by the values of the keys, not by their JSON."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import APPLY, Client


def list_of(item: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


PORT = {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}, "to": {"type": "string"}}}
NAMED = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "on": {"type": "boolean", "default": False}, "to": {"type": "string"}},
}
SPEC = {"type": "object", "properties": {"ports": list_of(PORT, "port"), "named": list_of(NAMED, "name", "on")}}
SCHEMA = {"type": "object", "properties": {"spec": SPEC}}


@pytest.fixture
def lists(api: Client) -> Resource:
    return serve(api, schema={"openAPIV3Schema": SCHEMA})


# upstream: the keys of list items in managedFields are decoded from JSON, with all numbers as floats
#
# So the conflicts are sorted by these floats, and their fields show ports as Go prints floats: 1.234567e+06.
@pytest.mark.rows("SSA-008")
@pytest.mark.parametrize(
    ("field", "items", "order"),
    [
        (
            "ports",
            [{"port": 2**63 - 1}, {"port": 1234567}, {"port": 999999}, {"port": -(2**53) - 1}],
            ["port=-9.007199254740992e+15", "port=999999", "port=1.234567e+06", "port=9.223372036854776e+18"],
        ),
        (
            "ports",
            [{"port": 9}, {"port": 10}, {"port": 100}, {"port": 1}, {"port": -3}],
            ["port=-3", "port=1", "port=9", "port=10", "port=100"],
        ),
        (
            "named",
            [{"name": "b"}, {"name": "<"}, {"name": "a", "on": True}, {"name": "a"}, {"name": "é"}, {"name": "Z"}],
            ['name="<",on=false', 'name="Z",on=false', 'name="a",on=false', 'name="a",on=true', 'name="b",on=false',
             'name="é",on=false'],
        ),
    ],
)  # fmt: skip
def test_conflicts_in_order(lists: Resource, field: str, items: list[dict[str, Any]], order: list[str]) -> None:
    def apply(manager: str, to: str) -> Any:
        body = lists.make("a")
        body["spec"] = {field: [{**one, "to": to} for one in items]}
        return lists.api.patch(lists.path("a"), body, APPLY, fieldManager=manager)

    apply("first", "x").expect(201)
    causes = apply("second", "y").expect(409)["details"]["causes"]
    assert [cause["field"] for cause in causes] == [f".spec.{field}[{item}].to" for item in order]
