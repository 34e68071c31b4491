"""Surprising behaviour of kube-apiserver.

A comment ``upstream:`` in these tests describes the behaviour of kube-apiserver.
"""

from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, JSON_PATCH, MERGE, Client


@pytest.mark.rows("CND-011", "SSA-005")
def test_conditions_are_owned_by_the_servers_own_client(api: Client) -> None:
    wanted = definition(fresh_group())
    establish(api, wanted)
    found = api.get(f"{DEFINITIONS}/{wanted['metadata']['name']}").expect(200)
    owners = {entry["manager"] for entry in found["metadata"]["managedFields"] if entry.get("subresource") == "status"}
    assert len(owners) == 1  # upstream: the manager is the User-Agent of the server's own client


@pytest.mark.rows("CRD-020")
def test_no_definition_has_a_generate_name(api: Client) -> None:
    # a name must be plural.group; upstream: the rule also applies to generateName, so no definition can have it
    wanted = definition(fresh_group())
    wanted["metadata"] = {"generateName": "widgets-"}
    refused = api.post(DEFINITIONS, wanted).expect(422)
    assert "metadata.generateName: Invalid value" in refused["message"]


@pytest.mark.rows("SSA-014")
def test_an_apply_in_another_version_does_not_prune_first(api: Client) -> None:
    # upstream: a converted object is not pruned, so it may not conform to its type
    # So an apply in v2 fails: the object has an integer in ``spec.size``, which is a string in v2.
    group = fresh_group()
    wanted = definition(group)
    second = {**wanted["spec"]["versions"][0], "name": "v2", "storage": False}
    fields = {"spec": {"type": "object", "properties": {"size": {"type": "string"}}}}
    second["schema"] = {"openAPIV3Schema": {"type": "object", "properties": fields}}
    wanted["spec"]["versions"].append(second)
    establish(api, wanted)
    path = f"/apis/{group}/{{}}/namespaces/default/widgets/a"
    patch = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": 3}}
    headers = {"Content-Type": "application/apply-patch+yaml"}
    created = api.request("PATCH", path.format("v1") + "?fieldManager=one", patch, headers=headers)
    assert created.status == 201
    patch = {"apiVersion": f"{group}/v2", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"size": "x"}}
    other = api.request("PATCH", path.format("v2") + "?fieldManager=two&force=true", patch, headers=headers)
    assert other.status == 500
    assert ".spec.size: expected string" in other.expect(500)["message"]
    assert api.get(path.format("v1")).expect(200)["spec"]["size"] == 3


@pytest.mark.rows("VAL-015")
def test_definitions_get_no_warnings_about_finalizers(api: Client) -> None:
    # upstream: only custom objects get warnings about finalizers
    wanted = definition(fresh_group())
    wanted["metadata"]["finalizers"] = ["hold"]
    made = api.post(DEFINITIONS, wanted, dryRun="All")
    assert made.expect(201)["metadata"]["finalizers"] == ["hold"]
    assert made.warnings == []


@pytest.mark.rows("KUB-003")
def test_finalizers_of_a_definition_are_merged(api: Client) -> None:
    wanted = definition(fresh_group())
    wanted["metadata"]["finalizers"] = ["example.com/a"]
    api.post(DEFINITIONS, wanted).expect(201)
    path, strategic = f"{DEFINITIONS}/{wanted['metadata']['name']}", "application/strategic-merge-patch+json"
    patch = {"metadata": {"finalizers": ["example.com/b"]}}
    found = api.patch(path, patch, strategic, dryRun="All").expect(200)["metadata"]["finalizers"]
    assert set(found) == {"example.com/a", "example.com/b"}
    assert api.patch(path, patch, MERGE).expect(200)["metadata"]["finalizers"] == ["example.com/b"]
    api.patch(path, {"metadata": {"finalizers": None}}, MERGE).expect(200)
    api.delete(path).expect(200)


RULED: dict[str, Any] = {
    "type": "object",
    "required": ["size"],
    "x-kubernetes-validations": [{"rule": "!has(self.size) || self.size < 3", "message": "is small"}],
    "properties": {
        "size": {"type": "integer", "default": 7},
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "pod": {
            "type": "object",
            "x-kubernetes-embedded-resource": True,
            "x-kubernetes-preserve-unknown-fields": True,
        },
    },
}
KEEPS = {"x-kubernetes-preserve-unknown-fields": True}
UNCHECKED = "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid"
NO_MAP = 'spec: Invalid value: "object": invalid data, expected a map for the provided schema with type=object'


