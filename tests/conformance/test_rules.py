"""CEL rules over HTTP: expensive rules, threads, delays of other clients, and metrics."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, MERGE, Client
from apiext.conformance.support.waiting import prompt, until
from tests.support.processes import Server
from tests.support.strain import strained

TEXT = {"type": "string"}
NUMBERS = {"type": "array", "items": {"type": "integer"}}
OVER = "estimated rule cost exceeds budget by factor of more than 100x"
HINT = (
    " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are"
    " declared)"
)
ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NO_MORE = "no further validation rules will be run"


def schema_with_rules(schema: dict[str, Any], *rules: dict[str, Any] | str) -> dict[str, Any]:
    """Return the schema of a version with rules for its spec."""
    entries = [{"rule": rule} if isinstance(rule, str) else rule for rule in rules]
    spec = {**schema, "x-kubernetes-validations": entries}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}


def fields(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.fixture
def check_load(server: Server) -> Iterator[None]:
    """Check the CPU and memory that the test needs.

    Also check that the server answers /readyz during the test.
    """
    with strained(server):
        yield


# ---------------------------------------------------- definitions

BOUND = "no bound on digits after the point"
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "nested loops": (fields(l=NUMBERS), "self.l.all(a, self.l.all(b, self.l.all(c, a + b > c)))", OVER),
    "nested maps": (fields(l=NUMBERS), "self.l.map(a, self.l.map(b, a * b)).size() > 0", OVER),
    "unbounded patterns": (fields(s=TEXT, l=NUMBERS), "self.l.all(n, self.s.matches('^(a|b)*$'))", OVER),
    "texts that grow": (fields(s=TEXT), "(self.s + self.s + self.s).replace('a', self.s).contains(self.s)", OVER),
    "a wide format": (fields(s=TEXT), "'%.99999999f'.format([1.0]) == self.s", "exceeds maximum allowed precision"),
    "a bad pattern": (fields(s=TEXT), "self.s.matches('(x+x+)+y(?=z)')", "invalid matches argument"),
    "deep": (fields(s=TEXT), "(" * 300 + "true" + ")" * 300, "expression recursion limit exceeded: 250"),
    "deep lists": (fields(s=TEXT), "[" * 240 + "]" * 240 + " == 1", "found no matching overload"),
    "a long sum": (fields(s=TEXT), "1" + " + 1" * 10_000 + " > 1", "max recursion depth exceeded"),
    "100 KB": (fields(s=TEXT), "self.s != '" + "x" * 100_000 + "'", "expression code point size exceeds limit"),
    "a wrong type": (fields(s=TEXT), "self.s > 1", "found no matching overload for '_>_' applied to '(string, int)'"),
    "a rule without a bool": (fields(s=TEXT), "self.s", "cel expression must evaluate to a bool"),
    "an unknown field": (fields(s=TEXT), "self.t == ''", "undefined field 't'"),
    "an unknown function": (fields(s=TEXT), "system('ls')", "undeclared reference to 'system'"),
    "the type of quantities": (
        fields(s=TEXT),
        "type(quantity('1')) == kubernetes.Quantity",
        "ERROR: <input>:1:24: undeclared reference to 'kubernetes'",
    ),
}


@pytest.mark.usefixtures("check_load")
@pytest.mark.rows("CEL-001", "CEL-011", "CEL-012", "CEL-013")
@pytest.mark.parametrize(
    "case",
    [pytest.param(it, marks=pytest.mark.differs(BOUND) if it == "a wide format" else ()) for it in REFUSED],
)
def test_definitions_with_invalid_rules_are_refused(api: Client, case: str) -> None:
    schema, rule, text = REFUSED[case]
    answer = api.post(DEFINITIONS, definition(fresh_group(), schema=schema_with_rules(schema, rule))).expect(422)
    place = "spec.validation.openAPIV3Schema.properties[spec].x-kubernetes-validations[0].rule"
    found = [cause for cause in answer["details"]["causes"] if cause["field"] == place]
    assert any(text in cause["message"] for cause in found), answer["message"][:1000]
    if text == OVER:
        assert any(cause["message"] == f"Forbidden: {OVER}{HINT}" for cause in found)
    assert api.get("/readyz").status == 200


ITEMS = {
    "type": "array",
    "maxItems": 5,
    "items": fields(k={**TEXT, "maxLength": 1}, w={"type": "array", "items": TEXT}),
}
VALUES = {"type": "object", "maxProperties": 5, "additionalProperties": {**TEXT, "maxLength": 3}}


@pytest.mark.rows("CEL-012", "CEL-013", "CEL-014")
@pytest.mark.parametrize(
    ("schema", "rule", "times", "factor"),
    [
        (fields(l=ITEMS), "self.l.all(x, x.w.all(y, y != x.k))", 60_000, "1.038000x"),  # w: size of k, read last
        (fields(l=ITEMS), "self.l.all(x, x.w.all(y, y != 'a') && x.k != '')", 1, "2.6x"),  # k is read after w
        (fields(o=fields(l=ITEMS)), "self.o.l.all(x, x.w.all(y, y != x.k))", 1, "3.7x"),  # full after 4 steps
        (fields(m=VALUES), "self.m.all(k, v, k.contains(v))", 400_000, "1.120000x"),
        (fields(o=fields(m=VALUES)), "self.o.m.all(k, v, k.contains(v))", 220_000, "1.078000x"),  # k gets the size of v
    ],
)
def test_cost_estimate_reproduces_shared_paths_of_upstream(
    api: Client, schema: dict[str, Any], rule: str, times: int, factor: str
) -> None:
    """Upstream appends to a shared slice, so that later appends change the path of a part.

    Upstream looks up the size of the part by this path.
    """
    items = {**schema, "x-kubernetes-validations": [{"rule": rule}]}
    many = fields(x={"type": "array", "maxItems": times, "items": items})
    answer = api.post(DEFINITIONS, definition(fresh_group(), schema=schema_with_rules(many, "true"))).expect(422)
    place = "items.x-kubernetes-validations[0].rule"
    (cause,) = (one for one in answer["details"]["causes"] if one["field"].endswith(place))
    assert cause["message"] == f"Forbidden: {OVER.replace('more than 100x', factor)}{HINT}"


@pytest.mark.differs("names are counted as long as a request")
@pytest.mark.rows("CEL-013")
@pytest.mark.parametrize(
    ("field", "shape", "times", "factor"),
    [
        ("name", {}, 120_000, "1.260000x"),
        ("generateName", {}, 120_000, "1.248000x"),
        ("name", {"properties": {"name": {**TEXT, "maxLength": 5}}}, 2_400_000, "1.200000x"),
    ],
)
def test_cost_estimate_limits_length_of_metadata_names(
    api: Client, field: str, shape: dict[str, Any], times: int, factor: str
) -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True}
    items = {**embedded, "properties": {"metadata": {"type": "object", **shape}, "a": TEXT}}
    items["x-kubernetes-validations"] = [{"rule": f"self.metadata.{field}.lowerAscii() == ''"}]
    many = fields(x={"type": "array", "maxItems": times, "items": items})
    answer = api.post(DEFINITIONS, definition(fresh_group(), schema=schema_with_rules(many, "true"))).expect(422)
    assert f"Forbidden: {OVER.replace('more than 100x', factor)}" in answer["message"]


@pytest.mark.usefixtures("check_load")
@pytest.mark.differs("no bound on the number of rules")
@pytest.mark.rows("CEL-012")
def test_definition_over_the_rule_limit_is_refused(api: Client) -> None:
    rules = [f"self.s != 'x{number}'" for number in range(10_000)]
    answer = api.post(DEFINITIONS, definition(fresh_group(), schema=schema_with_rules(fields(s=TEXT), *rules)))
    assert "must not have more than 2000 x-kubernetes-validations in all" in answer.expect(422)["message"]


@pytest.mark.usefixtures("check_load")
def test_definition_with_2000_rules_is_accepted(api: Client) -> None:
    short = {"type": "string", "maxLength": 10}
    rules = [f"self.s != 'x{number}'" for number in range(2_000)]
    widgets = serve(api, schema=schema_with_rules(fields(s=short), *rules))
    widgets.create("a", s="fine")
    answer = api.post(widgets.path(), widgets.make("b", s="x1999"))
    assert "spec: Invalid value: failed rule: self.s != 'x1999'" in answer.expect(422)["message"]


@pytest.mark.rows("CEL-008")
def test_old_self_in_uncorrelatable_schema_is_refused(api: Client) -> None:
    items = {**TEXT, "x-kubernetes-validations": [{"rule": "self == oldSelf"}]}
    answer = api.post(
        DEFINITIONS,
        definition(fresh_group(), schema=schema_with_rules(fields(l={"type": "array", "items": items}), "true")),
    )
    place = "spec.validation.openAPIV3Schema.properties[spec].properties[l]"
    text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place}"
    assert text in answer.expect(422)["message"]


@pytest.mark.rows("CEL-008", "CEL-010")
@pytest.mark.parametrize(
    ("optional", "rule", "said"),
    [
        (False, "self == oldSelf", ""),  # upstream: invalid data, expected int, got string
        (False, "self == oldSelf || self > 1", ""),
        (False, "self > 1 && self == oldSelf", "failed rule: self > 1 && self == oldSelf"),
        (True, "oldSelf.orValue(self) == self", ""),
        (True, "oldSelf.hasValue()", ""),
        (True, "!oldSelf.hasValue()", "failed rule: !oldSelf.hasValue()"),
    ],
)
def test_rules_accept_an_old_value_of_another_type(api: Client, optional: bool, rule: str, said: str) -> None:
    group = fresh_group()
    wanted = definition(group, schema={"openAPIV3Schema": ANYTHING})
    number = {"type": "integer", "x-kubernetes-validations": [{"rule": rule, "optionalOldSelf": optional}]}
    strict = {"openAPIV3Schema": {"type": "object", "properties": {"spec": fields(n=number)}}}
    wanted["spec"]["versions"].append({"name": "v2", "served": True, "storage": False, "schema": strict})
    establish(api, wanted)
    Resource(api, group, "widgets", "Widget").create("a", n="text")
    path = Resource(api, group, "widgets", "Widget", "v2").path("a")
    answer = api.patch(path, {"spec": {"n": 1}}, MERGE)
    if not said:
        assert answer.expect(200)["spec"] == {"n": 1}
        return
    (cause,) = answer.expect(422)["details"]["causes"]
    assert cause["message"] == f"Invalid value: 1: {said}"


@pytest.mark.rows("CEL-008", "UPD-012")
def test_a_field_with_a_new_type_can_be_updated(api: Client) -> None:
    number, text = (
        {"type": of, "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]} for of in ("integer", "string")
    )
    wanted = definition(
        fresh_group(), schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": fields(n=number)}}}
    )
    group = establish(api, wanted)["spec"]["group"]
    widgets = Resource(api, group, "widgets", "Widget")
    widgets.create("a", n=5)
    place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/n"
    change = [{"op": "replace", "path": place, "value": text}]
    api.patch(f"{DEFINITIONS}/widgets.{group}", change, JSON_PATCH).expect(200)
    until(
        lambda: api.patch(widgets.path("a"), {"spec": {"n": "5"}}, MERGE).status == 200,
        "the field is updated",
        within=10,
    )
    refused = api.patch(widgets.path("a"), {"spec": {"n": "4"}}, MERGE).expect(422)
    assert "failed rule: self >= oldSelf" in refused["message"]


# rules below an array without items have no type, which is an error only when they are compiled
@pytest.mark.rows("CEL-008", "CEL-010")
def test_rules_of_items_fail_after_the_array_type_was_changed(api: Client) -> None:
    items = {**fields(n={"type": "integer"}), "x-kubernetes-validations": [{"rule": "self.n <= 10"}]}
    listed = {"type": "array", "maxItems": 9, "items": items}
    kind = serve(api, schema={"openAPIV3Schema": fields(spec=fields(l=listed))})
    kind.create("a", l=[{"n": 8}])
    path = f"{DEFINITIONS}/widgets.{kind.group}"
    place = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/l/type"
    api.patch(path, [{"op": "replace", "path": place, "value": "object"}], JSON_PATCH).expect(200)
    changed = {"spec": {"l": [{"n": 9}]}}
    until(lambda: api.patch(kind.path("a"), changed, MERGE).status == 422, "the new schema")
    answer = api.patch(kind.path("a"), {"metadata": {"labels": {"k": "v"}}}, MERGE)
    said = 'spec.l[0]: Invalid value: "object": rule compiler initialization error: failed to convert to declType'
    assert said in answer.expect(422)["message"]


# -------------------------------------------------------- objects


@pytest.fixture(scope="module")
def pairs(request: pytest.FixtureRequest) -> Resource:
    """A custom resource with a rule that is expensive for a small object.

    The rule is within the estimate.
    """
    bounded = {**NUMBERS, "maxItems": 900}
    client = Client(request.getfixturevalue("server").url)
    return serve(client, schema=schema_with_rules(fields(l=bounded), "self.l.all(a, self.l.all(b, a + b >= 0))"))


@pytest.mark.usefixtures("check_load")
@pytest.mark.rows("CEL-010", "CEL-011", "CEL-015")
def test_rule_over_the_call_cost_limit_fails(pairs: Resource) -> None:
    answer = pairs.api.post(pairs.path(), pairs.make("over", l=[1] * 500)).expect(422)
    assert [cause["message"] for cause in answer["details"]["causes"]] == [
        "Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': "
        f"{NO_MORE} due to call cost exceeds limit for rule: self.l.all(a, self.l.all(b, a + b >= 0))"
    ]


@pytest.mark.usefixtures("check_load")
@pytest.mark.rows("CEL-010", "CEL-011")
def test_object_over_the_cost_budget_of_all_rules_fails(api: Client) -> None:
    rules = [{"rule": f"[1, 2, 3].all(a, [1, 2, 3].all(b, a + b > {number}))"} for number in (-1, 0, 1)]
    each = {**fields(), "x-kubernetes-validations": rules}
    widgets = serve(
        api, schema=schema_with_rules(fields(l={"type": "array", "maxItems": 80_000, "items": each}), "true")
    )
    answer = api.post(widgets.path(), widgets.make("a", l=[{}] * 80_000))
    text = f"validation failed due to running out of cost budget, {NO_MORE}"
    assert [text in cause["message"] for cause in answer.expect(422)["details"]["causes"]] == [True]


@pytest.mark.usefixtures("check_load")
@pytest.mark.differs("long lists take the square of their length, and 30 seconds are over before the costs")
@pytest.mark.rows("CEL-010", "CEL-011")
def test_call_cost_limit_holds_for_a_megabyte_object(api: Client) -> None:
    rule = "self.l.all(n, n >= 0 && n < 99999 && n != 7)"
    widgets = serve(api, schema=schema_with_rules(fields(l={**NUMBERS, "maxItems": 300_000}), rule))
    answer = api.post(widgets.path(), widgets.make("a", l=[1111] * 200_000))
    assert f"{NO_MORE} due to call cost exceeds limit for rule: {rule}" in answer.expect(422)["message"]
    api.post(widgets.path(), widgets.make("b", l=[1111] * 50_000)).expect(201)


@pytest.mark.usefixtures("check_load")
@pytest.mark.differs("no bound on the elements that a rule touches: it fills the memory of its machine")
@pytest.mark.rows("CEL-010")
def test_rule_that_doubles_lists_exceeds_cost_limit(api: Client) -> None:
    rule = "[self.l]" + "".join(f".map(v{n}, v{n} + v{n})" for n in range(40)) + ".size() > 0"
    widgets = serve(api, schema=schema_with_rules(fields(l={**NUMBERS, "maxItems": 10}), rule))
    answer = api.post(widgets.path(), widgets.make("a", l=[1] * 10))
    assert f"actual cost limit exceeded': {NO_MORE}" in answer.expect(422)["message"]


@pytest.mark.rows("CEL-009")
@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("'no ' + self.l[7]", "the message"),
        ("string(1 / (size(self.l) - 1))", "the message"),
        ("''", "the message"),
        ("'  '", "the message"),
        ("'two' + '\\n' + 'lines'", "the message"),
        ("'%s'.format([lists.range(3000)])", "the message"),
        ("' made of ' + self.l[0]", "made of x"),
    ],
)
def test_failed_message_expression_falls_back_to_message(api: Client, expression: str, said: str) -> None:
    listed = {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 5}}
    rule = {"rule": "size(self.l) > 3", "message": "the message", "messageExpression": expression}
    widgets = serve(api, schema=schema_with_rules(fields(l=listed), rule))
    answer = api.post(widgets.path(), widgets.make("a", l=["x"]))
    assert f"spec: Invalid value: {said}" in answer.expect(422)["message"]


@pytest.mark.usefixtures("check_load")
def test_rule_evaluation_does_not_delay_reads(server: Server, pairs: Resource) -> None:
    """Objects of 2 KB whose rules take 50 ms each are validated in threads."""
    api, over, waits = Client(server.url), threading.Event(), []
    pairs.create("small", l=[1])

    def read() -> None:
        while not over.is_set():
            began = time.monotonic()
            api.get(pairs.path("small")).expect(200)
            waits.append(time.monotonic() - began)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(8):
        pairs.create(f"long-{number}", l=[1] * 300)
    over.set()
    reader.join()
    waits.sort()
    prompt(waits[len(waits) // 2], 0.05, "half of the reads do not notice")


@pytest.mark.rows("CEL-017")
def test_writes_of_status_and_scale_evaluate_all_rules(api: Client) -> None:
    schema = {
        "type": "object",
        "properties": {
            "spec": fields(replicas={"type": "integer"}, most={"type": "integer"}),
            "status": fields(replicas={"type": "integer"}),
        },
        "x-kubernetes-validations": [
            {"rule": "self.spec.replicas <= self.spec.most", "message": "too many"},
            {"rule": "!has(self.status) || self.status.replicas <= self.spec.most", "message": "too many seen"},
        ],
    }
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    widgets = serve(api, schema={"openAPIV3Schema": schema}, subresources={"status": {}, "scale": paths})
    widgets.create("a", replicas=1, most=3)
    scaled = api.patch(f"{widgets.path('a')}/scale", {"spec": {"replicas": 4}}, MERGE)
    assert "too many" in scaled.expect(422)["message"]
    api.patch(f"{widgets.path('a')}/scale", {"spec": {"replicas": 3}}, MERGE).expect(200)
    seen = api.patch(f"{widgets.path('a')}/status", {"status": {"replicas": 4}}, MERGE)
    assert "too many seen" in seen.expect(422)["message"]
    api.patch(f"{widgets.path('a')}/status", {"status": {"replicas": 3}}, MERGE).expect(200)


# ---------------------------------------------------------------- metrics


def cel_metric_count(api: Client, name: str) -> float:
    found = re.search(rf"^apiserver_cel_{name}_duration_seconds_count (\S+)$", api.get("/metrics").text, re.M)
    return float(found[1]) if found else 0.0


@pytest.mark.rows("CEL-019")
def test_metrics_count_rule_compilations_and_evaluations(api: Client) -> None:
    compiled = cel_metric_count(api, "compilation")
    root = {**fields(spec=fields(l=NUMBERS)), "x-kubernetes-validations": [{"rule": "self.spec.l.all(n, n > 0)"}]}
    widgets = serve(api, schema={"openAPIV3Schema": root})
    assert cel_metric_count(api, "compilation") > compiled
    evaluated = cel_metric_count(api, "evaluation")
    widgets.create("a", l=[1])
    assert cel_metric_count(api, "evaluation") == evaluated + 1
    text = api.get("/metrics").text
    for name in ("compilation", "evaluation"):
        full = f"apiserver_cel_{name}_duration_seconds"
        assert re.search(rf"^# HELP {full} .*CEL {name} time in seconds.\n# TYPE {full} histogram$", text, re.M)
        assert f'{full}_bucket{{le="0.005"}} ' in text
        assert f'{full}_bucket{{le="10"}} ' in text
