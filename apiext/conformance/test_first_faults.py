"""Requests with several errors: the error that the server reports, and its text.

The expected errors are those of kube-apiserver.
"""

from __future__ import annotations

import base64
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, JSON_PATCH, MERGE, Client


@pytest.fixture
def widgets(api: Client) -> Resource:
    """A resource with an object ``there``."""
    found = serve(api, subresources={"status": {}})
    found.create("there")
    return found


def unreadable(name: str, kind: str) -> str:
    return (
        "couldn't get version/kind; json parse error: json: cannot unmarshal "
        f"{kind} into Go struct field .{name} of type string"
    )


@pytest.mark.rows("ERR-11", "DEC-002")
@pytest.mark.parametrize("name", ["apiVersion", "kind"])
@pytest.mark.parametrize(
    ("value", "kind"), [(1, "number"), (True, "bool"), ({}, "object"), ([], "array")], ids=["1", "true", "{}", "[]"]
)
def test_api_version_and_kind_must_be_strings(api: Client, widgets: Resource, name: str, value: Any, kind: str) -> None:
    body = {**widgets.make("a"), "metadata": {"labels": 1}, name: value}
    for path in (widgets.path(), DEFINITIONS):
        refused = api.post(path, body).expect(400)
        assert refused["message"].startswith("the object provided is unrecognized (must be of type ")
        assert unreadable(name, kind) in refused["message"]
    patched = api.request("PATCH", widgets.path("there"), {name: value}, headers={"Content-Type": MERGE})
    if value != {}:  # this merge patch puts an empty object in place of the string; its error is not tested
        assert unreadable(name, kind) in patched.expect(422)["message"]
    operations = [{"op": "replace", "path": f"/{name}", "value": value}]
    patched = api.request("PATCH", widgets.path("there"), operations, headers={"Content-Type": JSON_PATCH})
    assert unreadable(name, kind) in patched.expect(422)["message"]


@pytest.mark.rows("ERR-11")
def test_a_version_with_too_many_parts(api: Client, widgets: Resource) -> None:
    refused = api.post(widgets.path(), {**widgets.make("a"), "apiVersion": "a/b/c"}).expect(400)
    assert "unexpected GroupVersion string: a/b/c" in refused["message"]


@pytest.mark.rows("ERR-11")
def test_a_version_that_is_null(api: Client, widgets: Resource) -> None:
    refused = api.post(widgets.path(), {**widgets.make("a"), "apiVersion": None}).expect(400)
    text = ".apiVersion accessor error: <nil> is of the type <nil>, expected string"
    assert refused["message"] == f'Widget in version "" cannot be handled as a Widget: {text}'


@pytest.mark.rows("ERR-11", "WRI-013")
@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
def test_the_error_of_a_missing_kind_depends_on_field_validation(
    api: Client, widgets: Resource, validation: str
) -> None:
    body = widgets.make("a")
    del body["kind"]
    refused = api.post(widgets.path(), body, fieldValidation=validation).expect(400)
    ignored = 'Widget in version "v1" cannot be handled as a Widget: Object'
    told = "the object provided is unrecognized (must be of type Widget): Object"
    assert refused["message"].startswith(ignored if validation == "Ignore" else told)


@pytest.mark.rows("ERR-12", "MET-001")
def test_metadata_is_decoded_before_the_version_is_compared(api: Client, widgets: Resource) -> None:
    # upstream decodes the body before it compares apiVersion with the URL
    body = {**widgets.make("a"), "apiVersion": "other.example.com/v1", "metadata": {"name": "a", "labels": 1}}
    message = api.post(widgets.path(), body).expect(400)["message"]
    assert message.startswith('Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number')
    del body["metadata"]["labels"]
    message = api.post(widgets.path(), body).expect(400)["message"]
    assert message.startswith("the API version in the data (other.example.com/v1) does not match")


@pytest.mark.rows("MET-001")
@pytest.mark.parametrize("name", ["creationTimestamp", "deletionTimestamp"])
def test_the_error_of_a_numeric_time_in_metadata_names_the_field(api: Client, widgets: Resource, name: str) -> None:
    text = "json: cannot unmarshal number into Go struct field ObjectMeta.{} of type string"
    body = {**widgets.make("a"), "metadata": {"name": "a", name: 5}}
    assert api.post(widgets.path(), body).expect(400)["message"].endswith(text.format(name))
    wanted = definition(fresh_group())
    wanted["metadata"][name] = 5
    assert api.post(DEFINITIONS, wanted).expect(400)["message"].endswith(text.format(f"metadata.{name}"))


@pytest.mark.rows("ERR-11", "KUB-001")
def test_a_typed_body_of_a_foreign_group(api: Client) -> None:
    wanted = {**definition(fresh_group()), "apiVersion": "example.com/v1"}
    message = api.post(DEFINITIONS, wanted).expect(400)["message"]
    assert 'no kind "CustomResourceDefinition" is registered for version "example.com/v1" in scheme' in message


