"""Writes with kubectl: server-side apply, each kind of patch, replace and subresources.

The tests also use selectors and every output.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clients.kubectl import Kubectl

pytestmark = pytest.mark.usefixtures("clean")

ONE = "ct/my-new-cron-object"
OBJECT = "crontab.stable.example.com/my-new-cron-object"
SUBRESOURCES = (1, 24)
HIDES_MANAGERS = (1, 21)
WAITS_FOR_VALUES = (1, 23)


def define(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "session/crd.yaml")
    kubectl("wait", "--for=condition=Established", "crd/crontabs.stable.example.com", "--timeout=10s")


def manifest(path: Path, name: str = "my-new-cron-object", **spec: Any) -> str:
    body = {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, "spec": spec}
    path.write_text(yaml.safe_dump(body))
    return str(path)


def read_object(kubectl: Kubectl, what: str = ONE) -> dict[str, Any]:
    more = ["--show-managed-fields"] if kubectl.version >= HIDES_MANAGERS else []
    found: dict[str, Any] = json.loads(kubectl("get", what, "-o", "json", *more))
    return found


@pytest.mark.rows("KUB-004", "SSA-008", "SSA-009")
def test_kubectl_server_side_apply_reports_conflicts(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    mine = manifest(tmp_path / "mine.yaml", cronSpec="* * * * */5", replicas=1)
    yours = manifest(tmp_path / "yours.yaml", image="theirs", replicas=2)
    assert kubectl("apply", "--server-side", "-f", mine) == f"{OBJECT} serverside-applied\n"
    assert kubectl("apply", "--server-side", "-f", mine) == f"{OBJECT} serverside-applied\n"
    first = read_object(kubectl)
    assert [(it["manager"], it["operation"]) for it in first["metadata"]["managedFields"]] == [("kubectl", "Apply")]
    refused = kubectl.fails("apply", "--server-side", "--field-manager=other", "-f", yours)
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .spec.replicas' in refused
    assert "--force-conflicts" in refused
    assert read_object(kubectl) == first
    kubectl("apply", "--server-side", "--field-manager=other", "--force-conflicts", "-f", yours)
    assert read_object(kubectl)["spec"] == {"cronSpec": "* * * * */5", "image": "theirs", "replicas": 2}
    less = manifest(tmp_path / "less.yaml", image="theirs")
    kubectl("apply", "--server-side", "--field-manager=other", "-f", less)
    assert read_object(kubectl)["spec"] == {"cronSpec": "* * * * */5", "image": "theirs"}
    dry = json.loads(kubectl("apply", "--server-side", "--dry-run=server", "-f", mine, "-o", "json"))
    assert dry["spec"]["replicas"] == 1
    assert "replicas" not in read_object(kubectl)["spec"]


@pytest.mark.rows("KUB-004", "SSA-016")
def test_kubectl_switches_between_client_and_server_side_apply(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("apply", "-f", manifest(tmp_path / "a.yaml", cronSpec="a", image="i", replicas=1))
    changed = manifest(tmp_path / "b.yaml", cronSpec="b", image="i")
    assert kubectl("apply", "--server-side", "-f", changed) == f"{OBJECT} serverside-applied\n"
    spec = read_object(kubectl)["spec"]
    assert (spec["cronSpec"], spec["image"]) == ("b", "i")
    kubectl("apply", "--server-side", "-f", changed)
    assert kubectl("apply", "-f", manifest(tmp_path / "c.yaml", cronSpec="c")).startswith(OBJECT)
    assert read_object(kubectl)["spec"]["cronSpec"] == "c"


@pytest.mark.rows("KUB-003", "KUB-004", "WRI-007")
def test_kubectl_patch_supports_each_patch_type(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "my-crontab.yaml")
    kubectl("patch", ONE, "--type=merge", "-p", '{"spec":{"replicas":3,"image":null}}')
    kubectl("patch", ONE, "--type=json", "-p", '[{"op":"copy","from":"/spec/cronSpec","path":"/spec/image"}]')
    assert read_object(kubectl)["spec"] == {"cronSpec": "* * * * */5", "image": "* * * * */5", "replicas": 3}
    for kind, patch, text in (
        ("json", '[{"op":"remove","path":"/spec/nosuch"}]', "The request is invalid"),
        (
            "json",
            '[{"op":"test","path":"/spec/replicas","value":4}]',
            "The request is invalid",
        ),
        ("merge", '{"spec":{"replicas":"many"}}', "spec.replicas in body must be of type integer"),
        ("merge", '{"metadata":{"uid":"other"}}', "metadata.uid: Invalid value"),
        ("strategic", '{"spec":{"replicas":4}}', "application/merge-patch+json, application/apply-patch+yaml"),
    ):
        assert text in kubectl.fails("patch", ONE, f"--type={kind}", "-p", patch)
    crd = "crd/crontabs.stable.example.com"
    column = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1}
    versions = json.loads(kubectl("get", crd, "-o", "json"))["spec"]["versions"]
    versions[0]["additionalPrinterColumns"] = [column]
    patched = kubectl(
        "patch", crd, "-p", json.dumps({"spec": {"versions": versions}})
    )  # a strategic merge patch, since kubectl has the Go type
    assert patched == "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com patched\n"
    kubectl("patch", crd, "-p", '{"spec":{"names":{"shortNames":["ct","crt"]}}}')
    assert json.loads(kubectl("get", crd, "-o", "json"))["spec"]["names"]["shortNames"] == ["ct", "crt"]


@pytest.mark.rows("KUB-004", "WRI-005")
def test_kubectl_replace_rejects_a_stale_object(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "my-crontab.yaml")
    old = tmp_path / "old.json"
    old.write_text(kubectl("get", ONE, "-o", "json"))
    assert kubectl("replace", "-f", str(old)) == f"{OBJECT} replaced\n"
    kubectl("label", ONE, "a=b")
    stale = kubectl.fails("replace", "-f", str(old))
    assert "the object has been modified; please apply your changes to the latest version and try again" in stale
    before = read_object(kubectl)["metadata"]["uid"]
    assert "replaced" in kubectl("replace", "--force", "-f", manifest(tmp_path / "new.yaml", cronSpec="x"))
    after = read_object(kubectl)
    assert after["metadata"]["uid"] != before
    assert after["spec"] == {"cronSpec": "x"}
    missing = kubectl.fails("replace", "-f", manifest(tmp_path / "none.yaml", "none", cronSpec="x"))
    assert '"none" not found' in missing


@pytest.mark.rows("KUB-004", "SRV-007", "SRV-008", "SRV-010")
def test_kubectl_scale_changes_replicas(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "my-crontab.yaml")
    assert "does not exist" in kubectl.fails("scale", ONE, "--current-replicas=1", "--replicas=2")
    assert kubectl("scale", ONE, "--replicas=2") == f"{OBJECT} scaled\n"
    assert kubectl("scale", ONE, "--current-replicas=2", "--replicas=5") == f"{OBJECT} scaled\n"
    assert "Expected replicas to be 2, was 5" in kubectl.fails("scale", ONE, "--current-replicas=2", "--replicas=1")
    assert read_object(kubectl)["spec"]["replicas"] == 5
    kubectl.fails("scale", ONE, "--replicas=-1")
    if kubectl.version < SUBRESOURCES:
        return
    scale = json.loads(kubectl("get", ONE, "--subresource=scale", "-o", "json"))
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 5}, {"replicas": 0})
    rows = [line.split() for line in kubectl("get", ONE, "--subresource=scale").splitlines()]
    assert rows[0] == ["NAME", "DESIRED", "AVAILABLE", "AGE"]
    assert rows[1][:3] == ["my-new-cron-object", "5", "0"]
    kubectl("patch", ONE, "--subresource=scale", "--type=merge", "-p", '{"spec":{"replicas":7}}')
    assert read_object(kubectl)["spec"]["replicas"] == 7


@pytest.mark.rows("KUB-004", "SRV-004", "SRV-005")
def test_kubectl_writes_the_status_subresource(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "my-crontab.yaml")
    kubectl("patch", ONE, "--type=merge", "-p", '{"status":{"replicas":3}}')
    assert "status" not in read_object(kubectl)
    if kubectl.version < SUBRESOURCES:
        pytest.skip("kubectl before 1.24 has no --subresource")
    generation = read_object(kubectl)["metadata"]["generation"]
    kubectl(
        "patch", ONE, "--subresource=status", "--type=merge", "-p", '{"status":{"replicas":3},"spec":{"image":"no"}}'
    )
    found = read_object(kubectl)
    assert (found["status"], found["spec"]["image"]) == ({"replicas": 3}, "my-awesome-cron-image")
    assert found["metadata"]["generation"] == generation
    changed = tmp_path / "changed.json"
    changed.write_text(json.dumps({**found, "status": {"replicas": 4}}))
    kubectl("replace", "--subresource=status", "-f", str(changed))
    assert json.loads(kubectl("get", ONE, "--subresource=status", "-o", "json"))["status"] == {"replicas": 4}
    edited = kubectl("edit", ONE, "--subresource=status", KUBE_EDITOR="sed -i 's/replicas: 4/replicas: 9/'")
    assert "edited" in edited
    assert read_object(kubectl)["status"] == {"replicas": 9}
    if kubectl.version >= WAITS_FOR_VALUES:
        kubectl("wait", ONE, "--for=jsonpath={.status.replicas}=9", "--timeout=10s")


@pytest.mark.rows("KUB-004", "SEL-001", "SEL-005")
def test_kubectl_labels_annotates_and_selects(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    for name in ("one", "two", "three"):
        kubectl("create", "-f", manifest(tmp_path / f"{name}.yaml", name, cronSpec=name))
    kubectl("label", "ct", "one", "two", "team=a")
    kubectl("label", "ct", "three", "team=b", "old=yes")
    assert "already has a value" in kubectl.fails("label", "ct", "one", "team=b")
    kubectl("label", "--overwrite", "ct", "one", "team=c")
    kubectl("label", "ct", "three", "old-")
    kubectl("annotate", "ct", "--all", "note=x")
    kubectl("annotate", "ct", "two", "note-")

    def names(*selection: str) -> list[str]:
        return [line.rpartition("/")[2] for line in kubectl("get", "ct", "-o", "name", *selection).split()]

    assert names() == ["one", "three", "two"]
    for selector, wanted in {
        "team": ["one", "three", "two"],
        "!team": [],
        "team=a": ["two"],
        "team!=a": ["one", "three"],
        "team in (a,b)": ["three", "two"],
        "team notin (a,b)": ["one"],
        "team,team!=c": ["three", "two"],
        "old": [],
    }.items():
        assert names("-l", selector) == wanted, selector
    assert names("--field-selector", "metadata.name=two") == ["two"]
    assert names("--field-selector", "metadata.name!=two,metadata.namespace=default") == ["one", "three"]
    assert "field label not supported: spec.cronSpec" in kubectl.fails(
        "get", "ct", "--field-selector", "spec.cronSpec=x"
    )
    assert "deleted" in kubectl("delete", "ct", "-l", "team in (a,b)")
    assert names() == ["one"]
    annotations = read_object(kubectl, "ct/one")["metadata"]["annotations"]
    assert annotations == {"note": "x"}


@pytest.mark.rows("KUB-004", "TAB-002", "TAB-004", "NEG-001")
def test_kubectl_get_prints_every_output_format(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "session/cr.yaml")
    assert re.fullmatch(r"NAME +SPEC +REPLICAS +AGE\na +\* \* \* \* \*/5 +1 +\d+s\n", kubectl("get", "ct"))
    assert kubectl("get", "ct", "-o", "wide").splitlines()[0].split() == ["NAME", "SPEC", "REPLICAS", "IMAGE", "AGE"]
    assert kubectl("get", "ct", "--show-labels").splitlines()[1].split()[-1] == "app=x"
    assert kubectl("get", "ct", "-L", "app").splitlines()[0].split()[-1] == "APP"
    assert kubectl("get", "ct", "--show-kind", "--no-headers").startswith("crontab.stable.example.com/a ")
    assert kubectl("get", "ct", "-A", "--no-headers").startswith("default ")
    as_json, as_yaml = (
        json.loads(kubectl("get", "ct", "a", "-o", "json")),
        yaml.safe_load(kubectl("get", "ct", "a", "-o", "yaml")),
    )
    assert as_json["spec"] == as_yaml["spec"] == {"cronSpec": "* * * * */5", "image": "my/img", "replicas": 1}
    assert kubectl("get", "ct", "-o", "name") == "crontab.stable.example.com/a\n"
    assert kubectl("get", "ct", "-o", "jsonpath={.items[*].spec.image}") == "my/img"
    assert kubectl("get", "ct", "a", "-o", "go-template={{.spec.replicas}}") == "1"
    columns = kubectl("get", "ct", "-o", "custom-columns=N:.metadata.name,R:.spec.replicas,X:.spec.nosuch")
    assert [line.split() for line in columns.splitlines()] == [["N", "R", "X"], ["a", "1", "<none>"]]
    raw = json.loads(kubectl("get", "--raw", "/apis/stable.example.com/v1/namespaces/default/crontabs/a"))
    assert raw["metadata"]["uid"] == as_json["metadata"]["uid"]
    assert "No resources found" in kubectl.run("get", "ct", "-n", "kube-system").stderr
    described = kubectl("describe", "ct", "a")
    assert re.search(r"Cron Spec: +\* \* \* \* \*/5", described)


@pytest.mark.rows("KUB-004", "WRI-012")
def test_kubectl_dry_run_and_diff_change_nothing(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    assert kubectl("create", "--dry-run=server", "-f", "session/cr.yaml") == (
        "crontab.stable.example.com/a created (server dry run)\n"
    )
    assert kubectl("get", "ct", "-o", "name") == ""
    kubectl("create", "-f", "session/cr.yaml")
    for arguments in (
        ("patch", "ct/a", "--type=merge", "-p", '{"spec":{"replicas":9}}'),
        ("label", "ct", "a", "x=y"),
        ("annotate", "ct", "a", "x=y"),
        ("delete", "ct", "a"),
        ("apply", "-f", "session/cr2.yaml"),
        ("replace", "-f", "session/cr2.yaml"),
    ):
        assert "/a " in kubectl(*arguments, "--dry-run=server").replace('"a" ', "/a "), arguments
    found = read_object(kubectl, "ct/a")
    assert found["spec"]["replicas"] == 1
    assert found["metadata"]["labels"] == {"app": "x"}
    told = kubectl.run("diff", "-f", "session/cr2.yaml")
    assert told.returncode == 1
    assert "-  replicas: 1\n+  replicas: 2\n" in told.stdout
    same = kubectl.run("diff", "--server-side", "--force-conflicts", "-f", "session/cr.yaml")
    assert same.returncode in {0, 1}, same.stderr  # 1: the diff contains the new manager
    assert "replicas: 2" not in same.stdout


@pytest.mark.rows("KUB-003")
def test_kubectl_apply_prunes_by_last_applied_configuration(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("apply", "-f", manifest(tmp_path / "a.yaml", cronSpec="a", image="i"))
    last = json.loads(kubectl("apply", "view-last-applied", ONE, "-o", "json"))
    assert last["spec"] == {"cronSpec": "a", "image": "i"}
    without = manifest(tmp_path / "b.yaml", cronSpec="a")
    assert kubectl("apply", "-f", without) == f"{OBJECT} configured\n"
    assert read_object(kubectl)["spec"] == {"cronSpec": "a"}
    kubectl("apply", "set-last-applied", "-f", without)
    assert "deleted" in kubectl("delete", "-f", without)
