"""Bodies that do not fit the URL: a table of kube-apiserver's answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import MERGE, Client

ROWS = [Case(row) for row in read(Path(__file__).with_name("bodies.yaml"))]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
PROTOBUF = "application/vnd.kubernetes.protobuf"
INTEGER = {"type": "integer"}
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "properties": {"color": {"type": "string"}, "replicas": INTEGER}},
        "status": {"type": "object", "properties": {"replicas": INTEGER}},
    },
}
SUBRESOURCES = {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}


@pytest.fixture(scope="module")
def widgets(request: pytest.FixtureRequest) -> Iterator[Resource]:
    """Widgets with one object, which no row of the table may change."""
    api = request.getfixturevalue("server").client()
    found = serve(api, schema={"openAPIV3Schema": SCHEMA}, subresources=SUBRESOURCES)
    held = {"name": "a", "finalizers": ["example.com/hold"]}
    api.post(found.path(), {**found.make("a", color="red", replicas=1), "metadata": held}).expect(201)
    for path in (CONFIG_MAPS, LEASES):
        api.post(path, {"metadata": {"name": "a"}})
    yield found
    api.patch(found.path("a"), {"metadata": {"finalizers": None}}, MERGE)


@pytest.mark.rows("ERR-11", "ERR-12", "ERR-13", "WRI-013", "WRI-020")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_a_body(widgets: Resource, case: Case) -> None:
    places = {
        "widgets": widgets.path("" if case.method == "POST" else "a"),
        "scale": widgets.path("a/scale"),
        "status": widgets.path("a/status"),
        "configmaps": f"{CONFIG_MAPS}/a",
        "leases": f"{LEASES}/a",
    }
    place = places.get(case.at) or widgets.path(case.at)
    query = "&".join([*(["dryRun=All"] if case.method != "GET" else []), *([case.query] if case.query else [])])
    body = None if case.body is None else case.body.replace("GROUP", widgets.group).encode()
    headers = {"Content-Type": case.type or "application/json"}
    answer = widgets.api.request(case.method, f"{place}?{query}", body, headers)
    assert answer.status == case.code, answer.text
    if case.says:
        said = answer.json["message"] if answer.raw.startswith(b"{") else answer.text
        assert said == case.says.replace("GROUP", widgets.group)
    assert answer.warnings == [text.replace("GROUP", widgets.group) for text in case.warns or ()]


@pytest.mark.rows("ERR-11")
def test_a_protobuf_message_of_another_kind(widgets: Resource) -> None:
    raw = b"k8s\x00" + b"\x0a\x09" + b"\x0a\x02v1" + b"\x12\x03Cow"
    for path, kind in ((CONFIG_MAPS, "ConfigMap"), (LEASES, "Lease")):
        refused = widgets.api.request("PUT", f"{path}/a", raw, {"Content-Type": PROTOBUF}).expect(400)
        unknown = 'no kind "Cow" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"'
        assert refused["message"] == f'Cow in version "v1" cannot be handled as a {kind}: {unknown}'


ALPHA, BETA = ("v1alpha1", "v1beta1"), ("v1beta1",)
ELDER: dict[str, tuple[str, ...]] = {
    "/api/v1 ConfigMap configmaps": (),
    "/api/v1 Event events": (),
    "/api/v1 Service services": (),
    "/apis/admissionregistration.k8s.io/v1 MutatingWebhookConfiguration mutatingwebhookconfigurations": BETA,
    "/apis/admissionregistration.k8s.io/v1 ValidatingAdmissionPolicy validatingadmissionpolicies": ALPHA,
    "/apis/apiextensions.k8s.io/v1 CustomResourceDefinition customresourcedefinitions": BETA,
    "/apis/authentication.k8s.io/v1 SelfSubjectReview selfsubjectreviews": ALPHA,
    "/apis/authentication.k8s.io/v1 TokenReview tokenreviews": BETA,
    "/apis/authorization.k8s.io/v1 SubjectAccessReview subjectaccessreviews": BETA,
    "/apis/coordination.k8s.io/v1 Lease leases": BETA,
    "/apis/events.k8s.io/v1 Event events": BETA,
    "/apis/rbac.authorization.k8s.io/v1 ClusterRole clusterroles": ALPHA,
    "/apis/rbac.authorization.k8s.io/v1 Role roles": ALPHA,
}
"""Path, kind and plural name → old versions of the kind that upstream knows but does not serve."""
NAMESPACED = ("configmaps", "events", "leases", "roles", "services")


@pytest.mark.rows("ERR-11", "ERR-12")
@pytest.mark.parametrize("place", ELDER)
def test_versions_that_are_not_served(api: Client, place: str) -> None:
    root, kind, resource = place.split(" ")
    path = f"{root}/namespaces/default/{resource}" if resource in NAMESPACED else f"{root}/{resource}"
    group = root.removeprefix("/apis/").removesuffix("v1") if root != "/api/v1" else ""
    for version in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v2"):
        body = {"apiVersion": f"{group}{version}", "kind": kind, "metadata": {"name": "a"}}
        said = api.post(f"{path}?dryRun=All", body).expect(400)["message"]
        if version in ELDER[place]:
            wanted = f"({group}{version}) does not match the expected API version ({group}v1)"
            assert said == f"the API version in the data {wanted}"
        else:
            unknown = f'no kind "{kind}" is registered for version "{group}{version}"'
            assert said.startswith(f'{kind} in version "{version}" cannot be handled as a {kind}: {unknown} in scheme ')


@pytest.mark.rows("ERR-12")
@pytest.mark.parametrize("version", ["", "/", "coordination.k8s.io/", "coordination.k8s.io/v1"])
def test_an_incomplete_api_version_is_completed(api: Client, version: str) -> None:
    made = api.post(f"{LEASES}?dryRun=All", {"apiVersion": version, "kind": "Lease", "metadata": {"name": "b"}})
    assert made.expect(201)["apiVersion"] == "coordination.k8s.io/v1"
