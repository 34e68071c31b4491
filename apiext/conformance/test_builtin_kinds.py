"""Built-in kinds over HTTP: create, read, update, delete each kind, in JSON and protobuf."""

from __future__ import annotations

import base64
import contextlib
import json
import random
import re
import secrets
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import at
from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, JSON_PATCH, MERGE, TABLE, Client
from apiext.conformance.support.target import Target
from apiext.conformance.support.waiting import patient, pause, until

STRATEGIC = "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
KINDS: list[dict[str, Any]] = read_yaml(Path(__file__).with_name("builtin_kinds.yaml"))
EACH = pytest.mark.parametrize("kind", [pytest.param(kind, id=kind["path"].replace("/", "-")[1:]) for kind in KINDS])
WRONG = [(kind, wrong) for kind in KINDS for wrong in kind.get("wrong", ())]


def api_version(kind: dict[str, Any]) -> str:
    parts = kind["path"].split("/")
    return parts[2] if parts[1] == "api" else f"{parts[2]}/{parts[3]}"


def example(kind: dict[str, Any], name: str) -> dict[str, Any]:
    return {"apiVersion": api_version(kind), "kind": kind["kind"], "metadata": {"name": name}, **kind["body"]}


def check(document: Any, expected: dict[str, Any]) -> None:
    assert {path: at(document, path) for path in expected} == expected


_UNWRITTEN: dict[str, set[str]] = defaultdict(set)
"""URL of a server → fields of built-in kinds that none of its controllers writes."""


def settled(api: Client, kind: dict[str, Any], document: Any) -> Any:
    """Return the object after a controller has written a certain field.

    ``settles`` of the kind is the path of the field. Return the object at once if the kind has no ``settles``, or if an
    earlier call found that no controller of the server writes the field.
    """
    if "settles" not in kind or kind["settles"] in _UNWRITTEN[api.url]:
        return document
    place = f"{kind['path']}/{document['metadata']['name']}"

    def written() -> bool:
        return bool(at(api.get(place).expect(200), kind["settles"]))

    if api.get("/version").expect(200)["compiler"] == "python":
        until(written, f"{kind['settles']} is there")
    elif not patient(written, 5):  # a kube-apiserver may run without kube-controller-manager
        _UNWRITTEN[api.url].add(kind["settles"])
    return api.get(place).expect(200)


@contextlib.contextmanager
def one(api: Client, kind: dict[str, Any]) -> Iterator[Any]:
    """Create an object of the kind; yield it, and delete it afterwards."""
    name = f"k-{secrets.token_hex(4)}"
    try:
        yield settled(api, kind, api.post(kind["path"], example(kind, name)).expect(201))
    finally:
        api.delete(f"{kind['path']}/{name}")


@pytest.fixture
def made(api: Client, kind: dict[str, Any]) -> Iterator[Any]:
    """An object of the kind."""
    with one(api, kind) as found:
        yield found


@pytest.fixture
def place(kind: dict[str, Any], made: Any) -> str:
    """Return the path of an object."""
    return f"{kind['path']}/{made['metadata']['name']}"