@pytest.fixture(scope="module")
def ruled(request: pytest.FixtureRequest) -> Resource:
    """A kind with a rule, a set and an embedded resource, and its valid object ``a``."""
    api = request.getfixturevalue("server").client()
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": RULED}}})
    widgets.create("a", size=1)
    return widgets


@pytest.mark.rows("VAL-014")
@pytest.mark.parametrize(
    ("spec", "more"),
    [
        pytest.param({"size": 1}, [], id="sound"),
        pytest.param({}, [], id="a missing value is not reported, and no default is set"),
        pytest.param({"size": 5, "other": 1}, ["spec: Invalid value: is small"], id="a rule"),
        pytest.param("x", [f"{NO_MAP} evaluating rule: is small"], id="a rule over another type"),
        pytest.param({"tags": ["a", "a"]}, ['spec.tags[1]: Duplicate value: "a"'], id="a set"),
        pytest.param({"pod": {"apiVersion": "v1"}}, ["spec.pod.kind: Required value", UNCHECKED], id="embedded"),
    ],
)
def test_partial_validation_of_an_object_of_another_kind(ruled: Resource, spec: object, more: list[str]) -> None:
    # upstream: an object of another kind is not validated by its schema
    # List types, embedded resources and rules are validated: their errors are in ``more``.
    body = {**ruled.make("b"), "kind": "Gadget", "spec": spec}
    operations = [{"op": "replace", "path": f"/{name}", "value": body[name]} for name in ("kind", "spec")]
    sent = [("POST", "", body, "application/json"), ("PATCH", "a", operations, JSON_PATCH)]
    if isinstance(spec, dict) and spec:
        sent.append(("PATCH", "a", {"kind": "Gadget", "spec": spec}, MERGE))
    for method, name, content, media in sent:
        answer = ruled.api.request(method, ruled.path(name), content, headers={"Content-Type": media})
        message = answer.expect(422)["message"]
        causes = answer.json["details"]["causes"]
        assert len(causes) == 1 + len(more), message
        assert [text for text in ('kind: Invalid value: "Gadget": must be Widget', *more) if text not in message] == []


IN_VAIN: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "untyped": ({"type": "object"}, {"x": 1}, {}),
    "null": ({"type": "object", "additionalProperties": KEEPS}, {"x": None, "y": {"z": None}}, {"y": {"z": None}}),
    "embedded": (
        {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"metadata": {"type": "object"}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "", "labels": {}}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
    ),
}


@pytest.mark.rows("SSA-011", "UPD-005", "NUL-005", "PRU-001")
@pytest.mark.parametrize("case", list(IN_VAIN))
def test_an_apply_of_pruned_fields_raises_the_generation(api: Client, case: str) -> None:
    # upstream: an apply may set fields that pruning removes; they are validated, and count as a change
    # So each apply of these fields raises the generation.
    part, given, shown = IN_VAIN[case]
    spec = {"type": "object", "properties": {"part": part}}
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    path, headers = f"{widgets.path('a')}?fieldManager=me", {"Content-Type": APPLY}

    def applied(query: str = "") -> Any:
        return api.request("PATCH", path + query, widgets.make("a", part=given), headers=headers)

    assert applied("&dryRun=All").expect(201)["spec"]["part"] == shown
    made = [applied().expect(201 if number == 0 else 200) for number in range(3)]
    made += [applied("&dryRun=All").expect(200), api.get(widgets.path("a")).expect(200)]
    assert [one["spec"]["part"] for one in made] == [shown] * 5
    assert [one["metadata"]["generation"] for one in made] == [1, 2, 3, 4, 3]


@pytest.mark.rows("SSA-011", "VAL-001")
def test_an_apply_of_pruned_fields_is_validated(api: Client) -> None:
    spec = {"type": "object", "maxProperties": 1}
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    body, headers = widgets.make("a", size=1, color="red"), {"Content-Type": APPLY}
    refused = api.request("PATCH", f"{widgets.path('a')}?fieldManager=me", body, headers=headers).expect(422)
    assert "spec: Too many: 2: must have at most 1 item" in refused["message"]
    assert api.get(widgets.path("a")).status == 404


