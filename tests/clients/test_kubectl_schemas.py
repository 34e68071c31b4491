"""The examples of schemas in the Kubernetes documentation, applied with one kubectl.

The test applies them as a new user would.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.waiting import until
from tests.clients.conftest import KUBECTLS
from tests.clients.kubectl import MANIFESTS, Kubectl

pytestmark = pytest.mark.usefixtures("clean")

NAME = "crontabs.stable.example.com"
NAMES = {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]}
ROOT = "spec.validation.openAPIV3Schema"
REFUSED = yaml.safe_load((MANIFESTS / "refused-schemas.yaml").read_text())
GOOD = {case["name"]: case for case in yaml.safe_load((MANIFESTS / "good-schemas.yaml").read_text())}
ALSO_WITH_AN_OLD_ONE = ("the chapter on validation", "the chapter on defaulting")
VERSIONS = sorted((tuple(map(int, version.split("."))), version) for version in KUBECTLS)
NEWEST = VERSIONS[-1][1] if VERSIONS else ""
OLD = next((name for version, name in VERSIONS if version[:2] == (1, 20)), "")


def user(version: str, kubeconfig: str, home: Path) -> Kubectl:
    """Return the kubectl of a version for the server, with its own home directory."""
    if not version:
        pytest.skip("no such kubectl on this machine: put one on PATH or name some in KUBECTL_PATHS")
    return Kubectl(KUBECTLS[version], tuple(map(int, version.split("."))), kubeconfig, home)


@pytest.fixture
def newest(kubeconfig: str, tmp_path: Path) -> Kubectl:
    """The newest installed kubectl."""
    return user(NEWEST, kubeconfig, tmp_path)


def write(kubectl: Kubectl, documents: list[Any]) -> str:
    """Write a manifest into the home directory; return its path."""
    path = kubectl.home / f"{secrets.token_hex(4)}.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def definition(schema: dict[str, Any], version: str = "v1") -> dict[str, Any]:
    """Return the definition of crontabs with a schema, in v1 or v1beta1."""
    spec: dict[str, Any] = {"group": "stable.example.com", "scope": "Namespaced", "names": NAMES}
    one = {"name": "v1", "served": True, "storage": True}
    if version == "v1":
        spec["versions"] = [one | {"schema": {"openAPIV3Schema": schema}}]
    else:
        spec |= {"versions": [one], "validation": {"openAPIV3Schema": schema}}
    kind = "CustomResourceDefinition"
    return {
        "apiVersion": f"apiextensions.k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": NAME},
        "spec": spec,
    }


def define(kubectl: Kubectl, schema: dict[str, Any], *options: str) -> None:
    kubectl("apply", *options, "-f", write(kubectl, [definition(schema)]))
    kubectl("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=10s")


def crontab(content: dict[str, Any], name: str) -> dict[str, Any]:
    return {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}, **content}


def contents(kubectl: Kubectl) -> dict[str, Any]:
    """Return name → fields of every crontab without apiVersion, kind and metadata."""
    items = yaml.safe_load(kubectl("get", "ct", "-o", "yaml"))["items"]
    return {
        item["metadata"]["name"]: {key: item[key] for key in item.keys() - {"apiVersion", "kind", "metadata"}}
        for item in items
    }


@pytest.mark.rows(
    "STR-002", "STR-004", "STR-005", "STR-006", "STR-008", "STR-009", "STR-010", "SCH-001", "SCH-003", "SCH-004",
    "DEF-001", "DEF-002", "CEL-001", "CEL-008", "CEL-012", "DIS-03", "DIS-04", "DIS-07",
)  # fmt: skip
@pytest.mark.parametrize("case", REFUSED, ids=[case["name"] for case in REFUSED])
def test_invalid_schema_is_rejected(newest: Kubectl, case: dict[str, Any]) -> None:
    said = newest.fails("apply", "-f", write(newest, [definition(case["schema"])]))
    for phrase in case["says"]:
        assert phrase.replace("ROOT", ROOT) in said
    assert newest("get", "crd", NAME, "--ignore-not-found") == ""


@pytest.mark.rows(
    "PRU-001", "PRU-003", "NUL-001", "NUL-002", "STR-007", "STR-008", "CEL-002", "CEL-003", "CEL-004", "CEL-009",
    "DIS-01", "DIS-02", "DIS-06", "DIS-19",
)  # fmt: skip
@pytest.mark.parametrize(
    ("name", "version"), [(name, NEWEST) for name in GOOD] + [(name, OLD) for name in ALSO_WITH_AN_OLD_ONE]
)
def test_documented_schema_validates_prunes_and_defaults(
    name: str, version: str, kubeconfig: str, tmp_path: Path
) -> None:
    kubectl = user(version, kubeconfig, tmp_path)
    case = GOOD[name]
    define(kubectl, case["schema"])
    objects = {f"example-{number}": given for number, given in enumerate(case["objects"])}
    documents = [crontab(given["give"], key) for key, given in objects.items()]
    ended = kubectl.run("create", "--validate=false", "-f", write(kubectl, documents))
    good = {key: given.get("becomes", given["give"]) for key, given in objects.items() if "refused" not in given}
    assert contents(kubectl) == good, ended.stderr
    # kubectl prints several lines for one refused object, and one line each for several
    said = re.split(r'CronTab(?:\.stable\.example\.com)? "(\S+)" is invalid: ', ended.stderr)
    refusals = dict(zip(said[1::2], said[2::2], strict=True))
    assert refusals.keys() == objects.keys() - good.keys()
    for key, refusal in refusals.items():
        for phrase in objects[key]["refused"]:
            assert phrase in refusal


@pytest.mark.rows("DIS-11", "WRI-013")
def test_unions_extension_is_an_unknown_field(newest: Kubectl) -> None:
    schema = {
        "type": "object",
        "x-kubernetes-unions": [
            {"discriminator": "type", "fields": {"emptyDir": "EmptyDir", "hostPath": "HostPath"}},
        ],
        "properties": {
            "type": {"type": "string", "enum": ["EmptyDir", "HostPath"]},
            "emptyDir": {"type": "object"},
            "hostPath": {
                "type": "object",
                "properties": {"path": {"type": "string", "pattern": "/.*"}},
                "required": ["path"],
            },
            "sharedField": {"type": "string"},
        },
        "required": ["sharedField"],
    }
    refused = newest.fails("apply", "-f", write(newest, [definition(schema)]))
    assert 'unknown field "spec.versions[0].schema.openAPIV3Schema.x-kubernetes-unions"' in refused
    define(newest, schema, "--validate=warn")
    stored = yaml.safe_load(newest("get", "crd", NAME, "-o", "yaml"))["spec"]["versions"][0]["schema"]
    assert stored == {"openAPIV3Schema": {key: schema[key] for key in ("type", "properties", "required")}}
    volume = {"type": "HostPath", "hostPath": {"path": "/tmp"}, "sharedField": "x"}
    newest("create", "-f", write(newest, [crontab(volume, "volume")]))
    wrong = {"type": "Other", "hostPath": {}}
    said = newest.fails("create", "-f", write(newest, [crontab(wrong, "wrong")]))
    assert 'type: Unsupported value: "Other": supported values: "EmptyDir", "HostPath"' in said
    assert "hostPath.path: Required value" in said
    assert "sharedField: Required value" in said


@pytest.mark.rows("CEL-008", "CEL-009")
def test_transition_rule_rejects_a_direct_transition(newest: Kubectl) -> None:
    rule = "!(self == 'high' && oldSelf == 'low') && !(self == 'low' && oldSelf == 'high')"
    message = "cannot transition directly between 'low' and 'high'"
    level = {
        "type": "string",
        "enum": ["low", "medium", "high"],
        "x-kubernetes-validations": [{"rule": rule, "message": message}],
    }
    define(newest, {"type": "object", "properties": {"level": level}})
    newest("apply", "-f", write(newest, [crontab({"level": "low"}, "one")]))
    said = newest.fails("apply", "-f", write(newest, [crontab({"level": "high"}, "one")]))
    assert said.endswith(f'is invalid: level: Invalid value: "high": {message}\n')
    for level_now in ("medium", "high"):
        newest("apply", "-f", write(newest, [crontab({"level": level_now}, "one")]))
    assert contents(newest) == {"one": {"level": "high"}}


@pytest.mark.rows("B1-002", "B1-004", "B1-007", "DIS-05", "DIS-12", "CND-007")
def test_v1beta1_schema_may_be_non_structural(newest: Kubectl) -> None:
    avoided = next(case["schema"] for case in REFUSED if case["name"] == "the non-structural schema of the KEP")
    newest("apply", "-f", write(newest, [definition(avoided, "v1beta1")]))
    newest("wait", "--for=condition=NonStructuralSchema", f"crd/{NAME}", "--timeout=10s")
    stored = yaml.safe_load(newest("get", "crd", NAME, "-o", "yaml"))
    told = next(one for one in stored["status"]["conditions"] if one["type"] == "NonStructuralSchema")
    assert (told["status"], told["reason"]) == ("True", "Violations")
    assert "properties[bar].type: Required value: must not be empty for specified object fields" in told["message"]
    newest("wait", "--for=condition=Established", f"crd/{NAME}", "--timeout=10s")
    content = {"foo": "abc", "bar": "any text", "more": {"a": 1}}
    newest("create", "-f", write(newest, [crontab(content, "one")]))
    assert contents(newest) == {"one": content}
    said = newest.fails("create", "-f", write(newest, [crontab({"foo": "abc", "bar": 50}, "two")]))
    assert "must validate at least one schema (anyOf)" in said


@pytest.mark.rows("CEL-008", "CEL-012")
def test_documented_transition_rules_validate_updates(newest: Kubectl) -> None:
    members = {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "set"}
    properties: dict[str, Any] = {
        "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]},
        "once": {"type": "string", "x-kubernetes-validations": [{"rule": "oldSelf != 'bar' || self == 'bar'"}]},
        "growing": {
            **members,
            "items": {"type": "string", "maxLength": 9},
            "x-kubernetes-validations": [{"rule": "oldSelf.all(element, element in self)"}],
        },
        "state": {"type": "string", "x-kubernetes-validations": [{"rule": "oldSelf != 'X' || self in ['A', 'B']"}]},
        "counter": {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
    }
    kept = [{"rule": "!has(oldSelf.fixed) || has(self.fixed)"}]
    define(newest, {"type": "object", "properties": properties, "x-kubernetes-validations": kept})
    first = {"fixed": "a", "once": "bar", "growing": ["a"], "state": "X", "counter": 1}
    newest("apply", "-f", write(newest, [crontab(first, "one")]))
    wrong = {"fixed": "b", "once": "foo", "growing": ["b"], "state": "C", "counter": 0}
    said = newest.fails("apply", "-f", write(newest, [crontab(wrong, "one")]))
    assert said.count("failed rule:") == len(properties)
    lost = {key: value for key, value in first.items() if key != "fixed"}
    assert kept[0]["rule"] in newest.fails("apply", "-f", write(newest, [crontab(lost | {"state": "A"}, "one")]))
    then = first | {"growing": ["b", "a"], "state": "B", "counter": 2}
    newest("apply", "-f", write(newest, [crontab(then, "one")]))
    assert contents(newest) == {"one": then}


@pytest.mark.rows("NUL-005", "NUL-006")
def test_stored_objects_are_read_with_defaults(newest: Kubectl) -> None:
    replicas = {"type": "integer", "minimum": 1}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"replicas": replicas}}}}
    define(newest, schema)
    newest("apply", "-f", write(newest, [crontab({"spec": {}}, "one")]))
    newest("apply", "-f", write(newest, [crontab({"spec": {}}, "two")]))
    replicas["default"] = 2
    define(newest, schema)
    until(lambda: contents(newest)["one"] == {"spec": {"replicas": 2}}, "the default is shown", within=10)
    newest("label", "ct/one", "written=yes")
    del replicas["default"]
    define(newest, schema)
    until(lambda: contents(newest)["two"] == {"spec": {}}, "the default is gone", within=10)
    assert contents(newest) == {"one": {"spec": {"replicas": 2}}, "two": {"spec": {}}}


@pytest.mark.rows("DIS-07", "WRI-013")
def test_unknown_schema_fields_are_pruned_with_a_warning(newest: Kubectl) -> None:
    unknown = {"readOnly": True, "writeOnly": True, "deprecated": True, "xml": {"name": "a"}}
    unknown["discriminator"] = {"propertyName": "a"}
    schema = {"type": "object", "properties": {"a": {"type": "string", **unknown}}}
    ended = newest.run("apply", "--validate=warn", "-f", write(newest, [definition(schema)]))
    assert ended.stdout == f"customresourcedefinition.apiextensions.k8s.io/{NAME} created\n"
    for name in unknown:
        assert f'unknown field "spec.versions[0].schema.openAPIV3Schema.properties.a.{name}"' in ended.stderr
    assert newest("get", "crd", NAME, "-o", "jsonpath={.spec.versions[0].schema.openAPIV3Schema.properties.a}") == (
        '{"type":"string"}'
    )


@pytest.mark.rows("OAS-004")
def test_openapi_v3_publishes_expanded_extensions(newest: Kubectl) -> None:
    either = {"x-kubernetes-int-or-string": True}
    patterns = [{"minimum": 42, "maximum": 50}, {"minimum": 52, "maximum": 60}]
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    define(newest, {"type": "object", "properties": {"a": either, "b": either | {"anyOf": patterns}, "c": embedded}})
    types = [{"type": "integer"}, {"type": "string"}]

    def published() -> dict[str, Any]:
        document = yaml.safe_load(newest("get", "--raw", "/openapi/v3/apis/stable.example.com/v1"))
        model = document["components"]["schemas"]["com.example.stable.v1.CronTab"]
        return dict(model["properties"])

    until(lambda: "a" in published(), "the schema is published", within=10)
    shown = published()
    assert shown["a"] == either | {"anyOf": types}
    # the KEP has an example with one allOf instead of two keywords; the meaning is the same
    assert shown["b"] == either | {"allOf": [{"anyOf": types}], "anyOf": patterns}
    assert shown["c"]["properties"].keys() == {"apiVersion", "kind", "metadata"}
    assert sorted(shown["c"]["required"]) == ["apiVersion", "kind"]


@pytest.mark.rows("DIS-19")
def test_message_expression_is_accepted_with_a_warning(newest: Kubectl) -> None:
    ended = newest.run("apply", "-f", write(newest, [definition(GOOD["a message that is computed"]["schema"])]))
    assert ended.stdout == f"customresourcedefinition.apiextensions.k8s.io/{NAME} created\n"
    assert ended.stderr.startswith("Warning: ")
    assert "messageExpression" in ended.stderr
