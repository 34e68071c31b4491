"""Values that are equal in Python but not in JSON, such as 1 and true, count as different."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.admission import MUTATING, configured, rule, webhook
from apiext.conformance.support.admission_webhook import Webhook, fixtures, patch
from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group
from apiext.conformance.support.http_client import DEFINITIONS, MERGE, Client
from apiext.conformance.support.json_texts import text
from apiext.conformance.support.waiting import until

running, hook = fixtures()
FREE = "x-kubernetes-preserve-unknown-fields"
ONE_TO_PYTHON = [(1, True), (True, 1), (0, False), ([1], [True]), ({"a": 0}, {"a": False})]


def holding(**value: Any) -> dict[str, Any]:
    """Return a schema whose spec has a field ``a`` of any type, with this default or enum."""
    field = {FREE: True, **value}
    return {
        "openAPIV3Schema": {
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": {"a": field}}},
        }
    }


def two_versions(**schemas: Any) -> dict[str, Any]:
    """Return a definition with the versions v1 (the storage version) and v2."""
    wanted = definition(fresh_group())
    wanted["spec"]["versions"] = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema} for name, schema in schemas.items()
    ]
    return wanted


@pytest.mark.rows("CRD-005")
@pytest.mark.parametrize(("first", "second"), ONE_TO_PYTHON, ids=text)
def test_each_version_keeps_its_schema(api: Client, first: Any, second: Any) -> None:
    wanted = two_versions(v1=holding(default=first, enum=[first]), v2=holding(default=second, enum=[second]))
    made = establish(api, wanted)
    for version, value in zip(made["spec"]["versions"], (first, second), strict=True):
        assert text(version["schema"]) == text(holding(default=value, enum=[value]))
        widgets = Resource(api, made["spec"]["group"], "widgets", "Widget", version["name"])
        shown = api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(201)
        assert text(shown["spec"]) == text({"a": value})
        answer = api.post(widgets.path(), widgets.make("a", a=second if value is first else first), dryRun="All")
        assert answer.status == 422, answer.raw


@pytest.mark.rows("CRD-005")
def test_a_default_that_changes_from_1_to_true_is_stored(api: Client) -> None:
    made = establish(api, two_versions(v1=holding(default=1), v2=holding(default=1)))
    path = f"{DEFINITIONS}/{made['metadata']['name']}"
    made["spec"]["versions"][0]["schema"] = holding(default=True)
    found = api.patch(path, {"spec": {"versions": made["spec"]["versions"]}}, MERGE).expect(200)
    assert found["metadata"]["generation"] == made["metadata"]["generation"] + 1
    found = api.get(path).expect(200)
    schemas = [version["schema"] for version in found["spec"]["versions"]]
    assert text(schemas) == text([holding(default=True), holding(default=1)])


@pytest.mark.rows("SSA-015", "WRI-006")
@pytest.mark.parametrize("place", ["", "/status"], ids=["spec", "status"])
@pytest.mark.parametrize(
    ("first", "second", "shown"), [(1, True, "true"), (True, 1.0, "1"), (0.0, False, "false")], ids=text
)
def test_the_owner_of_a_change_from_1_to_true_gets_a_new_time(
    api: Client, place: str, first: Any, second: Any, shown: str
) -> None:
    free = {"openAPIV3Schema": {"type": "object", FREE: True}}
    wanted = definition(fresh_group(), schema=free, subresources={"status": {}})
    made = establish(api, wanted)
    widgets = Resource(api, made["spec"]["group"], "widgets", "Widget")
    api.post(widgets.path(), widgets.make("a"), fieldManager="a").expect(
        201
    )  # the entry of this manager in managedFields stays the first
    part = place.removeprefix("/") or "spec"
    path = widgets.path("a") + place
    before = api.patch(path, {part: {"x": first}}, MERGE, fieldManager="m").expect(200)

    # managedFields have times in whole seconds, so the manager m alternates between two values until its time changes
    def later() -> dict[str, Any] | None:
        api.patch(path, {part: {"x": first}}, MERGE, fieldManager="m").expect(200)
        found: dict[str, Any] = api.patch(path, {part: {"x": second}}, MERGE, fieldManager="m").expect(200)
        return found if times(found) != times(before) else None

    found = until(later, "managedFields have a new time", within=10)
    assert text(found[part]["x"]) == shown


def times(document: dict[str, Any]) -> dict[str, str]:
    return {entry["manager"]: entry["time"] for entry in document["metadata"]["managedFields"]}


@pytest.mark.rows("ADM-015")
def test_a_change_from_1_to_true_by_a_webhook_causes_reinvocation(api: Client, hook: Webhook) -> None:
    made = establish(api, definition(fresh_group(), schema=holding(default=1)))
    widgets = Resource(api, made["spec"]["group"], "widgets", "Widget")
    hook.answers["/2"] = patch({"op": "replace", "path": "/spec/a", "value": True})
    both = [webhook(f"h{n}", hook.client_config(f"/{n}"), rule(widgets), reinvocationPolicy="IfNeeded") for n in (1, 2)]
    with configured(api, MUTATING, *both):
        shown = api.post(widgets.path(), widgets.make("a")).expect(201)
    assert text(shown["spec"]) == text({"a": True})
    assert [path.split("?")[0] for path in hook.paths] == ["/1", "/2", "/1"]


@pytest.mark.rows("CEL-008")
@pytest.mark.parametrize("where", ["", "nested", "list"])
@pytest.mark.parametrize(("first", "second"), [*ONE_TO_PYTHON, (1, 1.5)], ids=text)
def test_a_rule_with_old_self_sees_a_change_from_1_to_true(api: Client, where: str, first: Any, second: Any) -> None:
    ruled = {"type": "object", FREE: True, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "no"}]}
    schema, value, other = ruled, {"a": first}, {"a": second}
    if where == "nested":
        value, other = {"a": {"b": [value]}}, {"a": {"b": [other]}}
    if where == "list":
        rule = {"rule": "self.all(x, x in oldSelf)", "message": "no"}
        items = {"type": "object", FREE: True}
        schema = {"type": "array", "maxItems": 9, "items": items, "x-kubernetes-validations": [rule]}
        value, other = [value], [other]
    made = establish(
        api,
        definition(fresh_group(), schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": schema}}}),
    )
    widgets = Resource(api, made["spec"]["group"], "widgets", "Widget")
    found = api.post(widgets.path(), {**widgets.make("a"), "spec": value}).expect(201)
    found = api.put(widgets.path("a"), {**found, "metadata": {**found["metadata"], "labels": {"a": "b"}}}).expect(200)
    refused = api.put(widgets.path("a"), {**found, "spec": other}).expect(422)
    assert refused["message"].endswith(": Invalid value: no"), refused["message"]