@EACH
@pytest.mark.rows("DIS-102", "SRV-012")
def test_the_life_of_an_object(api: Client, kind: dict[str, Any], made: Any, place: str) -> None:
    assert (made["apiVersion"], made["kind"]) == (api_version(kind), kind["kind"])
    assert made["metadata"].get("generation") == (1 if kind.get("generation") else None)
    check(made, kind.get("shows", {}))
    assert api.get(place).expect(200) == made
    listed = api.get(kind["path"]).expect(200)
    assert listed["kind"] == f"{kind['kind']}List"
    assert made["metadata"]["uid"] in [item["metadata"]["uid"] for item in listed["items"]]
    with api.watch(kind["path"], resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        changed = api.request("PATCH", place, kind["change"], {"Content-Type": MERGE}).expect(200)
        check(changed, kind["then"])
        assert watch.next("MODIFIED")["object"] == changed
        again = api.request("PATCH", place, kind["change"], {"Content-Type": STRATEGIC}).expect(200)
        assert again == changed, "nothing changed, so nothing was written"
        pointed = [{"op": "add", "path": "/metadata/annotations", "value": {"x": "y"}}]
        assert api.request("PATCH", place, pointed, {"Content-Type": JSON_PATCH}).expect(200)
        current = api.get(place).expect(200)
        assert api.put(place, {**current, "metadata": {**current["metadata"], "labels": {"k": "v"}}}).status == 200
        assert api.put(place, {**current, "metadata": {**current["metadata"], "labels": {}}}).status == 409
        api.delete(place).expect(200)
        assert watch.next("DELETED")["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    gone = api.get(place).expect(404)
    assert gone["details"]["kind"] == kind["path"].rpartition("/")[2]


@EACH
@pytest.mark.rows("SSA-001", "SSA-019")
def test_apply(api: Client, kind: dict[str, Any]) -> None:
    name = f"k-{secrets.token_hex(4)}"
    path = f"{kind['path']}/{name}"
    query = "?fieldManager=one"
    first = api.request("PATCH", path + query, example(kind, name), {"Content-Type": APPLY}).expect(201)
    check(first, kind.get("shows", {}))
    assert [entry["manager"] for entry in first["metadata"]["managedFields"]] == ["one"]
    first = settled(api, kind, first)
    again = api.request("PATCH", path + query, example(kind, name), {"Content-Type": APPLY}).expect(200)
    assert again == first
    labelled = {**example(kind, name), "metadata": {"name": name, "labels": {"team": "a"}}}
    assert api.request("PATCH", path + query, labelled, {"Content-Type": APPLY}).expect(200)
    other = {"apiVersion": api_version(kind), "kind": kind["kind"], "metadata": {"labels": {"team": "b"}}}
    refused = api.request("PATCH", path + "?fieldManager=two", other, {"Content-Type": APPLY}).expect(409)
    assert refused["details"]["causes"][0]["field"] == ".metadata.labels.team"
    api.delete(path).expect(200)


HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
KEYLESS: list[tuple[str, str, dict[str, Any], int, str]] = [
    (HOOKS, "ValidatingWebhookConfiguration", {"webhooks": [{"timeoutSeconds": 4}]}, 422,
     "webhooks[0].name: Required value"),
    (HOOKS, "ValidatingWebhookConfiguration", {"webhooks": [{"timeoutSeconds": 4}, {}]}, 400,
     '.webhooks: duplicate entries for key [name=""]'),
    (DEFINITIONS, "CustomResourceDefinition",
     {"spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "keyless", "kind": "Keyless"},
               "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {
                   "type": "object", "x-kubernetes-validations": [{"message": "x"}]}}}]}}, 422,
     "x-kubernetes-validations[0].rule: Required value: rule is not specified"),
    ("/api/v1/namespaces/default/services", "Service", {"spec": {"ports": [{"name": "a"}]}}, 422,
     "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive"),
    ("/api/v1/namespaces/default/serviceaccounts", "ServiceAccount", {"secrets": [{"namespace": "a"}]}, 400,
     '.secrets: element 0: associative list with keys has an element that omits all key fields ["name"]'),
]  # fmt: skip


@pytest.mark.rows("SSA-010", "SSA-012")
@pytest.mark.parametrize(
    ("path", "kind", "fields", "code", "says"), KEYLESS, ids=[f"{it[1]}-{it[3]}" for it in KEYLESS]
)
def test_missing_list_keys_that_go_always_encodes_count_as_empty(
    api: Client, path: str, kind: str, fields: dict[str, Any], code: int, says: str
) -> None:
    parts = path.split("/")
    version = "/".join(parts[2:4]) if parts[1] == "apis" else parts[2]
    name = f"keyless{'.example.com' if path == DEFINITIONS else ''}"
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}
    place = f"{path}/{name}?fieldManager=one&dryRun=All"
    refused = api.request("PATCH", place, body, {"Content-Type": APPLY}).expect(code)
    assert says in refused["message"]


