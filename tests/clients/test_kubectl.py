"""Tasks of a kubectl user; each test runs with every installed kubectl."""

from __future__ import annotations

import re
import secrets
import subprocess
import threading
from pathlib import Path

import pytest
import yaml

from apiext.conformance.support.waiting import until
from tests.clients.kubectl import Kubectl

pytestmark = pytest.mark.usefixtures("clean")

CRD = "customresourcedefinition.apiextensions.k8s.io/crontabs.stable.example.com"
OBJECT = "crontab.stable.example.com/my-new-cron-object"
SERVER_SIDE_VALIDATION = (1, 25)
SUBRESOURCES = (1, 24)
CASCADES = (1, 20)
WAITS_FOR_THE_GONE = (1, 24)


def define(kubectl: Kubectl, manifest: str = "resourcedefinition.yaml", name: str = "crontabs") -> None:
    kubectl("create", "-f", manifest)
    kubectl("wait", "--for=condition=Established", f"crd/{name}.stable.example.com", "--timeout=10s")


@pytest.mark.rows("KUB-001", "KUB-002", "KUB-004", "DIS-110")
def test_documented_kubectl_walk_through_works(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    assert kubectl("create", "-f", "resourcedefinition.yaml") == f"{CRD} created\n"
    established = kubectl("wait", "--for=condition=Established", "crd/crontabs.stable.example.com", "--timeout=10s")
    assert established == f"{CRD} condition met\n"
    assert "crontabs.stable.example.com" in kubectl("get", "crd")
    assert kubectl("create", "-f", "my-crontab.yaml") == f"{OBJECT} created\n"
    for name in ("crontab", "crontabs", "ct", "CronTab", "crontabs.stable.example.com"):
        assert re.fullmatch(r"NAME +AGE\nmy-new-cron-object +\d+s\n", kubectl("get", name)), name
    listed = yaml.safe_load(kubectl("get", "ct", "-o", "yaml"))
    assert (listed["kind"], listed["apiVersion"]) == ("List", "v1")
    seen = listed["items"][0]
    assert seen["spec"] == {"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"}
    assert (seen["apiVersion"], seen["kind"]) == ("stable.example.com/v1", "CronTab")
    assert seen["metadata"]["generation"] == 1
    assert kubectl("get", "ct", "-o", "name") == f"{OBJECT}\n"
    assert kubectl("get", "ct", "-A", "--no-headers").startswith("default ")
    deleted = kubectl("delete", "-f", "resourcedefinition.yaml")
    assert 'customresourcedefinition.apiextensions.k8s.io "crontabs.stable.example.com" deleted' in deleted
    gone = kubectl.fails("get", "crontabs")
    assert "could not find the requested resource" in gone or "the server doesn't have a resource type" in gone
    define(kubectl)
    assert kubectl("get", "crontabs", "--ignore-not-found") == ""


@pytest.mark.rows("KUB-004", "WRI-017")
def test_kubectl_patches_labels_and_finalizes_an_object(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "my-crontab.yaml")
    one = "ct/my-new-cron-object"
    merged = kubectl("patch", one, "--type=merge", "-p", '{"spec":{"replicas":3}}')
    assert merged == f"{OBJECT} patched\n"
    unchanged = kubectl("patch", one, "--type=merge", "-p", '{"spec":{"replicas":3}}')
    assert unchanged == f"{OBJECT} patched (no change)\n"
    kubectl("patch", one, "--type=json", "-p", '[{"op":"replace","path":"/spec/replicas","value":4}]')
    assert kubectl("get", one, "-o", "jsonpath={.spec.replicas}") == "4"
    assert kubectl("label", one, "team=a") == f"{OBJECT} labeled\n"
    assert "my-new-cron-object" in kubectl("get", "ct", "-l", "team=a")
    assert "my-new-cron-object" not in kubectl("get", "ct", "-l", "team!=a")
    kubectl("annotate", one, "note=kept")
    assert kubectl("get", one, "-o", "jsonpath={.metadata.annotations.note}") == "kept"
    strategic = kubectl.fails("patch", one, "-p", '{"spec":{"replicas":5}}')
    assert "UnsupportedMediaType" in strategic or "not supported" in strategic
    kubectl("patch", one, "--type=merge", "-p", '{"metadata":{"finalizers":["stable.example.com/hold"]}}')
    kubectl("delete", one, "--wait=false")
    assert kubectl("get", one, "-o", "jsonpath={.metadata.deletionTimestamp}")
    kubectl("patch", one, "--type=merge", "-p", '{"metadata":{"finalizers":[]}}')
    if kubectl.version >= WAITS_FOR_THE_GONE:
        kubectl("wait", "--for=delete", one, "--timeout=10s")
    missing = kubectl.fails("get", one)
    assert missing == 'Error from server (NotFound): crontabs.stable.example.com "my-new-cron-object" not found\n'


@pytest.mark.rows("KUB-004", "RV-009", "TAB-005")
def test_kubectl_watch_prints_changes(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "my-crontab.yaml")
    watching = kubectl.start("get", "ct", "-w")
    lines = Lines(watching)
    try:
        assert lines.next().split() == ["NAME", "AGE"]
        assert lines.next().startswith("my-new-cron-object")
        kubectl("label", "ct", "my-new-cron-object", "seen=1")
        assert lines.next().startswith("my-new-cron-object")
        kubectl("delete", "ct", "my-new-cron-object")
        assert lines.next().startswith("my-new-cron-object")
    finally:
        watching.kill()
        watching.communicate()


class Lines:
    """The lines of a running command; each is awaited with a time limit."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def next(self) -> str:
        """Return the next line."""
        assert self._process.stdout is not None
        killer = threading.Timer(20, self._process.kill)
        killer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            killer.cancel()
        assert line, "the watch ended or said nothing for 20 s"
        return line


@pytest.mark.rows("KUB-003", "KUB-004")
def test_kubectl_apply_creates_and_configures(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    assert kubectl("apply", "-f", "resourcedefinition.yaml") == f"{CRD} created\n"
    kubectl("wait", "--for=condition=Established", "crd/crontabs.stable.example.com", "--timeout=10s")
    assert kubectl("apply", "-f", "resourcedefinition.yaml") == f"{CRD} unchanged\n"
    assert kubectl("apply", "-f", "my-crontab.yaml") == f"{OBJECT} created\n"
    assert kubectl("apply", "-f", "my-crontab.yaml") == f"{OBJECT} unchanged\n"
    manifest = Path(__file__).with_name("manifests") / "my-crontab.yaml"
    changed = tmp_path / "changed.yaml"
    changed.write_text(manifest.read_text().replace("my-awesome-cron-image", "another-image"))
    assert kubectl("apply", "-f", str(changed)) == f"{OBJECT} configured\n"
    seen = yaml.safe_load(kubectl("get", "ct", "my-new-cron-object", "-o", "yaml"))
    assert seen["spec"] == {"cronSpec": "* * * * */5", "image": "another-image"}
    applied = seen["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"]
    assert applied.endswith('"spec":{"cronSpec":"* * * * */5","image":"another-image"}}\n')


@pytest.mark.rows("KUB-004")
def test_kubectl_edit_updates_an_object(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "my-crontab.yaml")
    edited = kubectl("edit", "ct", "my-new-cron-object", KUBE_EDITOR="sed -i s/my-awesome-cron-image/edited-image/")
    assert edited == f"{OBJECT} edited\n"
    assert kubectl("get", "ct", "my-new-cron-object", "-o", "jsonpath={.spec.image}") == "edited-image"


@pytest.mark.rows("KUB-001", "OAS-008")
def test_kubectl_explain_prints_schema_fields(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    explained = kubectl("explain", "crontab.spec")
    assert "What to run and when." in explained
    assert re.search(r"cronSpec\s+<string>", explained)
    assert re.search(r"replicas\s+<integer>", explained)
    assert "When to run, in crontab form." in kubectl("explain", "ct.spec.cronSpec")


@pytest.mark.rows("KUB-001", "WRI-013")
def test_unknown_fields_are_rejected_or_pruned(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    refused = kubectl.fails("create", "-f", "random-field.yaml")
    if kubectl.version >= SERVER_SIDE_VALIDATION:
        assert 'strict decoding error: unknown field "spec.someRandomField"' in refused
    else:
        assert 'unknown field "someRandomField"' in refused
    shown = yaml.safe_load(kubectl("create", "--validate=false", "-f", "random-field.yaml", "-o", "yaml"))
    assert shown["spec"] == {"cronSpec": "* * * * */5", "image": "my-awesome-cron-image"}


@pytest.mark.rows("KUB-001", "SEL-001", "TAB-002", "SRV-011")
def test_kubectl_uses_columns_selectors_scale_and_categories(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl, "shirts.yaml", "shirts")
    created = kubectl("create", "-f", "some-shirts.yaml")
    assert created.splitlines() == [f"shirt.stable.example.com/example{number} created" for number in (1, 2, 3)]
    rows = [line.split() for line in kubectl("get", "shirts").splitlines()]
    assert rows == [
        ["NAME", "COLOR", "SIZE"],
        ["example1", "blue", "S"],
        ["example2", "blue", "M"],
        ["example3", "green", "M"],
    ]
    assert kubectl("get", "shirts", "-o", "wide").splitlines()[0].split() == ["NAME", "COLOR", "SIZE", "COUNT"]
    blue = kubectl("get", "shirts.stable.example.com", "--field-selector", "spec.color=blue", "-o", "name")
    assert blue.split() == ["shirt.stable.example.com/example1", "shirt.stable.example.com/example2"]
    both = kubectl("get", "shirts", "--field-selector", "spec.color=blue,spec.size=M", "-o", "name")
    assert both == "shirt.stable.example.com/example2\n"
    by_count = kubectl("get", "shirts", "--sort-by=.spec.count", "-o", "name").split()
    assert [name[-1] for name in by_count] == ["2", "1", "3"]
    assert len(kubectl("get", "shirts", "--chunk-size=1", "-o", "name").split()) == 3
    assert "example3" in kubectl("get", "all")
    assert kubectl("scale", "--replicas=7", "shirt/example1") == "shirt.stable.example.com/example1 scaled\n"
    assert kubectl("get", "shirt", "example1", "-o", "jsonpath={.spec.count}") == "7"
    if kubectl.version >= SUBRESOURCES:
        kubectl("patch", "shirt", "example1", "--subresource=status", "--type=merge", "-p", '{"status":{"worn":7}}')
        assert kubectl("get", "shirt", "example1", "--subresource=status", "-o", "jsonpath={.status.worn}") == "7"
    assert kubectl("delete", "shirts", "--all").count("deleted") == 3
    resources = kubectl("api-resources", "--api-group=stable.example.com", "--no-headers")
    assert resources.split()[0] == "shirts"
    assert "stable.example.com/v1" in kubectl("api-versions").split()


@pytest.mark.rows("ERR-04", "ERR-07", "KUB-005")
def test_kubectl_prints_readable_errors(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl, "shirts.yaml", "shirts")
    kubectl("create", "-f", "some-shirts.yaml")
    again = kubectl.fails("create", "-f", "some-shirts.yaml")
    assert 'shirts.stable.example.com "example1" already exists' in again
    wrong = tmp_path / "wrong.yaml"
    shirt = {
        "apiVersion": "stable.example.com/v1",
        "kind": "Shirt",
        "metadata": {"name": "wrong"},
        "spec": {"count": -1},
    }
    wrong.write_text(yaml.safe_dump(shirt))
    invalid = kubectl.fails("create", "--validate=false", "-f", str(wrong))
    assert 'The Shirt "wrong" is invalid' in invalid
    assert "spec.count in body should be greater than or equal to 0" in invalid
    nowhere = kubectl.fails("create", "-n", "nowhere", "-f", "some-shirts.yaml")
    assert 'namespaces "nowhere" not found' in nowhere


@pytest.mark.rows("NSP-001", "NSP-005", "KUB-004")
def test_kubectl_creates_and_deletes_a_namespace(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    name = f"story-{secrets.token_hex(3)}"
    assert kubectl("create", "ns", name) == f"namespace/{name} created\n"
    kubectl("create", "-n", name, "-f", "my-crontab.yaml")
    assert re.search(rf"^{name} +Active", kubectl("get", "ns"), re.M)
    assert kubectl("get", "ct", "-n", "default", "-o", "name") == ""
    assert f'namespace "{name}" deleted' in kubectl("delete", "ns", name, "--timeout=40s")
    assert kubectl("get", "ct", "-A", "-o", "name") == ""


@pytest.mark.rows("DIS-109")
def test_kubectl_prints_the_server_version(kubectl_of: Kubectl) -> None:
    told = yaml.safe_load(kubectl_of("version", "-o", "yaml"))
    assert re.match(r"v1\.\d+\.\d+", told["serverVersion"]["gitVersion"])


@pytest.mark.rows("KUB-004", "WRI-018")
@pytest.mark.parametrize("policy", ["background", "foreground", "orphan"])
def test_kubectl_cascading_delete_completes(kubectl_of: Kubectl, policy: str, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    kubectl("create", "-f", "my-crontab.yaml")
    owner = yaml.safe_load(kubectl("get", "ct/my-new-cron-object", "-o", "yaml"))
    reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "blockOwnerDeletion": True}
    reference |= {name: owner["metadata"][name] for name in ("name", "uid")}
    child = {**owner, "metadata": {"name": "child", "namespace": "default", "ownerReferences": [reference]}}
    (tmp_path / "child.yaml").write_text(yaml.safe_dump(child))
    kubectl("create", "-f", str(tmp_path / "child.yaml"))
    if kubectl.version >= CASCADES:
        kubectl("delete", "ct/my-new-cron-object", f"--cascade={policy}", "--timeout=20s")
    else:
        kubectl("delete", "ct/my-new-cron-object", f"--cascade={str(policy != 'orphan').lower()}", "--timeout=20s")
    if policy == "orphan":
        assert kubectl("get", "ct/child", "-o", "jsonpath={.metadata.ownerReferences}") == ""
        kubectl("delete", "ct/child")
    else:
        until(lambda: not kubectl("get", "ct", "-o", "name"), "the dependent is gone", within=10)