@pytest.mark.rows("VER-001")
@pytest.mark.parametrize("path", ["", "/there", "/there/status", "/there/nothing"])
def test_a_deprecated_version_warns_on_every_path(api: Client, path: str) -> None:
    old = serve(api, deprecated=True)
    answer = api.get(old.path() + path)
    assert answer.warnings == [f'299 - "{old.group}/v1 Widget is deprecated"']
    assert answer.status == (404 if path else 200)


@pytest.mark.rows("WRI-011", "ERR-11")
@pytest.mark.parametrize("query", ["dryRun=x", "fieldValidation=zz", "fieldManager=%07"])
def test_options_are_validated_before_the_body(api: Client, widgets: Resource, query: str) -> None:
    # upstream: options are validated before the body is decoded
    for method, path in (("POST", widgets.path()), ("PUT", widgets.path("there"))):
        assert api.request(method, f"{path}?{query}", "{", {"Content-Type": "application/json"}).status == 422
    # upstream: options of a PUT are validated even before the media type of the body is validated
    assert api.request("PUT", f"{widgets.path('there')}?{query}", "{", {"Content-Type": "text/plain"}).status == 422
    assert api.request("POST", f"{widgets.path()}?{query}", "{", {"Content-Type": "text/plain"}).status == 415
    # upstream: the selection of objects is validated before the body is read
    refused = api.request("DELETE", f"{widgets.path()}?limit=x", "{", {"Content-Type": "text/plain"})
    assert refused.expect(400)["message"] == 'strconv.ParseInt: parsing "x": invalid syntax'


@pytest.mark.rows("SEL-005", "RV-004")
def test_selectors_are_parsed_before_options_are_validated(api: Client, widgets: Resource) -> None:
    # upstream: selectors are parsed before any option is validated
    refused = api.get(widgets.path(), labelSelector="x in (", resourceVersionMatch="Exact").expect(400)
    assert refused["message"].startswith("unable to parse requirement: found ''")
    assert api.get(widgets.path(), labelSelector="x", resourceVersionMatch="Exact").status == 422


@pytest.mark.rows("RV-002", "RV-003")
def test_a_read_at_a_future_revision_is_a_504_with_a_retry_after(api: Client, widgets: Resource) -> None:
    late = api.get(widgets.path(), resourceVersion="999999999").expect(504)
    assert late["details"]["retryAfterSeconds"] == 1


@pytest.mark.rows("RV-002", "RV-003", "RV-005")
@pytest.mark.differs("its watch cache waits for a revision only if etcd reports progress (3.4.25 and later)")
@pytest.mark.parametrize("how", [{"resourceVersionMatch": "Exact"}, {"limit": 5}, {}], ids=["exact", "limit", "token"])
def test_the_cache_waits_for_an_exact_revision(api: Client, widgets: Resource, how: dict[str, Any]) -> None:
    token = base64.urlsafe_b64encode(b'{"v":"meta.k8s.io/v1","rv":999999999,"start":"/a"}').decode().rstrip("=")
    start = {"resourceVersion": "999999999"} if how else {"continue": token}
    late = api.get(widgets.path(), **how, **start)
    assert late.expect(504)["details"]["retryAfterSeconds"] == 1
    assert late.headers["retry-after"] == "1"


@pytest.mark.rows("ADM-003", "VER-009")
def test_errors_of_a_webhook_service_without_name_and_namespace(api: Client) -> None:
    configurations = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook = {"name": "a.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    refused = api.post(
        configurations, {"metadata": {"name": "a"}, "webhooks": [{**hook, "clientConfig": {"service": {}}}]}
    ).expect(422)
    fields = [cause["field"] for cause in refused["details"]["causes"]]
    assert fields == [f"webhooks[0].clientConfig.service.{name}" for name in ("name", "namespace")]


@pytest.mark.rows("CRD-040", "CEL-011")
def test_the_field_path_of_a_rule_in_a_nonstructural_schema_is_not_validated(api: Client) -> None:
    # upstream: the fieldPath of a rule is not validated in a schema without a structural form
    rule = {"rule": "true", "fieldPath": ".nowhere"}
    inner: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "x-kubernetes-validations": [rule],
    }
    root = {"type": "object", "properties": {"spec": inner}}
    wanted = definition(fresh_group(), schema={"openAPIV3Schema": root})
    assert "must be a valid path" in api.post(DEFINITIONS, wanted, dryRun="All").expect(422)["message"]
    inner["patternProperties"] = {"b": {"type": "string"}}
    refused = api.post(DEFINITIONS, wanted, dryRun="All").expect(422)
    assert "patternProperties is not supported" in refused["message"]
    assert "must be a valid path" not in refused["message"]


