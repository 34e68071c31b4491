"""Built-in kinds with every kubectl: create, get, apply and explain.

Kubectl 1.32 and newer use protobuf.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

import pytest
import yaml

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.clients.kubectl import Kubectl
from tests.support.processes import Server

WHOAMI = (1, 28)
EVENTS = (1, 27)
TOKENS = (1, 24)


@pytest.fixture
def place(server: Server) -> Iterator[str]:
    """A new namespace."""
    api, name = Client(server.url), f"built-in-{secrets.token_hex(3)}"
    api.post("/api/v1/namespaces", {"metadata": {"name": name}}).expect(201)
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.mark.rows("KUB-004", "NEG-002")
def test_kubectl_creates_and_gets_built_in_kinds(kubectl_of: Kubectl, place: str) -> None:
    kubectl, here = kubectl_of, f"--namespace={place}"
    made = {
        "configmap/c": ("create", "configmap", "c", "--from-literal=a=x", "--from-literal=b=y"),
        "secret/s": ("create", "secret", "generic", "s", "--from-literal=a=x"),
        "serviceaccount/w": ("create", "serviceaccount", "w"),
        "role.rbac.authorization.k8s.io/r": ("create", "role", "r", "--verb=get,list", "--resource=configmaps"),
        "rolebinding.rbac.authorization.k8s.io/b": (
            "create",
            "rolebinding",
            "b",
            "--role=r",
            f"--serviceaccount={place}:w",
        ),
        "service/v": ("create", "service", "clusterip", "v", "--tcp=80:8080"),
    }
    for name, command in made.items():
        assert kubectl(*command, here) == f"{name} created\n"
    assert re.fullmatch(r"NAME +DATA +AGE\nc +2 +\d+s\n", kubectl("get", "cm", here))
    assert re.fullmatch(r"NAME +TYPE +DATA +AGE\ns +Opaque +1 +\d+s\n", kubectl("get", "secret", here))
    assert re.fullmatch(r"NAME +AGE\ndefault +\d+s\nw +\d+s\n", kubectl("get", "sa", here))
    assert re.fullmatch(r"NAME +CREATED AT\nr +\d{4}-\S+Z\n", kubectl("get", "role", here))
    wide = kubectl("get", "rolebinding", "-o", "wide", here)
    assert re.search(rf"^b +Role/r +\d+s +{place}/w *$", wide, re.M), wide
    assert re.search(r"^v +ClusterIP +10\.96\.\d+\.\d+ +<none> +80/TCP +\d+s$", kubectl("get", "svc", here), re.M)
    assert re.search(r"^(service/)?v +ClusterIP", kubectl("get", "all", here), re.M)
    assert kubectl("get", "cm", "c", "-o", "jsonpath={.data.b}", here) == "y"
    if kubectl.version >= TOKENS:
        assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+\n?", kubectl("create", "token", "w", "--duration=1h", here))
    described = kubectl("describe", "secret", "s", here)
    assert re.search(r"^a: +1 bytes$", described, re.M), described
    assert kubectl("delete", "cm,secret,sa,role,rolebinding,svc", "--all", here).count("deleted") == len(made) + 1


MANIFEST = """
apiVersion: v1
kind: Service
metadata: {name: applied}
spec: {selector: {app: a}, ports: [{name: one, port: 80}, {name: two, port: 81}]}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: applied}
spec: {holderIdentity: me, renewTime: "2026-11-21T03:05:11.724683Z"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules: [{verbs: [get], apiGroups: [""], resources: [secrets]}]
"""


@pytest.mark.rows("KUB-003", "KUB-004")
def test_kubectl_apply_merges_lists_by_key(kubectl_of: Kubectl, place: str) -> None:
    kubectl, here = kubectl_of, f"--namespace={place}"
    file = kubectl.home / "applied.yaml"
    file.write_text(MANIFEST.replace("NAME", place))
    created = kubectl("apply", "-f", str(file), here)
    assert created.count("created") == 3
    assert kubectl("apply", "-f", str(file), here).count("unchanged") == 3
    file.write_text(MANIFEST.replace("NAME", place).replace(", {name: two, port: 81}", ", {name: tri, port: 82}"))
    assert "service/applied configured" in kubectl("apply", "-f", str(file), here)
    shown = yaml.safe_load(kubectl("get", "service", "applied", "-o", "yaml", here))
    assert [port["port"] for port in shown["spec"]["ports"]] == [80, 82], "the port that was taken out is gone"
    taken = kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file), here)
    assert taken.count("serverside-applied") == 3
    assert "secrets" in kubectl("describe", "clusterrole", place)
    assert kubectl("delete", "-f", str(file), here).count("deleted") == 3


@pytest.mark.rows("KUB-004", "AUT-003", "AUT-005")
def test_kubectl_prints_permissions_and_cluster_info(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    assert kubectl("auth", "can-i", "create", "secrets") == "yes\n"
    assert re.search(r"^\*\.\* +\[\] +\[\] +\[\*\]$", kubectl("auth", "can-i", "--list"), re.M)
    assert kubectl("auth", "can-i", "get", "secrets", "--as=joe", "--as-group=devs") == "yes\n"
    assert "is running at" in kubectl("cluster-info")
    if kubectl.version >= WHOAMI:
        assert re.search(r"^Username +admin$", kubectl("auth", "whoami"), re.M)
        assert re.search(r"^Username +joe$", kubectl("auth", "whoami", "--as=joe"), re.M)


@pytest.mark.rows("KUB-004", "OAS-001")
def test_kubectl_explains_and_lists_built_in_kinds(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    assert "holderIdentity" in kubectl("explain", "leases.spec")
    assert "stringData" in kubectl("explain", "secrets")
    names = kubectl("api-resources", "-o", "name").split()
    wanted = {"configmaps", "events", "secrets", "leases.coordination.k8s.io", "roles.rbac.authorization.k8s.io"}
    assert wanted <= set(names)
    assert "selfsubjectaccessreviews.authorization.k8s.io" in names


@pytest.mark.rows("KUB-004", "SEL-001")
def test_kubectl_shows_events_of_an_object(kubectl_of: Kubectl, server: Server, place: str) -> None:
    kubectl, here = kubectl_of, f"--namespace={place}"
    kubectl("create", "configmap", "c", here)
    uid = kubectl("get", "cm", "c", "-o", "jsonpath={.metadata.uid}", here)
    about = {"kind": "ConfigMap", "namespace": place, "name": "c", "uid": uid}
    told = {"reason": "Made", "message": "it was made", "type": "Normal", "source": {"component": "maker"}, "count": 1}
    stamp = {"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z"}
    event = {"metadata": {"name": "c.1"}, "involvedObject": about, **told, **stamp}
    Client(server.url).post(f"/api/v1/namespaces/{place}/events", event).expect(201)
    assert "it was made" in kubectl("describe", "configmap", "c", here)
    assert re.search(r"^\S+ +Normal +Made +configmap/c +it was made$", kubectl("get", "events", here), re.M)
    if kubectl.version >= EVENTS:
        assert "it was made" in kubectl("events", here)


@pytest.mark.rows("KUB-004")
def test_kubectl_creates_changes_and_evicts_workloads(kubectl_of: Kubectl, place: str) -> None:
    """Create, change, print and evict workloads; a second apply changes nothing."""
    kubectl, here = kubectl_of, f"--namespace={place}"
    if kubectl.version < EVENTS:
        pytest.skip("kubectl before 1.27 makes beta versions of workloads, which are not served")
    node = f"n-{place}"
    for command, said in (
        (("create", "deployment", "web", "--image=nginx", "--replicas=2"), "deployment.apps/web created"),
        (("create", "job", "j", "--image=x"), "job.batch/j created"),
        (("create", "cronjob", "cj", "--image=x", "--schedule=* * * * *"), "cronjob.batch/cj created"),
        (("create", "job", "j2", "--from=cronjob/cj"), "job.batch/j2 created"),
        (("create", "ingress", "ing", "--rule=a.b/x=svc:80"), "ingress.networking.k8s.io/ing created"),
        (("create", "quota", "q", "--hard=pods=3"), "resourcequota/q created"),
        (("create", "pdb", "p", "--selector=app=web", "--min-available=1"), "poddisruptionbudget.policy/p created"),
        (("run", "p", "--image=nginx"), "pod/p created"),
        (("set", "image", "deploy/web", "nginx=nginx:2"), "deployment.apps/web image updated"),
        (("scale", "deploy/web", "--replicas=3"), "deployment.apps/web scaled"),
        (
            ("autoscale", "deploy/web", "--max=4", "--cpu-percent=50"),
            "horizontalpodautoscaler.autoscaling/web autoscaled",
        ),
    ):
        assert said in kubectl(*command, here)
    for shown in ("deploy/web", "job/j", "cronjob/cj", "ing/ing", "quota/q", "pdb/p", "pod/p", "hpa/web"):
        assert shown.partition("/")[2] in kubectl("describe", shown, here)
    assert kubectl("logs", "p", here) == ""
    file = kubectl.home / "node.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node}}))
    try:
        kubectl("apply", "-f", str(file))
        assert "unchanged" in kubectl("apply", "-f", str(file))
        kubectl("cordon", node)
        overrides = f'{{"spec":{{"nodeName":"{node}"}}}}'
        kubectl("run", "q", "--image=x", f"--overrides={overrides}", here)
        kubectl("delete", "pod", "q", "--force", "--grace-period=0", here)
        assert f"node/{node} drained" in kubectl("drain", node, "--force", "--timeout=20s")
    finally:
        kubectl("delete", "node", node)


@pytest.mark.rows("KUB-004")
def test_kubectl_manages_quotas_and_priority_classes(kubectl_of: Kubectl, place: str) -> None:
    kubectl, here = kubectl_of, f"--namespace={place}"
    kubectl("create", "quota", "q", "--hard=pods=1,count/configmaps=2", here)
    until(lambda: re.search(r"^pods +0 +1$", kubectl("describe", "quota", "q", here), re.M), "the usage is there")
    kubectl("run", "p", "--image=x", here)
    refused = kubectl.fails("run", "q", "--image=x", here)
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in refused
    assert re.search(r"^pods +1 +1$", kubectl("describe", "quota", "q", here), re.M)
    name = f"p-{place}"
    kubectl("create", "priorityclass", name, "--value=7", "--description=d")
    try:
        assert re.search(r"^system-node-critical +2000001000 ", kubectl("get", "priorityclass"), re.M)
        assert re.search(r"^Value: +7$", kubectl("describe", "priorityclass", name), re.M)
    finally:
        kubectl("delete", "priorityclass", name)


@pytest.mark.rows("KUB-004")
def test_kubectl_reports_and_undoes_rollouts(kubectl_of: Kubectl, server: Server, place: str) -> None:
    """Status, history and undo of a deployment; the test acts as its controller."""
    kubectl, here, api = kubectl_of, f"--namespace={place}", Client(server.url)
    if kubectl.version < EVENTS:
        pytest.skip("kubectl before 1.27 makes beta versions of workloads, which are not served")
    sets, path = f"/apis/apps/v1/namespaces/{place}/replicasets", f"/apis/apps/v1/namespaces/{place}/deployments/web"

    def roll(revision: int, image: str) -> None:
        kubectl("set", "image", "deploy/web", f"nginx={image}", here)
        annotations = {"deployment.kubernetes.io/revision": str(revision)}
        found = api.patch(path, {"metadata": {"annotations": annotations}}).expect(200)
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": found["metadata"]["uid"]}
        labels = {**found["spec"]["template"]["metadata"]["labels"], "pod-template-hash": str(revision)}
        template = {**found["spec"]["template"], "metadata": {"labels": labels}}
        metadata = {"name": f"web-{revision}", "labels": labels, "annotations": annotations}
        spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
        made = {"metadata": {**metadata, "ownerReferences": [{**owner, "controller": True}]}, "spec": spec}
        api.post(sets, made).expect(201)
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
        state = {**counts, "observedGeneration": found["metadata"]["generation"]}
        api.patch(f"{path}/status", {"status": state}).expect(200)

    kubectl("create", "deployment", "web", "--image=nginx:0", here)
    assert (
        "Waiting for deployment"
        in kubectl.start("rollout", "status", "deploy/web", here, "--timeout=1s").communicate()[0]
    )
    roll(1, "nginx:1")
    assert "successfully rolled out" in kubectl("rollout", "status", "deploy/web", here, "--timeout=10s")
    roll(2, "nginx:2")
    assert re.findall(r"^(\d) ", kubectl("rollout", "history", "deploy/web", here), re.M) == ["1", "2"]
    assert "nginx:1" in kubectl("rollout", "history", "deploy/web", "--revision=1", here)
    assert "rolled back" in kubectl("rollout", "undo", "deploy/web", here)
    assert api.get(path).expect(200)["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:1"
