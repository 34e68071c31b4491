"""Definitions in v1beta1: apply, defaults, and the objects of such definitions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import condition, fresh_group, is_true
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, Answer, Client
from apiext.conformance.support.waiting import until
from tests.support import shared
from tests.support.processes import Etcd, Server, running_server

pytestmark = pytest.mark.differs("apiextensions.k8s.io/v1beta1 is not served any more")
OLD = DEFINITIONS.replace("/v1/", "/v1beta1/")
WARNING = (
    '299 - "apiextensions.k8s.io/v1beta1 CustomResourceDefinition is deprecated in v1.16+, unavailable in v1.22+; '
    'use apiextensions.k8s.io/v1 CustomResourceDefinition"'
)
CASES = {
    case["name"]: case["definition"]
    for case in read_yaml(Path(__file__).with_name("manifests").joinpath("versions.yaml"))
}
REAL = sorted(found.glob("*/*.yaml")) if (found := shared.shared("data/real/v1beta1", 17)) else []
PREFIX = "/old"


@pytest.fixture(scope="module")
def old_writers(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Server]:
    """A server on the shared etcd, in which tests write old definitions."""
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={PREFIX}"]
    with running_server(flags, tmp_path_factory.mktemp("old-writers")) as server:
        yield server


def v1beta1_definition(group: str, **spec: Any) -> dict[str, Any]:
    """Return a minimal v1beta1 definition of widgets with one version."""
    names = {"plural": "widgets", "kind": "Widget"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "names": names, **({} if "versions" in spec else {"version": "v1"}), **spec},
    }


def wait_for_established(api: Client, name: str) -> dict[str, Any]:
    """Wait until a definition is established; return its v1 form."""

    def seen() -> dict[str, Any] | None:
        found: dict[str, Any] = api.get(f"{DEFINITIONS}/{name}").expect(200)
        return found if is_true(found, "Established") else None

    return until(seen, f"{name} is established", within=15)


def create_definition(api: Client, wanted: dict[str, Any]) -> dict[str, Any]:
    """Create a v1beta1 definition and wait until it is established.

    Return the response to the create.
    """
    created: dict[str, Any] = api.post(OLD, wanted).expect(201)
    wait_for_established(api, wanted["metadata"]["name"])
    return created


def causes(answer: Answer) -> list[str]:
    """Return the causes as `field: message`, sorted."""
    return sorted(f"{it['field']}: {it['message']}" for it in answer.expect(422)["details"]["causes"])


@pytest.mark.rows("B1-001", "DIS-12")
def test_v1beta1_can_be_disabled(reference_server: Server) -> None:
    api = Client(reference_server.url)
    for answer in (api.get(OLD), api.post(OLD, v1beta1_definition(fresh_group()))):
        assert answer.expect(404)["message"] == "the server could not find the requested resource"
    assert api.get("/apis/apiextensions.k8s.io/v1beta1").status == 404
    versions = api.get("/apis/apiextensions.k8s.io").expect(200)["versions"]
    assert [version["version"] for version in versions] == ["v1"]


@pytest.mark.rows("B1-002", "DIS-12")
def test_both_versions_are_served_and_v1_is_preferred(api: Client) -> None:
    found = api.get("/apis/apiextensions.k8s.io").expect(200)
    assert [version["version"] for version in found["versions"]] == ["v1", "v1beta1"]
    assert found["preferredVersion"]["version"] == "v1"
    assert {it["name"] for it in api.get("/apis/apiextensions.k8s.io/v1beta1").expect(200)["resources"]} == {
        "customresourcedefinitions",
        "customresourcedefinitions/status",
    }


@pytest.mark.rows("B1-003", "CRD-002", "CRD-022")
def test_v1beta1_definition_gets_defaults(api: Client) -> None:
    first = v1beta1_definition(fresh_group())
    created = create_definition(api, first)
    names = {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"}
    assert created["spec"] == {
        "group": first["spec"]["group"],
        "version": "v1",
        "names": names,
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True}],
        "conversion": {"strategy": "None"},
        "preserveUnknownFields": True,
    }
    assert created["status"]["storedVersions"] == ["v1"]
    second = v1beta1_definition(
        fresh_group(), versions=[{"name": "v2", "served": True, "storage": True}], scope="Cluster"
    )
    assert create_definition(api, second)["spec"]["version"] == "v2"
    third = v1beta1_definition(
        fresh_group(), preserveUnknownFields=False, validation={"openAPIV3Schema": {"type": "object"}}
    )
    third["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhookClientConfig": {"service": {"name": "a", "namespace": "b"}},
    }
    conversion = create_definition(api, third)["spec"]["conversion"]
    assert conversion == {
        "strategy": "Webhook",
        "conversionReviewVersions": ["v1beta1"],
        "webhookClientConfig": {"service": {"name": "a", "namespace": "b", "port": 443}},
    }


SCHEMA = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
COLUMNS = [{"name": "A", "type": "string", "JSONPath": ".spec.a"}]
TWO = [{"name": "v1", "served": True, "storage": True}, {"name": "v2", "served": True, "storage": False}]


@pytest.mark.rows("B1-004")
@pytest.mark.parametrize(
    ("above", "below", "words", "value"),
    [
        ("validation", "schema", "schemas", SCHEMA),
        ("subresources", "subresources", "subresources", {"status": {}}),
        ("additionalPrinterColumns", "additionalPrinterColumns", "additionalPrinterColumns", COLUMNS),
    ],
)
def test_top_level_and_per_version_fields_are_exclusive(
    api: Client, above: str, below: str, words: str, value: Any
) -> None:
    group = fresh_group()
    first, second = TWO
    both = api.post(OLD, v1beta1_definition(group, versions=[{**first, below: value}, second], **{above: value}))
    assert causes(both) == [f"spec.{above}: Forbidden: top-level and per-version {words} are mutually exclusive"]
    same = api.post(OLD, v1beta1_definition(group, versions=[{**first, below: value}, {**second, below: value}]))
    [told] = causes(same)
    assert told.startswith("spec.versions: Invalid value: [")
    assert told.endswith(
        f": per-version {words} may not all be set to identical values (top-level {above} should be used instead)"
    )
    create_definition(api, v1beta1_definition(group, versions=TWO, **{above: value}))
    v1 = api.get(f"{DEFINITIONS}/widgets.{group}").expect(200)["spec"]["versions"]
    in_v1 = [{**column, "jsonPath": column["JSONPath"]} for column in COLUMNS] if value is COLUMNS else value
    for column in in_v1 if value is COLUMNS else ():
        del column["JSONPath"]
    assert [version[below] for version in v1] == [in_v1, in_v1]


@pytest.mark.rows("B1-004", "CRD-038", "CRD-035")
def test_v1beta1_definition_is_validated(api: Client) -> None:
    group = fresh_group()
    wrong = v1beta1_definition(group, versions=TWO, version="v2")
    assert causes(api.post(OLD, wrong)) == [
        'spec.version: Invalid value: "v2": must match the first version in spec.versions'
    ]
    loose = {"openAPIV3Schema": {"properties": {"a": {"description": "no type"}}}}
    pruned = causes(api.post(OLD, v1beta1_definition(group, validation=loose, preserveUnknownFields=False)))
    assert [text.partition(":")[0] for text in pruned] == [
        "spec.validation.openAPIV3Schema.properties[a].type",
        "spec.validation.openAPIV3Schema.type",
    ]
    no_schema = causes(api.post(OLD, v1beta1_definition(group, preserveUnknownFields=False)))
    assert no_schema == [
        "spec.versions[0].schema.openAPIV3Schema: Required value: because otherwise all fields are pruned"
    ]
    defaults = {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}}
    assert causes(api.post(OLD, v1beta1_definition(group, validation=defaults))) == [
        "spec.preserveUnknownFields: Invalid value: true: must be false in order to use defaults in the schema"
    ]
    webhook = {"strategy": "Webhook", "webhookClientConfig": {"url": "https://example.com/"}}
    assert causes(api.post(OLD, v1beta1_definition(group, conversion=webhook))) == [
        'spec.conversion.strategy: Invalid value: "Webhook": must be None if spec.preserveUnknownFields is true'
    ]
    protected = f"{group}.k8s.io"
    create_definition(api, v1beta1_definition(protected))  # only v1 requires the approval, but the condition reports it
    told = until(
        lambda: condition(api.get(f"{DEFINITIONS}/widgets.{protected}").json, "KubernetesAPIApprovalPolicyConformant"),
        "the approval is judged",
    )
    assert (told["status"], told["reason"]) == ("False", "MissingAnnotation")


@pytest.mark.rows("B1-005", "WRI-014")
def test_each_v1beta1_response_has_deprecation_warning(api: Client) -> None:
    name = f"{OLD}/widgets.{(group := fresh_group())}"
    created = api.post(OLD, v1beta1_definition(group))
    answers = [
        created, api.get(name), api.get(OLD), api.put(name, api.get(name).json),
        api.patch(name, {"metadata": {"labels": {"a": "b"}}}), api.get(f"{name}/status"), api.delete(name),
    ]  # fmt: skip
    assert [answer.warnings for answer in answers] == [[WARNING]] * len(answers)
    assert api.get(DEFINITIONS).warnings == []


@pytest.mark.rows("B1-002", "B1-003", "B1-004", "VER-001")
@pytest.mark.parametrize("name", CASES)
def test_documented_definitions_are_created_and_served(api: Client, name: str) -> None:
    group, wanted = fresh_group(), json.loads(json.dumps(CASES[name]))
    wanted["metadata"]["name"] = f"crontabs.{group}"
    wanted["spec"]["group"] = group
    version = wanted["apiVersion"].rpartition("/")[2]
    path = DEFINITIONS.replace("/v1/", f"/{version}/")
    created = api.post(path, yaml.safe_dump(wanted), {"Content-Type": "application/yaml"}).expect(201)
    for key in wanted["spec"].keys() - {"conversion", "names"}:
        assert created["spec"][key] == wanted["spec"][key]
    wait_for_established(api, wanted["metadata"]["name"])
    served = {it["name"] for it in wanted["spec"]["versions"] if it["served"]}
    told = api.get(f"/apis/{group}").expect(200)
    assert [it["version"] for it in told["versions"]] == [it for it in ("v1", "v1beta1", "v1alpha1") if it in served]
    assert told["preferredVersion"]["version"] == "v1"
    storage = next(it["name"] for it in wanted["spec"]["versions"] if it["storage"])
    crontab = {"apiVersion": f"{group}/{storage}", "kind": "CronTab", "metadata": {"name": "local-crontab"}}
    content = {"hostPort": "localhost:1234"} if "webhook" in name else {"host": "localhost", "port": "1234"}
    api.post(f"/apis/{group}/{storage}/namespaces/default/crontabs", crontab | content).expect(201)
    versions = {storage} if "webhook" in name else served
    for each in versions:
        shown = api.get(f"/apis/{group}/{each}/namespaces/default/crontabs/local-crontab").expect(200)
        assert shown["apiVersion"] == f"{group}/{each}"
        assert {key: shown[key] for key in content} == content


@pytest.mark.skipif(not REAL, reason="the real definitions are not beside the checkout")
@pytest.mark.rows("B1-002", "B1-004", "B1-007")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_definition_is_created_and_served(api: Client, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    wanted = yaml.safe_load(text)
    name, spec = wanted["metadata"]["name"], wanted["spec"]
    created = api.post(OLD, text, {"Content-Type": "application/yaml"}).expect(201)
    try:
        for key in spec.keys() & {"group", "version", "versions", "subresources", "additionalPrinterColumns"}:
            assert created["spec"][key] == spec[key]
        wait_for_established(api, name)
        unchanged = until(lambda: _written_back(api, name), "no controller writes to it any more")
        assert unchanged["metadata"]["generation"] == 1
        old_again = api.get(f"{OLD}/{name}").expect(200)
        assert old_again["spec"] == created["spec"]
        versions = [it["name"] for it in created["spec"]["versions"] if it["served"]]
        for version in versions:
            listed = api.get(f"/apis/{spec['group']}/{version}/{spec['names']['plural']}").expect(200)
            assert (listed["apiVersion"], listed["items"]) == (f"{spec['group']}/{version}", [])
            document = api.get(f"/openapi/v3/apis/{spec['group']}/{version}").expect(200)
            assert any(spec["names"]["plural"] in it for it in document["paths"])
    finally:
        api.delete(f"{OLD}/{name}")
        until(lambda: api.get(f"{OLD}/{name}").status == 404, f"{name} is gone", within=15)


@pytest.mark.rows("B1-006", "CND-007", "ETC-006")
def test_definition_of_an_old_server_keeps_unknown_fields(old_writers: Server, own_etcd: Etcd) -> None:
    api, group = Client(old_writers.url), fresh_group()
    written = v1beta1_definition(
        group, scope="Namespaced", validation={"openAPIV3Schema": {"properties": {"a": {"minimum": 3}}}}
    )
    written["spec"]["names"] |= {"singular": "widget", "listKind": "WidgetList"}
    written["metadata"] |= {"uid": f"{group}-uid", "creationTimestamp": "2018-01-01T00:00:00Z"}
    written["status"] = {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}
    key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/widgets.{group}"
    own_etcd.call("kv/put", {"key": _base64(key), "value": _base64(json.dumps(written))})
    until(lambda: api.get(f"{DEFINITIONS}/widgets.{group}").status == 200, "the definition is seen")
    shown = wait_for_established(api, f"widgets.{group}")
    assert shown["apiVersion"] == "apiextensions.k8s.io/v1"
    assert shown["spec"]["preserveUnknownFields"] is True
    assert shown["spec"]["versions"] == [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"properties": {"a": {"minimum": 3}}}},
        }
    ]
    told = until(
        lambda: condition(api.get(f"{DEFINITIONS}/widgets.{group}").json, "NonStructuralSchema"), "the schema is judged"
    )
    assert (told["status"], told["reason"]) == ("True", "Violations")
    for text in (
        "spec.preserveUnknownFields: Invalid value: true: must be false",
        "spec.versions[0].schema.openAPIV3Schema.type: Required value: must not be empty at the root",
    ):
        assert text in told["message"]
    widget = {
        "apiVersion": f"{group}/v1",
        "kind": "Widget",
        "metadata": {"name": "w"},
        "a": 5,
        "any": [{"thing": None}],
    }
    path = f"/apis/{group}/v1/namespaces/default/widgets"
    assert api.post(path, widget).expect(201)["any"] == [{"thing": None}]
    assert causes(api.post(path, {**widget, "metadata": {"name": "x"}, "a": 2})) == [
        "a: Invalid value: 2: a in body should be greater than or equal to 3"
    ]


@pytest.mark.rows("B1-007", "PRU-006")
def test_objects_are_validated_but_not_pruned(api: Client) -> None:
    group = fresh_group()
    size = {"type": "integer", "maximum": 9}
    create_definition(
        api, v1beta1_definition(group, validation={"openAPIV3Schema": {"type": "object", "properties": {"size": size}}})
    )
    path = f"/apis/{group}/v1/namespaces/default/widgets"
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": 3, "other": {"a": 1}}
    assert api.post(path, widget).expect(201)["other"] == {"a": 1}
    too_big = causes(api.put(f"{path}/w", {**api.get(f"{path}/w").json, "size": 10}))
    assert too_big == ["size: Invalid value: 10: size in body should be less than or equal to 9"]
    applied = {**widget, "metadata": {"name": "applied"}, "deep": {"list": [1, "two"], "null": None}}
    created = api.request(
        "PATCH", f"{path}/applied", applied, {"Content-Type": APPLY}, fieldManager="me", force="true"
    ).expect(201)
    assert created["deep"]["list"] == [1, "two"]
    owned = created["metadata"]["managedFields"][0]["fieldsV1"]
    assert {"f:size", "f:other", "f:deep"} <= owned.keys()


NOT_APPLIED = ".a: expected string, got &value.valueUnstructured{Value:5}"


# upstream: a schema that is not structural is ignored
@pytest.mark.rows("B1-007", "SSA-011")
@pytest.mark.parametrize(
    ("schema", "preserve", "code", "told"),
    [
        ({"properties": {"a": {"type": "string"}, "b": {}}}, True, 422, 'must be of type string: "integer"'),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True, 400, NOT_APPLIED),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, False, 400, NOT_APPLIED),
        ({"type": "object", "properties": {"a": {"type": "strin"}}}, False, 422, 'must be of type strin: "integer"'),
    ],
    ids=["not structural", "preserving", "pruning", "no type"],
)
def test_apply_uses_only_structural_schemas(
    api: Client, schema: dict[str, Any], preserve: bool, code: int, told: str
) -> None:
    group = fresh_group()
    name = create_definition(
        api, v1beta1_definition(group, validation={"openAPIV3Schema": schema}, preserveUnknownFields=preserve)
    )["metadata"]["name"]
    if preserve:  # then the controller compiles the resource again
        until(lambda: condition(api.get(f"{DEFINITIONS}/{name}").json, "NonStructuralSchema"), "the schema is judged")
    widget = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w"}, "a": 5}
    path = f"/apis/{group}/v1/namespaces/default/widgets/w"
    for _ in range(3):
        answer = api.request("PATCH", path, widget, {"Content-Type": APPLY}, fieldManager="me")
        assert answer.expect(code)["message"].endswith(told)


def _written_back(api: Client, name: str) -> dict[str, Any] | None:
    """Read a definition and write it unchanged; None after a conflict."""
    answer = api.put(f"{DEFINITIONS}/{name}", api.get(f"{DEFINITIONS}/{name}").expect(200))
    return answer.expect(200) if answer.status != 409 else None  # type: ignore[no-any-return]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.rows("B1-001", "WRI-004")
@pytest.mark.parametrize("place", [DEFINITIONS, OLD], ids=["v1", "v1beta1"])
def test_put_removes_omitted_fields_in_each_version(api: Client, place: str) -> None:
    name = f"widgets.{(group := fresh_group())}"
    columns = [{"name": "a", "type": "string", "JSONPath": ".spec.a"}]
    create_definition(api, v1beta1_definition(group, additionalPrinterColumns=columns, subresources={"status": {}}))
    for part in ("additionalPrinterColumns", "subresources"):

        def is_written(part: str = part) -> bool:
            shown = api.get(f"{place}/{name}").expect(200)
            of = shown["spec"] if place == OLD else shown["spec"]["versions"][0]
            of.pop(part, None)
            answer = api.put(f"{place}/{name}", shown)
            assert answer.status in (200, 409), answer.text  # 409: a controller has written conditions
            return answer.status == 200

        until(is_written, f"{name} is written without {part}")
        for each in (DEFINITIONS, OLD):
            spec = api.get(f"{each}/{name}").expect(200)["spec"]
            assert part not in spec
            assert part not in spec["versions"][0]
