"""What webhooks do to the metadata of an object: its owners, who owns its fields, the revision that it replaces."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.admission import MUTATING, VALIDATING, configured, rule, webhook
from tests.support.admission_webhook import Webhook, patch, running_webhook
from tests.support.definitions import Resource, fresh_group, serve
from tests.support.http_client import APPLY, Client


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    with running_webhook(tmp_path_factory.mktemp("webhook")) as webhook:
        yield webhook


@pytest.fixture
def hook(running: Webhook) -> Webhook:
    running.forget()
    return running


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api)


OWNER = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}


@pytest.mark.rows("ADM-014", "WRI-015")
def test_an_owner_that_a_webhook_adds_twice_is_there_once(api: Client, hook: Webhook, widgets: Resource) -> None:
    hook.answer = patch({"op": "add", "path": "/metadata/ownerReferences", "value": [OWNER, OWNER]})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        made = api.post(widgets.path(), widgets.make("a"), dryRun="All")
    assert made.expect(201)["metadata"]["ownerReferences"] == [OWNER]
    (told,) = made.warnings
    assert "contains duplicate entries after mutating admission happens; " in told
    assert "duplicate UID(s) observed: u" in told


@pytest.mark.rows("ADM-016", "SSA-017")
def test_ownership_after_a_webhook(api: Client, hook: Webhook, widgets: Resource) -> None:
    hook.answer = patch({"op": "add", "path": "/spec/size", "value": 4})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        body = json.dumps(widgets.make("a", color="red"))
        made = api.patch(widgets.path("a"), body, APPLY, fieldManager="me").expect(201)
    (entry,) = made["metadata"]["managedFields"]
    assert entry["manager"] == "me"
    assert "f:color" in entry["fieldsV1"]["f:spec"]
    assert made["spec"]["size"] == 4


@pytest.mark.rows("ADM-016", "SSA-017")
@pytest.mark.parametrize("verb", ["create", "update"])
def test_ownership_that_a_webhook_breaks_is_repaired(api: Client, hook: Webhook, widgets: Resource, verb: str) -> None:
    broken = [{"manager": "x", "operation": "Nonsense", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]
    hook.answer = patch({"op": "replace", "path": "/metadata/managedFields", "value": broken})
    if verb == "update":
        api.post(widgets.path(), widgets.make("a"), fieldManager="me").expect(201)
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        if verb == "create":
            answer = api.post(widgets.path(), widgets.make("a", color="red"), fieldManager="me")
        else:
            answer = api.patch(widgets.path("a"), {"spec": {"color": "red"}}, fieldManager="me")
    made = answer.expect(201 if verb == "create" else 200)
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["me"]
    assert ".metadata.managedFields was in an invalid state after admission" in answer.warnings[0]


@pytest.mark.rows("ADM-007", "UPD-004")
def test_an_overwrite_is_judged_with_the_revision_that_it_replaces(api: Client, hook: Webhook) -> None:
    maps = Resource(api, "", "configmaps", "ConfigMap")
    place, label = "/api/v1/namespaces/default/configmaps", {"judged": fresh_group()}
    body = {"metadata": {"name": label["judged"], "labels": label}}
    made = api.post(place, body).expect(201)
    named = webhook("v", hook.client_config(), rule(maps), objectSelector={"matchLabels": label})
    with configured(api, VALIDATING, named):
        api.put(f"{place}/{label['judged']}", {**body, "data": {"a": "b"}}).expect(200)
    (asked,) = hook.requests()
    for one in ("object", "oldObject"):
        assert asked[one]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    api.delete(f"{place}/{label['judged']}").expect(200)
