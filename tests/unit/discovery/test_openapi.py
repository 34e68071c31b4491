"""OpenAPI documents equal recorded documents, and change with the catalog.

They are reduced for v2.
"""

import re
from typing import Any

import orjson
import pytest

from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.compile import compile_definition
from apiext.conformance.support.cases import Case, case_name, load
from apiext.discovery import openapi_v2, openapi_v3
from tests.support.shared import shared
from tests.unit.discovery.messages import open_api
from tests.unit.discovery.served import GADGETS, GROUP, WIDGETS, catalog, definition

PATH = f"apis/{GROUP}/v1"
VERSION = "1.37"
OWN = {"api", "apis", "version"}


def recorded() -> list[Any]:
    """Return the definition, the v3 and the v2 document of the recording.

    Return an empty list without a recording.
    """
    path = shared("data/reference/discovery.json", 2)
    if path is None:
        return []
    scenarios = orjson.loads(path.read_bytes())["scenarios"]
    steps = next(one["steps"] for one in scenarios if one["name"] == "openapi documents")
    return [steps[0]["answer"]["body"], steps[3]["answer"]["body"], steps[4]["answer"]["body"]]


RECORDED = recorded()
needs_recording = pytest.mark.skipif(not RECORDED, reason="the recorded answers are not here")


def as_recorded(body: bytes) -> Any:
    """Return a document in the form of recordings.

    Recordings replace constants that look like addresses.
    """
    return orjson.loads(body.replace(b"0xc000000000000000", b"<addr>"))


def recorded_catalog() -> Any:
    document = RECORDED[0] | {"status": WIDGETS["status"] | {"acceptedNames": RECORDED[0]["spec"]["names"]}}
    return catalog(document)


@needs_recording
@pytest.mark.rows("OAS-002", "OAS-004", "OAS-006", "OAS-007", "OAS-008", "OAS-010", "SEL-004")
def test_v3_document_equals_recording() -> None:
    found = openapi_v3.document(recorded_catalog(), f"apis/{RECORDED[0]['spec']['group']}/v1", VERSION)
    assert found is not None
    assert as_recorded(found.body) == RECORDED[1]


@needs_recording
@pytest.mark.rows("OAS-001", "OAS-005", "OAS-006", "OAS-007", "SEL-004")
def test_v2_document_equals_recording() -> None:
    found = as_recorded(openapi_v2.document(recorded_catalog(), VERSION).body)
    for part in ("paths", "definitions"):  # recordings omit paths of the server itself
        found[part] = {name: value for name, value in found[part].items() if name in RECORDED[2][part]}
    assert found == RECORDED[2]


def published(schema: dict[str, Any], version: str) -> Any:
    """Return the published schema at spec.x."""
    root = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}}
    kind = published_kind(root, version)
    return kind["properties"]["spec"]["properties"]["x"] if "properties" in kind else None


def published_kind(root: dict[str, Any], version: str) -> Any:
    """Return the published schema of the kind."""
    served = catalog(definition("as", "A", [{"name": "v1", "schema": {"openAPIV3Schema": root}}]))
    if version == "v2":
        document = orjson.loads(openapi_v2.document(served, VERSION).body)["definitions"]
    else:
        found = openapi_v3.document(served, PATH, VERSION)
        assert found is not None
        document = orjson.loads(found.body)["components"]["schemas"]
    return document["com.example.stable.v1.A"]


@pytest.mark.rows("OAS-003", "OAS-004", "OAS-005", "OAS-010")
@pytest.mark.parametrize("version", ["v3", "v2"])
@pytest.mark.parametrize("case", load(__file__, "schemas"), ids=case_name)
def test_schemas_are_published_per_openapi_version(case: Case, version: str) -> None:
    assert published(case.given, version) == case[version]


