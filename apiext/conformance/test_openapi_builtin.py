"""Fields of built-in kinds in OpenAPI documents that clients use: a table, compared with kube-apiserver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, read
from apiext.conformance.support.http_client import Client

ROWS = [Case(row) for row in read(Path(__file__).with_name("openapi_builtin.yaml"))]


def inside(types: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema merged with the type to which it refers."""
    only = schema.get("allOf", [])
    target = schema.get("$ref") or (only[0].get("$ref") if len(only) == 1 else None)
    return {**types[target.rpartition("/")[2]], **schema} if target else schema


def field(types: dict[str, Any], model: str, path: str) -> dict[str, Any]:
    """Return the schema of a field of a model by its dotted path; ``items`` refers to the items of a list."""
    found: dict[str, Any] = types[model]
    for name in path.split("."):
        found = inside(types, found["items"] if name == "items" else found["properties"][name])
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
