"""Failures of admission webhooks: errors come in time, and other requests are not affected.

The webhooks fail in each possible way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support import admission_webhook as hooks
from apiext.conformance.support import tls
from apiext.conformance.support.admission import MUTATING, VALIDATING, configured, rule, webhook
from apiext.conformance.support.admission_webhook import Raw, Webhook, document, fixtures, page, running_webhook
from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import prompt
from tests.support.processes import Server, free_port

START = 'Internal error occurred: failed calling webhook "v.example.com": '
CALL = f"{START}failed to call webhook: "
INVALID = f"{START}received invalid webhook response: "
NO_JSON = f"{CALL}couldn't get version/kind; json parse error: "
KIND = f"{INVALID}expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got "
V1 = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}


running, hook = fixtures()


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api)


def answered(**response: Any) -> Callable[[hooks.Review], Raw]:
    """Return a function that answers a review completely, with the right uid."""
    return lambda request: document({**V1, "response": {"uid": request["uid"], **response}})


def fixed(answer: Raw) -> hooks.Answer:
    return lambda _: answer


BAD: list[tuple[str, hooks.Answer, str]] = [
    ("500", fixed(page(500, b"boom", "text/plain")),
     CALL + 'an error on the server ("boom") has prevented the request from succeeding'),
    ("404", fixed(page(404, b"x", "text/plain")), CALL + "the server could not find the requested resource"),
    ("a Status", fixed(page(500, b'{"kind":"Status","status":"Failure","message":"broken"}')), CALL + "broken"),
    ("HTML", fixed(page(200, b"<html>", "text/html")),
     NO_JSON + "json: cannot unmarshal string"),
    ("truncated JSON", fixed(page(200, b'{"response":')),
     NO_JSON + "unexpected end of JSON input"),
    ("a list", fixed(page(200, b"[]")), NO_JSON + "json: cannot unmarshal array"),
    ("an empty body", fixed(page(200, b"")),
     CALL + "0-length response with status code: 200 and content type: application/json"),
    ("a wrong type", fixed(document({**V1, "response": {"allowed": "yes"}})),
     CALL + "json: cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool"),
    ("no response", fixed(document(V1)), INVALID + "webhook response was absent"),
    ("another uid", fixed(document({**V1, "response": {"uid": "x", "allowed": True}})),
     INVALID + "expected response.uid="),
    ("no kind", lambda request: document({"response": {"uid": request["uid"], "allowed": True}}),
     KIND + "/, Kind="),
    ("another kind",
     lambda request: document({**V1, "kind": "X", "response": {"uid": request["uid"], "allowed": True}}),
     CALL + 'no kind "X" is registered for version "admission.k8s.io/v1" in scheme "pkg/runtime/scheme.go:111"'),
    ("a redirect", fixed(page(302, b"", Location="https://127.0.0.1:1/")),
     CALL + "the server responded with the status code 302 but did not return more information"),
    ("silence", fixed(Raw(hooks.silent)), CALL + 'Post "https://127.0.0.1:'),
    ("a reset", fixed(Raw(hooks.reset)), CALL + "unexpected error when reading response body. Please retry."),
    ("100 MB", fixed(page(200, b" " * 100_000_000)), CALL + "unexpected error when reading response body."),
    ("an endless body", fixed(Raw(hooks.endless)), CALL + "unexpected error when reading response body."),
]  # fmt: skip


@pytest.mark.rows("ADM-009", "ADM-011")
@pytest.mark.parametrize(("answer", "text"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
@pytest.mark.parametrize("path", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_invalid_webhook_response_fails_the_write(
    api: Client, hook: Webhook, widgets: Resource, path: str, answer: hooks.Answer, text: str
) -> None:
    hook.answer = answer
    with configured(api, path, webhook("v", hook.client_config(), rule(widgets))):
        found = api.post(widgets.path(), widgets.make("a")).expect(500)
    assert found["reason"] == "InternalError"
    assert found["message"].startswith(text)
    api.get(widgets.path("a")).expect(404)


@pytest.mark.rows("ADM-011")
@pytest.mark.parametrize("path", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_failure_policy_ignore_admits_the_write(api: Client, hook: Webhook, widgets: Resource, path: str) -> None:
    hook.answer = fixed(page(500, b"boom", "text/plain"))
    with configured(api, path, webhook("v", hook.client_config(), rule(widgets), failurePolicy="Ignore")):
        widgets.create("a")
    text = api.get("/metrics").text
    kind = "admit" if path == MUTATING else "validating"
    assert f'apiserver_admission_webhook_fail_open_count{{name="v.example.com",type="{kind}"}}' in text


PATCHES = [
    ("no type", answered(allowed=True, patch="W10="),
     INVALID + "webhook returned response.patch but not response.patchType"),
    ("no patch", answered(allowed=True, patchType="JSONPatch"),
     INVALID + "webhook returned response.patchType but not response.patch"),
    ("an empty type", answered(allowed=True, patch="W10=", patchType=""),
     INVALID + 'webhook returned invalid response.patchType of ""'),
    ("another type", answered(allowed=True, patch="W3sib3AiOiJhZGQifV0=", patchType="Merge"),
     START + 'unsupported patch type "Merge"'),
    ("no base64", answered(allowed=True, patch="!!", patchType="JSONPatch"),
     CALL + "illegal base64 data at input byte 0"),
    ("no JSON", answered(allowed=True, patch="eA==", patchType="JSONPatch"),
     START + "received undecodable patch in webhook response: "),
    ("no list", answered(allowed=True, patch="e30=", patchType="JSONPatch"),
     START + "received undecodable patch in webhook response: json: cannot unmarshal object into"),
    ("a string", answered(allowed=True, patch="IngiCg==", patchType="JSONPatch"),
     START + "received undecodable patch in webhook response: json: cannot unmarshal string into"),
    ("a missing path", hooks.patch({"op": "remove", "path": "/spec/nope"}),
     "Internal error occurred: error in remove for path: '/spec/nope': Unable to remove nonexistent key: nope: "
     "missing value"),
    ("a kind of the wrong type", hooks.patch({"op": "add", "path": "/kind", "value": 3}),
     "Internal error occurred: couldn't get version/kind; json parse error: json: cannot unmarshal number into Go "
     "struct field .kind of type string"),
    ("another group", hooks.patch({"op": "replace", "path": "/apiVersion", "value": "x/v1"}),
     "x/v1, Kind=Widget is unstructured and is not suitable for converting to "),
    ("an array as the object", hooks.patch({"op": "replace", "path": "", "value": []}), "Internal error occurred: "),
]  # fmt: skip


@pytest.mark.rows("ADM-009", "ADM-014")
@pytest.mark.parametrize(("answer", "text"), [case[1:] for case in PATCHES], ids=[case[0] for case in PATCHES])
def test_invalid_webhook_patch_fails_the_write(
    api: Client, hook: Webhook, widgets: Resource, answer: hooks.Answer, text: str
) -> None:
    hook.answer = answer
    with configured(api, MUTATING, webhook("v", hook.client_config(), rule(widgets))):
        found = api.post(widgets.path(), widgets.make("a")).expect(500)
    assert found["message"].startswith(text)


@pytest.mark.rows("ADM-009")
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (answered(allowed=True, patch="W10="), "validating webhook may not return response.patch"),
        (answered(allowed=True, patchType="JSONPatch"), "validating webhook may not return response.patchType"),
    ],
)
def test_validating_webhook_may_not_return_a_patch(
    api: Client, hook: Webhook, widgets: Resource, answer: hooks.Answer, text: str
) -> None:
    hook.answer = answer
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets))):
        found = api.post(widgets.path(), widgets.make("a")).expect(500)
    assert found["message"] == INVALID + text


WILD = [
    {"op": "replace", "path": "/kind", "value": "Gadget"},
    {"op": "replace", "path": "/kind", "value": 3},
    {"op": "remove", "path": "/kind"},
    {"op": "remove", "path": "/apiVersion"},
    {"op": "replace", "path": "/apiVersion", "value": "v1"},
    {"op": "remove", "path": "/metadata"},
    {"op": "replace", "path": "/metadata", "value": {}},
    {"op": "replace", "path": "/metadata", "value": None},
    {"op": "replace", "path": "/metadata/name", "value": "A B"},
    {"op": "replace", "path": "/metadata/namespace", "value": "kube-system"},
    {"op": "add", "path": "/metadata/labels", "value": {"a": 1}},
    {"op": "add", "path": "/metadata/resourceVersion", "value": "7"},
    {"op": "replace", "path": "/spec", "value": "none"},
    {"op": "replace", "path": "", "value": {}},
]


@pytest.mark.rows("ADM-014")
@pytest.mark.parametrize("operation", WILD, ids=lambda it: f"{it['op']} {it['path']} {it.get('value')}")
@pytest.mark.parametrize("update", [False, True], ids=["create", "update"])
def test_webhook_patch_that_breaks_the_object_is_rejected(
    api: Client, hook: Webhook, widgets: Resource, operation: dict[str, Any], update: bool
) -> None:
    if update:
        widgets.create("a")
    hook.answer = hooks.patch(operation)
    with configured(api, MUTATING, webhook("v", hook.client_config(), rule(widgets))):
        if update:
            answer = api.patch(widgets.path("a"), {"spec": {"color": "blue"}})
        else:
            answer = api.post(widgets.path(), widgets.make("a"))
    assert 400 <= answer.status <= 500, answer.text
    assert "panic" not in answer.json["message"]
    assert api.get(widgets.path("a")).status == (200 if update else 404)
    everywhere = api.get(widgets.path("", None)).expect(200)["items"]
    assert [item["metadata"]["namespace"] for item in everywhere] == ["default"] * update


@pytest.mark.rows("ADM-011")
def test_refused_webhook_connection_fails_the_write(api: Client, widgets: Resource) -> None:
    port = free_port()
    with configured(api, VALIDATING, webhook("v", {"url": f"https://127.0.0.1:{port}/x"}, rule(widgets))):
        found = api.post(widgets.path(), widgets.make("a")).expect(500)
    post = f'Post "https://127.0.0.1:{port}/x?timeout=10s"'
    assert found["message"] == f"{CALL}{post}: dial tcp 127.0.0.1:{port}: connect: connection refused"


@pytest.mark.rows("ADM-011")
@pytest.mark.parametrize("path", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_hanging_webhook_call_ends_after_its_timeout(api: Client, hook: Webhook, widgets: Resource, path: str) -> None:
    hook.answer = hook.hang
    with configured(api, path, webhook("v", hook.client_config(), rule(widgets), timeoutSeconds=1)):
        began = time.monotonic()
        found = api.post(widgets.path(), widgets.make("a")).expect(500)
        took = time.monotonic() - began
    assert found["message"].endswith('?timeout=1s": context deadline exceeded')
    assert took > 0.9
    prompt(took, 3)


@pytest.mark.rows("ADM-011")
@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("path", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_request_timeout_ends_a_hanging_webhook_call(
    api: Client, hook: Webhook, widgets: Resource, path: str, policy: str
) -> None:
    hook.answer = hook.hang
    with configured(api, path, webhook("v", hook.client_config(), rule(widgets), failurePolicy=policy)):
        began = time.monotonic()
        found = api.post(f"{widgets.path()}?timeout=1s", widgets.make("a")).expect(504)
        took = time.monotonic() - began
    assert found["reason"] == "Timeout"
    assert found["message"].startswith("Timeout: request did not complete within requested timeout")
    assert took > 0.9
    prompt(took, 3)
    api.get(widgets.path("a")).expect(404)


TRUST: list[tuple[str, dict[str, Any], str]] = [
    ("expired", {"expired": True}, "tls: failed to verify certificate: x509: certificate has expired"),
    ("foreign", {"signer": tls.authority("foreign")},
     "tls: failed to verify certificate: x509: certificate signed by unknown authority"),
    ("another name", {"names": ("elsewhere.example.com",)}, "tls: failed to verify certificate: x509: "),
    ("plain http", {"plain": True}, "tls: first record does not look like a TLS handshake"),
]  # fmt: skip


@pytest.mark.rows("ADM-011", "VER-009")
@pytest.mark.parametrize(("how", "text"), [case[1:] for case in TRUST], ids=[case[0] for case in TRUST])
def test_untrusted_webhook_certificate_fails_the_write(
    api: Client, widgets: Resource, tmp_path: Path, how: dict[str, Any], text: str
) -> None:
    with (
        running_webhook(tmp_path, **how) as stranger,
        configured(api, VALIDATING, webhook("v", stranger.client_config(), rule(widgets))),
    ):
        found = api.post(widgets.path(), widgets.make("a")).expect(500)
        assert stranger.reviews == []
    assert f'Post "https://127.0.0.1:{stranger.port}/?timeout=10s": {text}' in found["message"]


def test_recovered_webhook_is_called_immediately(api: Client, hook: Webhook, widgets: Resource) -> None:
    hook.answer = fixed(Raw(hooks.silent))
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets))):
        for _ in range(10):
            api.post(widgets.path(), widgets.make("a")).expect(500)
        hook.answer = hooks.allow
        widgets.create("a")


STRANGE = [
    {"warnings": ["two\nlines", "ünïcode", "x" * 5000, "", "\x00"]},
    {"auditAnnotations": {"": "", "a b": "c\nd"}},
    {"allowed": False, "status": {"code": 799, "reason": "\n", "message": "a\r\nb"}},
    {"allowed": False, "status": {"code": 99999, "details": {"retryAfterSeconds": 2**31 - 1}}},
    {"allowed": False, "status": {"code": 429, "details": {"retryAfterSeconds": -5, "causes": [{"message": "x"}]}}},
    {"allowed": False, "status": {"details": {"causes": "x"}}},
    {"allowed": False, "status": "x"},
    {"allowed": None, "uid": 3},
    {"warnings": "x"},
    {"warnings": [f"w{number}" for number in range(200_000)]},
]


@pytest.mark.rows("ADM-010", "ADM-013")
@pytest.mark.parametrize("response", STRANGE, ids=lambda it: str(it)[:60])
def test_unusual_webhook_response_is_accepted_or_reported(
    api: Client, hook: Webhook, widgets: Resource, response: dict[str, Any]
) -> None:
    hook.answer = lambda _: {"allowed": True, **response}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets))):
        began = time.monotonic()
        answer = api.post(widgets.path(), widgets.make("a"))
        prompt(time.monotonic() - began, 5)
    assert answer.status == 201 or answer.json["message"], answer.text
    assert answer.status == 201 or "v.example.com" in answer.json["message"]
    assert api.get("/livez").status == 200


def test_hanging_webhook_delays_only_its_own_writes(api: Client, server: Server, hook: Webhook) -> None:
    slow, quick = serve(api), serve(api)
    hook.answer = hook.hang
    stuck: list[int] = []

    def write(number: int) -> None:
        stuck.append(Client(server.url).post(slow.path(), slow.make(f"w{number}")).status)

    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(slow), timeoutSeconds=2)):
        threads = [threading.Thread(target=write, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        times = []
        for number in range(30):
            began = time.monotonic()
            quick.create(f"q{number}")
            times.append(time.monotonic() - began)
        for thread in threads:
            thread.join()
    assert stuck == [500] * 20
    prompt(sorted(times)[-2], 0.5)
