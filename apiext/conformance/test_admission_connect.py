"""Admission of connections: webhooks receive the options of exec, attach and portforward."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.admission import VALIDATING, configured, webhook
from apiext.conformance.support.admission_webhook import Webhook, deny, fixtures
from apiext.conformance.support.http_client import Client

running, hook = fixtures(deny("no connections"))

POD = "/api/v1/namespaces/default/pods/no-such-pod"
OPTIONS: list[tuple[str, str, str, dict[str, Any]]] = [
    (
        f"{POD}/exec?command=ls&command=-l&stdin=true&stdout=1&tty=false&container=c",
        "pods/exec",
        "PodExecOptions",
        {"stdin": True, "stdout": True, "container": "c", "command": ["ls", "-l"]},
    ),
    (f"{POD}/attach?stdout=true&container=c", "pods/attach", "PodAttachOptions", {"stdout": True, "container": "c"}),
    (f"{POD}/portforward?ports=80&ports=81", "pods/portforward", "PodPortForwardOptions", {"ports": [80, 81]}),
    (f"{POD}/exec", "pods/exec", "PodExecOptions", {"command": None}),
]


@pytest.mark.rows("ADM-008")
@pytest.mark.parametrize(("path", "resource", "kind", "fields"), OPTIONS)
def test_webhooks_are_called_with_the_options_of_a_connection(
    api: Client, hook: Webhook, path: str, resource: str, kind: str, fields: dict[str, Any]
) -> None:
    rule = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
    with configured(api, VALIDATING, webhook("c", hook.client_config("/c"), rule)):
        refused = api.post(path, None).expect(400)["message"]
        assert refused == 'admission webhook "c.example.com" denied the request: no connections'
        request = hook.requests()[-1]
    plural, _, subresource = resource.partition("/")
    assert request["operation"] == "CONNECT"
    assert request["kind"] == {"group": "", "version": "v1", "kind": kind}
    assert request["resource"] == {"group": "", "version": "v1", "resource": plural}
    assert (request["subResource"], request["name"], request["namespace"]) == (subresource, "no-such-pod", "default")
    assert request["object"] == {"kind": kind, "apiVersion": "v1", **fields}
    assert (request.get("oldObject"), request.get("options"), request["dryRun"]) == (None, None, False)


def test_a_port_is_a_number(api: Client) -> None:
    refused = api.post(f"{POD}/portforward?ports=a", None).expect(400)["message"]
    assert refused == 'cannot convert to []int32: strconv.ParseUint: parsing "a": invalid syntax'


def test_reading_a_pod_log_calls_no_webhook(api: Client, hook: Webhook) -> None:
    rule = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/*"]}
    with configured(api, VALIDATING, webhook("c", hook.client_config("/c"), rule)):
        api.get(f"{POD}/log").expect(404)
        assert not hook.requests()


def test_an_allowed_connection_to_a_missing_pod_is_a_404(api: Client, hook: Webhook) -> None:
    hook.answers["/c"] = lambda _: {"allowed": True}
    rule = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*/*"]}
    with configured(api, VALIDATING, webhook("c", hook.client_config("/c"), rule)):
        assert api.post(f"{POD}/exec?command=ls", None).expect(404)["details"]["name"] == "no-such-pod"
        assert hook.requests()[-1]["operation"] == "CONNECT"
