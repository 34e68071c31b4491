"""Fields of features that are disabled by default: creates and updates do not set them."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, at, read
from apiext.conformance.support.http_client import Client

ROWS = [Case(row) for row in read(Path(__file__).with_name("disabled_fields.yaml"))]
APPS = "/apis/apps/v1/namespaces/default"
JOBS = "/apis/batch/v1/namespaces/default"
TEMPLATES = {
    f"{APPS}/deployments": "spec.template",
    f"{APPS}/statefulsets": "spec.template",
    f"{APPS}/daemonsets": "spec.template",
    f"{APPS}/replicasets": "spec.template",
    f"{JOBS}/jobs": "spec.template",
    f"{JOBS}/cronjobs": "spec.jobTemplate.spec.template",
    "/api/v1/namespaces/default/replicationcontrollers": "spec.template",
    "/api/v1/namespaces/default/podtemplates": "template",
}
"""Collection → path of the pod template in its objects."""


def nested(path: str, value: Any) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def sent(url: str, path: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a collection with this spec in its pod template."""
    labels = {"app": "a"}
    policy = {"restartPolicy": "Never"} if "/jobs" in url or "/cronjobs" in url else {}
    body = nested(path, {"metadata": {"labels": labels}, "spec": {**spec, **policy}})
    if url.startswith(APPS):
        body["spec"]["selector"] = {"matchLabels": labels}
    if url.endswith("/cronjobs"):
        body["spec"]["schedule"] = "0 0 * * *"
    return body


def check(case: Case, spec: dict[str, Any]) -> None:
    assert {path: at(spec, path) for path in case.gone} == dict.fromkeys(case.gone)
    assert {path: at(spec, path) for path in case.kept} == case.kept


@pytest.mark.parametrize("case", ROWS, ids=lambda case: case.name.replace(" ", "-"))
@pytest.mark.needs("/apis/apps/v1")
def test_a_create_drops_disabled_fields(api: Client, case: Case) -> None:
    name = f"d-{secrets.token_hex(4)}"
    url = f"{case.at}/{name}"
    try:
        body = {"metadata": {"name": name}, "spec": case.spec}
        made = api.post(case.at, body).expect(201)
        check(case, made["spec"])
        again = api.put(url, {**made, "spec": {**made["spec"], **by_path(case)}}).expect(200)
        assert again["metadata"].get("generation") == made["metadata"].get("generation")
        assert again["spec"] == made["spec"]
    finally:
        api.delete(url, gracePeriodSeconds=0)


def by_path(case: Case) -> dict[str, Any]:
    """Return name → value of the dropped fields that are direct fields of the spec."""
    return {name: case.spec[name] for name in case.gone if name in case.spec}


@pytest.mark.parametrize("url", TEMPLATES, ids=lambda url: url.rpartition("/")[2])
@pytest.mark.parametrize("case", [row for row in ROWS if row.template], ids=lambda case: case.name.replace(" ", "-"))
@pytest.mark.needs("/apis/apps/v1")
def test_templates_drop_disabled_fields(api: Client, case: Case, url: str) -> None:
    path = TEMPLATES[url]
    body = {"metadata": {"generateName": "d-"}, **sent(url, path, case.spec)}
    made = api.post(url, body, dryRun="All").expect(201)
    check(case, at(made, f"{path}.spec"))
