"""Server-side apply over HTTP: clients can restore their configuration from managed fields."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, JSON_PATCH, MERGE, Answer, Client
from apiext.conformance.support.waiting import until

TEXT, NUMBER = {"type": "string"}, {"type": "number"}
PORT = {
    "type": "object",
    "required": ["port"],
    "properties": {
        "port": {"type": "integer"},
        "protocol": {"type": "string", "default": "TCP"},
        "name": TEXT,
        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "routes": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["path"],
            "items": {"type": "object", "required": ["path"], "properties": {"path": TEXT, "to": TEXT}},
        },
    },
}
SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": TEXT,
        "number": NUMBER,
        "granular": {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": TEXT, "b": TEXT}},
        "labels": {"type": "object", "additionalProperties": TEXT},
        "list": {"type": "array", "items": TEXT},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
        "ports": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"],
            "items": PORT,
        },
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
SCHEMA = {"type": "object", "properties": {"spec": SPEC, "status": {"type": "object", "properties": {"phase": TEXT}}}}


@pytest.fixture(scope="module")
def kind(request: pytest.FixtureRequest) -> Resource:
    """A custom resource with each type of field.

    All tests of this module share it, with different object names.
    """
    api = Client(request.getfixturevalue("server").url)
    return serve(api, schema={"openAPIV3Schema": SCHEMA}, subresources={"status": {}})


def apply(kind: Resource, name: str, manager: str, spec: Any, **query: Any) -> Answer:
    body = {**kind.make(name), "spec": spec} if spec is not None else kind.make(name)
    if spec is None:
        del body["spec"]
    return kind.api.patch(kind.path(name), body, APPLY, fieldManager=manager, **query)


def owned_fields(document: dict[str, Any], manager: str, subresource: str = "") -> Any:
    for entry in document["metadata"].get("managedFields", ()):
        if entry["manager"] == manager and entry.get("subresource", "") == subresource:
            return entry["fieldsV1"]
    return None


def extract_owned(value: Any, fields: dict[str, Any]) -> Any:
    """Return the parts of a value that these fieldsV1 own.

    Client libraries extract a configuration in this way.
    """
    inside = {name: below for name, below in fields.items() if name != "."}
    if not inside:
        return value
    if isinstance(value, dict):
        return {name[2:]: extract_owned(value[name[2:]], below) for name, below in inside.items() if name[2:] in value}
    found = []
    for item in value:
        for name, below in inside.items():
            wanted = json.loads(name[2:])
            if name.startswith("v:") and item == wanted:
                found.append(item)
            elif name.startswith("k:") and wanted.items() <= item.items():
                found.append(extract_owned(item, below))
    return found


WANTED = {
    "text": "t",
    "number": 0.5,
    "granular": {"a": "1"},
    "whole": {"a": "1", "b": "2"},
    "labels": {"x.y/z": "1"},
    "list": ["a", "a"],
    "set": ["b", "a"],
    "ports": [{"port": 80, "protocol": "TCP", "tags": ["x"], "routes": [{"path": "/", "to": "a"}, {"path": "/b"}]}],
    "free": {"deep": {"er": [1, 2]}, "text": "x"},
}


@pytest.mark.rows("SSA-018", "SSA-002", "SSA-010")
def test_client_extracts_its_configuration_from_managed_fields(kind: Resource) -> None:
    apply(kind, "extract", "other", {"granular": {"b": "2"}, "labels": {"mine": "no"}, "set": ["c"],
                                     "ports": [{"port": 443, "protocol": "UDP", "name": "q"}]})  # fmt: skip
    after = apply(kind, "extract", "me", WANTED).expect(200)
    assert extract_owned(after, owned_fields(after, "me")) == {"spec": WANTED}
    assert owned_fields(after, "me")["f:spec"] == {
        "f:text": {}, "f:number": {}, "f:granular": {"f:a": {}}, "f:whole": {}, "f:labels": {"f:x.y/z": {}},
        "f:list": {},
        "f:set": {'v:"a"': {}, 'v:"b"': {}},
        "f:ports": {'k:{"port":80,"protocol":"TCP"}': {
            ".": {}, "f:port": {}, "f:protocol": {}, "f:tags": {'v:"x"': {}},
            "f:routes": {
                'k:{"path":"/"}': {".": {}, "f:path": {}, "f:to": {}}, 'k:{"path":"/b"}': {".": {}, "f:path": {}},
            },
        }},
        "f:free": {"f:deep": {".": {}, "f:er": {}}, "f:text": {}},
    }  # fmt: skip
    assert after["spec"]["set"] == ["c", "b", "a"]
    assert [port["port"] for port in after["spec"]["ports"]] == [443, 80]


@pytest.mark.rows("SSA-010", "SSA-012")
def test_omitted_list_map_key_gets_its_default(kind: Resource) -> None:
    first = apply(kind, "default", "m1", {"ports": [{"port": 80, "name": "web"}]}).expect(201)
    assert first["spec"]["ports"] == [{"port": 80, "protocol": "TCP", "name": "web"}]
    key = 'k:{"port":80,"protocol":"TCP"}'
    assert owned_fields(first, "m1") == {"f:spec": {"f:ports": {key: {".": {}, "f:port": {}, "f:name": {}}}}}
    conflict = apply(kind, "default", "m2", {"ports": [{"port": 80, "protocol": "TCP", "name": "x"}]}).expect(409)
    assert [cause["field"] for cause in conflict["details"]["causes"]] == ['.spec.ports[port=80,protocol="TCP"].name']
    udp = apply(kind, "default", "m2", {"ports": [{"port": 80, "protocol": "UDP", "name": "x"}]}).expect(200)
    assert [port["protocol"] for port in udp["spec"]["ports"]] == ["TCP", "UDP"]
    twice = apply(kind, "default", "m3", {"ports": [{"port": 1}, {"port": 1, "protocol": "TCP"}]})
    assert 'duplicate entries for key [port=1,protocol="TCP"]' in twice.expect(400)["message"]


@pytest.mark.rows("SSA-008", "SSA-009")
def test_nested_list_items_have_owners(kind: Resource) -> None:
    def ports(*routes: dict[str, str]) -> dict[str, Any]:
        return {"ports": [{"port": 1, "protocol": "TCP", "routes": list(routes)}]}

    apply(kind, "nested", "m1", ports({"path": "/a", "to": "1"}, {"path": "/b", "to": "1"})).expect(201)
    apply(kind, "nested", "m2", ports({"path": "/c", "to": "2"})).expect(200)
    conflict = apply(kind, "nested", "m2", ports({"path": "/a", "to": "2"})).expect(409)
    place = '.spec.ports[port=1,protocol="TCP"].routes[path="/a"].to'
    assert conflict["message"] == f'Apply failed with 1 conflict: conflict with "m1": {place}'
    assert conflict["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "m1"', "field": place}
    ]
    after = apply(kind, "nested", "m1", ports({"path": "/b", "to": "3"})).expect(200)
    assert after["spec"]["ports"][0]["routes"] == [{"path": "/b", "to": "3"}, {"path": "/c", "to": "2"}]
    gone = apply(kind, "nested", "m1", {}).expect(200)
    assert gone["spec"]["ports"] == [{"port": 1, "protocol": "TCP", "routes": [{"path": "/c", "to": "2"}]}]


@pytest.mark.rows("SSA-009")
@pytest.mark.parametrize(
    ("mine", "yours", "same"),
    [("1", "1.0", True), ("0.5", "5e-1", True), ("100", "1e2", True), ("1", "1.5", False), ("0", "-0.0", True)],
)
def test_equal_numbers_of_other_notation_do_not_conflict(kind: Resource, mine: str, yours: str, same: bool) -> None:
    name = f"float-{mine}-{yours}".replace("e", "x").replace("--", "-m").replace(".", "")

    def send(manager: str, number: str) -> Answer:
        body = f'{{"apiVersion":"{kind.group}/v1","kind":"{kind.kind}","metadata":{{"name":"{name}"}},'
        body += f'"spec":{{"number":{number}}}}}'
        return kind.api.patch(kind.path(name), body, APPLY, fieldManager=manager)

    first = send("m1", mine).expect(201)
    second = send("m2", yours)
    assert second.status == (200 if same else 409)
    if same:
        assert second.json["spec"] == first["spec"]
        assert owned_fields(second.json, "m1") == owned_fields(second.json, "m2")


@pytest.mark.rows("SSA-015", "WRI-006")
def test_unchanged_apply_writes_nothing(kind: Resource) -> None:
    first = apply(kind, "again", "m", WANTED).expect(201)
    with kind.api.watch(
        kind.path(), resourceVersion=first["metadata"]["resourceVersion"], fieldSelector="metadata.name=again"
    ) as watch:
        assert apply(kind, "again", "m", WANTED).expect(200) == first
        assert apply(kind, "again", "m", WANTED, force="true").expect(200) == first
        kind.api.patch(kind.path("again"), {"spec": {"text": "t"}}, MERGE, fieldManager="e").expect(200)
        changed = apply(kind, "again", "m", {**WANTED, "text": "u"}).expect(200)
        assert watch.next()["object"] == changed  # the watch has no earlier event


@pytest.mark.rows("SSA-006", "SSA-003")
def test_updates_over_10_managers_are_merged(kind: Resource) -> None:
    kind.api.post(kind.path(), kind.make("crowd"), fieldManager="first").expect(201)
    for number in range(14):
        patch = {"spec": {"labels": {f"l{number}": "x"}}}
        last = kind.api.patch(kind.path("crowd"), patch, MERGE, fieldManager=f"m{number:02}").expect(200)
    names = [entry["manager"] for entry in last["metadata"]["managedFields"]]
    assert names[0] == "ancient-changes"
    assert len(names) == 10
    old = owned_fields(last, "ancient-changes")["f:spec"]["f:labels"]
    assert "f:l0" in old
    assert "f:l13" not in old
    appliers = [apply(kind, "crowd", f"a{number}", {"labels": {f"a{number}": "1"}}).status for number in range(3)]
    assert appliers == [200] * 3
    now = kind.api.get(kind.path("crowd")).expect(200)["metadata"]["managedFields"]
    assert [(entry["operation"], entry["manager"]) for entry in now[:3]] == [("Apply", f"a{n}") for n in range(3)]


@pytest.mark.rows("SSA-007")
@pytest.mark.parametrize("reset", [[], [{}]], ids=["empty list", "empty entry"])
@pytest.mark.parametrize("way", ["put", "merge", "json"])
def test_only_an_empty_entry_resets_managed_fields(kind: Resource, reset: list[Any], way: str) -> None:
    name = f"reset-{way}-{len(reset)}"
    made = apply(kind, name, "m", {"text": "x"}).expect(201)
    path, made_by = kind.path(name), made["metadata"]["managedFields"]
    if way == "put":
        made["metadata"]["managedFields"] = reset
        after = kind.api.put(path, made).expect(200)
    elif way == "merge":
        after = kind.api.patch(path, {"metadata": {"managedFields": reset}}, MERGE).expect(200)
    else:
        change = [{"op": "replace", "path": "/metadata/managedFields", "value": reset}]
        after = kind.api.patch(path, change, JSON_PATCH).expect(200)
    if not reset:  # upstream: clients that do not support the field must not remove it
        assert after["metadata"]["managedFields"] == made_by
        return
    assert "managedFields" not in after["metadata"]
    assert "managedFields" not in kind.api.patch(path, {"spec": {"text": "y"}}, MERGE).expect(200)["metadata"]
    again = apply(kind, name, "m", {"number": 1}).expect(200)
    assert owned_fields(again, "before-first-apply") == {"f:spec": {".": {}, "f:text": {}}}


@pytest.mark.rows("SSA-013", "SRV-005")
def test_status_fields_have_separate_owners(kind: Resource) -> None:
    apply(kind, "state", "m", {"text": "x"}).expect(201)
    body = {**kind.make("state"), "spec": {"text": "ignored"}, "status": {"phase": "Up"}}
    after = kind.api.patch(kind.path("state") + "/status", body, APPLY, fieldManager="m").expect(200)
    assert (after["spec"], after["status"]) == ({"text": "x"}, {"phase": "Up"})
    assert owned_fields(after, "m") == {"f:spec": {"f:text": {}}}
    assert owned_fields(after, "m", "status") == {"f:status": {"f:phase": {}}}
    whole = kind.api.patch(kind.path("state"), body, APPLY, fieldManager="n", force="true").expect(200)
    assert whole["status"] == {"phase": "Up"}
    assert owned_fields(whole, "n") == {"f:spec": {"f:text": {}}}
    assert owned_fields(whole, "m") is None  # the other manager took over its only field
    empty = {key: value for key, value in body.items() if key not in {"spec", "status"}}
    gone = kind.api.patch(kind.path("state") + "/status", empty, APPLY, fieldManager="m").expect(200)
    assert not gone.get("status")
    assert owned_fields(gone, "m", "status") is None


@pytest.mark.rows("SSA-010")
def test_fields_without_a_schema_are_owned_by_structure(api: Client) -> None:
    anything = serve(api, schema={"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}})
    spec = {"map": {"a": {"b": 1}}, "list": [{"name": "x"}], "text": "t"}
    first = apply(anything, "any", "m1", spec).expect(201)
    inside = {".": {}, "f:a": {".": {}, "f:b": {}}}
    assert owned_fields(first, "m1") == {"f:spec": {".": {}, "f:map": inside, "f:list": {}, "f:text": {}}}
    conflict = apply(anything, "any", "m2", {"list": [{"name": "x"}, {"name": "y"}], "map": {"a": {"b": 2}}})
    fields = {cause["field"] for cause in conflict.expect(409)["details"]["causes"]}
    assert fields == {".spec.list", ".spec.map.a.b"}
    beside = apply(anything, "any", "m2", {"map": {"a": {"c": 1}}}).expect(200)
    assert beside["spec"]["map"] == {"a": {"b": 1, "c": 1}}
    assert apply(anything, "any", "m1", {}).expect(200)["spec"] == {"map": {"a": {"c": 1}}}


@pytest.mark.rows("SSA-012")
def test_apply_accepts_stored_duplicate_list_items(api: Client) -> None:
    loose = {
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {"ports": {"type": "array", "items": PORT}}}},
    }
    widgets = serve(api, schema={"openAPIV3Schema": loose})
    twice = {"port": 1, "protocol": "TCP"}
    made = widgets.create("twice", ports=[twice, {**twice, "name": "second"}])
    change = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": SCHEMA}]
    api.patch(f"{DEFINITIONS}/widgets.{widgets.group}", change, JSON_PATCH).expect(200)
    path = f"{widgets.path('twice')}?fieldManager=m"

    def apply_with_new_schema() -> dict[str, Any] | None:
        answer = apply(widgets, "twice", "m", {"text": "x"})
        return answer.json if answer.status == 200 else None  # until the server uses the new schema

    after = until(apply_with_new_schema, f"{path} is applied")
    assert after["spec"]["ports"] == made["spec"]["ports"]
    both = apply(widgets, "twice", "n", {"ports": [{**twice, "name": "one"}]}, force="true")
    assert [port.get("name") for port in both.expect(200)["spec"]["ports"]] == ["one"]


TWICE = "{color: red, color: blue}"


@pytest.mark.rows("WRI-013", "SSA-001")
@pytest.mark.parametrize(
    ("spec", "validation", "code", "warned"),
    [
        ("{color: blue}", "", 201, False),
        (TWICE, "", 201, True),
        (TWICE, "Warn", 201, True),
        (TWICE, "Ignore", 201, False),
        (TWICE, "Strict", 400, False),
    ],
)
def test_duplicate_yaml_keys_follow_field_validation(
    api: Client, spec: str, validation: str, code: int, warned: bool
) -> None:
    widgets = serve(api)
    body = f"apiVersion: {widgets.group}/v1\nkind: Widget\nmetadata: {{name: a}}\nspec: {spec}\n".encode()
    asked = {"fieldManager": "m", **({"fieldValidation": validation} if validation else {})}
    answer = widgets.api.patch(widgets.path("a"), body, APPLY, **asked)
    assert answer.status == code
    assert ["already set in map" in text for text in answer.warnings] == ([True] if warned else [])
    assert ('key \\"color\\" already set in map' in answer.text) is (code == 400)


@pytest.mark.rows("SSA-001", "ERR-04")
@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("body", "says"),
    [(b"[", "error encoding patch: yaml: "), (b"{", "error decoding patch: error converting YAML to JSON: yaml: ")],
)
def test_apply_of_invalid_yaml_is_refused(api: Client, there: bool, body: bytes, says: str) -> None:
    # upstream: a body that begins with a brace is JSON, and is decoded after the read of the object
    widgets = serve(api)
    if there:
        widgets.create("a")
    refused = widgets.api.patch(widgets.path("a"), body, APPLY, fieldManager="m").expect(400)
    assert refused["message"].startswith(says)


@pytest.mark.rows("SSA-016")
@pytest.mark.parametrize("annotations", [{"a": "b"}, {}, None])  # upstream: null is the same as absent
def test_kubectl_apply_updates_last_applied_annotation(api: Client, annotations: dict[str, str] | None) -> None:
    widgets, last = serve(api), "kubectl.kubernetes.io/last-applied-configuration"
    first = widgets.make("a", color="red")
    annotated = {**first, "metadata": {**first["metadata"], "annotations": {last: json.dumps(first)}}}
    api.post(widgets.path(), annotated, fieldManager="kubectl-client-side-apply").expect(201)
    second = widgets.make("a", color="blue")
    second["metadata"]["annotations"] = annotations
    found = api.patch(widgets.path("a"), second, APPLY, fieldManager="kubectl").expect(200)
    if annotations is None:
        del second["metadata"]["annotations"]
    written = found["metadata"]["annotations"].pop(last)
    assert json.loads(written) == second
    assert found["metadata"]["annotations"] == (annotations or {})


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"zz": 1}, ".spec.zz: field not declared in schema"),
    "a text as a list": ({"set": "a"}, ".spec.set: expected list, got "),
    "an item twice": ({"ports": [{"port": 1}, {"port": 1}]}, ".spec.ports: duplicate entries for key "),
    "a value twice": ({"set": ["a", "a"]}, ".spec.set: duplicate entries for key "),
}


@pytest.mark.rows("SSA-011", "ERR-22")
@pytest.mark.parametrize("case", list(MISFITS))
def test_apply_that_violates_the_schema_is_a_bad_request(kind: Resource, case: str) -> None:
    spec, text = MISFITS[case]
    for exists in (False, True):
        name = f"misfit-{exists}-{list(MISFITS).index(case)}".lower()
        if exists:
            apply(kind, name, "m", {"set": ["a"]}).expect(201)
        refused = apply(kind, name, "m", spec).expect(400)
        named = f"(/{name}; {kind.group}/v1, Kind={kind.kind})"
        assert refused["message"].startswith(f"failed to create typed patch object {named}: {text}"), refused["message"]
        assert refused["reason"] == "BadRequest"


@pytest.mark.rows("SSA-011", "SSA-019", "ERR-22")
@pytest.mark.parametrize(
    ("content", "text"),
    [({"zz": 1}, ".zz: field not declared in schema"), ({"data": "a"}, ".data: expected map, got ")],
)
def test_apply_that_violates_a_builtin_schema_is_a_bad_request(api: Client, content: dict[str, Any], text: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "misfit"}, **content}
    refused = api.patch("/api/v1/namespaces/default/configmaps/misfit", body, APPLY, fieldManager="m").expect(400)
    assert refused["message"].startswith(f"failed to create typed patch object (/misfit; /v1, Kind=ConfigMap): {text}")
