"""ValidatingAdmissionPolicies with their bindings and parameters, as a client sees them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from apiext.conformance.support.admission import (
    BINDINGS,
    MUTATING,
    POLICIES,
    VALIDATING,
    document,
    rule,
    settled,
    soon,
    stored,
)
from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.events import event
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until

pytestmark = pytest.mark.rows("ADM-020")


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api, subresources={"status": {}})


@contextlib.contextmanager
def policy(
    api: Client, resource: Resource, *validations: dict[str, Any], binding: dict[str, Any] | None = None, **spec: Any
) -> Iterator[str]:
    """Create a policy for a resource, and its binding, for the block; yield the name of both."""
    name = f"p-{secrets.token_hex(4)}"
    spec = {"matchConstraints": {"resourceRules": [rule(resource)]}, "validations": list(validations), **spec}
    bound = {"policyName": name, "validationActions": ["Deny"], **(binding or {})}
    with (
        stored(api, POLICIES, document(POLICIES, name, spec=spec)),
        stored(api, BINDINGS, document(BINDINGS, name, spec=bound)),
    ):
        settled(api, POLICIES)
        yield name
    settled(api, POLICIES)


def denial(widgets: Resource, name: str, text: str) -> str:
    denied = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {text}"
    return f'widgets.{widgets.group} "a" is forbidden: {denied}'


CASES: list[tuple[str, dict[str, Any], dict[str, Any], str | None]] = [
    ("true", {"expression": "object.spec.color == 'red'"}, {}, None),
    ("false", {"expression": "object.spec.color == 'blue'"}, {}, "failed expression: object.spec.color == 'blue'"),
    ("a message", {"expression": "false", "message": "never"}, {}, "never"),
    ("a made message", {"expression": "false", "messageExpression": "'no ' + object.spec.color", "message": "x"}, {},
     "no red"),
    ("a message that cannot be made", {"expression": "false", "messageExpression": "string(object.spec.nope)",
      "message": "x"},
     {}, "x"),
    ("an empty message", {"expression": "false", "messageExpression": "' '", "message": "x"}, {}, "x"),
    ("a message of lines", {"expression": "false", "messageExpression": "'a\\nb'", "message": "x"}, {}, "x"),
    ("an error", {"expression": "object.spec.nope == 1"}, {},
     "expression 'object.spec.nope == 1' resulted in error: no such key: nope"),
    ("an error to be ignored", {"expression": "object.spec.nope == 1"}, {"failurePolicy": "Ignore"}, None),
    ("the request", {"expression": "request.operation == 'CREATE' && request.userInfo.username == 'admin'"}, {}, None),
    ("the namespace", {"expression": "namespaceObject.metadata.name == 'default'"}, {}, None),
    # upstream: times are declared as timestamps, although their values are strings
    ("the text of a time of the namespace",
     {"expression": "string(namespaceObject.metadata.creationTimestamp) != ''"}, {},
     "resulted in error: no such overload: string(string)"),
    ("a time of the namespace",
     {"expression": "timestamp(namespaceObject.metadata.creationTimestamp).getHours() > 0"}, {},
     "resulted in error: no such overload: timestamp(string)"),
    ("the year of a namespace", {"expression": "namespaceObject.metadata.creationTimestamp.getFullYear() > 1"}, {},
     "resulted in error: no such overload: getFullYear(string)"),
    ("the type of a time of the namespace",
     {"expression": "type(namespaceObject.metadata.creationTimestamp) == string"}, {}, None),
    ("the authorizer", {"expression": "authorizer.requestResource.check('create').allowed()"}, {}, None),
    ("an invalid service account of the authorizer",
     {"expression": "authorizer.serviceAccount('a', 'b:c').path('/').check('get').allowed()"}, {},
     "resulted in error: Invalid service account name"),
    ("an invalid account namespace of the authorizer",
     {"expression": "authorizer.serviceAccount('A', 'b').path('/').check('get').allowed()"}, {},
     "resulted in error: Invalid service account namespace"),
    ("an empty resource of the authorizer", {"expression": "authorizer.group('').resource(' ').check('get').allowed()"},
     {}, "resulted in error: resource must not be empty"),
    ("an empty path of the authorizer", {"expression": "authorizer.path(' ').check('get').allowed()"},
     {}, "resulted in error: path must not be empty"),
    ("no old object", {"expression": "oldObject == null"}, {}, None),
    ("has", {"expression": "!has(object.spec.nope) && has(object.spec.color)"}, {}, None),
    ("lists and maps", {"expression": "object.metadata.labels.all(k, k.startsWith('x')) && 'y' in ['x', 'y']"}, {},
     None),
    ("variables", {"expression": "variables.size > 2"},
     {"variables": [{"name": "color", "expression": "object.spec.color"},
                    {"name": "size", "expression": "size(variables.color)"}]}, None),
    ("a variable that fails", {"expression": "variables.nope == 1"},
     {"variables": [{"name": "nope", "expression": "object.spec.nope"}]},
     "expression 'variables.nope == 1' resulted in error: composited variable \"nope\" fails to evaluate: "
     "no such key: nope"),
    ("has a variable that fails", {"expression": "has(variables.nope)"},
     {"variables": [{"name": "nope", "expression": "object.spec.nope"}]},
     "expression 'has(variables.nope)' resulted in error: composited variable \"nope\" fails to evaluate: "
     "no such key: nope"),
    ("has a variable", {"expression": "has(variables.none) && has(variables.color)"},
     {"variables": [{"name": "none", "expression": "null"}, {"name": "color", "expression": "object.spec.color"}]},
     None),
    ("a variable that may be there", {"expression": "variables.?color.orValue('') == object.spec.color"},
     {"variables": [{"name": "color", "expression": "object.spec.color"}]}, None),
    ("a variable of any type", {"expression": "dyn(variables)['color'] == dyn(variables).color + ''"},
     {"variables": [{"name": "color", "expression": "object.spec.color"}]}, None),
    ("a variable of a variable that fails", {"expression": "variables.b"},
     {"variables": [{"name": "a", "expression": "object.spec.nope"}, {"name": "b", "expression": "variables.a == 1"}]},
     'composited variable "b" fails to evaluate: composited variable "a" fails to evaluate: no such key: nope'),
    ("a variable that is not needed", {"expression": "true || variables.nope == 1"},
     {"variables": [{"name": "nope", "expression": "object.spec.nope"}]}, None),
    ("a variable that is a type", {"expression": "variables.v == string"},
     {"variables": [{"name": "v", "expression": "type(object.spec.color)"}]}, None),
    ("a variable that is a type and no number", {"expression": "variables.v == 1"},
     {"variables": [{"name": "v", "expression": "type(object)"}]}, "failed expression: variables.v == 1"),
    ("a variable that is a quantity", {"expression": "variables.v[0].isGreaterThan(quantity('1'))"},
     {"variables": [{"name": "v", "expression": "[quantity('2')]"}]}, None),
    ("a variable that authorizes", {"expression": "variables.v.check('get').allowed()"},
     {"variables": [{"name": "v", "expression": "authorizer.group('').resource('pods')"}]}, None),
    ("a variable that is part of the request", {"expression": "variables.v.username == 'admin'"},
     {"variables": [{"name": "v", "expression": "request.userInfo"}]}, None),
    ("a variable that is an optional", {"expression": "variables.v.orValue('blue') == 'red'"},
     {"variables": [{"name": "v", "expression": "object.?spec.?color"}]}, None),
    ("a condition that is not met", {"expression": "false"},
     {"matchConditions": [{"name": "x", "expression": "request.operation == 'DELETE'"}]}, None),
    ("a condition that fails", {"expression": "true"},
     {"matchConditions": [{"name": "x", "expression": "object.spec.nope == 1"}]},
     "expression 'object.spec.nope == 1' resulted in error: no such key: nope"),
    ("too much to compute", {"expression": "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, "
      "[1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, "
      "[1,2,3,4,5,6,7,8,9,10].all(f, a + b + c + d + e + f > 0))))))"}, {},
     "operation cancelled: actual cost limit exceeded"),
]  # fmt: skip


@pytest.mark.parametrize(("validation", "more", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_policy_validations_allow_or_deny_creates(
    api: Client, widgets: Resource, validation: dict[str, Any], more: dict[str, Any], text: str | None
) -> None:
    wanted = widgets.make("a", color="red")
    wanted["metadata"]["labels"] = {"x1": "y"}
    with policy(api, widgets, validation, **more) as name:
        answer = api.post(widgets.path(), wanted)
    if text is None:
        answer.expect(201)
        return
    found = answer.expect(422)
    assert found["message"].startswith(denial(widgets, name, "")), found
    assert text in found["message"]
    assert found["reason"] == "Invalid"
    assert found["details"]["causes"] == [{"message": found["message"].partition("forbidden: ")[2]}]


@pytest.mark.parametrize(("reason", "code"), [("Forbidden", 403), ("Invalid", 422), ("RequestEntityTooLarge", 413)])
def test_reason_of_a_denial_sets_the_status_code(api: Client, widgets: Resource, reason: str, code: int) -> None:
    with policy(api, widgets, {"expression": "false", "reason": reason}):
        found = api.post(widgets.path(), widgets.make("a")).expect(code)
    assert found["reason"] == reason


def test_warn_action_returns_warnings_instead_of_denials(api: Client, widgets: Resource) -> None:
    bound = {"validationActions": ["Warn", "Audit"]}
    with policy(api, widgets, {"expression": "false", "message": "mind"}, binding=bound) as name:
        answer = api.post(widgets.path(), widgets.make("a"))
    answer.expect(201)
    text = f"Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{name}': mind"
    assert answer.warnings == [f'299 - "{text}"']


def test_policies_validate_updates_and_deletes(api: Client, widgets: Resource) -> None:
    widgets.create("a", size=3)
    grows = {"expression": "request.operation != 'UPDATE' || object.spec.size >= oldObject.spec.size"}
    stays = {"expression": "request.operation != 'DELETE' || object == null && oldObject.spec.size == 0"}
    with policy(api, widgets, grows, stays):
        api.patch(widgets.path("a"), {"spec": {"size": 2}}).expect(422)
        api.patch(widgets.path("a"), {"spec": {"size": 4}}).expect(200)
        api.delete(widgets.path("a")).expect(422)
    api.delete(widgets.path("a")).expect(200)


def test_denial_of_deletecollection_names_the_object_unknown(api: Client, widgets: Resource) -> None:
    widgets.create("a")
    # upstream: a denial calls an object without a name Unknown
    with policy(api, widgets, {"expression": "request.operation != 'DELETE'"}) as name:
        found = api.delete(widgets.path()).expect(422)
    assert found["message"].startswith(denial(widgets, name, "").replace('"a"', '"Unknown"'))
    assert found["details"]["name"] == "Unknown"


def test_policy_without_binding_does_not_apply(api: Client, widgets: Resource) -> None:
    spec = {"matchConstraints": {"resourceRules": [rule(widgets)]}, "validations": [{"expression": "false"}]}
    with stored(api, POLICIES, document(POLICIES, spec=spec)):
        widgets.create("a")


MATCHES: list[tuple[str, dict[str, Any], dict[str, Any], bool]] = [
    ("left out", {"excludeResourceRules": [{}]}, {}, False),
    ("by name", {"resourceRules": [{"resourceNames": ["a"]}]}, {}, True),
    ("by another name", {"resourceRules": [{"resourceNames": ["b"]}]}, {}, False),
    ("by labels", {"objectSelector": {"matchLabels": {"app": "x"}}}, {}, False),
    ("by namespace", {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, {}, True),
    ("by the binding's namespace", {}, {"namespaceSelector": {"matchLabels": {"nope": "x"}}}, False),
    ("by the binding's rules", {}, {"resourceRules": [{"operations": ["DELETE"]}]}, False),
    ("by any of the binding's", {}, {"objectSelector": {}}, True),
]


@pytest.mark.parametrize(
    ("match", "narrow", "judged"), [case[1:] for case in MATCHES], ids=[case[0] for case in MATCHES]
)
def test_policy_applies_only_to_matching_requests(
    api: Client, widgets: Resource, match: dict[str, Any], narrow: dict[str, Any], judged: bool
) -> None:
    def rules(given: dict[str, Any]) -> dict[str, Any]:
        names = ("resourceRules", "excludeResourceRules")
        return {**given, **{name: [{**rule(widgets), **one} for one in given[name]] for name in names if name in given}}

    match = {"resourceRules": [rule(widgets)], **rules(match)}
    bound = {"matchResources": rules(narrow)} if narrow else {}
    with policy(api, widgets, {"expression": "false"}, binding=bound, matchConstraints=match):
        api.post(widgets.path(), widgets.make("a")).expect(422 if judged else 201)


@pytest.mark.rows("ADM-005")
@pytest.mark.parametrize(("group", "there", "asked"), [("", "message", "events.k8s.io"), ("events.k8s.io", "note", "")])
def test_policy_applies_to_events_of_both_groups(
    api: Client, widgets: Resource, group: str, there: str, asked: str
) -> None:
    about = {"operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": ["events"]}
    path, wanted = event(asked)
    parts = [f"object.{there}", "object.apiVersion", "request.resource.group", "request.requestKind.group"]
    told = {"expression": "false", "messageExpression": " + '|' + ".join(parts)}
    with policy(api, widgets, told, matchConstraints={"resourceRules": [about]}):
        found = api.post(path, wanted, dryRun="All").expect(422)
    assert found["message"].endswith(f" denied request: hi|{group}{'/' if group else ''}v1|{group}|{asked}")


def with_limit(resource: Resource, **ref: Any) -> dict[str, Any]:
    return {
        "paramKind": {"apiVersion": f"{resource.group}/v1", "kind": "Limit"},
        "binding": {"paramRef": {"parameterNotFoundAction": "Deny", **ref}},
    }


@pytest.fixture
def bounds(api: Client) -> Resource:
    limits = serve(api, "limits")
    for name, most in (("low", 3), ("high", 9)):
        wanted = limits.make(name, size=most)
        wanted["metadata"]["labels"] = {"kind": "limit"}
        api.post(limits.path(), wanted).expect(201)
    return limits


def until_known(api: Client, resource: Resource) -> None:
    """Wait until the server serves the kind of a policy's parameters to policies.

    This may take long on other servers.
    """
    probe = resource.make("probe", size=0)
    soon(api, lambda: "paramKind" not in api.post(resource.path(), probe, dryRun="All").text, "the kind is known")


def test_policy_reads_parameters_by_name(api: Client, widgets: Resource, bounds: Resource) -> None:
    small = {
        "expression": "object.spec.size <= params.spec.size",
        "messageExpression": "'most is ' + string(params.spec.size)",
    }
    with policy(api, widgets, small, **with_limit(bounds, name="low")):
        until_known(api, widgets)
        widgets.create("b", size=2)
        found = api.post(widgets.path(), widgets.make("a", size=5)).expect(422)
        assert found["message"].endswith("denied request: most is 3")
        api.patch(bounds.path("low"), {"spec": {"size": 6}}).expect(200)
        larger = widgets.make("a", size=5)
        soon(api, lambda: api.post(widgets.path(), larger).status == 201, "the parameter is seen")


def test_policy_validates_with_all_selected_parameters(api: Client, widgets: Resource, bounds: Resource) -> None:
    small = {"expression": "object.spec.size <= params.spec.size"}
    with policy(api, widgets, small, **with_limit(bounds, selector={"matchLabels": {"kind": "limit"}})):
        until_known(api, widgets)
        api.post(widgets.path(), widgets.make("a", size=5)).expect(422)
        widgets.create("a", size=2)


def test_missing_parameters_follow_parameter_not_found_action(api: Client, widgets: Resource, bounds: Resource) -> None:
    text = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    with policy(api, widgets, {"expression": "true"}, **with_limit(bounds, name="nope")) as name:
        until_known(api, widgets)
        found = api.post(widgets.path(), widgets.make("a")).expect(422)
        assert found["message"] == denial(widgets, name, text)
    lenient = with_limit(bounds, name="nope", parameterNotFoundAction="Allow")
    with policy(api, widgets, {"expression": "false"}, **lenient):
        until_known(api, widgets)
        widgets.create("a")


def test_unserved_param_kind_denies_requests(api: Client, widgets: Resource) -> None:
    unknown = {"paramKind": {"apiVersion": "nope.example.com/v1", "kind": "Nope"}}
    ref = {"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}}
    with policy(api, widgets, {"expression": "true"}, binding=ref, **unknown) as name:
        found = api.post(widgets.path(), widgets.make("a")).expect(422)
    text = "failed to find resource referenced by paramKind: 'nope.example.com/v1, Kind=Nope'"
    said = f"ValidatingAdmissionPolicy '{name}' denied request: failed to configure policy: {text}"
    assert found["message"].endswith(said)


def status_of(api: Client, name: str, generation: int) -> dict[str, Any]:
    """Wait until the types of this generation of a policy have been checked; return its status."""

    def checked() -> dict[str, Any] | None:
        found: dict[str, Any] = api.get(f"{POLICIES}/{name}").expect(200).get("status", {})
        return found if found.get("observedGeneration") == generation else None

    return until(checked, f"types of {name} to be checked")


def test_status_has_type_checking_warnings(api: Client, widgets: Resource) -> None:
    rules = [rule(widgets), rule(widgets, apiGroups=[""], resources=["configmaps"])]
    about = {"matchConstraints": {"resourceRules": rules}}
    published = f"apis/{widgets.group}/v1"
    soon(api, lambda: published in api.get("/openapi/v3").expect(200)["paths"], f"{published} is published")
    with policy(api, widgets, {"expression": "object.spec.colour == 'red'"}, **about) as name:
        (warning,) = status_of(api, name, 1)["typeChecking"]["expressionWarnings"]
        assert warning["fieldRef"] == "spec.validations[0].expression"
        assert warning["warning"].splitlines() == [
            "/v1, Kind=ConfigMap: ERROR: <input>:1:7: undefined field 'spec'",
            " | object.spec.colour == 'red'",
            " | ......^",
            "",
            f"{widgets.group}/v1, Kind=Widget: ERROR: <input>:1:12: undefined field 'colour'",
            " | object.spec.colour == 'red'",
            " | ...........^",
        ]
        better = {"spec": {"validations": [{"expression": "object.kind == 'Widget'"}]}}
        api.patch(f"{POLICIES}/{name}", better).expect(200)
        assert not status_of(api, name, 2).get("typeChecking")
        managers = api.get(f"{POLICIES}/{name}").expect(200)["metadata"]["managedFields"]
    assert ("validatingadmissionpolicy-status", "status") in [
        (entry["manager"], entry.get("subresource")) for entry in managers
    ]


def test_type_checking_of_an_empty_group_covers_all_groups(api: Client, widgets: Resource) -> None:
    # upstream: an empty group matches any group, and names may be singular
    about = {"matchConstraints": {"resourceRules": [rule(widgets, apiGroups=[""], resources=["events", "secret"])]}}
    with policy(api, widgets, {"expression": "object.nope == 1"}, **about) as name:
        (warning,) = status_of(api, name, 1)["typeChecking"]["expressionWarnings"]
    lines = warning["warning"].splitlines()
    kinds = [line.partition(": ")[0] for line in lines if "undefined field 'nope'" in line]
    assert kinds == ["/v1, Kind=Event", "/v1, Kind=Secret", "events.k8s.io/v1, Kind=Event"]


def test_policies_apply_to_webhook_configs_but_not_policies(api: Client, widgets: Resource) -> None:
    name = f"judged-{secrets.token_hex(4)}"
    every = {
        "operations": ["*"],
        "apiGroups": ["admissionregistration.k8s.io"],
        "apiVersions": ["*"],
        "resources": ["*"],
    }
    mine = {"name": "mine", "expression": f"object.metadata.name == '{name}'"}
    judging = {"matchConstraints": {"resourceRules": [every]}, "matchConditions": [mine]}
    with policy(api, widgets, {"expression": "false", "message": "never"}, **judging):
        for path in (VALIDATING, MUTATING):
            refused = api.post(path, document(path, name), dryRun="All").expect(422)
            assert refused["message"].endswith("denied request: never")
        spec = {"matchConstraints": judging["matchConstraints"], "validations": [{"expression": "true"}]}
        api.post(POLICIES, document(POLICIES, name, spec=spec), dryRun="All").expect(201)
