"""The server evaluates rules only at schema nodes with a type, as kube-apiserver does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import definition, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client

CASES: list[dict[str, Any]] = read_yaml(Path(__file__).with_name("rules_places.yaml"))
RULE = {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'good'"}]}


def filled(schema: Any) -> Any:
    """Return a schema with RULE in place of the text ``rule``."""
    if schema == "rule":
        return RULE
    if isinstance(schema, dict):
        return {name: filled(below) for name, below in schema.items()}
    return schema


@pytest.mark.rows("CEL-001", "CEL-002", "CEL-015")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "-"))
def test_schema_nodes_at_which_rules_are_evaluated(api: Client, case: dict[str, Any]) -> None:
    properties = {"spec": filled(case["spec"]), "also": {"type": "integer"}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    wanted = definition(fresh_group(), schema=schema)
    made = api.post(DEFINITIONS, wanted, dryRun="All")
    assert made.status == (422 if case.get("refused") else 201), made.json
    if case.get("refused"):
        return
    widgets = serve(api, schema=schema)
    for given in case["objects"]:
        body = {**widgets.make("a"), "spec": given["spec"], **({"also": given["also"]} if "also" in given else {})}
        answer = api.post(widgets.path(), body, dryRun="All")
        causes = answer.json.get("details", {}).get("causes", [])
        assert [one["field"].replace("<nil>", "") for one in causes] == given["says"]
        assert answer.status == (422 if given["says"] else 201)