@pytest.mark.rows("OAS-004", "OAS-005")
def test_embedded_resource_publishes_type_and_metadata() -> None:
    given = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"a": {"type": "string"}}}
    for version, metadata in (
        ("v3", {"allOf": [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]}),
        ("v2", {"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}),
    ):
        found = published(given, version)
        assert found["required"] == ["kind", "apiVersion"]
        assert set(found["properties"]) == {"a", "apiVersion", "kind", "metadata"}
        assert metadata.items() <= found["properties"]["metadata"].items()


@pytest.mark.rows("OAS-004", "OAS-005")
@pytest.mark.parametrize("version", ["v3", "v2"])
def test_embedded_root_publishes_like_embedded_field(version: str) -> None:
    below = {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"kind": {"type": "string"}}}
    found, expected = published_kind(below, version), published(below, version)
    assert found.pop("x-kubernetes-group-version-kind")
    assert found == expected
    assert found["properties"]["kind"]["description"].startswith("kind is a string value")


@pytest.mark.rows("OAS-003", "OAS-005")
def test_kind_without_schema_is_published_as_object() -> None:
    kind = {"x-kubernetes-group-version-kind": [{"group": GROUP, "kind": "Widget", "version": "v1"}], "type": "object"}
    found = orjson.loads(openapi_v2.document(catalog(WIDGETS), VERSION).body)
    assert found["definitions"]["com.example.stable.v1.Widget"] == kind
    bare = catalog(definition("widgets", "Widget", [{"name": "v1"}]))
    document = openapi_v3.document(bare, PATH, VERSION)
    assert document is not None
    assert orjson.loads(document.body)["components"]["schemas"]["com.example.stable.v1.Widget"] == kind


@pytest.mark.rows("OAS-003", "OAS-005")
def test_preserve_unknown_fields_publishes_bare_object_in_v2() -> None:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    served = catalog(definition("widgets", "Widget", [{"name": "v1", "schema": schema}], preserveUnknownFields=True))
    name = "com.example.stable.v1.Widget"
    bare = {"type": "object", "x-kubernetes-group-version-kind": [{"group": GROUP, "kind": "Widget", "version": "v1"}]}
    assert orjson.loads(openapi_v2.document(served, VERSION).body)["definitions"][name] == bare
    v3 = openapi_v3.document(served, PATH, VERSION)
    assert v3 is not None
    assert "spec" in orjson.loads(v3.body)["components"]["schemas"][name]["properties"]


@pytest.mark.rows("OAS-007")
def test_cluster_scoped_paths_have_no_namespace() -> None:
    found = openapi_v3.document(catalog(GADGETS), f"apis/{GROUP}/v2", VERSION)
    assert found is not None
    paths = orjson.loads(found.body)["paths"]
    root = f"/apis/{GROUP}/v2/gadgets"
    assert list(paths) == [root, f"{root}/{{name}}"]
    assert paths[root]["get"]["operationId"] == "listStableExampleComV2Gadget"
    assert paths[root]["delete"]["operationId"] == "deleteStableExampleComV2CollectionGadget"
    assert [parameter["name"] for parameter in paths[root]["parameters"]] == ["pretty"]


@pytest.mark.rows("OAS-008")
def test_patch_operations_have_fields_that_kubectl_reads() -> None:
    served = catalog(WIDGETS)
    for resource in builtin_resources(v1beta1=False):
        served = served.with_resource(resource)
    for path in orjson.loads(openapi_v3.index(served, VERSION).body)["paths"]:
        found = openapi_v3.document(served, path, VERSION)
        assert found is not None
        document = orjson.loads(found.body)
        items = [item for item in document["paths"].values() if "patch" in item]
        patches = [item["patch"] for item in items if item["patch"]["x-kubernetes-action"] == "patch"]
        assert patches or path in OWN or not any("{name}" in each for each in document["paths"])
        for patch in patches:
            assert {"dryRun", "fieldValidation"} <= {parameter["name"] for parameter in patch["parameters"]}
            assert {"group", "version", "kind"} == set(patch["x-kubernetes-group-version-kind"])
        for reference in references(document):
            assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]
    v2 = orjson.loads(openapi_v2.document(served, VERSION).body)
    for reference in references(v2):
        _, place, name = reference.split("/")
        assert name in v2[place]


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in references(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [found for item in value.values() for found in references(item)]


@pytest.mark.rows("OAS-001", "OAS-005")
def test_v2_protobuf_has_contents_of_json() -> None:
    served = catalog(WIDGETS, GADGETS)
    document = orjson.loads(openapi_v2.document(served, VERSION).body)
    message = open_api("v2", openapi_v2.protobuf(served, VERSION).body)
    assert (message.swagger, message.info.title, message.info.version) == ("2.0", "Generic API Server", VERSION)
    assert {path.name for path in message.paths.path} == set(document["paths"])
    definitions = {entry.name: entry.value for entry in message.definitions.additional_properties}
    assert set(definitions) == set(document["definitions"])
    assert {entry.name for entry in message.parameters.additional_properties} == set(document["parameters"])
    patch = next(path.value.patch for path in message.paths.path if path.name.endswith("widgets/{name}"))
    inline = [item.parameter.non_body_parameter.query_parameter_sub_schema.name for item in patch.parameters]
    assert "dryRun" in inline
    kind = next(entry for entry in patch.vendor_extension if entry.name == "x-kubernetes-group-version-kind")
    assert kind.value.yaml == f"group: {GROUP}\nkind: Widget\nversion: v1\n"
    meta = definitions["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]
    labels = next(entry.value for entry in meta.properties.additional_properties if entry.name == "labels")
    assert labels.additional_properties.schema.type.value == ["string"]
    owner = next(entry.value for entry in meta.properties.additional_properties if entry.name == "ownerReferences")
    assert owner.items.schema[0]._ref.endswith(".OwnerReference")


@pytest.mark.rows("OAS-002", "OAS-009", "OAS-012")
def test_v3_hashes_change_only_with_published_schema() -> None:
    served = catalog(WIDGETS, GADGETS)
    index = orjson.loads(openapi_v3.index(served, VERSION).body)["paths"]
    assert set(index) - OWN == {f"apis/{GROUP}/{version}" for version in ("v1", "v1beta1", "v2")}
    document = openapi_v3.document(served, PATH, VERSION)
    assert document is not None
    known = openapi_v3.document_tag(served, PATH, VERSION)
    assert document.etag == known
    assert re.fullmatch('"[0-9A-F]{128}"', document.etag)
    assert index[PATH]["serverRelativeURL"] == f"/openapi/v3/{PATH}?hash=" + document.etag.strip('"')
    assert openapi_v3.document_tag(catalog(WIDGETS, GADGETS), PATH, VERSION) == known, "another server says the same"
    written = WIDGETS | {"status": WIDGETS["status"] | {"storedVersions": ["v1", "v1beta1"]}}
    assert openapi_v3.document_tag(catalog(written), PATH, VERSION) == known
    described = definition("widgets", "Widget", [{"name": "v1", "schema": schema_with("one")}])
    again = definition("widgets", "Widget", [{"name": "v1", "schema": schema_with("other")}])
    other = openapi_v3.document_tag(catalog(again), PATH, VERSION)
    assert openapi_v3.document_tag(catalog(described), PATH, VERSION) != other
    assert openapi_v3.document(served.without_resource(GROUP, "widgets"), PATH, VERSION) is None
    assert openapi_v3.document_tag(served, "apis/none/v1", VERSION) is None


def schema_with(description: str) -> dict[str, Any]:
    return {"openAPIV3Schema": {"type": "object", "description": description}}


@pytest.mark.rows("OAS-009")
def test_changed_definition_keeps_parts_of_other_definitions() -> None:
    served = catalog(WIDGETS, GADGETS)
    before = openapi_v3.document(served, f"apis/{GROUP}/v1beta1", VERSION)
    v2 = openapi_v2.document(served, VERSION)
    assert v2.etag == openapi_v2.tag(served, VERSION) == openapi_v2.protobuf(served, VERSION).etag
    assert re.fullmatch('"[0-9A-F]{128}"', v2.etag)
    kept = openapi_v3._PARTS[served.resources[(GROUP, "gadgets")].versions["v1beta1"]]
    changed = served.with_resource(compile_definition(WIDGETS | {"spec": WIDGETS["spec"] | {"scope": "Cluster"}}))
    after = openapi_v3.document(changed, f"apis/{GROUP}/v1beta1", VERSION)
    assert before != after
    assert openapi_v3._PARTS[changed.resources[(GROUP, "gadgets")].versions["v1beta1"]] is kept
    assert after is not None
    assert kept.schemas in after.parts, "what did not change is not even copied"
    assert openapi_v2.document(changed, VERSION).etag != v2.etag


def test_kind_cannot_take_model_name_of_shared_type() -> None:
    name = "meta.apis.pkg.apimachinery.k8s.io"
    greedy = definition("statuses", "Status", [{"name": "v1"}], group=name)
    found = openapi_v3.document(catalog(greedy), f"apis/{name}/v1", VERSION)
    assert found is not None
    schemas = orjson.loads(found.body)["components"]["schemas"]
    shared_name = "io.k8s.apimachinery.pkg.apis.meta.v1.Status"
    assert "message" in schemas[shared_name]["properties"]
    assert schemas[f"{shared_name}_v2"]["type"] == "object"
