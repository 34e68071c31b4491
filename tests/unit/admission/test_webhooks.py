"""What the plug-ins leave behind for the audit, and how configurations are followed."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.admission.attributes import Attributes, Traces
from apiext.admission.calls import Surroundings
from apiext.admission.chain import Chain
from apiext.admission.hooks import MUTATING, VALIDATING, Live, compile_hooks
from apiext.admission.metrics import Metrics
from apiext.admission.webhooks import MutatingWebhooks, ValidatingWebhooks
from apiext.auth.user import User
from apiext.documents.document import Document, View
from apiext.meta.names import GroupResource
from apiext.meta.options import WriteOptions
from apiext.meta.status import StatusError
from apiext.storage.collection import Collection
from apiext.storage.progress import Progress
from apiext.storage.pump import Pump
from apiext.webhooks.client import Client
from tests.support import admission_webhook as hooks
from tests.support.admission import webhook
from tests.unit.catalog import samples

RULE = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}
ALICE = User("alice", ("devs",), "u1", (("scopes", ("a", "b")),))


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[hooks.Webhook]:
    with hooks.running_webhook(tmp_path) as running:
        yield running


class Configured:
    """A chain over two collections of configurations, filled by hand."""

    def __init__(self) -> None:
        self.client = Client()
        self.revision = 1
        self.compiled: list[str] = []
        self.collections = {resource: self._collection(resource) for resource in (MUTATING, VALIDATING)}
        around = Surroundings(self._namespace, self.client, Metrics())
        mutating, validating = (
            Live(self.collections[resource], lambda raw, _: json.loads(raw), self._compile)
            for resource in (MUTATING, VALIDATING)
        )
        self.chain = Chain([MutatingWebhooks(mutating, around), ValidatingWebhooks(validating, around)])

    def _collection(self, resource: GroupResource) -> Collection:
        found = Collection(resource, False, "/r/", None, Progress(lambda revision, times: None), Pump())
        found.load([], {}, 1)
        found.announce([])
        return found

    async def _namespace(self, name: str) -> View | None:
        return {"metadata": {"name": name, "labels": {"team": "x"}, "resourceVersion": "1"}}

    def _compile(self, document: View) -> Any:
        self.compiled.append(document["metadata"]["name"])
        return compile_hooks(document)

    def store(self, resource: GroupResource, name: str, *webhooks: dict[str, Any] | None) -> None:
        self.revision += 1
        content = {"metadata": {"name": name}, "webhooks": list(webhooks)}
        value = None if webhooks == (None,) else json.dumps(content).encode()
        self.collections[resource].apply(name, self.revision, value)

    async def create(self, *, dry_run: bool = False, **spec: Any) -> tuple[Document, Traces]:
        definition = samples.resource()
        served = definition.versions["v1"]
        new, _ = served.normalize(samples.widget(spec=spec))
        told = WriteOptions("CreateOptions", field_manager="me")
        attributes = Attributes(
            "CREATE", served.group_resource, "v1", served.group_kind, "", "n", "x", ALICE, dry_run,
            new, None, told, served, definition,
        )  # fmt: skip
        found = await self.chain.mutate(attributes, new)
        await self.chain.review(attributes)
        return found, attributes.traces


@pytest.fixture
async def configured() -> AsyncIterator[Configured]:
    made = Configured()
    yield made
    await made.client.close()


@pytest.mark.rows("ADM-013")
async def test_annotations(configured: Configured, hook: hooks.Webhook) -> None:
    hook.answers["/change"] = hooks.patch({"op": "add", "path": "/spec/replicas", "value": 2})
    hook.answers["/fail"] = lambda _: hooks.page(500, b"boom")
    hook.answer = lambda _: {"allowed": True, "auditAnnotations": {"why": "because"}, "warnings": ["w"]}
    names = ("say", "change", "fail")
    each = [
        webhook(name, hook.client_config(f"/{name}"), RULE, failurePolicy="Ignore", matchPolicy="Exact")
        for name in names
    ]
    configured.store(MUTATING, "m", *each)
    configured.store(VALIDATING, "v", each[0], each[2])
    found, traces = await configured.create()
    assert found["spec"] == {"color": "red", "replicas": 2}
    mutation, patch = "mutation.webhook.admission.k8s.io/", "patch.webhook.admission.k8s.io/"
    told = {"configuration": "m", "webhook": "change.example.com"}
    operations = [{"op": "add", "path": "/spec/replicas", "value": 2}]
    assert json.loads(traces.annotations.pop(f"{mutation}round_0_index_1")) == {**told, "mutated": True}
    assert json.loads(traces.annotations.pop(f"{patch}round_0_index_1")) == {
        **told, "patch": operations, "patchType": "JSONPatch",
    }  # fmt: skip
    assert traces.annotations == {
        "say.example.com/why": "because",
        f"{mutation}round_0_index_0": '{"configuration":"m","webhook":"say.example.com","mutated":false}',
        f"{mutation}round_0_index_2": '{"configuration":"m","webhook":"fail.example.com","mutated":false}',
        f"failed-open.{mutation}round_0_index_2": "fail.example.com",
        "failed-open.validating.webhook.admission.k8s.io/round_0_index_1": "fail.example.com",
    }
    assert traces.warnings == ["w"]


@pytest.mark.rows("ADM-007")
async def test_who_asks(configured: Configured, hook: hooks.Webhook) -> None:
    configured.store(VALIDATING, "v", webhook("v", hook.client_config(), RULE))
    await configured.create()
    (request,) = hook.requests()
    assert request["userInfo"] == {
        "username": "alice",
        "uid": "u1",
        "groups": ["devs"],
        "extra": {"scopes": ["a", "b"]},
    }
    assert request["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}


@pytest.mark.rows("ADM-002", "ADM-004")
async def test_configurations_are_compiled_once_for_each_revision(configured: Configured, hook: hooks.Webhook) -> None:
    await configured.create()
    assert hook.reviews == []
    both = webhook("v", hook.client_config("/1"), RULE)
    configured.store(VALIDATING, "b", both)
    configured.store(VALIDATING, "a", both)
    for _ in range(3):
        await configured.create()
    assert configured.compiled == ["a", "b"]
    assert len(hook.reviews) == 6
    configured.store(VALIDATING, "b", webhook("v", hook.client_config("/2"), RULE))
    await configured.create()
    assert configured.compiled == ["a", "b", "b"]
    assert sorted(path.split("?")[0] for path in hook.paths[6:]) == ["/1", "/2"]
    configured.store(VALIDATING, "a", None)
    configured.store(VALIDATING, "b", None)
    await configured.create()
    assert len(hook.reviews) == 8


@pytest.mark.rows("ADM-011")
async def test_a_configuration_that_names_no_place(configured: Configured) -> None:
    configured.store(VALIDATING, "v", webhook("v", {}, RULE))
    with pytest.raises(StatusError) as caught:
        await configured.create()
    text = "could not get REST client: webhook configuration must have either service or URL"
    assert caught.value.message == f'Internal error occurred: failed calling webhook "v.example.com": {text}'


@pytest.mark.rows("ADM-012")
@pytest.mark.parametrize("resource", [MUTATING, VALIDATING], ids=str)
async def test_dry_runs_of_webhooks_with_side_effects(
    configured: Configured, hook: hooks.Webhook, resource: GroupResource
) -> None:
    """Failures may be ignored; this is none."""
    effects = {"sideEffects": "Some", "failurePolicy": "Ignore"}
    configured.store(resource, "v", webhook("v", hook.client_config(), RULE, **effects))
    await configured.create()
    with pytest.raises(StatusError) as caught:
        await configured.create(dry_run=True)
    assert caught.value.code == 400
    assert caught.value.message == 'admission webhook "v.example.com" does not support dry run'
    assert len(hook.reviews) == 1


@pytest.mark.rows("ADM-009")
async def test_a_stored_configuration_may_be_older_than_its_rules(configured: Configured, hook: hooks.Webhook) -> None:
    """Review versions and selectors that a write would refuse today."""
    configured.store(VALIDATING, "v", webhook("v", hook.client_config(), RULE, admissionReviewVersions=["v0"]))
    with pytest.raises(StatusError, match="webhook does not accept known AdmissionReview versions"):
        await configured.create()
    broken = {"matchExpressions": [{"key": "a", "operator": "Is"}]}
    configured.store(VALIDATING, "v", webhook("v", hook.client_config(), RULE, objectSelector=broken))
    with pytest.raises(StatusError, match='"Is" is not a valid label selector operator') as caught:
        await configured.create()
    assert caught.value.code == 500
    elsewhere = {**RULE, "resources": ["others"]}
    configured.store(VALIDATING, "v", webhook("v", hook.client_config(), elsewhere, objectSelector=broken))
    await configured.create()
    conditions = [{"name": "a", "expression": "nope("}]
    configured.store(VALIDATING, "v", webhook("v", hook.client_config(), RULE, matchConditions=conditions))
    with pytest.raises(StatusError, match="compilation error: compilation failed") as caught:
        await configured.create()
    assert caught.value.code == 403
    assert hook.reviews == []