@EACH
@pytest.mark.rows("NEG-002", "NEG-003")
def test_protobuf_there_and_back(api: Client, kind: dict[str, Any], made: Any, place: str) -> None:
    shown = api.request("GET", place, headers={"Accept": PROTOBUF})
    assert (shown.status, shown.headers["content-type"]) == (200, PROTOBUF)
    assert shown.raw.startswith(b"k8s\x00")
    for accept in (PROTOBUF, "application/json"):
        same = api.request("PUT", place, shown.raw, {"Content-Type": PROTOBUF, "Accept": accept})
        assert same.status == 200, same.text
    assert same.json == made, "what was read in protobuf and put back changes nothing"
    listed = api.request("GET", kind["path"], headers={"Accept": PROTOBUF})
    assert made["metadata"]["uid"].encode() in listed.raw
    broken = api.request("PUT", place, shown.raw[:-3], {"Content-Type": PROTOBUF}).expect(400)
    assert broken["reason"] == "BadRequest"
    metadata = api.request("GET", place, headers={"Accept": f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"})
    assert (metadata.status, metadata.raw[:4]) == (200, b"k8s\x00")
    partial = api.request("GET", place, headers={"Accept": PARTIAL}).expect(200)
    assert partial["metadata"] == made["metadata"]


@EACH
@pytest.mark.rows("TAB-001", "TAB-002")
def test_tables(api: Client, kind: dict[str, Any], made: Any, place: str) -> None:
    table = api.get(place, {"Accept": TABLE}).expect(200)
    assert [column["name"] for column in table["columnDefinitions"]] == kind["columns"]
    assert len(table["rows"][0]["cells"]) == len(kind["columns"])
    assert made["metadata"]["name"] in table["rows"][0]["cells"]


@EACH
@pytest.mark.rows("WRI-013")
def test_unknown_fields(api: Client, kind: dict[str, Any]) -> None:
    body = {**example(kind, f"k-{secrets.token_hex(4)}"), "nobodyKnows": 1}
    warned = api.post(f"{kind['path']}?dryRun=All", body)
    assert warned.status == 201, warned.text
    assert "nobodyKnows" not in warned.json
    assert warned.warnings == ['299 - "unknown field \\"nobodyKnows\\""']
    refused = api.post(f"{kind['path']}?dryRun=All&fieldValidation=Strict", body).expect(400)
    assert 'strict decoding error: unknown field "nobodyKnows"' in refused["message"]


@pytest.mark.rows("WRI-013")
def test_at_most_a_hundred_unknown_fields_are_reported(api: Client) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    body |= {f"u{number:03}": 1 for number in range(150)}
    told = api.post("/api/v1/namespaces/default/configmaps?fieldValidation=Strict", body).expect(400)["message"]
    assert told.count("unknown field") == 100
    assert told.endswith('unknown field "u099"')


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind["kind"]) for kind in KINDS if "merged" in kind])
@pytest.mark.rows("KUB-003")
def test_lists_merge_by_their_key(api: Client, kind: dict[str, Any], place: str) -> None:
    merged = kind["merged"]
    check(api.request("PATCH", place, merged["patch"], {"Content-Type": STRATEGIC}).expect(200), merged["then"])


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind["kind"]) for kind in KINDS if "refused" in kind])
@pytest.mark.rows("ERR-09")
def test_immutable_fields(api: Client, kind: dict[str, Any], place: str) -> None:
    # upstream: the error shows the names of the internal type
    # For a roleRef, it shows APIGroup instead of the JSON name apiGroup.
    refused = api.request("PATCH", place, kind["refused"]["change"], {"Content-Type": MERGE}).expect(422)
    assert kind["refused"]["says"] in refused["message"]


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind["path"][1:]) for kind in KINDS if "selectors" in kind])
@pytest.mark.rows("SEL-001")
def test_field_selectors(api: Client, kind: dict[str, Any], made: Any) -> None:
    for selector, there in kind["selectors"].items():
        items = api.get(kind["path"], fieldSelector=selector).expect(200)["items"]
        assert (made["metadata"]["uid"] in [item["metadata"]["uid"] for item in items]) is there, selector
    refused = api.get(kind["path"], fieldSelector="spec.nowhere=1").expect(400)
    # upstream: kinds with field labels of their own have a shorter message
    assert refused["message"] == "field label not supported: spec.nowhere"


@pytest.mark.parametrize(
    ("kind", "wrong"), [pytest.param(*pair, id=f"{pair[0]['kind']}-{pair[1]['says'][:40]}") for pair in WRONG]
)
@pytest.mark.rows("ERR-09", "ERR-11")
def test_errors_of_invalid_objects(api: Client, kind: dict[str, Any], wrong: dict[str, Any]) -> None:
    body = {**example({**kind, "body": wrong["body"]}, f"k-{secrets.token_hex(4)}")}
    refused = api.post(kind["path"], body).expect(wrong.get("code", 422))
    assert wrong["says"] in refused["message"]


