"""Answers of kube-apiserver to requests for which random tests had found differences."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, JSON_PATCH, MERGE, TABLE, Answer, Client

TEXT, EITHER = {"type": "string"}, {"x-kubernetes-int-or-string": True}


def schema(spec: dict[str, Any], **properties: Any) -> dict[str, Any]:
    """Return the schema of an object whose spec has these properties."""
    spec_schema = {"type": "object", "properties": spec}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec_schema, **properties}}}


def apply(kind: Resource, manager: str, spec: dict[str, Any], version: str = "v1") -> Answer:
    body = kind.make("x", **spec) | {"apiVersion": f"{kind.group}/{version}"}
    path = kind.path("x").replace("/v1/", f"/{version}/")
    return kind.api.patch(path, body, APPLY, fieldManager=manager, force="true")


@pytest.fixture
def two(api: Client) -> Resource:
    """A kind with a field that is a string in v1, and a number in v2, the storage version."""
    wanted = definition(fresh_group(), schema=schema({"a": TEXT, "b": TEXT}), storage=False)
    newer = {"name": "v2", "served": True, "storage": True, "schema": schema({"a": {"type": "number"}, "b": TEXT})}
    wanted["spec"]["versions"].append(newer)
    return Resource(api, establish(api, wanted)["spec"]["group"], "widgets", "Widget")


@pytest.mark.rows("SSA-011", "SSA-014")
def test_the_error_of_an_apply_names_the_failed_conversion(two: Resource) -> None:
    fault = ".spec.a: expected numeric (int or float), got string"
    apply(two, "m", {"b": "x"}, "v2").expect(201)
    assert apply(two, "n", {"a": "x"}).expect(500)["message"] == f"failed to convert new object: {fault}"
    pruning = "failed to prune fields: failed to convert merged object to last applied version: "
    assert apply(two, "m", {"a": "x"}).expect(500)["message"] == pruning + fault


@pytest.mark.rows("SSA-001", "WRI-006")
def test_a_default_of_the_status_is_stored_by_the_first_update(api: Client) -> None:
    status = {"type": "object", "default": {"a": 1}, "properties": {"a": {"type": "integer"}}}
    widgets = serve(api, schema=schema({"a": TEXT}, status=status), subresources={"status": {}})
    made = apply(widgets, "m", {}).expect(201)
    assert made["status"] == {"a": 1}
    again = api.put(widgets.path("x"), made).expect(200)
    assert again["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
    assert api.put(widgets.path("x"), again).expect(200) == again


@pytest.mark.rows("DEC-001", "WRI-006", "TAB-003")
def test_integers_beyond_int64_are_floats_in_the_store_too(api: Client) -> None:
    columns = [{"name": kind, "type": kind, "jsonPath": ".spec.a"} for kind in ("integer", "string")]
    widgets = serve(api, schema=schema({"a": {"type": "number"}}), additionalPrinterColumns=columns)
    made = widgets.create("x", a=2**63)
    assert api.put(widgets.path("x"), made).expect(200) == made
    assert api.patch(widgets.path("x"), {"spec": {"a": 2**63}}, MERGE).expect(200) == made
    # upstream: Go converts numbers beyond int64 to the smallest int64
    (row,) = api.get(widgets.path(), {"Accept": TABLE}).expect(200)["rows"]
    assert row["cells"] == ["x", -(2**63), "9.223372036854776e+18"]


@pytest.mark.rows("DEF-001")
@pytest.mark.parametrize(
    "field",
    [
        {**EITHER, "default": True},
        {"type": "array", "items": EITHER, "default": [None, 1.5]},
        {"type": "object", "additionalProperties": EITHER, "default": {"a": []}},
    ],
)
def test_defaults_of_int_or_string_may_have_any_type(api: Client, field: dict[str, Any]) -> None:
    api.post(DEFINITIONS, definition(fresh_group(), schema=schema({"a": field})), dryRun="All").expect(201)


@pytest.mark.rows("NEG-001")
def test_the_yaml_of_a_list_folds_long_lines(api: Client) -> None:
    widgets = serve(api)
    widgets.create("x", color="word " * 30 + "end\n\n  more\n", note="word " * 30 + "end")
    lines = api.get(widgets.path(), {"Accept": "application/yaml"}).text.splitlines()
    start = lines.index("  spec:")
    assert lines[start + 1 : start + 7] == [
        "    color: |",
        "      " + "word " * 30 + "end",
        "",
        "        more",
        "    note: " + " ".join(["word"] * 15),
        "      " + " ".join(["word"] * 15) + " end",
    ]


@pytest.mark.rows("SRV-005", "RAT-001")
def test_an_applied_null_status_of_an_object_without_a_status(api: Client) -> None:
    status = {"type": "object", "properties": {"a": TEXT}}
    widgets = serve(api, schema=schema({"a": TEXT}, status=status), subresources={"status": {}})
    apply(widgets, "m", {}).expect(201)
    path = f"{widgets.path('x')}/status"

    def write(value: Any) -> Answer:
        body = {name: part for name, part in widgets.make("x").items() if name != "spec"} | {"status": value}
        return api.patch(path, body, APPLY, fieldManager="m")

    # upstream: a null status does not change an object without a status
    write(None).expect(200)
    write({"a": "x"}).expect(200)
    refused = write(None).expect(422)["message"]
    assert refused.endswith('status: Invalid value: "null":  in body must be of type object: "null"')


@pytest.mark.rows("WRI-013", "MET-004")
def test_unknown_metadata_of_an_embedded_root_is_reported_twice(api: Client) -> None:
    inner = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}
    widgets = serve(api, schema={"openAPIV3Schema": {**inner, "properties": {"inner": inner}}})
    metadata = {"name": "x", "zz": 1}
    body = {**widgets.make("x"), "metadata": metadata, "inner": {"apiVersion": "v1", "kind": "P", "metadata": metadata}}
    refused = api.post(widgets.path(), body, fieldValidation="Strict").expect(400)["message"]
    fields = ("metadata.zz", "inner.metadata.zz", "metadata.zz")
    assert refused.endswith("strict decoding error: " + ", ".join(f'unknown field "{name}"' for name in fields))


def refused_causes(api: Client, **version: Any) -> dict[str, str]:
    """Return path → error for a definition with these fields in its version."""
    refused = api.post(DEFINITIONS, definition(fresh_group(), **version)).expect(422)
    return {cause["field"]: cause["message"] for cause in refused["details"]["causes"]}


@pytest.mark.rows("CRD-032", "DIS-04")
def test_empty_columns_are_shown_in_errors_but_not_stored(api: Client) -> None:
    told = refused_causes(api, storage=False, additionalPrinterColumns=[], selectableFields=[])["spec.versions"]
    # if all versions have equal columns or selectable fields, upstream moves these to the top of the spec; the message
    # shows this form
    assert '"AdditionalPrinterColumns":null,"SelectableFields":null}]' in told
    wanted = definition(fresh_group(), additionalPrinterColumns=[], selectableFields=[])
    (version,) = wanted["spec"]["versions"]
    wanted["spec"]["versions"] = [version, {**version, "additionalPrinterColumns": [{"name": "a"}]}]
    causes = api.post(DEFINITIONS, wanted).expect(422)["details"]["causes"]
    told = next(cause["message"] for cause in causes if cause["field"] == "spec.versions")
    assert '"AdditionalPrinterColumns":[],"SelectableFields":null},{' in told
    version.update(additionalPrinterColumns=[], selectableFields=[])
    newer = {**version, "name": "v2", "storage": False}
    del newer["additionalPrinterColumns"]
    wanted["spec"]["versions"] = [version, newer]
    for stored in api.post(DEFINITIONS, wanted).expect(201)["spec"]["versions"]:
        assert not {"additionalPrinterColumns", "selectableFields"} & stored.keys()


@pytest.mark.rows("SCH-009", "DIS-04")
def test_the_error_of_a_list_of_schemas_quotes_the_internal_type(api: Client) -> None:
    listed = {"type": "array", "items": [TEXT], "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}
    path = "spec.validation.openAPIV3Schema.properties[spec].properties[a].items"
    told = refused_causes(api, schema=schema({"a": listed}))
    assert told[path].startswith('Invalid value: {"Schema":null,"JSONSchemas":[{"ID":"","Schema":"","Ref":null,')
    assert told[path].endswith("}]}: must only have a single schema if x-kubernetes-list-type is map")


@pytest.mark.rows("CRD-034", "DIS-20")
def test_an_invalid_selectable_path_is_reported_besides_an_unsupported_schema(api: Client) -> None:
    strange = {**TEXT, "patternProperties": {"a": TEXT}}
    told = refused_causes(api, schema=schema({"a": strange}), selectableFields=[{"jsonPath": "$.spec.a"}])
    assert told["spec.schema.openAPIV3Schema"].endswith("OpenAPIV3Schema 'patternProperties' is not supported")
    assert told["spec.selectableFields[0].jsonPath"].endswith("is an invalid path: expected [ or . but got: $")
    told = refused_causes(api, schema={}, selectableFields=[{"jsonPath": "$.spec.a"}])
    assert told["spec.selectableFields[0].jsonPath"].endswith("is an invalid path: expected [ or . but got: $")
    assert "spec.selectableFields" not in told


@pytest.mark.rows("SSA-001", "WRI-012")
def test_a_dry_run_of_a_create_shows_the_revision_that_was_given(api: Client) -> None:
    widgets = serve(api)
    body = {**widgets.make("x"), "metadata": {"name": "x", "resourceVersion": "0"}}
    applied = api.patch(widgets.path("x"), body, APPLY, fieldManager="m", dryRun="All").expect(201)
    posted = api.post(widgets.path(), body, dryRun="All").expect(201)
    assert applied["metadata"]["resourceVersion"] == posted["metadata"]["resourceVersion"] == "0"
    stored = api.patch(widgets.path("x"), body, APPLY, fieldManager="m").expect(201)
    assert stored["metadata"]["resourceVersion"] != "0"


@pytest.mark.rows("TAB-003")
def test_ages_of_times_long_ago(api: Client) -> None:
    columns = [{"name": "then", "type": "date", "jsonPath": ".spec.a"}]
    widgets = serve(api, schema=schema({"a": TEXT}), additionalPrinterColumns=columns)
    widgets.create("x", a="0001-01-01T00:00:00Z")
    widgets.create("y", a="0001-01-01T00:00:01Z")
    rows = api.get(widgets.path(), {"Accept": TABLE}).expect(200)["rows"]
    assert [row["cells"] for row in rows] == [["x", "<unknown>"], ["y", "292y"]]


@pytest.mark.rows("CEL-008", "WRI-006")
def test_a_rule_sees_no_change_in_a_write_that_changes_nothing(api: Client) -> None:
    rules = [{"rule": "self == oldSelf", "message": "fixed"}]
    root = {**schema({"a": TEXT}, status={"type": "object"})["openAPIV3Schema"], "x-kubernetes-validations": rules}
    widgets = serve(api, schema={"openAPIV3Schema": root}, subresources={"status": {}})
    made = widgets.create("x", a="b")
    label = {"metadata": {"labels": {"a": "b"}}}
    assert api.patch(f"{widgets.path('x')}/status", label, MERGE).expect(200) == made
    assert api.put(widgets.path("x"), made).expect(200) == made
    assert "fixed" in api.patch(widgets.path("x"), label, MERGE).expect(422)["message"]


@pytest.mark.rows("SSA-019")
@pytest.mark.parametrize(
    ("path", "value", "fault"),
    [
        ("caBundle", "bad!", "error decoding from json: illegal base64 data at input byte 3"),
        ("maxLength", 1.5, "cannot convert float64 to int64"),
    ],
)
def test_an_applied_definition_that_its_type_cannot_hold(api: Client, path: str, value: Any, fault: str) -> None:
    wanted = definition(fresh_group(), schema={"openAPIV3Schema": {"type": "object", "maxLength": 1}})
    client = {"url": "https://x/", "caBundle": "eA=="}
    wanted["spec"]["conversion"] = {
        "strategy": "Webhook",
        "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": client},
    }
    holder = client if path in client else wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    holder[path] = value
    name, kind = wanted["metadata"]["name"], "apiextensions.k8s.io/v1, Kind=CustomResourceDefinition"
    refused = api.patch(f"{DEFINITIONS}/{name}", wanted, APPLY, fieldManager="m").expect(400)["message"]
    assert refused == (
        f"failed to convert new object (/{name}; {kind}) to proper version: "
        f"unable to convert unstructured object to {kind}: {fault}"
    )


@pytest.mark.rows("SSA-009", "DEF-001", "VER-001")
@pytest.mark.parametrize("endpoint", ["", "/status"])
def test_only_an_apply_with_changes_adds_defaults_of_its_version(api: Client, endpoint: str) -> None:
    status = {"status": {"type": "object", "properties": {"a": TEXT}}}
    wanted = definition(fresh_group(), schema=schema({"a": TEXT, "b": TEXT}, **status), subresources={"status": {}})
    more = schema({"a": TEXT, "b": TEXT | {"default": "x"}}, **status)
    (version,) = wanted["spec"]["versions"]
    wanted["spec"]["versions"].append({**version, "name": "v2", "storage": False, "schema": more})
    widgets = Resource(api, establish(api, wanted)["spec"]["group"], "widgets", "Widget")
    apply(widgets, "m", {"a": "1"}).expect(201)
    # These applies change nothing in the spec.
    # upstream: an apply without a change sets no defaults, even if its version has more than the storage version
    path = widgets.path("x").replace("/v1/", "/v2/")
    for part in ({}, {"spec": {"a": "1"}}, {"status": {"a": "2"}} if endpoint else {}):
        body = {"apiVersion": f"{widgets.group}/v2", "kind": "Widget", "metadata": {"name": "x"}, **part}
        same = api.patch(path + endpoint, body, APPLY, fieldManager="n").expect(200)
        assert (same["spec"], same["metadata"]["generation"]) == ({"a": "1"}, 1), part
    changed = apply(widgets, "m", {"a": "2"}, "v2").expect(200)
    assert (changed["spec"], changed["metadata"]["generation"]) == ({"a": "2", "b": "x"}, 2)


@pytest.mark.rows("WRI-007", "ERR-11")
def test_the_first_type_error_of_a_patched_object_is_reported(api: Client) -> None:
    widgets = serve(api, schema=schema({"a": TEXT}))
    widgets.create("x", a="1")
    # upstream: fields on the path to a change are sorted, and the first error is reported
    # So the error is about apiVersion, not about kind.
    merge = api.patch(widgets.path("x"), {"kind": True, "apiVersion": []}, MERGE).expect(422)
    ops = [{"op": "add", "path": f"/{name}", "value": value} for name, value in (("kind", True), ("apiVersion", []))]
    for told in (merge, api.patch(widgets.path("x"), ops, JSON_PATCH).expect(422)):
        assert told["message"].endswith("json: cannot unmarshal array into Go struct field .apiVersion of type string")


ADD = {"op": "add", "path": "/spec/a", "value": "2"}


@pytest.mark.rows("WRI-007", "WRI-013")
@pytest.mark.parametrize(
    ("operations", "told", "ignored"),
    [
        ([ADD, 5], "number into Go value of type handlers.jsonPatchOp", 400),
        ([{**ADD, "op": 5}, 5], "number into Go struct field jsonPatchOp.op of type string", 400),
        ([{**ADD, "path": {}}], "object into Go struct field jsonPatchOp.path of type string", 422),
        ([{**ADD, "from": ["/"]}], "array into Go struct field jsonPatchOp.from of type string", 200),
        ([{**ADD, "op": None}], "", 422),
        ([{**ADD, "from": None}], "", 200),
    ],
)
def test_members_of_a_json_patch_have_types(api: Client, operations: Any, told: str, ignored: int) -> None:
    widgets = serve(api, schema=schema({"a": TEXT}))
    widgets.create("x", a="1")
    for validation in ("Strict", "Warn"):
        found = api.patch(widgets.path("x"), operations, JSON_PATCH, fieldValidation=validation, dryRun="All")
        if told:
            assert found.expect(400)["message"] == f"error decoding patch: json: cannot unmarshal {told}"
        else:
            assert found.status == ignored
    assert api.patch(widgets.path("x"), operations, JSON_PATCH, fieldValidation="Ignore").status == ignored


@pytest.mark.rows("WRI-015", "KUB-003")
def test_a_write_of_the_status_has_no_warnings_about_other_fields(api: Client) -> None:
    path = "/api/v1/namespaces/default/services"
    spec = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"port": 80}], "externalName": "x"}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"generateName": "w"}, "spec": spec}
    made = api.post(path, body)
    told = ['299 - "spec.externalName is ignored when spec.type is not \\"ExternalName\\""']
    path += "/" + made.expect(201)["metadata"]["name"]
    status = {"status": {"loadBalancer": {}, "conditions": None}}
    # upstream: a write of the status causes no warnings about other fields
    assert [made.warnings, api.patch(f"{path}/status", status, MERGE).warnings] == [told, []]
    assert api.patch(path, {"metadata": {"labels": {"a": "b"}}}, MERGE).warnings == told
    api.delete(path).expect(200)


@pytest.mark.rows("SSA-001", "ERR-11")
@pytest.mark.parametrize(
    ("body", "missing"), [("[]", 404), ("[", 400), ('"x"', 404), ("a: b: c", 400), ("{a: b: c}", 404), (" {", 404)]
)
def test_a_missing_object_is_reported_before_an_invalid_apply(api: Client, body: str, missing: int) -> None:
    widgets = serve(api, schema=schema({"a": TEXT}), subresources={"status": {}})
    widgets.create("x")
    codes = [
        api.request("PATCH", path, body, headers={"Content-Type": APPLY}, fieldManager="m").status
        for path in (f"{widgets.path('no')}/status", f"{widgets.path('x')}/status", widgets.path("no"))
    ]
    assert codes == [missing, 400, 400]


@pytest.mark.rows("SRV-010", "ERR-11")
@pytest.mark.parametrize("kinds", ['"kind":5,"kind":"Scale"', '"KIND":5,"kind":"Scale"', '"kind":"Scale","KIND":"Foo"'])
def test_a_scale_with_duplicate_kinds_is_refused(api: Client, kinds: str) -> None:
    scale = {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a"}
    widgets = serve(api, schema=schema({"a": {"type": "integer"}}), subresources={"scale": scale})
    widgets.create("x")
    body = f'{{"apiVersion":"autoscaling/v1",{kinds},"metadata":{{"name":"x","namespace":"default"}}}}'.encode()
    refused = api.request("PUT", f"{widgets.path('x')}/scale", body, headers={"Content-Type": "application/json"})
    assert refused.expect(400)["message"].startswith("no kind is registered for the type v1.Scale in scheme")


@pytest.mark.rows("NUL-001", "NUL-005")
def test_nulls_of_a_default_are_not_read(api: Client) -> None:
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    inner = {"type": "object", "properties": {"a": anything, "b": {**TEXT, "nullable": True}}}
    status = {**inner, "default": {"a": None, "b": None}}
    widgets = serve(api, schema=schema({}, status=status), subresources={"status": {}})
    assert widgets.create("x")["status"] == {"b": None}
    assert api.get(widgets.path("x")).expect(200)["status"] == {"b": None}


@pytest.mark.rows("CRD-029", "CRD-030")
@pytest.mark.parametrize(("first", "told"), [(None, set()), ({"status": {}}, {0, 1})])
def test_duplicate_versions_have_the_subresources_of_the_first(
    api: Client, first: dict[str, Any] | None, told: set[int]
) -> None:
    limited = [{"openAPIV3Schema": {"type": "object", "maxProperties": most}} for most in (5, 6)]
    wanted = definition(fresh_group(), schema=limited[0], subresources=first)
    (version,) = wanted["spec"]["versions"]
    second = {**version, "storage": False, "schema": limited[1], "subresources": {"status": {}}}
    wanted["spec"]["versions"] = [version, second]
    causes = api.post(DEFINITIONS, wanted).expect(422)["details"]["causes"]
    fields = {f"spec.versions[{index}].schema.openAPIV3Schema" for index in told}
    assert {cause["field"] for cause in causes} >= {"spec.versions", *fields}
    assert {cause["field"] for cause in causes if "openAPIV3Schema" in cause["field"]} == fields
