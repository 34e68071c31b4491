"""What a real server does that nobody would guess, over HTTP; each under the words of its tag in the code."""

import pytest

from tests.support.definitions import definition, establish, fresh_group
from tests.support.http_client import DEFINITIONS, Client


@pytest.mark.rows("CND-011", "SSA-005")
def test_conditions_are_owned_by_the_servers_own_client(api: Client) -> None:
    wanted = definition(fresh_group())
    establish(api, wanted)
    found = api.get(f"{DEFINITIONS}/{wanted['metadata']['name']}").expect(200)
    owners = {entry["manager"] for entry in found["metadata"]["managedFields"] if entry.get("subresource") == "status"}
    assert len(owners) == 1  # upstream: the User-Agent of the server's own client


@pytest.mark.rows("CRD-020")
def test_no_definition_has_a_generate_name(api: Client) -> None:
    # upstream: a generateName is held to the rule as well, so no definition can have one
    wanted = definition(fresh_group())
    wanted["metadata"] = {"generateName": "widgets-"}
    refused = api.post(DEFINITIONS, wanted).expect(422)
    assert "metadata.generateName: Invalid value" in refused["message"]


@pytest.mark.rows("SSA-014")
def test_an_apply_in_another_version_does_not_prune_first(api: Client) -> None:
    # upstream: not pruned, so it may not fit
    group = fresh_group()
    wanted = definition(group)
    second = {**wanted["spec"]["versions"][0], "name": "v2", "storage": False}
    fields = {"spec": {"type": "object", "properties": {"size": {"type": "string"}}}}
    second["schema"] = {"openAPIV3Schema": {"type": "object", "properties": fields}}
    wanted["spec"]["versions"].append(second)
    establish(api, wanted)
    path = f"/apis/{group}/{{}}/namespaces/default/widgets/a"
    patch = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 3}}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    created = api.request("PATCH", path.format("v1") + "?fieldManager=one", patch, headers=headers)
    assert created.status == 201
    patch = {"apiVersion": f"{group}/v2", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": "x"}}
    other = api.request("PATCH", path.format("v2") + "?fieldManager=two&force=true", patch, headers=headers)
    assert other.status == 500
    assert ".spec.size: expected string" in other.expect(500)["message"]
    assert api.get(path.format("v1")).expect(200)["spec"]["size"] == 3