RBAC = "/apis/rbac.authorization.k8s.io/v1"
RULES = [{"verbs": ["get"]}, {"nonResourceURLs": ["/x"], "resources": ["a"]}, {}]
GIVEN = {"roleRef": {"kind": "X"}, "subjects": [{}, {"kind": "User"}, {"kind": "ServiceAccount"}]}


# upstream: errors of declarative validation come last
# Here these are the errors of missing verbs, names and roleRef.name.
@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize(
    ("resource", "body", "fields"),
    [
        (
            "clusterroles",
            {"rules": RULES, "aggregationRule": {}},
            ["rules[0].apiGroups", "rules[0].resources", "rules[1].nonResourceURLs", "rules[2].apiGroups",
             "rules[2].resources", "aggregationRule.clusterRoleSelectors", "rules[1].verbs", "rules[2].verbs"],
        ),
        (
            "clusterrolebindings",
            GIVEN,
            ["roleRef.kind", "subjects[0].kind", "subjects[2].namespace", "subjects[0].name", "subjects[1].name",
             "subjects[2].name", "roleRef.name"],
        ),
    ],
)  # fmt: skip
def test_declared_errors_of_roles_come_last(
    api: Client, resource: str, body: dict[str, Any], fields: list[str]
) -> None:
    refused = api.post(f"{RBAC}/{resource}", {"metadata": {"name": "x"}, **body}, dryRun="All").expect(422)
    assert [cause["field"] for cause in refused["details"]["causes"]] == fields


@pytest.mark.rows("ERR-11", "DEC-001")
@pytest.mark.parametrize(
    ("text", "code"),
    [("null", 201), ('{"a":' + "[" * 5000 + "]" * 5000 + "}", 201), ("[" * 20_000, 422)],
    ids=["null", "nested", "nested too deep"],
)
def test_credentials_are_a_map(api: Client, text: str, code: int) -> None:
    data = {".dockercfg": base64.b64encode(text.encode()).decode()}
    body = {"metadata": {"name": "c"}, "type": "kubernetes.io/dockercfg", "data": data}
    answer = api.post("/api/v1/namespaces/default/secrets?dryRun=All", body).expect(code)
    assert code == 201 or "invalid character '[' exceeded max depth" in answer["message"]


CONTRADICTIONS = [
    ({"$setElementOrder/finalizers": 1}, "expected a []interface {}, but received a int64"),
    ({"$patch": "melt"}, "unknown patch type: melt in map: map[$patch:melt]"),
    ({"$patch": None}, "unknown patch type: %!s(<nil>) in map: map[$patch:<nil>]"),
    ({"$patch": 1.5}, "unknown patch type: %!s(float64=1.5) in map: map[$patch:1.5]"),
    ({"$setElementOrder/finalizers": [], "finalizers": None}, "expected a []interface {}, but received a %!s(<nil>)"),
    ({"$retainKeys": 1}, "invalid patch format of retainKeys"),
    (
        {"$setElementOrder/finalizers": ["a/a", "b/b"], "finalizers": ["b/b", "a/a"]},
        "The order in patch list:\n[b/b a/a]\n doesn't match $setElementOrder list:\n[a/a b/b]\n",
    ),
]


@pytest.mark.rows("KUB-003")
@pytest.mark.parametrize(("metadata", "says"), CONTRADICTIONS)
def test_strategic_patches_that_contradict_themselves(
    api: Client, foreign: bool, metadata: dict[str, Any], says: str
) -> None:
    path, name = "/api/v1/namespaces/default/configmaps", f"k-{secrets.token_hex(4)}"
    api.post(path, {"metadata": {"name": name}}).expect(201)
    refused = api.request("PATCH", f"{path}/{name}", {"metadata": metadata}, {"Content-Type": STRATEGIC})
    assert refused.json["message"] == says
    assert refused.status == 400 or foreign  # kube-apiserver may give another code, see docs/DIFFERENCES.md
    api.delete(f"{path}/{name}")


