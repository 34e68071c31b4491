"""Workloads: scales, graceful deletion, updates, quantities, times, and the labels of jobs."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.http_client import APPLY, MERGE, TABLE, Client

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
REPLICATION = "/api/v1/namespaces/default/replicationcontrollers"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
VOLUMES = "/api/v1/persistentvolumes"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
DAEMONS = "/apis/apps/v1/namespaces/default/daemonsets"
WRITES: list[dict[str, Any]] = read_yaml(Path(__file__).with_name("workload_writes.yaml"))
CREATED: list[dict[str, Any]] = read_yaml(Path(__file__).with_name("created_fields.yaml"))
HUGE = "9" * 5000
REQUEST = (  # a certificate signing request for example.com
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIUk1IZ0NBUUF3RmpFVU1CSUdBMVVFQXd3TFpYaGhiWEJzWlM1"
    "amIyMHdXVEFUQmdjcWhrak9QUUlCQmdncQpoa2pPUFFNQkJ3TkNBQVJ3aTM4S3lyL0FFNk1OR0ZNVFFKcTZLc09xNVBEZW45U3dM"
    "S2RCWk93WUdSQW9WSnZDCklkWnVOc3RiaVdvdWgyZU1HSDVyN1dIZGpvQmJhWVNaUllyVW9BQXdDZ1lJS29aSXpqMEVBd0lEU1FB"
    "d1JnSWgKQUlwbGJ5bzVSQjU5NE1ONkZabk16SUl4QWFWL244TThnOUwrUFUzL0h5Y0NBaUVBN0ZvcUJ6V0F1V0JwMS94ZworQm9p"
    "YzJuZ2dsNG5lcmFFdlh5aVo5Q3d2OUU9Ci0tLS0tRU5EIENFUlRJRklDQVRFIFJFUVVFU1QtLS0tLQo="
)
TIME = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ")
CONTAINERS: list[dict[str, Any]] = [{"name": "c", "image": "registry.example.com/c:1"}]
SELECTED: dict[str, Any] = {
    "selector": {"matchLabels": {"app": "a"}},
    "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": CONTAINERS}},
}


@contextlib.contextmanager
def one(api: Client, path: str, body: dict[str, Any]) -> Iterator[Any]:
    """Create an object; yield it, and delete it afterwards."""
    name = f"w-{secrets.token_hex(4)}"
    try:
        yield api.post(path, {**body, "metadata": {"name": name, **body.get("metadata", {})}}).expect(201)
    finally:
        api.delete(f"{path}/{name}?gracePeriodSeconds=0&propagationPolicy=Background")


def at(path: str, made: Any, *below: str) -> str:
    return "/".join((path, made["metadata"]["name"], *below))


@pytest.mark.rows("SRV-007", "SRV-008")
@pytest.mark.parametrize("path", [DEPLOYMENTS, REPLICATION])
def test_a_scale_reads_and_writes_replicas(api: Client, path: str) -> None:
    spec = SELECTED if path == DEPLOYMENTS else {**SELECTED, "selector": {"app": "a"}}
    with one(api, path, {"spec": spec}) as made:
        scale = api.get(at(path, made, "scale")).expect(200)
        assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
        assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 0, "selector": "app=a"})
        place, patch = at(path, made, "scale"), {"Content-Type": MERGE}
        assert api.request("PATCH", place, {"spec": {"replicas": 4}}, patch).expect(200)["spec"] == {"replicas": 4}
        changed = api.get(at(path, made)).expect(200)
        assert (changed["spec"]["replicas"], changed["metadata"]["generation"]) == (4, 2)
        refused = api.request("PATCH", place, {"spec": {"replicas": -1}}, patch).expect(422)
        assert refused["message"].startswith('Scale.autoscaling "')
        assert "spec.replicas: Invalid value: -1: must be greater than or equal to 0" in refused["message"]


@pytest.mark.rows("WRI-017")
def test_a_pod_on_a_node_is_deleted_gracefully(api: Client) -> None:
    spec = {"containers": CONTAINERS, "nodeName": "n", "terminationGracePeriodSeconds": 40}
    with one(api, PODS, {"spec": spec}) as made:
        place = at(PODS, made)
        first = api.delete(place).expect(200)
        assert (first["metadata"]["deletionGracePeriodSeconds"], first["metadata"]["generation"]) == (40, 2)
        again = api.delete(place).expect(200)
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"], (
            "a delete with the same grace period changes nothing"
        )
        ended = {"status": {"message": "stopping"}}
        assert api.request("PATCH", f"{place}/status", ended, {"Content-Type": MERGE}).status == 200
        shorter = api.delete(f"{place}?gracePeriodSeconds=5").expect(200)
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
        api.delete(f"{place}?gracePeriodSeconds=0").expect(200)
        api.get(place).expect(404)


@pytest.mark.rows("WRI-017")
def test_a_pod_without_a_node_is_deleted_at_once(api: Client) -> None:
    with one(api, PODS, {"spec": {"containers": CONTAINERS}}) as made:
        assert api.delete(at(PODS, made)).expect(200)["metadata"]["deletionGracePeriodSeconds"] == 0
        api.get(at(PODS, made)).expect(404)


@pytest.mark.rows("WRI-017")
@pytest.mark.parametrize(
    ("spec", "query", "marks"),
    [
        ({}, "", [0]),
        ({"nodeName": "n"}, "?gracePeriodSeconds=0", [0]),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 0}, "", [0]),
        ({"nodeName": "n", "terminationGracePeriodSeconds": 9}, "", [9, 0]),
        ({}, "?dryRun=All", []),
    ],
)
def test_watchers_see_the_deletion_timestamp_of_a_pod_before_its_deletion(
    api: Client, spec: dict[str, Any], query: str, marks: list[int]
) -> None:
    # upstream: watchers see the deletionTimestamp before the deletion; admission is called for both writes
    with one(api, PODS, {"spec": {"containers": CONTAINERS, **spec}}) as made:
        name, revision = made["metadata"]["name"], made["metadata"]["resourceVersion"]
        deleted = api.delete(f"{at(PODS, made)}{query}").expect(200)
        if marks != [0]:
            now = {"gracePeriodSeconds": 0, "preconditions": {"uid": made["metadata"]["uid"]}}
            deleted = api.request("DELETE", at(PODS, made), now).expect(200)
        seen = []
        with api.watch(PODS, resourceVersion=revision, fieldSelector=f"metadata.name={name}") as watch:
            for event in watch:
                metadata = event["object"]["metadata"]
                seen.append((event["type"], metadata["deletionGracePeriodSeconds"], metadata["generation"]))
                assert metadata["deletionTimestamp"]
                if event["type"] == "DELETED":
                    break
        assert seen == [*(("MODIFIED", grace, 2) for grace in marks or [0]), ("DELETED", 0, 2)]
        assert deleted["metadata"]["resourceVersion"] == metadata["resourceVersion"]


@pytest.mark.rows("WRI-019")
def test_a_pod_is_deleted_at_the_revision_of_a_precondition(api: Client) -> None:
    with one(api, PODS, {"spec": {"containers": CONTAINERS}}) as made:
        precondition = {"preconditions": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        api.request("DELETE", at(PODS, made), precondition).expect(200)
        api.get(at(PODS, made)).expect(404)


@pytest.mark.rows("WRI-002")
@pytest.mark.parametrize("dry_run", [{}, {"dryRun": "All"}], ids=["stored", "dry"])
def test_a_job_with_a_generated_name_selects_its_pods_by_it(api: Client, dry_run: dict[str, str]) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
    body = {"metadata": {"generateName": "w-"}, "spec": {"template": template}}
    made = api.post(JOBS, body, **dry_run).expect(201)
    uid, name = made["metadata"]["uid"], made["metadata"]["name"]
    labels = {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
    labels |= {"batch.kubernetes.io/job-name": name, "job-name": name}
    assert made["spec"]["template"]["metadata"]["labels"] == made["metadata"]["labels"] == labels
    assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    api.delete(f"{JOBS}/{name}?propagationPolicy=Background")


@pytest.mark.parametrize("name", ["scaleUp", "scaleDown"])
@pytest.mark.parametrize(("policies", "code"), [([], 422), (None, 201)], ids=["empty", "null"])
def test_an_empty_list_of_policies_is_invalid_but_null_is_not(api: Client, name: str, policies: Any, code: int) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "behavior": {name: {"policies": policies}}}
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    found = api.post(path, {"metadata": {"name": "a"}, "spec": spec}, dryRun="All").expect(code)
    if policies is None:
        assert found["spec"]["behavior"][name]["policies"]
    else:
        assert f"spec.behavior.{name}.policies: Required value: must specify at least one Policy" in found["message"]


@pytest.mark.parametrize("metadata", [{}, {"name": ""}, {"generateName": "w-"}], ids=["none", "empty", "generated"])
def test_a_limit_range_without_a_name_gets_one(api: Client, metadata: dict[str, str]) -> None:
    path = "/api/v1/namespaces/default/limitranges"
    made = api.post(path, {"metadata": metadata, "spec": {"limits": [{"type": "Pod"}]}}).expect(201)["metadata"]
    api.delete(f"{path}/{made['name']}").expect(200)
    assert len(made["name"]) == (7 if metadata.get("generateName") else 36)
    assert made["name"] != made["uid"]


@pytest.mark.rows("WRI-018")
def test_a_delete_of_a_job_warns_that_its_pods_stay(api: Client) -> None:
    spec = {"template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}}
    with one(api, JOBS, {"spec": spec}) as made:
        uid, name = made["metadata"]["uid"], made["metadata"]["name"]
        labels = {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}
        labels |= {"batch.kubernetes.io/job-name": name, "job-name": name}
        assert made["spec"]["template"]["metadata"]["labels"] == labels
        assert made["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        deleted = api.request("DELETE", f"{at(JOBS, made)}?dryRun=All")
        assert "child pods are preserved by default when jobs are deleted" in deleted.headers["warning"]
        quiet = api.request("DELETE", f"{at(JOBS, made)}?dryRun=All&propagationPolicy=Background")
        assert "warning" not in quiet.headers


@pytest.mark.rows("ERR-09")
def test_most_fields_of_the_spec_of_a_pod_are_immutable(api: Client) -> None:
    with one(api, PODS, {"spec": {"containers": CONTAINERS}}) as made:
        patch = {"Content-Type": MERGE}
        image = {"spec": {"containers": [{"name": "c", "image": "registry.example.com/c:2"}]}}
        changed = api.request(
            "PATCH", at(PODS, made), image, {"Content-Type": "application/strategic-merge-patch+json"}
        )
        assert changed.expect(200)["metadata"]["generation"] == 2
        refused = api.request("PATCH", at(PODS, made), {"spec": {"hostNetwork": True}}, patch).expect(422)
        assert "spec: Forbidden: pod updates may not change fields other than" in refused["message"]


@pytest.mark.rows("TAB-002")
def test_the_table_of_pods_shows_ready_status_and_restarts(api: Client) -> None:
    with one(api, PODS, {"spec": {"containers": CONTAINERS}}) as made:
        waiting = {"waiting": {"reason": "ImagePullBackOff"}}
        status = {"phase": "Pending", "containerStatuses": [{"name": "c", "restartCount": 2, "state": waiting}]}
        place = at(PODS, made)
        api.request("PATCH", f"{place}/status", {"status": status}, {"Content-Type": MERGE}).expect(200)
        cells = api.get(place, {"Accept": TABLE}).expect(200)["rows"][0]["cells"]
        assert cells[1:4] == ["0/1", "ImagePullBackOff", "2"]


@pytest.mark.rows("SEL-001")
def test_pods_are_selected_by_their_node(api: Client) -> None:
    node = f"n-{secrets.token_hex(4)}"
    with one(api, PODS, {"spec": {"containers": CONTAINERS, "nodeName": node}}) as made:
        for selector, found in ((f"spec.nodeName={node}", 1), (f"spec.nodeName={node},status.phase=Running", 0)):
            items = api.get(f"{PODS}?fieldSelector={selector}").expect(200)["items"]
            assert [item["metadata"]["uid"] for item in items] == [made["metadata"]["uid"]] * found


@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in WRITES])
def test_later_writes(api: Client, case: dict[str, Any]) -> None:
    with one(api, case["path"], case["body"]) as made:
        for write in case["writes"]:
            below, patch = ((), write["change"]) if "change" in write else (("status",), {"status": write["status"]})
            answer = api.request("PATCH", at(case["path"], made, *below), patch, {"Content-Type": MERGE})
            if "says" in write:
                assert write["says"] in answer.expect(422)["message"]
            else:
                answer.expect(200)


@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (HUGE, "9223372036854775807"),
        (f"0.{HUGE}", "1"),
        (f"{HUGE}e-4999", "10"),
        (f"0.{'0' * 5000}1Ki", "1m"),
        (f"{'0' * 5000}2Ki", "2Ki"),
        (f"1.{'0' * 5000}", "1"),
        (f"1.{'0' * 5000}1", "1001m"),
        (f"1e{HUGE}", None),
        (f"1e-{HUGE}", None),
    ],
    ids=lambda value: str(value)[:8],
)
def test_a_quantity_of_many_digits(api: Client, text: str, shown: str | None) -> None:
    quota = {"metadata": {"name": "digits"}, "spec": {"hard": {"requests.cpu": text}}}
    if shown is None:
        assert "quantities must match" in api.post(QUOTAS, quota).expect(400)["message"]
        return
    with one(api, QUOTAS, {"spec": quota["spec"]}) as made:
        assert made["spec"]["hard"]["requests.cpu"] == shown


@pytest.mark.rows("ERR-09")
def test_a_percentage_of_many_digits(api: Client) -> None:
    with one(api, DEPLOYMENTS, {"spec": SELECTED}) as made:
        rolling = {"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": f"{HUGE}%"}}}}
        refused = api.request("PATCH", at(DEPLOYMENTS, made), rolling, {"Content-Type": MERGE}).expect(422)
        assert "must not be greater than 100%" in refused["message"]


@pytest.mark.rows("ERR-09")
def test_a_count_of_many_digits(api: Client) -> None:
    counted = {"deprecated.daemonset.template.generation": HUGE}
    with one(api, DAEMONS, {"spec": SELECTED, "metadata": {"annotations": counted}}) as made:
        assert made["metadata"]["annotations"] == {"deprecated.daemonset.template.generation": "1"}


@pytest.mark.rows("WRI-017")
def test_the_longest_grace_period_is_limited_and_can_be_shortened(api: Client) -> None:
    with one(api, PODS, {"spec": {"containers": CONTAINERS, "nodeName": "n"}}) as made:
        longest = api.delete(f"{at(PODS, made)}?gracePeriodSeconds={2**63 - 1}").expect(200)
        assert longest["metadata"]["deletionGracePeriodSeconds"] == 2**31 - 1
        shorter = api.delete(f"{at(PODS, made)}?gracePeriodSeconds=5").expect(200)
        assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5


@pytest.mark.rows("SRV-007")
def test_the_phase_of_a_volume_has_a_time(api: Client) -> None:
    source = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}
    with one(api, VOLUMES, {"spec": source}) as made:
        assert made["status"]["lastPhaseTransitionTime"] == made["metadata"]["creationTimestamp"]
        below, patch, early = at(VOLUMES, made, "status"), {"Content-Type": MERGE}, "2026-01-01T00:00:00Z"
        given = {"status": {"phase": "Available", "lastPhaseTransitionTime": early}}
        assert api.request("PATCH", below, given, patch).expect(200)["status"] == given["status"]
        same = {"status": {"message": "m"}}
        assert api.request("PATCH", below, same, patch).expect(200)["status"]["lastPhaseTransitionTime"] == early
        bound = api.request("PATCH", below, {"status": {"phase": "Bound"}}, patch).expect(200)
        assert bound["status"]["lastPhaseTransitionTime"] >= made["metadata"]["creationTimestamp"]


@pytest.mark.rows("SRV-007")
def test_conditions_of_a_certificate_request_have_times(api: Client) -> None:
    spec = {"request": REQUEST, "signerName": "example.com/s", "usages": ["client auth"]}
    with one(api, REQUESTS, {"spec": spec}) as made:
        below, early = at(REQUESTS, made, "status"), "2026-01-01T00:00:00Z"

        def written(*conditions: dict[str, str]) -> Any:
            status = {"status": {"conditions": conditions}}
            return api.request("PATCH", below, status, {"Content-Type": MERGE}).expect(200)["status"].get("conditions")

        failed = {"type": "Failed", "status": "True"}
        assert written({**failed, "lastTransitionTime": early, "lastUpdateTime": early})[0]["lastUpdateTime"] == early
        again = written(failed)[0]
        assert again["lastTransitionTime"] == early
        assert again["lastUpdateTime"] >= made["metadata"]["creationTimestamp"]
        approved = {"type": "Approved", "status": "True"}
        refused = api.patch(below, {"status": {"conditions": [failed, approved]}})
        assert 'updates may not add a condition of type "Approved"' in refused.expect(422)["message"]
        (shown,) = api.patch(at(REQUESTS, made, "approval"), {"status": {"conditions": [approved]}}).expect(422)[
            "details"
        ]["causes"]
        assert shown["message"] == 'Forbidden: updates may not remove a condition of type "Failed"'
        both = {"status": {"conditions": [failed, approved]}, "spec": {"signerName": "example.com/other"}}
        found = api.patch(at(REQUESTS, made, "approval"), both).expect(200)
        assert found["spec"]["signerName"] == "example.com/s"
        assert found["status"]["conditions"][1]["lastUpdateTime"]


AUTOSCALERS = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
SCALED = {"maxReplicas": 3, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}
ALPHA = "autoscaling.alpha.kubernetes.io/"
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}
METRICS = [
    {
        "type": "Pods",
        "pods": {
            "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "AverageValue", "averageValue": "5"},
        },
    },
    {
        "type": "Object",
        "object": {
            "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
            "metric": {"name": "m"},
            "target": {"type": "Value", "value": "10"},
        },
    },
    {
        "type": "External",
        "external": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "7"}},
    },
]


def test_metrics_and_behavior_survive_a_write_in_autoscaling_v1(api: Client) -> None:
    behavior = {"scaleDown": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}}
    v1, v2 = AUTOSCALERS.format("v1"), AUTOSCALERS.format("v2")
    with one(api, v2, {"spec": {**SCALED, "metrics": METRICS, "behavior": behavior}}) as made:
        old = api.get(at(v1, made)).expect(200)
        assert {f"{ALPHA}metrics", f"{ALPHA}behavior"} <= old["metadata"]["annotations"].keys()
        api.put(at(v1, made), {**old, "spec": {**old["spec"], "maxReplicas": 5}}).expect(200)
        assert api.get(at(v2, made)).expect(200)["spec"] == {**made["spec"], "maxReplicas": 5}


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        ("metrics", '[{"type":"Pods","pods":5}]'),
        ("metrics", '[{"type":"Pods","pods":"targetAverageValue"}]'),
        ("metrics", '[{"type":5,"pods":{"metricName":{"a":1}}}]'),
        ("metrics", '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"zz"}}]'),
        ("metrics", "[1,2]"),
        ("metrics", "{}"),
        ("metrics", "["),
        ("current-metrics", '[{"type":"Object","object":[1]}]'),
        ("conditions", '[{"type":5}]'),
        ("behavior", '{"ScaleUp":5}'),
        ("behavior", '{"ScaleUp":{"Policies":[{"Type":1}]}}'),
        ("behavior", '{"a":' * 900 + "1" + "}" * 900),
    ],
)
def test_annotations_of_autoscaling_v1_that_do_not_fit_are_ignored(api: Client, annotation: str, text: str) -> None:
    """An object with such an annotation must not break the lists of all autoscalers."""
    v1, v2 = AUTOSCALERS.format("v1"), AUTOSCALERS.format("v2")
    with one(api, v1, {"metadata": {"annotations": {ALPHA + annotation: text}}, "spec": SCALED}) as made:
        found = api.get(at(v2, made)).expect(200)
        assert found["spec"]["metrics"] == [CPU]
        assert "behavior" not in found["spec"]
        assert not any(found["status"].get(field) for field in ("currentMetrics", "conditions"))
        assert ALPHA + annotation not in (found["metadata"].get("annotations") or {})
        for path in (v1, v2):
            api.get(path).expect(200)
            api.get(path, {"Accept": TABLE}).expect(200)


@pytest.mark.rows("SSA-019")
@pytest.mark.parametrize(("given", "stored"), [(2, "2"), (1.5, "1500m"), ("2", "2"), ({"a": 1}, None)], ids=str)
def test_an_apply_takes_quantities_that_are_numbers(api: Client, given: Any, stored: str | None) -> None:
    name = f"w-{secrets.token_hex(4)}"
    container = {**CONTAINERS[0], "resources": {"limits": {"cpu": given}}}
    template = {**SELECTED["template"], "spec": {"containers": [container]}}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
    applied = {**body, "spec": {**SELECTED, "template": template}}
    place = f"{DEPLOYMENTS}/{name}"
    answer = api.request("PATCH", f"{place}?fieldManager=m", applied, {"Content-Type": APPLY})
    if stored is None:
        path = '.spec.template.spec.containers[name="c"].resources.limits.cpu'
        assert answer.status in (400, 500)  # upstream answers 500, this server 400
        assert answer.json["message"].endswith(f"{path}: expected any scalar, got &{{map[a:1]}}")
        return
    first = answer.expect(201)
    try:
        assert first["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {"cpu": stored}
        again = api.request("PATCH", f"{place}?fieldManager=m", applied, {"Content-Type": APPLY}).expect(200)
        assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    finally:
        api.delete(f"{place}?propagationPolicy=Background")


@pytest.mark.parametrize("row", [pytest.param(row, id=row["name"]) for row in CREATED])
def test_fields_of_a_new_object(api: Client, row: dict[str, Any]) -> None:
    body = {**row["body"], "metadata": {"name": "created"}}
    answer = api.post(f"{row['path']}?dryRun=All&fieldManager=m", body)
    if "says" in row:
        assert row["says"] in answer.expect(422)["message"]
        return
    made = answer.expect(201)
    for path, wanted in row["shows"].items():
        found = value_at(made, path.split("."))
        assert TIME.fullmatch(found or "") if wanted == "time" else found == wanted, (path, found)
    [entry] = made["metadata"]["managedFields"]
    for owned in row.get("owned", ()):
        assert value_at(entry["fieldsV1"], owned.split(" ")) is not None, entry


def value_at(value: Any, path: list[str]) -> Any:
    """Return the value at a path of field names and indices; None without a value."""
    for part in path:
        value = value[int(part)] if isinstance(value, list) else (value or {}).get(part)
    return value


@pytest.mark.parametrize("own", [None, {"app": "a"}])
def test_a_job_shares_only_the_default_labels_with_its_pods(api: Client, own: dict[str, str] | None) -> None:
    """A job without labels gets the labels of its template, including the generated labels.

    A job with labels keeps its own.
    """
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"restartPolicy": "Never", "containers": CONTAINERS}}
    metadata = {"name": "created", **({} if own is None else {"labels": own})}
    made = api.post(f"{JOBS}?dryRun=All", {"metadata": metadata, "spec": {"template": template}}).expect(201)
    generated = {"controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"}
    assert made["spec"]["template"]["metadata"]["labels"].keys() == {"app", *generated}
    assert made["metadata"]["labels"].keys() == ({"app", *generated} if own is None else {"app"})