@pytest.mark.rows("CRD-029", "DIS-04")
def test_empty_lists_of_a_root_schema_are_validated_but_not_stored(api: Client) -> None:
    root = {"type": "object", "oneOf": []}
    wanted = definition(fresh_group(), schema={"openAPIV3Schema": root}, subresources={"status": {}})
    refused = api.post(DEFINITIONS, wanted, dryRun="All").expect(422)
    assert '"OneOf":[]' in refused["message"]
    del wanted["spec"]["versions"][0]["subresources"]
    created = api.post(DEFINITIONS, wanted, dryRun="All").expect(201)
    assert "oneOf" not in created["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


@pytest.mark.rows("CEL-001")
def test_rules_below_a_schema_without_a_valid_type_are_reported(api: Client) -> None:
    inner = {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'a'"}]}
    spec: dict[str, Any] = {"type": "null", "properties": {"a": inner}, "x-kubernetes-validations": [{"rule": "true"}]}
    wanted = definition(fresh_group(), schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    fields = [cause["field"] for cause in api.post(DEFINITIONS, wanted).expect(422)["details"]["causes"]]
    inside = "spec.validation.openAPIV3Schema.properties[spec].properties[a].x-kubernetes-validations"
    assert inside in fields


@pytest.mark.rows("SSA-011", "PRU-001")
def test_an_apply_owns_fields_that_are_pruned(api: Client) -> None:
    # upstream: an apply may own fields of a map without a schema, although pruning removes these fields
    bare = {"type": "object", "properties": {"spec": {"type": "object"}}}
    widgets = serve(api, schema={"openAPIV3Schema": bare})
    headers = {"Content-Type": APPLY}
    path = f"{widgets.path('a')}?fieldManager=me"
    made = api.request("PATCH", path, widgets.make("a", size=1), headers=headers).expect(201)
    assert made["spec"] == {}
    assert made["metadata"]["managedFields"][0]["fieldsV1"] == {"f:spec": {"f:size": {}}}
    assert api.get(widgets.path("a")).expect(200)["spec"] == {}


@pytest.mark.rows("SSA-013")
def test_a_put_in_v1_drops_the_owner_of_the_status_in_v2(api: Client) -> None:
    # upstream: reset fields of custom objects (here: the status) are known only for the version of the request
    #
    # This PUT is in v1, and its body has no status. For the manager that applied the status in v2, the missing status
    # counts as a removal: this manager no longer owns the status. The stored status itself does not change.
    wanted = definition(fresh_group(), subresources={"status": {}})
    wanted["spec"]["versions"].append({**wanted["spec"]["versions"][0], "name": "v2", "storage": False})
    group = establish(api, wanted)["spec"]["group"]
    first, second = (Resource(api, group, "widgets", "Widget", version) for version in ("v1", "v2"))
    created = first.create("a", size=1)
    headers = {"Content-Type": APPLY}
    body = {**second.make("a"), "status": {"phase": "up"}}
    del body["spec"]
    api.request("PATCH", f"{second.path('a')}/status?fieldManager=me", body, headers=headers).expect(200)
    stored = api.get(first.path("a")).expect(200)
    assert [entry["manager"] for entry in stored["metadata"]["managedFields"]] == ["me", *_managers(created)]
    del stored["status"], stored["metadata"]["managedFields"]
    stored["spec"]["size"] = 2
    replaced = api.put(first.path("a"), stored).expect(200)
    assert replaced["status"] == {"phase": "up"}
    assert "me" not in _managers(replaced)


def _managers(document: dict[str, Any]) -> list[str]:
    return [entry["manager"] for entry in document["metadata"]["managedFields"]]


@pytest.mark.rows("SRV-010", "DEF-004")
def test_a_write_of_a_scale_applies_defaults(api: Client) -> None:
    spec = {
        "type": "object",
        "properties": {"replicas": {"type": "integer"}, "note": {"type": "string", "default": "n"}},
    }
    root = {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    widgets = serve(api, schema={"openAPIV3Schema": root}, subresources={"scale": scale})
    body = widgets.make("a")
    del body["spec"]
    api.post(widgets.path(), body).expect(201)
    patch = {"spec": {"replicas": 2}}
    api.request("PATCH", f"{widgets.path('a')}/scale", patch, headers={"Content-Type": MERGE}).expect(200)
    assert api.get(widgets.path("a")).expect(200)["spec"] == {"replicas": 2, "note": "n"}


@pytest.mark.rows("ERR-16", "WRI-012")
@pytest.mark.parametrize(
    ("method", "typed", "optioned"),
    [("POST", 415, 413), ("PUT", 413, 413), ("PATCH", 415, 413), ("DELETE", 413, 413)],
)
def test_order_of_errors_of_large_bodies_media_types_and_options(
    api: Client, widgets: Resource, method: str, typed: int, optioned: int
) -> None:
    body = widgets.make("there", color="x" * (3 * 1024 * 1024))
    path = widgets.path("there" if method != "POST" else "")
    assert api.request(method, path, body, headers={"Content-Type": "text/plain"}).status == typed
    of_method = {"Content-Type": MERGE if method == "PATCH" else "application/json"}
    assert api.request(method, f"{path}?dryRun=x", body, headers=of_method).status == optioned