@pytest.mark.rows("DEC-002", "WRI-014")
def test_services_of_every_kind(api: Client) -> None:
    path = "/api/v1/namespaces/default/services?dryRun=All"

    def made(**spec: Any) -> Any:
        return api.post(path, {"metadata": {"name": f"1-{secrets.token_hex(4)}"}, "spec": spec})

    headless = made(clusterIP="None", selector={"a": "b"}, sessionAffinity="ClientIP")
    assert headless.warnings == ['299 - "spec.SessionAffinity is ignored for headless services"']
    spec = headless.expect(201)["spec"]
    assert (spec["clusterIPs"], spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["None"], ["IPv4"], "SingleStack")
    assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}
    spec = made(clusterIP="None").expect(201)["spec"]
    assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4", "IPv6"], "RequireDualStack")
    balanced = made(type="LoadBalancer", ports=[{"port": 80}]).expect(201)["spec"]
    assert (balanced["externalTrafficPolicy"], balanced["allocateLoadBalancerNodePorts"]) == ("Cluster", True)
    elsewhere = made(type="ExternalName", externalName="a.example.com.", externalIPs=["1.2.3.4"])
    assert elsewhere.warnings == ['299 - "spec.externalIPs is ignored when spec.type is \\"ExternalName\\""']
    assert "internalTrafficPolicy" not in elsewhere.expect(201)["spec"]


