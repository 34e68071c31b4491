"""MutatingAdmissionPolicies with their bindings and parameters, as a client sees them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.admission import (
    BASE,
    MUTATING,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    apply,
    configured,
    document,
    json_patch,
    rule,
    settled,
    soon,
    stored,
    webhook,
)
from apiext.conformance.support.admission_webhook import Raw, patch, running_webhook
from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.events import event
from apiext.conformance.support.http_client import Client
from tests.support.processes import Etcd, Server, running_server

pytestmark = pytest.mark.rows("ADM-020")

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}
SPEC: dict[str, Any] = {
    "color": TEXT,
    "size": NUMBER,
    "note": {"type": "string", "default": "none"},
    "replicas": NUMBER,
    "flag": {"type": "boolean"},
    "ratio": {"type": "number"},
    "when": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
    "atoms": {"type": "array", "items": TEXT},
    "objs": {"type": "array", "items": {"type": "object", "properties": {"a": TEXT, "b": TEXT}}},
    "maps": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {
                "name": TEXT,
                "value": TEXT,
                "port": {"type": "integer", "default": 80},
                "deep": {"type": "array", "items": TEXT},
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": TEXT},
            },
        },
    },
    "labels": {"type": "object", "additionalProperties": TEXT},
    "whole": {"type": "object", "x-kubernetes-map-type": "atomic", "additionalProperties": TEXT},
    "struct": {"type": "object", "x-kubernetes-map-type": "atomic", "properties": {"a": TEXT, "b": TEXT}},
    "nested": {
        "type": "object",
        "properties": {
            "a": TEXT,
            "b": {"type": "object", "properties": {"c": TEXT, "d": {"type": "string", "default": "dd"}}},
        },
    },
    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    "any": {"x-kubernetes-preserve-unknown-fields": True},
    "ios": {"x-kubernetes-int-or-string": True},
    "nullable": {"type": "string", "nullable": True},
    "mapofobj": {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "x-kubernetes-map-type": "atomic",
            "properties": {"a": TEXT, "b": TEXT},
        },
    },
    "mapoflist": {"type": "object", "additionalProperties": {"type": "array", "items": TEXT}},
    "emb": {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
    "a/b": TEXT,
}
STATUS = {"type": "object", "properties": {"phase": TEXT, "replicas": NUMBER}}
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}, "status": STATUS}}
BASE_SPEC: dict[str, Any] = {
    "color": "red",
    "atoms": ["x"],
    "maps": [{"name": "m1", "value": "v1", "port": 80}, {"name": "m2", "port": 80}],
    "set": ["s1", "s2"],
    "labels": {"l": "1"},
    "whole": {"w": "1"},
    "struct": {"a": "1"},
    "nested": {"a": "1", "b": {"c": "2", "d": "dd"}},
    "free": {"deep": {"x": 1}},
    "any": {"z": [1]},
    "note": "none",
    "replicas": 2,
}
CASES: dict[str, list[dict[str, Any]]] = read_yaml(Path(__file__).with_name("mutating_policies.yaml"))
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
COUNT = apply("Object{spec: Object.spec{size: (has(object.spec.size) ? object.spec.size : 0) + 1}}")


def wait_until_mergeable(api: Client, resource: Resource) -> Resource:
    """Wait until the server can merge objects of a resource.

    This takes kube-apiserver some seconds.
    """
    with policy(api, resource, apply("Object{}")):
        probe = resource.make("probe")
        soon(api, lambda: api.post(resource.path(), probe, dryRun="All").status == 201, "the kind is known")
    return resource


@pytest.fixture(scope="module")
def widgets(server: Server) -> Resource:
    api = Client(server.url)
    wanted = definition(fresh_group(), schema={"openAPIV3Schema": SCHEMA}, subresources={"status": {}})
    (v1,) = wanted["spec"]["versions"]
    wanted["spec"]["versions"] = [v1, {**v1, "name": "v2", "storage": False}]
    establish(api, wanted)
    return wait_until_mergeable(api, Resource(api, wanted["spec"]["group"], "widgets", "Widget"))


@contextlib.contextmanager
def policy(
    api: Client, about: Resource | dict[str, Any], *mutations: dict[str, Any], binding: Any = None, **spec: Any
) -> Iterator[str]:
    """Create a policy and its bindings for the block; yield its name.

    ``about`` is a resource, or the matchConstraints of the policy.
    """
    name = f"p-{secrets.token_hex(4)}"
    match = about if isinstance(about, dict) else {"resourceRules": [rule(about, operations=("CREATE", "UPDATE"))]}
    spec = {"matchConstraints": match, "mutations": list(mutations), "reinvocationPolicy": "Never", **spec}
    bound = binding if isinstance(binding, list) else [binding or {}]
    with contextlib.ExitStack() as stack:
        stack.enter_context(stored(api, MUTATING_POLICIES, document(MUTATING_POLICIES, name, spec=spec)))
        for index, more in enumerate(bound):
            wanted = document(MUTATING_BINDINGS, f"{name}-{index}", spec={"policyName": name, **more})
            stack.enter_context(stored(api, MUTATING_BINDINGS, wanted))
        settled(api, MUTATING_POLICIES)
        yield name
    settled(api, MUTATING_POLICIES)


def mutations_of(case: dict[str, Any], group: str = "") -> list[dict[str, Any]]:
    makers = {"apply": apply, "patch": json_patch}
    return [
        makers[sort](text.replace("<group>", group))
        for mutation in case["mutations"]
        for sort, text in mutation.items()
    ]


def in_order(text: str) -> str:
    """Sort the lists in a message that kube-apiserver writes in random order."""
    for head, between in (("type mismatch: ", "\n"), ("maps or structs: ", ", "), ("errors:\n", "\n")):
        before, found, listed = text.partition(head)
        if found:
            text = before + found + between.join(sorted(listed.split(between)))
    return text


def check_refusal(answer: Any, case: dict[str, Any], name: str, group: str = "") -> None:
    """Check that the refusal of a write is that of the case."""
    found = answer.expect(case.get("code", 403))
    assert found["reason"] == case.get("reason", "Invalid"), found
    if "answers" in case:
        assert found["message"] == case["answers"].replace("<group>", group)
        return
    says = [case["says"]] if isinstance(case["says"], str) else case["says"]
    by = f"policy '{name}' with binding '{name}-0' denied request: "
    wanted = [in_order(f"{by}{text}".replace("<group>", group)) for text in says]
    assert [in_order(cause["message"]) for cause in found["details"]["causes"]] == wanted
    assert in_order(found["message"]) == wanted[0]


@pytest.mark.parametrize("case", CASES["things"], ids=[case["name"] for case in CASES["things"]])
def test_policies_mutate_custom_objects(api: Client, widgets: Resource, case: dict[str, Any]) -> None:
    given = case.get("given", BASE_SPEC)
    with policy(api, widgets, *mutations_of(case, widgets.group), **case.get("policy", {})) as name:
        answer = api.post(widgets.path(), widgets.make("a", **given), dryRun="All")
    if "spec" not in case:
        check_refusal(answer, case, name, widgets.group)
        return
    found = answer.expect(201).get("spec", {})
    changed = {key: found.get(key) for key in {**found, **given} if found.get(key) != given.get(key)}
    if changed.get("note"):
        changed["note"] = changed["note"].replace(widgets.group, "<group>")
    assert changed == case["spec"]


@pytest.mark.parametrize("case", CASES["builtin"], ids=[case["name"] for case in CASES["builtin"]])
def test_policies_mutate_built_in_kinds(api: Client, case: dict[str, Any]) -> None:
    group, plural = case["about"]["group"], case["about"]["resource"]
    label = {"about": f"l-{secrets.token_hex(4)}"}
    about = {"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [plural]}
    match = {"resourceRules": [about], "objectSelector": {"matchLabels": label}}
    wanted = {**case["object"], "metadata": {**case["object"]["metadata"], "labels": label}}
    place = f"apis/{group}/v1" if group else "api/v1"
    with policy(api, match, *mutations_of(case), **case.get("policy", {})) as name:
        answer = api.post(f"/{place}/namespaces/default/{plural}", wanted, dryRun="All")
    if "answer" not in case:
        check_refusal(answer, case, name)
        return
    found = answer.expect(201)
    assert {key: found[key] for key in found if key not in ("metadata", "kind", "apiVersion")} == case["answer"]


def test_policies_mutate_apply_patch_and_put(api: Client, widgets: Resource) -> None:
    path, body = widgets.path("verbs"), widgets.make("verbs")

    def send_patch(patch: dict[str, Any], kind: str = MERGE, subresource: str = "", **query: object) -> dict[str, Any]:
        found = api.patch(f"{path}{subresource}", patch, kind, **query)
        assert found.status in (200, 201), found.text
        return dict(found.json)

    operation = apply("Object{spec: Object.spec{note: request.operation + string(request.dryRun)}}")
    with policy(api, widgets, operation):
        assert send_patch(body, APPLY, fieldManager="me")["spec"]["note"] == "CREATEfalse"
        assert send_patch({"spec": {"size": 1}}, dryRun="All")["spec"]["note"] == "UPDATEtrue"
        found = send_patch({"spec": {"size": 1}})
        assert found["spec"]["note"] == "UPDATEfalse"
        put = api.put(path, {**widgets.make("verbs", note="mine"), "metadata": found["metadata"]}).expect(200)
        assert put["spec"]["note"] == "UPDATEfalse"
        assert send_patch({"status": {"phase": "x"}}, subresource="/status")["status"] == {"phase": "x"}
        api.delete(path).expect(200)


def test_mutated_fields_have_no_owner(api: Client, widgets: Resource) -> None:
    with policy(api, widgets, apply("Object{spec: Object.spec{size: 5}}")):
        found = widgets.create("owned", color="red")
        assert found["spec"] == {"color": "red", "note": "none", "size": 5}
        (entry,) = found["metadata"]["managedFields"]
        assert sorted(entry["fieldsV1"]["f:spec"]) == [".", "f:color", "f:note"]  # policies own no fields
        api.delete(widgets.path("owned")).expect(200)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("labels/a", "1", "cannot convert int64 to string"),
        ("labels", '"x"', "cannot restore map from string"),
        ("annotations", '{"a": true}', "unrecognized type: string"),
        ("finalizers", "[1]", "cannot convert int64 to string"),
        ("finalizers", '"x"', "cannot restore slice from string"),
        ("ownerReferences", '{"a": "b"}', "cannot restore slice from map"),
        ("generateName", "5", "cannot convert int64 to string"),
        ("managedFields", '"x"', "cannot restore slice from string"),
    ],
)
def test_metadata_of_a_wrong_type_is_refused(api: Client, widgets: Resource, path: str, value: str, says: str) -> None:
    kept = {"labels": {"keep": "1"}, "annotations": {"keep": "1"}, "finalizers": ["example.com/keep"]}
    body = widgets.make("typed", color="red")
    api.post(widgets.path(), {**body, "metadata": {**body["metadata"], **kept}}).expect(201)
    try:
        with policy(api, widgets, json_patch(f'[JSONPatch{{op: "add", path: "/metadata/{path}", value: {value}}}]')):
            change = {"spec": {"color": "blue"}}
            for answer in (
                api.patch(widgets.path("typed"), change, MERGE),
                api.post(widgets.path(), widgets.make("new", color="red") | {"metadata": {"name": "new", **kept}}),
            ):
                (cause,) = answer.expect(422)["details"]["causes"]
                assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "metadata")
                assert cause["message"].startswith("Invalid value: {")
                assert cause["message"].endswith(f"}}: {says}")
        found = api.get(widgets.path("typed")).expect(200)
        assert found["spec"]["color"] == "red"
        assert {name: found["metadata"][name] for name in kept} == kept
    finally:
        api.patch(widgets.path("typed"), {"metadata": {"finalizers": None}}, MERGE).expect(200)
        api.delete(widgets.path("typed")).expect(200)


def test_policy_for_status_mutates_only_status(api: Client, widgets: Resource) -> None:
    about = {"resourceRules": [rule(widgets, "widgets/status", operations=("UPDATE",))]}
    forced = apply('Object{status: Object.status{phase: "forced"}, spec: Object.spec{color: "no"}}')
    with policy(api, about, forced):
        widgets.create("with-status", color="red")
        path = widgets.path("with-status")
        found = api.patch(f"{path}/status", {"status": {"replicas": 1}}).expect(200)
        assert found["status"] == {"phase": "forced", "replicas": 1}
        assert found["spec"]["color"] == "red"
        api.delete(path).expect(200)


@pytest.mark.parametrize(
    ("ref", "text", "failure"),
    [
        ({"name": "none", "parameterNotFoundAction": "Allow"}, "", "Fail"),
        ({"name": "none", "parameterNotFoundAction": "Deny"}, "", "Ignore"),
        ({"name": "none", "parameterNotFoundAction": "Deny"},
         "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction", "Fail"),
        ({"selector": {"matchLabels": {"no": "one"}}, "parameterNotFoundAction": "Deny"},
         "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction", "Fail"),
    ],
    ids=["allowed", "ignored", "denied", "denied by labels"],
)  # fmt: skip
def test_missing_parameters_follow_action_and_failure_policy(
    api: Client, widgets: Resource, ref: dict[str, Any], text: str, failure: str
) -> None:
    kind = {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}, "failurePolicy": failure}
    with policy(api, widgets, COUNT, binding={"paramRef": ref}, **kind) as name:
        answer = api.post(widgets.path(), widgets.make("a"), dryRun="All")
    if not text:
        assert "size" not in answer.expect(201)["spec"]
        return
    found = answer.expect(403)
    assert found["reason"] == "Forbidden"
    assert found["message"] == f"policy '{name}' with binding '{name}-0' denied request: {text}"


def test_mutations_read_parameters(api: Client, widgets: Resource) -> None:
    """The parameters are custom objects, since kube-apiserver can stop watching built-in kinds.

    It does so when the first policy that uses them is deleted.
    """
    knobs = serve(api, "knobs")
    for name in ("one", "two"):
        wanted = knobs.make(name, color=name)
        wanted["metadata"]["labels"] = {"of": "test"}
        api.post(knobs.path(), wanted).expect(201)
    kind = {"paramKind": {"apiVersion": f"{knobs.group}/v1", "kind": "Knob"}}
    mutation = apply("Object{spec: Object.spec{labels: {params.metadata.name: params.spec.color}}}")
    selected = {"paramRef": {"selector": {"matchLabels": {"of": "test"}}, "parameterNotFoundAction": "Deny"}}
    probe = widgets.make("a")
    with policy(api, widgets, mutation, binding=selected, **kind):
        soon(api, lambda: api.post(widgets.path(), probe, dryRun="All").status == 201, "parameters are seen")
        found = api.post(widgets.path(), probe, dryRun="All").expect(201)
        assert found["spec"]["labels"] == {"one": "one", "two": "two"}
    named = {"paramRef": {"name": "two", "namespace": "default", "parameterNotFoundAction": "Deny"}}
    with policy(api, widgets, mutation, binding=named, **kind):
        soon(api, lambda: api.post(widgets.path(), probe, dryRun="All").status == 201, "the parameter is seen")
        found = api.post(widgets.path(), probe, dryRun="All").expect(201)
        assert found["spec"]["labels"] == {"two": "two"}
    null = apply('Object{spec: Object.spec{color: params == null ? "null" : "there"}}')
    with policy(api, widgets, null, **kind):
        soon(api, lambda: api.post(widgets.path(), probe, dryRun="All").status == 201, "the kind is known")
        assert api.post(widgets.path(), probe, dryRun="All").expect(201)["spec"]["color"] == "null"


def test_unserved_param_kind_denies_requests(api: Client, widgets: Resource) -> None:
    unknown = {"paramKind": {"apiVersion": "nope.example.com/v1", "kind": "Nope"}}
    ref = {"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}}
    with policy(api, widgets, COUNT, binding=ref, **unknown) as name:
        found = api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(403)
    text = "failed to find resource referenced by paramKind: 'nope.example.com/v1, Kind=Nope'"
    assert found["message"] == f'policy "{name}" denied request: failed to configure policy: {text}'
    assert found["reason"] == "Forbidden"


def test_binding_matches_the_object_before_mutations(api: Client, widgets: Resource) -> None:
    marked = {"matchResources": {"objectSelector": {"matchLabels": {"marked": "yes"}}, "matchPolicy": "Equivalent"}}
    mark = apply('Object{metadata: Object.metadata{labels: {"marked": "yes"}}}')
    with policy(api, widgets, mark), policy(api, widgets, COUNT, binding=marked):
        wanted = widgets.make("a")
        first = api.post(widgets.path(), wanted, dryRun="All").expect(201)
        wanted["metadata"]["labels"] = {"marked": "yes"}
        second = api.post(widgets.path(), wanted, dryRun="All").expect(201)
    assert ("size" in first["spec"], second["spec"]["size"]) == (False, 1)


@pytest.mark.parametrize(
    ("again", "bindings", "size"), [("Never", 1, 1), ("Never", 2, 2), ("IfNeeded", 1, 2), ("IfNeeded", 2, 4)]
)
@pytest.mark.rows("ADM-015")
def test_reinvocation_policy_repeats_mutations(
    api: Client, widgets: Resource, again: str, bindings: int, size: int
) -> None:
    """upstream: a policy with reinvocation runs twice even without changes by other plug-ins."""
    with policy(api, widgets, COUNT, binding=[{}] * bindings, reinvocationPolicy=again):
        found = api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(201)
    assert found["spec"]["size"] == size


@pytest.mark.rows("ADM-015", "ADM-001")
@pytest.mark.parametrize(
    ("policy_again", "hook_again", "note", "calls"),
    [("Never", "Never", "pw", 1), ("IfNeeded", "Never", "pwp", 1), ("Never", "IfNeeded", "pw", 1),
     ("IfNeeded", "IfNeeded", "pwpw", 2)],
)  # fmt: skip
def test_reinvocation_with_webhooks(
    api: Client, widgets: Resource, tmp_path: Path, policy_again: str, hook_again: str, note: str, calls: int
) -> None:
    """If one plug-in changes the object in the second round, the other is called again.

    Policies are called first.
    """
    add = apply('Object{spec: Object.spec{note: object.spec.note + "p"}}')
    with running_webhook(tmp_path) as hook:

        def answer(request: dict[str, Any]) -> dict[str, Any] | Raw:
            operation = {"op": "replace", "path": "/spec/note", "value": request["object"]["spec"]["note"] + "w"}
            return patch(operation)(request)

        hook.answer = answer
        about = rule(widgets, operations=("CREATE",))
        called = webhook("w", hook.client_config(), about, reinvocationPolicy=hook_again)
        with configured(api, MUTATING, called), policy(api, widgets, add, reinvocationPolicy=policy_again):
            found = api.post(widgets.path(), widgets.make("a", note=""), dryRun="All").expect(201)
    assert (found["spec"]["note"], len(hook.reviews)) == (note, calls)


def test_match_policy_selects_equivalent_versions(api: Client, widgets: Resource) -> None:
    new = replace(widgets, version="v2")
    seen = apply("Object{spec: Object.spec{note: object.apiVersion + request.requestKind.version}}")
    for match, note in (("Equivalent", f"{widgets.group}/v1v2"), ("Exact", "none")):
        with policy(api, {"resourceRules": [rule(widgets)], "matchPolicy": match}, seen):
            found = api.post(new.path(), new.make("a"), dryRun="All").expect(201)
        assert (found["apiVersion"], found["spec"]["note"]) == (f"{widgets.group}/v2", note)


@pytest.mark.differs("its mutating policies convert no events to their other group")
@pytest.mark.rows("ADM-005")
@pytest.mark.parametrize(("group", "there", "asked", "here"), [
    ("", "message", "events.k8s.io", "note"),
    ("events.k8s.io", "note", "", "message"),
])  # fmt: skip
@pytest.mark.parametrize("by", [
    lambda name: apply(f"Object{{{name}: object.{name} + ' ' + request.resource.group + '!'}}"),
    lambda name: json_patch(
        f"[JSONPatch{{op: 'replace', path: '/{name}', value: object.{name} + ' ' + request.resource.group + '!'}}]"
    ),
], ids=["apply", "patch"])  # fmt: skip
def test_policy_mutates_events_of_both_groups(
    api: Client, by: Callable[[str], dict[str, Any]], group: str, there: str, asked: str, here: str
) -> None:
    about = {"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["v1"], "resources": ["events"]}
    path, wanted = event(asked)
    with policy(api, {"resourceRules": [about]}, by(there)):
        made = api.post(path, wanted, dryRun="All").expect(201)
    assert (made["apiVersion"], made[here]) == (wanted["apiVersion"], f"hi {group}!")


@pytest.mark.parametrize(("version", "note"), [("v2", "v1"), ("v1", "none")])
def test_match_conditions_see_the_requested_version(api: Client, widgets: Resource, version: str, note: str) -> None:
    new = replace(widgets, version="v2")
    seen = apply("Object{spec: Object.spec{note: request.resource.version}}")
    asked = [{"name": "a", "expression": f"request.resource.version == '{version}'"}]
    with policy(api, widgets, seen, matchConditions=asked):
        found = api.post(new.path(), new.make("a"), dryRun="All").expect(201)
    assert found["spec"]["note"] == note


def test_policies_do_not_mutate_policies(api: Client) -> None:
    label = {"exempt": secrets.token_hex(4)}
    about = {"operations": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"],
             "resources": ["*"]}  # fmt: skip
    match = {"resourceRules": [about], "objectSelector": {"matchLabels": label}}
    with policy(api, match, apply('Object{metadata: Object.metadata{labels: {"seen": "yes"}}}')):
        for path, content in (
            (MUTATING_BINDINGS, {"spec": {"policyName": "x"}}),
            (f"{BASE}/validatingwebhookconfigurations", {}),
        ):
            wanted = {"metadata": {"generateName": "x-", "labels": label}, **content}
            found = api.post(path, wanted, dryRun="All").expect(201)
            assert ("seen" in found["metadata"]["labels"]) == (path != MUTATING_BINDINGS)


@pytest.mark.rows("ADM-001")
def test_disabled_plugin_mutates_nothing(own_etcd: Etcd, tmp_path: Path) -> None:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}"]
    off = "--disable-admission-plugins=MutatingAdmissionPolicy"
    with running_server([*flags, off], tmp_path / "one") as server:
        api = Client(server.url)
        widgets = serve(api)
        with policy(api, widgets, COUNT):
            assert "size" not in widgets.create("a")["spec"]
