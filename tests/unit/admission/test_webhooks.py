"""Audit annotations of the webhook plug-ins, and changes of their configurations."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext import limits as server_limits
from apiext.admission.attributes import Attributes, Traces
from apiext.admission.chain import Chain
from apiext.admission.configured import MUTATING, VALIDATING, Live
from apiext.admission.hooks import compile_hooks
from apiext.admission.metrics import Metrics
from apiext.admission.plugin_services import PluginServices
from apiext.admission.webhooks import MutatingWebhooks, ValidatingWebhooks
from apiext.auth.user import User
from apiext.conformance.support import admission_webhook as hooks
from apiext.conformance.support.admission import webhook
from apiext.documents.document import Document, View
from apiext.meta.names import GroupResource
from apiext.meta.options import WriteOptions
from apiext.meta.status import StatusError
from apiext.storage.collection import Collection
from apiext.storage.progress import Progress
from apiext.storage.pump import Pump
from apiext.storage.store import Entry
from apiext.webhooks import breaker
from apiext.webhooks import limits as webhooks_limits
from apiext.webhooks.client import Client
from tests.support.processes import free_port
from tests.support.strain import turns_beside
from tests.unit.catalog import samples

RULE = {"operations": ["*"], "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["widgets"]}
ALICE = User("alice", ("devs",), "u1", (("scopes", ("a", "b")),))


@pytest.fixture
def hook(tmp_path: Path) -> Iterator[hooks.Webhook]:
    with hooks.running_webhook(tmp_path) as running:
        yield running


class Configured:
    """A chain with two collections of configurations, which tests fill directly."""

    def __init__(self) -> None:
        self.client = Client()
        self.revision = 1
        self.compiled: list[str] = []
        self.size = 0
        self.collections = {resource: self._collection(resource) for resource in (MUTATING, VALIDATING)}
        self.metrics = Metrics()
        services = PluginServices(self._namespace, self.client, self.metrics)
        mutating, validating = (
            Live(self.collections[resource], lambda raw, _: json.loads(raw), self._compile)
            for resource in (MUTATING, VALIDATING)
        )
        self.chain = Chain([MutatingWebhooks(mutating, services), ValidatingWebhooks(validating, services)])

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

    async def create(self, *, dry_run: bool = False, left: float = 0.0, **spec: Any) -> tuple[Document, Traces]:
        definition = samples.resource()
        served = definition.versions["v1"]
        new, _ = served.model.normalize(samples.widget(spec=spec))
        told = WriteOptions("CreateOptions", field_manager="me")
        attributes = Attributes(
            "CREATE", served.names.group_resource, "v1", served.names.group_kind, "", "n", "x", ALICE, dry_run,
            new, None, told, served, definition, left and asyncio.get_running_loop().time() + left,
        )  # fmt: skip
        found = await self.chain.mutate(attributes, new)
        await self.chain.review(attributes)
        self.size = attributes.size
        return found, attributes.traces


@pytest.fixture
async def configured() -> AsyncIterator[Configured]:
    made = Configured()
    yield made
    await made.client.close()


@pytest.mark.rows("ADM-021")
async def test_metrics_are_dropped_with_their_webhook(configured: Configured, hook: hooks.Webhook) -> None:
    families = configured.metrics.families

    def look() -> set[str]:
        for family in families:
            list(family.drop_deleted(lambda *_: True))
        text = "\n".join(line for family in families for line in family.lines())
        return {name for name in ("keep", "go", "both") if f'"{name}.example.com"' in text}

    hook.answers["/fail"] = lambda _: hooks.page(500, b"boom")
    keep, go, both = (webhook(name, hook.client_config(), RULE) for name in ("keep", "go", "both"))
    fails = webhook("go", hook.client_config("/fail"), RULE, failurePolicy="Ignore")
    configured.store(MUTATING, "m", keep, both)
    configured.store(MUTATING, "other", go, fails)
    configured.store(VALIDATING, "v", both)
    await configured.create()
    assert look() == look() == look() == {"keep", "go", "both"}
    configured.store(MUTATING, "other", None)
    assert look() == look() == {"keep", "go", "both"}, "nobody has asked since"
    await configured.create()
    assert look() == {"keep", "go", "both"}, "somebody may not have read it yet"
    assert look() == {"keep", "both"}
    configured.store(VALIDATING, "v", None)
    await configured.create()
    look()
    assert look() == {"keep", "both"}
    assert not any('"both.example.com",type="validating"' in line for family in families for line in family.lines())
    configured.store(MUTATING, "other", go)
    await configured.create()
    assert look() == {"keep", "go", "both"}


@pytest.mark.rows("ADM-014")
@pytest.mark.parametrize(
    ("operation", "least"),
    [
        ({"op": "add", "path": "/spec/color", "value": "x"}, 0),
        ({"op": "add", "path": "/spec/color", "value": "x" * server_limits.WORK_INLINE}, server_limits.WORK_INLINE),
        ({"op": "copy", "from": "/metadata/name", "path": "/spec/color"}, server_limits.WORK_INLINE),
    ],
    ids=["small", "large", "copy"],
)
async def test_patches_update_the_size_of_the_write(
    configured: Configured, hook: hooks.Webhook, operation: dict[str, Any], least: int
) -> None:
    hook.answers["/m"] = hooks.patch(operation)
    configured.store(MUTATING, "m", webhook("m", hook.client_config("/m"), RULE))
    await configured.create()
    assert (configured.size >= server_limits.WORK_INLINE) is bool(least)
    assert configured.size >= least


@pytest.mark.rows("ADM-013")
async def test_webhooks_add_audit_annotations_and_warnings(
    configured: Configured, hook: hooks.Webhook, caplog: pytest.LogCaptureFixture
) -> None:
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
    assert len(caplog.messages) == 2
    for line in caplog.messages:
        assert line.startswith('failed calling webhook "fail.example.com": failed to call webhook: ')
        assert line.endswith("; the write continues: failurePolicy is Ignore")


@pytest.mark.rows("ADM-007")
async def test_review_request_has_user_info_and_options(configured: Configured, hook: hooks.Webhook) -> None:
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


@pytest.mark.rows("ADM-002")
async def test_reloaded_store_replaces_compiled_configurations(configured: Configured, hook: hooks.Webhook) -> None:
    configured.store(VALIDATING, "v", webhook("v", hook.client_config("/1"), RULE))
    await configured.create()
    content = {"metadata": {"name": "v"}, "webhooks": [webhook("v", hook.client_config("/2"), RULE)]}
    collection, entry = configured.collections[VALIDATING], Entry("", "v", 2, json.dumps(content).encode())
    collection.announce(collection.load([entry], {}, 2))
    await configured.create()
    assert [path.split("?")[0] for path in hook.paths] == ["/1", "/2"]


@pytest.mark.parametrize("resource", [MUTATING, VALIDATING], ids=str)
@pytest.mark.parametrize("meant", [False, True])
async def test_many_webhooks_yield_to_the_event_loop(
    configured: Configured, resource: GroupResource, meant: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 0.0)
    rule = RULE if meant else {**RULE, "resources": ["others"]}
    conditions = [{"name": str(number), "expression": f"object.kind != 'K{number}'"} for number in range(10)]
    conditions.append({"name": "no", "expression": "false"})
    nowhere = {"url": "https://127.0.0.1:1/"}
    each = [webhook(f"v{number}", nowhere, rule, matchConditions=conditions) for number in range(20)]
    configured.store(resource, "v", *each)
    _, turns = await turns_beside(configured.create())
    assert turns >= (200 if meant else 20)
    _, turns = await turns_beside(configured.create())
    assert (turns >= 200) is meant, "webhooks for other resources are not looked at again"


@pytest.mark.rows("ADM-011")
async def test_webhook_without_service_or_url_fails_the_write(configured: Configured) -> None:
    configured.store(VALIDATING, "v", webhook("v", {}, RULE))
    with pytest.raises(StatusError) as caught:
        await configured.create()
    text = "could not get REST client: webhook configuration must have either service or URL"
    assert caught.value.message == f'Internal error occurred: failed calling webhook "v.example.com": {text}'


@pytest.mark.rows("ADM-008", "ADM-011")
async def test_request_timeouts_do_not_open_the_circuit_breaker(
    configured: Configured, hook: hooks.Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks_limits, "WEBHOOK_SLOW_FAILURE", 0.02)
    answer, go_on = hook.answer, threading.Event()

    def slowly(request: Any) -> Any:
        assert go_on.wait(20)
        return answer(request)

    hook.answer = slowly
    configured.store(VALIDATING, "v", webhook("v", hook.client_config(), RULE))
    for _ in range(webhooks_limits.WEBHOOK_FAILURES):
        with pytest.raises(StatusError) as caught:
            await configured.create(left=0.05)
        assert caught.value.code == 504
    go_on.set()
    await configured.create()  # a request with enough time succeeds


@pytest.mark.rows("ADM-008", "ADM-011")
async def test_circuit_breaker_is_per_webhook_url(
    configured: Configured, hook: hooks.Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Equally named webhooks and corrected configurations have separate circuit breakers.

    Mutating and validating webhooks often have the same names, and a user may correct a configuration.
    """
    monkeypatch.setattr(webhooks_limits, "WEBHOOK_SLOW_FAILURE", 0.0)
    monkeypatch.setattr(breaker, "WEBHOOK_PROBE_EVERY", 60.0)
    dead = {"url": f"https://127.0.0.1:{free_port()}/"}
    configured.store(MUTATING, "c", webhook("v", hook.client_config(), RULE))
    configured.store(VALIDATING, "c", webhook("v", dead, RULE))
    for _ in range(webhooks_limits.WEBHOOK_FAILURES):
        with pytest.raises(StatusError, match="connection refused"):
            await configured.create()
    with pytest.raises(StatusError, match="not called again yet"):  # successes of other URLs do not count
        await configured.create()
    configured.store(VALIDATING, "c", webhook("v", hook.client_config(), RULE))
    await configured.create()


@pytest.mark.rows("ADM-012")
@pytest.mark.parametrize("resource", [MUTATING, VALIDATING], ids=str)
async def test_dry_run_refuses_webhooks_with_side_effects(
    configured: Configured, hook: hooks.Webhook, resource: GroupResource
) -> None:
    """failurePolicy=Ignore does not apply to this error, since it is no failed call."""
    effects = {"sideEffects": "Some", "failurePolicy": "Ignore"}
    configured.store(resource, "v", webhook("v", hook.client_config(), RULE, **effects))
    await configured.create()
    with pytest.raises(StatusError) as caught:
        await configured.create(dry_run=True)
    assert caught.value.code == 400
    assert caught.value.message == 'admission webhook "v.example.com" does not support dry run'
    assert len(hook.reviews) == 1


@pytest.mark.rows("ADM-009")
async def test_invalid_stored_webhooks_fail_matching_writes(configured: Configured, hook: hooks.Webhook) -> None:
    """Stored review versions and selectors that a write would refuse today."""
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