@pytest.mark.parametrize(
    ("path", "label", "message"),
    [
        ("/api/v1/configmaps", "a", '"a" is not a known field selector: only "metadata.name", "metadata.namespace"'),
        (
            "/apis/apps/v1/replicasets",
            "status.replicas",
            '"status.replicas" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("/api/v1/replicationcontrollers", "status.replicas", None),
        ("/api/v1/replicationcontrollers", "a", "field label not supported: a"),
        ("/apis/batch/v1/jobs", "status.successful", None),
        ("/apis/batch/v1/jobs", 'a"', 'field label "a\\"" not supported for Job'),
        ("/apis/batch/v1/cronjobs", "metadata.namespace", None),
        ("/api/v1/pods", "spec.host", None),
        ("/apis/resource.k8s.io/v1/resourceslices", "spec.pool.name", None),
        (
            "/apis/resource.k8s.io/v1/resourceslices",
            "metadata.namespace",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: metadata.namespace",
        ),
        ("/apis/certificates.k8s.io/v1/podcertificaterequests", "spec.signerName", None),
        ("/apis/certificates.k8s.io/v1/podcertificaterequests", "spec.podName", None),
        ("/apis/certificates.k8s.io/v1/podcertificaterequests", "spec.nodeName", None),
        (
            "/apis/certificates.k8s.io/v1/podcertificaterequests",
            "metadata.namespace",
            "field label not supported: metadata.namespace",
        ),
    ],
)
@pytest.mark.rows("SEL-001")
def test_field_labels(api: Client, path: str, label: str, message: str | None) -> None:
    answer = api.get(path, fieldSelector=f"{label}=1")
    assert (answer.status, answer.json.get("message")) == (200 if message is None else 400, message)


@pytest.mark.parametrize("kind", [pytest.param(kind, id=kind["path"][1:]) for kind in KINDS])
@pytest.mark.rows("WRI-004", "ERR-03")
def test_a_put_of_a_missing_object(api: Client, kind: dict[str, Any]) -> None:
    name = f"k-{secrets.token_hex(4)}"
    place = f"{kind['path']}/{name}"
    asked = example(kind, name)
    asked["metadata"]["resourceVersion"] = "7"
    answer = api.put(place, asked)
    if not kind.get("upserts"):
        assert answer.expect(404)["details"]["name"] == name
        return
    made = answer.expect(201)
    check(made, kind.get("shows", {}))
    assert made["metadata"]["resourceVersion"] != "7"
    assert [entry["operation"] for entry in made["metadata"]["managedFields"]] == ["Update"]
    api.delete(place).expect(200)
    asked["metadata"]["uid"] = "another"
    refused = api.put(place, asked).expect(409)
    assert "UID in precondition: another, UID in object meta: " in refused["message"]


@EACH
@pytest.mark.rows("WRI-016")
def test_response_of_a_delete(api: Client, kind: dict[str, Any], made: Any, place: str) -> None:
    answer = api.delete(f"{place}?propagationPolicy=Background").expect(200)
    if kind.get("returns_deleted"):
        assert answer["metadata"].pop("resourceVersion") != made["metadata"]["resourceVersion"]
        # the delete of a pod, or of an object with finalizers, sets deletionTimestamp before the object is removed
        if kind["kind"] == "Pod" or made["metadata"].get("finalizers"):
            assert answer["metadata"].pop("deletionGracePeriodSeconds") == 0
            assert answer["metadata"].pop("deletionTimestamp") >= made["metadata"]["creationTimestamp"]
        if kind["kind"] == "Pod":
            made["metadata"]["generation"] += 1
        assert answer == {**made, "metadata": {k: v for k, v in made["metadata"].items() if k != "resourceVersion"}}
    else:
        assert (answer["kind"], answer["status"], answer["details"]["uid"]) == (
            "Status",
            "Success",
            made["metadata"]["uid"],
        )


@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize("resource", ["secrets", "configmaps"])
def test_immutable_secrets_and_config_maps_cannot_be_changed(api: Client, resource: str) -> None:
    path = f"/api/v1/namespaces/default/{resource}"
    name = f"k-{secrets.token_hex(4)}"
    kind = "Secret" if resource == "secrets" else "ConfigMap"
    api.post(path, {"kind": kind, "metadata": {"name": name}, "immutable": True, "data": {"a": "eA=="}}).expect(201)
    for change, field in (({"immutable": None}, "immutable"), ({"data": {"a": "eQ=="}}, "data")):
        refused = api.request("PATCH", f"{path}/{name}", change, {"Content-Type": MERGE}).expect(422)
        assert f"{field}: Forbidden: field is immutable when `immutable` is set" in refused["message"]
    relabelled = {"metadata": {"labels": {"a": "b"}}}
    assert api.request("PATCH", f"{path}/{name}", relabelled, {"Content-Type": MERGE}).status == 200
    api.delete(f"{path}/{name}").expect(200)


@pytest.mark.parametrize("resource", ["secrets", "configmaps"])
def test_data_of_secrets_and_config_maps_is_limited_to_a_mebibyte(api: Client, resource: str) -> None:
    path = f"/api/v1/namespaces/default/{resource}"
    kind, part = ("Secret", "stringData") if resource == "secrets" else ("ConfigMap", "data")
    name = f"k-{secrets.token_hex(4)}"
    body = {"kind": kind, "metadata": {"name": name}, part: {"a": "x" * 2**20}}
    api.post(f"{path}?dryRun=All", body).expect(201)
    refused = api.post(path, {**body, part: {"a": "x" * (2**20 + 1)}}).expect(422)
    path = "data" if resource == "secrets" else "[]"  # upstream: ConfigMaps have the path of the whole object
    assert f"{path}: Too long: may not be more than 1048576 bytes" in refused["message"]


@EACH
@pytest.mark.rows("DIS-102", "DIS-106")
def test_discovery_lists_the_kind(api: Client, kind: dict[str, Any]) -> None:
    root = kind["path"].replace("/namespaces/default", "")
    group, _, plural = root.rpartition("/")
    found = {entry["name"]: entry for entry in api.get(group).expect(200)["resources"]}
    entry = found[plural]
    assert (entry["kind"], entry["namespaced"]) == (kind["kind"], "/namespaces/" in kind["path"])
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    assert entry["verbs"] == verbs


@pytest.mark.rows("DIS-102")
def test_optional_kinds_are_not_served_by_default(server: Target, foreign: bool) -> None:
    for kind in KINDS:
        group_version = kind["path"].rpartition("/")[0]
        if kind.get("on_request") and not foreign:
            assert server.client().get(f"{group_version}beta1").status == 404


@pytest.mark.rows("DIS-102", "DIS-106")
def test_short_names(api: Client) -> None:
    core = {entry["name"]: entry.get("shortNames") for entry in api.get("/api/v1").expect(200)["resources"]}
    assert (core["configmaps"], core["serviceaccounts"], core["events"]) == (["cm"], ["sa"], ["ev"])


@pytest.mark.rows("NEG-003", "ERR-11")
def test_broken_protobuf_is_refused(api: Client) -> None:
    name = f"k-{secrets.token_hex(4)}"
    path = "/api/v1/namespaces/default/secrets"
    api.post(path, {"metadata": {"name": name}, "data": {"a": "eA=="}}).expect(201)
    good = api.request("GET", f"{path}/{name}", headers={"Accept": PROTOBUF}).raw
    dice = random.Random(7)
    codes = set()
    for _ in range(150):
        place, raw = dice.randrange(4, len(good)), bytearray(good)
        raw[place] ^= 1 << dice.randrange(8)
        sent = bytes(raw) if dice.random() < 0.7 else good[:place]
        answer = api.request("POST", f"{path}?dryRun=All", sent, {"Content-Type": PROTOBUF})
        assert answer.status < 500, (answer.status, sent.hex())
        codes.add(answer.status)
    assert 400 in codes
    for sent, says in (
        (b"", "empty data (<empty>)"),
        (b"k8s", "expected prefix"),
        (b"k8s\x00", "empty body"),
        (b"k8s\x00\xff\xff", "Secret): unexpected EOF"),
        (b"k8s\x00\x00", "Secret): proto: Unknown: illegal tag 0 (wire type 0)"),
        (b"k8s\x00\x20\x01", "Secret): proto: wrong wireType = 0 for field ContentType"),
        (b"k8s\x00\x0c", "Secret): proto: Unknown: wiretype end group for non-group"),
        (b"k8s\x00" + b"\xff" * 10 + b"\x01", "Secret): proto: integer overflow"),
        (b'{"kind":"Secret"}', "expected prefix"),
        (b"k8s\x00" + b"\x0a\x09" + b"\x0a\x02v1" + b"\x12\x03Cow", 'no kind "Cow" is registered for version "v1"'),
    ):
        refused = api.request("POST", path, sent, {"Content-Type": PROTOBUF}).expect(400)
        assert says in refused["message"]
    secret = b"k8s\x00" + b"\x0a\x0c" + b"\x0a\x02v1" + b"\x12\x06Secret"
    for inner, says in (
        (b"\x0a\x05", "unexpected EOF"),
        (b"\x0a\x02\x0a\x09", "unexpected EOF"),
        (b"\x0a\x04\x28\x01\x0a\x09", "proto: wrong wireType = 0 for field UID"),
        (b"\x0a\x01\x04", "proto: ObjectMeta: wiretype end group for non-group"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "proto: negative length found during unmarshaling"),
        (b"\xff\x01\x00", "proto: illegal wireType 7"),
    ):
        sent = secret + b"\x12" + bytes([len(inner)]) + inner
        refused = api.request("POST", path, sent, {"Content-Type": PROTOBUF}).expect(400)
        assert refused["message"] == f'Secret in version "v1" cannot be handled as a Secret: {says}'
    other = b"k8s\x00" + b"\x0a\x0f" + b"\x0a\x02v1" + b"\x12\x09ConfigMap"
    assert api.request("POST", path, other, {"Content-Type": PROTOBUF}).status == 400
    api.delete(f"{path}/{name}").expect(200)


@pytest.mark.rows("NEG-002", "RV-010")
def test_a_watch_in_protobuf(api: Client) -> None:
    name = f"k-{secrets.token_hex(4)}"
    path = "/api/v1/namespaces/default/configmaps"
    api.post(path, {"metadata": {"name": name}, "data": {"a": "x"}}).expect(201)
    query = f"?watch=true&timeoutSeconds=1&fieldSelector=metadata.name={name}"
    stream = api.request("GET", path + query, headers={"Accept": f"{PROTOBUF};stream=watch"})
    size = int.from_bytes(stream.raw[:4], "big")
    assert size == len(stream.raw) - 4, "one frame: four bytes of length, then the event"
    assert stream.raw[4:].startswith(b"\x0a\x05ADDED")
    assert b"k8s\x00" in stream.raw
    assert name.encode() in stream.raw
    api.delete(f"{path}/{name}").expect(200)


@pytest.mark.rows("NEG-002")
def test_large_objects_in_protobuf(api: Client) -> None:
    name = f"k-{secrets.token_hex(4)}"
    path = "/api/v1/namespaces/default/secrets"
    made = api.post(path, {"metadata": {"name": name}, "stringData": {"a": "x" * 900_000}}).expect(201)
    shown = api.request("GET", f"{path}/{name}", headers={"Accept": PROTOBUF})
    assert b"x" * 900_000 in shown.raw
    assert b"x" * 900_000 in api.request("GET", path, headers={"Accept": PROTOBUF}).raw
    assert api.request("PUT", f"{path}/{name}", shown.raw, {"Content-Type": PROTOBUF}).expect(200) == made
    query = f"?watch=true&timeoutSeconds=1&fieldSelector=metadata.name={name}"
    stream = api.request("GET", path + query, headers={"Accept": f"{PROTOBUF};stream=watch"})
    assert int.from_bytes(stream.raw[:4], "big") == len(stream.raw) - 4
    assert stream.raw.endswith(shown.raw), "the event contains the same bytes as a GET"
    api.delete(f"{path}/{name}").expect(200)


@pytest.mark.rows("SSA-019", "WRI-007")
@pytest.mark.parametrize("way", [APPLY, STRATEGIC])
def test_the_error_of_a_numeric_time_is_that_of_its_own_decoder(api: Client, way: str) -> None:
    name = f"k-{secrets.token_hex(4)}"
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    api.post(leases, {"metadata": {"name": name}}).expect(201)
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
    body = {**(head if way == APPLY else {}), "spec": {"renewTime": 5}}
    query = "?fieldManager=one" if way == APPLY else ""
    refused = api.request("PATCH", f"{leases}/{name}{query}", body, {"Content-Type": way})
    assert refused.status == (400 if way == APPLY else 422)
    assert refused.json["message"].endswith(": json: cannot unmarshal number into Go value of type string")
    api.delete(f"{leases}/{name}").expect(200)


AGES = {"Age", "Last Seen", "First Seen"}


def _ages(table: Any, columns: list[str]) -> dict[str, int]:
    """Return the ages in a row of a Table in seconds; omit cells that are not an age in seconds."""
    (row,) = table["rows"]
    shown = {name: cell for name, cell in zip(columns, row["cells"], strict=True) if name in AGES}
    return {name: int(cell[:-1]) for name, cell in shown.items() if re.fullmatch(r"[0-9]+s", cell)}


def _forms(api: Client, path: str, name: str) -> dict[str, dict[str, int]]:
    """Return the ages of an object in two lists, in a watch and in server-sent events.

    The ages of the watch are in its initial events.
    """
    chosen = {"fieldSelector": f"metadata.name={name}"}
    listed = api.get(path, {"Accept": TABLE}, resourceVersion=0, **chosen).expect(200)
    columns = [column["name"] for column in listed["columnDefinitions"]]
    with api.watch(path, headers={"Accept": TABLE}, resourceVersion=0, **chosen) as watch:
        watched = watch.next("ADDED")["object"]
    with api.watch(path, headers={"Accept": TABLE.replace("application/json", "text/event-stream")}, **chosen) as watch:
        if watch.headers["content-type"] == "text/event-stream":  # only on a server of this project
            streamed = json.loads(next(line for line in watch.lines() if line.startswith(b"data: "))[6:])["object"]
        else:
            streamed = watched
    whole = next(row for row in _whole(api, path)["rows"] if row["object"]["metadata"]["name"] == name)
    tables = {"list": listed, "watch": watched, "event stream": streamed, "whole list": {"rows": [whole]}}
    return {form: _ages(table, columns) for form, table in tables.items()}


def _whole(api: Client, path: str) -> Any:
    return api.get(path, {"Accept": TABLE}).expect(200)


@pytest.mark.rows("TAB-003", "TAB-005")
def test_ages_are_those_of_the_request(api: Client) -> None:
    """Ages grow although no object changes and the server caches all rows."""
    with contextlib.ExitStack() as stack:
        places = [
            (kind["path"], stack.enter_context(one(api, kind))["metadata"]["name"])
            for kind in KINDS
            if not kind.get("on_request") and "Age" in kind["columns"]
        ]
        before = {place: _forms(api, *place) for place in places}
        pause(2.1)
        after = {place: _forms(api, *place) for place in places}
    for place, forms in before.items():
        assert all(forms.values()), place
        for form, ages in forms.items():
            grown = {name: after[place][form][name] - seconds for name, seconds in ages.items()}
            assert all(2 <= more < 60 for more in grown.values()), (place, form, ages, after[place][form])