@pytest.mark.rows("SSA-011", "MET-004", "DEF-005")
def test_an_applied_embedded_resource_is_validated_without_coercion(api: Client) -> None:
    # upstream: an apply does not coerce embedded resources
    kept = {"type": "object", "properties": {"metadata": {"type": "object"}, "a": {"type": "string", "default": "x"}}}
    spec = {"type": "object", "properties": {"part": {**kept, "x-kubernetes-embedded-resource": True}}}
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    body = widgets.make("a", part={"apiVersion": "v1", "kind": "Pod", "metadata": None})
    said = api.patch(widgets.path("a"), body, APPLY, fieldManager="me").expect(422)["message"]
    assert (
        'spec.part.metadata: Invalid value: "null": spec.part.metadata in body must be of type object: "null"' in said
    )
    assert "metadata" not in api.post(widgets.path(), body).expect(201)["spec"]["part"]


@pytest.mark.differs("each read of an object with a list `items` is a 500")
@pytest.mark.rows("WRI-001", "WRI-007")
def test_an_object_with_items_is_not_a_list(api: Client) -> None:
    items = {"type": "array", "items": {"type": "object", **KEEPS}}
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"items": items}}})
    body = {**widgets.make("a"), "items": [{"a": 1}]}
    made = api.post(widgets.path(), {name: part for name, part in body.items() if name != "spec"}).expect(201)
    assert api.get(widgets.path("a")).expect(200) == made
    assert api.patch(widgets.path("a"), {"items": []}, MERGE).expect(200)["items"] == []


OLD = {
    "a date-time is a timestamp": "type(OLD.t) == google.protobuf.Timestamp",
    "null is absent": "!has(OLD.b) && !has(OLD.o.b) && OLD.l.all(x, !has(x.b))",
    "names are escaped": "OLD.__package__ == 'q'",
    "a set has no order": "OLD.s == self.s",
    "an integer in a number is a double": "type(OLD.n) == double",
    "the same value is equal": "OLD.o == self.o && OLD.l == self.l",
    "a chosen field": "oldSelf.?t.value() == self.t && oldSelf.?s.orValue([]) == self.s",
}


@pytest.mark.rows("CEL-001", "CEL-008")
@pytest.mark.parametrize("case", OLD)
def test_an_optional_old_value_is_read_by_its_schema(api: Client, case: str) -> None:
    text = {"type": "string", "maxLength": 30}
    below = {"type": "object", "properties": {"b": {**text, "nullable": True}}}
    properties: dict[str, Any] = {
        "t": {**text, "format": "date-time"}, "package": text, **below["properties"], "o": below,
        "l": {"type": "array", "maxItems": 3, "items": below}, "n": {"type": "number"},
        "s": {"type": "array", "maxItems": 3, "x-kubernetes-list-type": "set", "items": {"type": "integer"}},
    }  # fmt: skip
    judged = OLD[case].replace("OLD", "oldSelf.value()")
    rule = {"rule": f"!oldSelf.hasValue() || ({judged})", "optionalOldSelf": True}
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": [rule]}
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    given = {"t": "2026-01-02T03:04:05Z", "package": "q", "b": None, "o": {"b": None}, "l": [{"b": None}], "n": 1}
    widgets.create("a", **given, s=[1, 2])
    api.patch(widgets.path("a"), {"spec": {"s": [2, 1]}}, MERGE).expect(200)


@pytest.mark.rows("SRV-009", "NUL-002")
def test_a_write_of_a_scale_is_validated_before_defaults_are_applied(api: Client) -> None:
    # upstream: a change by a Scale is validated before defaults are set
    note = {"type": "string", "default": "n"}
    spec = {"type": "object", "required": ["note"], "properties": {"replicas": {"type": "integer"}, "note": note}}
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    root = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": {"type": "object"}}}}
    widgets = serve(api, schema=root, subresources={"scale": scale})
    api.post(widgets.path(), {name: part for name, part in widgets.make("a").items() if name != "spec"}).expect(201)
    path, patch = f"{widgets.path('a')}/scale", {"spec": {"replicas": 2}}
    assert "spec.note: Required value" in api.patch(path, patch, MERGE).expect(422)["message"]
    api.patch(widgets.path("a"), {"spec": {}}, MERGE).expect(200)
    api.patch(path, patch, MERGE).expect(200)
    assert api.get(widgets.path("a")).expect(200)["spec"] == {"replicas": 2, "note": "n"}
