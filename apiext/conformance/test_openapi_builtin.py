"""Fields of built-in kinds, and paths such as pods/exec, in OpenAPI documents.

The tables contain kube-apiserver's answers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, read
from apiext.conformance.support.http_client import Client

ROWS = [Case(row) for row in read(Path(__file__).with_name("openapi_builtin.yaml"))]
CONNECTIONS = [Case(row) for row in read(Path(__file__).with_name("openapi_connects.yaml"))]


def inside(types: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema, merged with the type that its ``$ref`` or single ``allOf`` references.

    A schema without such a reference is returned as it is.
    """
    only = schema.get("allOf", [])
    target = schema.get("$ref") or (only[0].get("$ref") if len(only) == 1 else None)
    return {**types[target.rpartition("/")[2]], **schema} if target else schema


def field(types: dict[str, Any], model: str, path: str) -> dict[str, Any]:
    """Return the schema of a field of a model.

    In the dotted path, ``items`` stands for the items of a list, and ``{}`` for the values of a map.
    """
    found: dict[str, Any] = types[model]
    for name in path.split("."):
        below = found.get({"items": "items", "{}": "additionalProperties"}.get(name, ""))
        found = inside(types, below or found["properties"][name])
    return found


@pytest.mark.rows("OAS-001", "OAS-003", "OAS-005")
@pytest.mark.parametrize("case", ROWS, ids=lambda case: f"{case.model.rpartition('.')[2]}.{case.field}")
@pytest.mark.needs("/api/v1")
def test_descriptions_of_fields(api: Client, case: Case) -> None:
    v3 = api.get(f"/openapi/v3/{case.at}").expect(200)["components"]["schemas"]
    v2 = api.get("/openapi/v2").expect(200)["definitions"]
    for types, expected in ((v3, case.v3), (v2, case.v2 or case.v3)):
        found = field(types, case.model, case.field)
        assert {key: found.get(key, "none") for key in expected} == expected


@pytest.mark.rows("OAS-001", "OAS-003", "OAS-007")
@pytest.mark.parametrize("case", CONNECTIONS, ids=lambda case: case.path)
@pytest.mark.needs("/api/v1")
def test_paths_of_connections(api: Client, case: Case) -> None:
    v3 = api.get("/openapi/v3/api/v1").expect(200)["paths"][f"/api/v1/{case.path}"]
    document = api.get("/openapi/v2").expect(200)
    v2 = document["paths"][f"/api/v1/{case.path}"]
    shared = [document["parameters"].get(one.get("$ref", "").rpartition("/")[2], one) for one in v2["parameters"]]
    for item, parameters in ((v3, v3["parameters"]), (v2, shared)):
        assert [f"{one['in']}/{one['name']}" for one in parameters] == case.parameters
        operations = {method: one for method, one in item.items() if method != "parameters"}
        assert sorted(operations) == case.methods
        for method, one in operations.items():
            assert one["operationId"] == case.id.format(method.capitalize())
            assert one["x-kubernetes-action"] == ("get" if case.path.endswith("/log") else "connect")
            assert one["x-kubernetes-group-version-kind"] == {"group": "", "kind": case.kind, "version": "v1"}
    media_types = case.produces or ["*/*"]
    for method in case.methods:
        text = {media_type: {"schema": {"type": "string"}} for media_type in media_types}
        assert v3[method]["responses"]["200"] == {"description": "OK", "content": text}
        assert v2[method]["responses"]["200"] == {"description": "OK", "schema": {"type": "string"}}
        assert sorted(v2[method]["produces"]) == media_types


RETURNED = {
    "api/v1": {
        "persistentvolumeclaims", "persistentvolumes", "pods", "podtemplates", "resourcequotas", "serviceaccounts",
        "services",
    },
    "apis/storage.k8s.io/v1": {
        "csidrivers", "csinodes", "storageclasses", "volumeattachments", "volumeattributesclasses",
    },
    "apis/resource.k8s.io/v1": {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
    "apis/apps/v1": set(),
}  # fmt: skip
"""Document → resources whose DELETE returns the deleted object."""


@pytest.mark.parametrize("document", RETURNED)
@pytest.mark.needs("/api/v1")
def test_a_deletion_declares_the_object_or_a_status(api: Client, document: str) -> None:
    found = set()
    for path, operations in api.get(f"/openapi/v3/{document}").expect(200)["paths"].items():
        if path.endswith("/{name}") and "delete" in operations:
            schema = operations["delete"]["responses"]["200"]["content"]["application/json"]["schema"]
            if not schema["$ref"].endswith(".Status"):
                found.add(path.split("/")[-2])
    assert found == RETURNED[document]
