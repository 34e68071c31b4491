"""The modules that a start imports, and modules that are imported later (decision 36)."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apiext.conformance.support.waiting import until
from tests.support.shared import ROOT

MOST, MOST_OWN = 740, 385  # limits of all modules, and of those of apiext; 717 and 377 with CPython 3.11
LATE = (
    "aiohttp.client", "aiohttp.multipart", "aiohttp.web_fileresponse",
    "aiohttp.web_urldispatcher", "attr", "cryptography", "csv", "ctypes",
    "email.policy", "fractions", "google.protobuf.descriptor_pb2", "google.protobuf.text_format", "http.client",
    "tempfile", "urllib.request", "yaml",
    "apiext.admission.calls", "apiext.admission.hooks", "apiext.admission.mutations", "apiext.admission.policies",
    "apiext.admission.validations", "apiext.admission.webhooks", "apiext.audit.files", "apiext.audit.log",
    "apiext.audit.webhook", "apiext.catalog.admission_cel", "apiext.cel.environment", "apiext.cel.evaluation",
    "apiext.cel.library.standard", "apiext.cel.parser", "apiext.cel.regexes", "apiext.conformance",
    "apiext.crd.validation", "apiext.discovery.openapi_v2", "apiext.discovery.openapi_v3",
    "apiext.discovery.operations", "apiext.documents.yaml_text", "apiext.kms", "apiext.schema.compile",
    "apiext.schema.patterns", "apiext.schema.report", "apiext.schema.rules", "apiext.schema.validate",
    "apiext.testing", "apiext.tools",
)  # fmt: skip
"""Modules and packages that a start does not import."""
GROUP = "example.com"
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"things.{GROUP}"},
    "spec": {
        "group": GROUP,
        "names": {"plural": "things", "kind": "Thing"},
        "scope": "Cluster",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"a": {"type": "integer"}},
                                "x-kubernetes-validations": [{"rule": "self.a < 5"}],
                            }
                        },
                    }
                },
            }
        ],
    },
}
POLICY: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "p"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["things"]}
            ]
        },
        "validations": [{"expression": "object.spec.a < 3"}],
    },
}
BINDING: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": "b"},
    "spec": {"policyName": "p", "validationActions": ["Deny"]},
}


def _thing(name: str, a: int) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"a": a}}


def _imports(tmp_path: Path, use: Callable[[str], None]) -> dict[str, list[str]]:
    """Run a server and use it; return its imports: "start", "loop" and "threads" → modules."""
    report, ready = tmp_path / "imports.json", tmp_path / "ready"
    ready.unlink(missing_ok=True)
    flags = ["--insecure", "--port=0", f"--data-dir={tmp_path / 'data'}", "--quiet"]
    command = [sys.executable, "-m", "tests.support.imports", str(report), str(ready), *flags]
    with subprocess.Popen(command, cwd=ROOT) as server:
        try:
            until(lambda: ready.exists() or server.poll() is not None or None, "a server that is ready")
            use(json.loads(ready.read_text())["url"])
        finally:
            server.send_signal(signal.SIGTERM)
        assert server.wait(30) == 0
    found: dict[str, list[str]] = json.loads(report.read_text())
    return found


def _post(url: str, path: str, document: dict[str, Any]) -> int:
    body = json.dumps(document).encode()
    request = urllib.request.Request(url + path, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_plain_start_imports_few_modules(tmp_path: Path) -> None:
    modules = _imports(tmp_path, lambda url: None)["start"]
    early = [name for name in modules if name.startswith(tuple(f"{late}." for late in LATE)) or name in LATE]
    assert early == []
    own = [name for name in modules if name.partition(".")[0] == "apiext"]
    assert len(modules) <= MOST
    assert len(own) <= MOST_OWN


def test_write_does_not_import_unconfigured_admission_plugins(tmp_path: Path) -> None:
    def use(url: str) -> None:
        for name in ("a", "b"):
            document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            assert _post(url, "/api/v1/namespaces", document) == 201

    found = _imports(tmp_path, use)
    plugins = [f"apiext.admission.{name}" for name in ("webhooks", "mutating_policies", "validating_policies")]
    assert not {*found["threads"], *found["loop"]}.intersection(plugins)


def test_slow_modules_are_imported_in_threads(tmp_path: Path) -> None:
    """Threads import slow modules, and the event loop does not.

    These are the modules of definitions, schemas, CEL and policies.
    """
    things, policies = f"/apis/{GROUP}/v1/things", "/apis/admissionregistration.k8s.io/v1"

    def use(url: str) -> None:
        assert _post(url, f"{policies}/validatingadmissionpolicies", POLICY) == 201
        assert _post(url, f"{policies}/validatingadmissionpolicybindings", BINDING) == 201
        assert _post(url, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", DEFINITION) == 201
        until(lambda: _post(url, things, _thing("a", 4)) == 422 or None, "a denial")
        assert _post(url, things, _thing("b", 1)) == 201

    def use_again(url: str) -> None:
        until(lambda: _post(url, things, _thing("b", 1)) == 409 or None, "a served definition")
        assert _post(url, things, _thing("a", 4)) == 422
        with urllib.request.urlopen(url + things, timeout=30) as answer:
            assert len(json.load(answer)["items"]) == 1

    first, second = _imports(tmp_path, use), _imports(tmp_path, use_again)
    assert {"apiext.crd.validation", "apiext.schema.compile", "apiext.cel.environment"} <= set(first["threads"])
    for found in (first, second):
        assert "apiext.admission.validating_policies" in found["threads"]
        assert [name for name in found["loop"] if name.startswith("apiext.")] == []


def test_kinds_without_expressions_import_no_cel() -> None:
    """The event loop imports the rules of a built-in kind at its first write, except those of
    admissionregistration.k8s.io."""
    with_expressions = {"admissionregistration", "admission_rules", "mutations", "policies", "policy_rules"}
    names = {path.stem for path in (ROOT / "apiext" / "catalog" / "builtin").glob("*.py")} - {"__init__"}
    assert with_expressions < names
    imported = ", ".join(f"apiext.catalog.builtin.{name}" for name in sorted(names - with_expressions))
    code = f"import sys, {imported}; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = set(ended.stdout.split())
    assert "apiext.catalog.builtin.workload_rules" in modules
    assert modules.isdisjoint({"apiext.cel.environment", "apiext.cel.parser", "apiext.cel.library.standard"})
