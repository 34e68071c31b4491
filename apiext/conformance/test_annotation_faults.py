"""Validated annotations of pods, templates and nodes, and updates of pods.

annotation_faults.yaml contains kube-apiserver's answers.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, read
from apiext.conformance.support.http_client import Client

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
ROWS = [Case(row) for row in read(Path(__file__).with_name("annotation_faults.yaml"))]
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/c"
MIRROR = "kubernetes.io/config.mirror"
LABELS = {"app": "a"}


def check(api: Client, path: str, body: dict[str, Any], says: str) -> None:
    answer = api.post(path, {"metadata": {"name": "a"}, **body}, dryRun="All")
    if says:
        assert answer.expect(422)["message"].partition(" is invalid: ")[2] == says
    else:
        answer.expect(201)


@pytest.mark.parametrize("case", [row for row in ROWS if row.at == "nodes"], ids=lambda case: str(case.annotations))
@pytest.mark.needs("/apis/apps/v1")
def test_annotations_of_nodes(api: Client, case: Case) -> None:
    check(api, "/api/v1/nodes", {"metadata": {"name": "a", "annotations": case.annotations}}, case.says)


@pytest.mark.parametrize("case", [row for row in ROWS if row.at == "pods"], ids=lambda case: str(case.annotations))
@pytest.mark.needs("/apis/apps/v1")
def test_annotations_of_pods_and_templates(api: Client, case: Case) -> None:
    body = {"metadata": {"name": "a", "annotations": case.annotations}, "spec": case.spec}
    check(api, PODS, body, case.says)
    template = {"metadata": {"labels": LABELS, "annotations": case.annotations}, "spec": case.spec}
    says = case.says.replace("spec.", "spec.template.spec.").replace("metadata.ann", "spec.template.ann")
    check(api, DEPLOYMENTS, {"spec": {"selector": {"matchLabels": LABELS}, "template": template}}, says)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({APP_ARMOR: "unconfined"}, {APP_ARMOR: None}, f"[{APP_ARMOR}]: Forbidden: may not remove or update AppArmor"),
        ({APP_ARMOR: "unconfined"}, {APP_ARMOR: "runtime/default"}, "may not remove or update AppArmor annotations"),
        ({}, {APP_ARMOR: "unconfined"}, "may not add AppArmor annotations"),
        ({}, {MIRROR: "x"}, "may not add mirror pod annotation"),
        ({APP_ARMOR: "unconfined"}, {"x": "y"}, ""),
        ({}, {"seccomp.security.alpha.kubernetes.io/pod": "bad"}, "must be a valid seccomp profile"),
    ],
    ids=["remove", "change", "add", "mirror", "other", "bad"],
)
@pytest.mark.needs("/apis/apps/v1")
def test_annotations_of_a_stored_pod(api: Client, before: dict[str, str], after: dict[str, Any], says: str) -> None:
    name = f"a-{secrets.token_hex(4)}"
    spec = {"containers": [{"name": "c", "image": "x"}]}
    api.post(PODS, {"metadata": {"name": name, "annotations": before}, "spec": spec}).expect(201)
    try:
        changed = api.patch(f"{PODS}/{name}", {"metadata": {"annotations": after}})
        assert says in changed.expect(422 if says else 200).get("message", "")
    finally:
        api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
