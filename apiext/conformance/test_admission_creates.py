"""Names, revisions and deletion fields that clients or webhooks set.

The writes are creates by POST, PUT and apply, and one update.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiext.conformance.support.admission import MUTATING, configured, rule, webhook
from apiext.conformance.support.admission_webhook import Webhook, fixtures, patch
from apiext.conformance.support.definitions import Resource, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, Answer, Client

running, hook = fixtures()

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
DELETED = "2020-01-01T00:00:00Z"


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api)


def applied(api: Client, widgets: Resource, name: str, **options: str) -> Answer:
    body = json.dumps(widgets.make(name, color="red"))
    return api.patch(widgets.path(name), body, APPLY, fieldManager="me", **options)


def replaced(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


@pytest.mark.rows("ADM-014", "SSA-001")
def test_a_webhook_renames_an_object_that_an_apply_creates(api: Client, hook: Webhook, widgets: Resource) -> None:
    other = widgets.create("other")
    hook.answer = patch(replaced("/metadata/name", "other"))
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        made = applied(api, widgets, "a").expect(201)
    assert made["metadata"]["name"] == "other", (
        "the response has the webhook's name, but the object is stored under the name in the URL"
    )
    assert made["metadata"]["uid"] != other["metadata"]["uid"]
    assert api.get(widgets.path("a")).expect(200) == made
    assert api.get(widgets.path("other")).expect(200) == other
    # upstream: the Status of a delete has the name in the object, not the name in the URL
    assert api.delete(widgets.path("a")).expect(200)["details"]["name"] == "other"
    assert api.get(widgets.path("other")).expect(200) == other


@pytest.mark.rows("ADM-014", "SSA-001")
def test_a_webhook_replaces_an_object_that_an_apply_creates(api: Client, hook: Webhook, widgets: Resource) -> None:
    widgets.create("other")
    hook.answer = patch({"op": "replace", "path": "", "value": widgets.make("other", color="blue")})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        made = applied(api, widgets, "a").expect(201)
    assert api.get(widgets.path("a")).expect(200) == made
    assert made["spec"]["color"] == "blue"


@pytest.mark.rows("ADM-014", "SSA-001")
@pytest.mark.parametrize(
    ("revision", "code", "text"),
    [("1", 201, ""), ("0", 201, ""), ("x", 500, 'strconv.ParseUint: parsing "x": invalid syntax')],
)
def test_a_webhook_sets_the_revision_of_an_object_that_an_apply_creates(
    api: Client, hook: Webhook, widgets: Resource, revision: str, code: int, text: str
) -> None:
    hook.answer = patch(replaced("/metadata/resourceVersion", revision))
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        answer = applied(api, widgets, "a").expect(code)
    assert answer.get("message", "") == text
    api.get(widgets.path("a")).expect(200 if code == 201 else 404)


@pytest.mark.rows("ADM-014", "SSA-001")
def test_a_webhook_removes_the_name_of_an_object_that_an_apply_creates(
    api: Client, hook: Webhook, widgets: Resource
) -> None:
    hook.answer = patch(replaced("/metadata/generateName", "b-"), {"op": "remove", "path": "/metadata/name"})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        refused = applied(api, widgets, "a").expect(500)
    assert refused["message"] == "Internal error occurred: metadata.name was not generated"
    api.get(widgets.path("a")).expect(404)


@pytest.mark.rows("ADM-014", "WRI-005", "ERR-13")
def test_a_missing_revision_is_reported_before_a_namespace_that_a_webhook_changed(
    api: Client, hook: Webhook, widgets: Resource
) -> None:
    widgets.create("a")
    hook.answer = patch(replaced("/metadata/namespace", "zz"))
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        refused = api.put(widgets.path("a"), widgets.make("a", color="blue")).expect(422)
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refused["message"]


@pytest.mark.rows("ADM-014", "WRI-001")
def test_a_webhook_may_set_the_deletion_timestamp_of_a_new_object(
    api: Client, hook: Webhook, widgets: Resource
) -> None:
    gone = [replaced("/metadata/deletionTimestamp", DELETED), replaced("/metadata/finalizers", ["example.com/a"])]
    hook.answer = patch(*gone)
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        made = api.post(widgets.path(), widgets.make("a")).expect(201)
    assert made["metadata"]["deletionTimestamp"] == DELETED
    asked = api.delete(widgets.path("a")).expect(200)
    assert asked["metadata"]["deletionTimestamp"] == DELETED
    assert asked["metadata"]["deletionGracePeriodSeconds"] == 0


def made_by(api: Client, verb: str, metadata: dict[str, Any], **options: str) -> Answer:
    """Create a lease with a POST, a PUT or an apply."""
    name = fresh_group()
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, **metadata}}
    if verb == "post":
        return api.post(LEASES, body, **options)
    if verb == "put":
        return api.put(f"{LEASES}/{name}", body, **options)
    return api.patch(f"{LEASES}/{name}", json.dumps(body), APPLY, fieldManager="me", **options)


@pytest.mark.rows("WRI-001", "SSA-001")
@pytest.mark.parametrize(("verb", "owned"), [("post", False), ("put", True), ("apply", True)])
def test_a_create_drops_the_deletion_fields_of_the_client(api: Client, verb: str, owned: bool) -> None:
    given = {"deletionTimestamp": DELETED, "deletionGracePeriodSeconds": 5}
    made = made_by(api, verb, given).expect(201)["metadata"]
    assert given.keys().isdisjoint(made)
    fields = [entry["fieldsV1"].get("f:metadata", {}) for entry in made.get("managedFields", ())]
    assert [{f"f:{name}" for name in given} <= set(one) for one in fields] == ([owned] if fields else [])
    assert owned == bool(fields)
    api.delete(f"{LEASES}/{made['name']}").expect(200)
    api.get(f"{LEASES}/{made['name']}").expect(404)


@pytest.mark.rows("WRI-001", "SSA-001")
@pytest.mark.parametrize("verb", ["put", "apply"])
def test_the_revision_in_a_create_by_put_or_apply(api: Client, verb: str) -> None:
    refused = made_by(api, verb, {"resourceVersion": "x"}).expect(500)
    assert refused["message"] == 'strconv.ParseUint: parsing "x": invalid syntax'
    shown = made_by(api, verb, {"resourceVersion": "7"}, dryRun="All").expect(201)
    assert shown["metadata"]["resourceVersion"] == "7"
    made = made_by(api, verb, {"resourceVersion": "7"}).expect(201)["metadata"]
    assert made["resourceVersion"] != "7"
    api.delete(f"{LEASES}/{made['name']}").expect(200)
