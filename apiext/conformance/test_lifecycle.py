"""Life of definitions and their objects: creates, updates, subresources, versions, deletion."""

from __future__ import annotations

import time
from typing import Any

import pytest

from apiext.conformance.support.definitions import condition, definition, establish, fresh_group, is_true, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, Client
from apiext.conformance.support.waiting import prompt, until


@pytest.mark.rows("CND-002", "CND-004", "CND-006", "CRD-002", "UPD-006", "DIS-111")
@pytest.mark.differs("the server delays the first creates of a definition by two seconds")
def test_objects_can_be_created_as_soon_as_a_definition_is_established(api: Client) -> None:
    wanted = definition(fresh_group())
    establish(api, wanted)
    started = time.monotonic()
    group = wanted["spec"]["group"]
    resources = api.get(f"/apis/{group}/v1").expect(200)["resources"]
    created = api.post(
        f"/apis/{group}/v1/namespaces/default/widgets",
        {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "first"}, "spec": {"color": "red"}},
    ).expect(201)
    prompt(time.monotonic() - started, 1)
    assert [resource["name"] for resource in resources] == ["widgets"]
    assert created["spec"] == {"color": "red", "note": "none"}
    assert created["metadata"]["generation"] == 1
    stored = api.get(f"{DEFINITIONS}/widgets.{group}").expect(200)
    assert stored["spec"]["names"]["listKind"] == "WidgetList"
    assert stored["status"]["storedVersions"] == ["v1"]
    assert stored["status"]["acceptedNames"]["plural"] == "widgets"


@pytest.mark.rows("WRI-001", "WRI-005", "ERR-05", "RV-017")
def test_writes_are_read_back_and_stale_ones_refused(api: Client) -> None:
    widgets = serve(api)
    first = widgets.create("a", color="red")
    assert api.get(widgets.path("a")).expect(200) == first
    changed = api.put(widgets.path("a"), {**first, "spec": {"color": "blue"}}).expect(200)
    assert int(changed["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    stale = api.put(widgets.path("a"), {**first, "spec": {"color": "green"}}).expect(409)
    assert stale["reason"] == "Conflict"
    assert stale["message"].endswith(
        "the object has been modified; please apply your changes to the latest version and try again"
    )
    patched = api.patch(widgets.path("a"), [{"op": "add", "path": "/spec/size", "value": 3}], JSON_PATCH).expect(200)
    assert patched["spec"] == {"color": "blue", "note": "none", "size": 3}
    assert api.get(widgets.path()).expect(200)["items"] == [patched]


@pytest.mark.rows("WRI-006")
def test_a_write_that_changes_nothing_keeps_the_revision(api: Client) -> None:
    widgets = serve(api)
    first = widgets.create("a", color="red")
    for answer in (
        api.put(widgets.path("a"), first),
        api.patch(widgets.path("a"), {"spec": {"color": "red"}}),
        api.patch(widgets.path("a"), [], JSON_PATCH),
    ):
        assert answer.expect(200)["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


@pytest.mark.rows("WRI-016", "WRI-017", "WRI-009", "ERR-02")
def test_finalizers_hold_an_object_until_the_last_is_gone(api: Client) -> None:
    widgets = serve(api)
    held = widgets.make("held", color="red")
    held["metadata"]["finalizers"] = ["example.com/one", "example.com/two"]
    api.post(widgets.path(), held).expect(201)
    deleting = api.delete(widgets.path("held")).expect(200)
    assert deleting["metadata"]["deletionTimestamp"]
    assert deleting["metadata"]["deletionGracePeriodSeconds"] == 0
    assert deleting["metadata"]["generation"] == 2
    api.patch(widgets.path("held"), {"metadata": {"finalizers": ["example.com/two"]}}).expect(200)
    api.get(widgets.path("held")).expect(200)
    api.patch(widgets.path("held"), {"metadata": {"finalizers": None}}).expect(200)
    gone = api.get(widgets.path("held")).expect(404)
    assert gone["message"] == f'widgets.{widgets.group} "held" not found'
    assert gone["details"] == {"name": "held", "group": widgets.group, "kind": "widgets"}


@pytest.mark.rows("DEL-001", "DEL-003", "DEL-005", "ERR-03")
def test_deleting_a_definition_deletes_its_objects(api: Client) -> None:
    widgets = serve(api)
    for number in range(25):
        widgets.create(f"w{number}", color="red")
    name = f"{DEFINITIONS}/widgets.{widgets.group}"
    with api.watch(
        widgets.path(namespace=None), resourceVersion=api.get(widgets.path()).json["metadata"]["resourceVersion"]
    ) as watch:
        terminating = api.delete(name).expect(200)
        assert terminating["kind"] == "CustomResourceDefinition"
        assert terminating["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        deleted = [event for event in watch if event["type"] == "DELETED"]
    assert len(deleted) == 25
    until(lambda: api.get(name).status == 404, "the definition is gone", within=15)
    missing = api.get(widgets.path())
    assert (missing.status, missing.text) == (404, "404 page not found\n")
    assert api.get(f"/apis/{widgets.group}").status == 404
    again = definition(widgets.group)
    establish(api, again)
    assert api.get(widgets.path()).expect(200)["items"] == []


@pytest.mark.rows("DEL-004", "CND-009")
def test_a_definition_held_by_an_object_refuses_creates(api: Client) -> None:
    widgets = serve(api)
    held = widgets.make("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(widgets.path(), held).expect(201)
    name = f"{DEFINITIONS}/widgets.{widgets.group}"
    api.delete(name).expect(200)
    until(lambda: is_true(api.get(name).expect(200), "Terminating"), "the definition is terminating", within=10)
    refused = api.post(widgets.path(), widgets.make("late")).expect(403)
    assert "create not allowed while custom resource definition is terminating" in refused["message"]
    verbs = api.get(f"/apis/{widgets.group}/v1").expect(200)["resources"][0]["verbs"]
    assert sorted(verbs) == ["delete", "deletecollection", "get", "list", "watch"]
    api.patch(widgets.path("held"), {"metadata": {"finalizers": None}}).expect(200)
    until(lambda: api.get(name).status == 404, "the definition is gone", within=15)


@pytest.mark.rows("CND-001", "CND-003", "CND-010")
def test_two_definitions_cannot_have_one_kind(api: Client) -> None:
    widgets = serve(api)
    second = definition(widgets.group, "gadgets")
    second["spec"]["names"]["kind"] = "Widget"
    api.post(DEFINITIONS, second).expect(201)
    path = f"{DEFINITIONS}/gadgets.{widgets.group}"

    def refused() -> dict[str, str] | None:
        found = condition(api.get(path).expect(200), "NamesAccepted")
        return found if found and found["status"] == "False" else None

    # the condition reports only the last of several conflicts
    assert until(refused, "the names are refused")["reason"] == "ListKindConflict"
    assert api.get(f"/apis/{widgets.group}/v1/gadgets").status == 404
    api.delete(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)
    until(
        lambda: is_true(api.get(path).expect(200), "Established"),
        "the second definition gets the freed kind",
        within=15,
    )


@pytest.mark.rows("SRV-005", "SRV-004")
def test_status_and_spec_do_not_touch_each_other(api: Client) -> None:
    widgets = serve(api, subresources={"status": {}})
    made = widgets.create("a", color="red")
    api.patch(f"{widgets.path('a')}/status", {"spec": {"color": "blue"}, "status": {"phase": "Ready"}}).expect(200)
    api.patch(widgets.path("a"), {"spec": {"size": 4}, "status": {"phase": "Lost"}}).expect(200)
    seen = api.get(widgets.path("a")).expect(200)
    assert seen["status"] == {"phase": "Ready"}
    assert seen["spec"] == {"color": "red", "note": "none", "size": 4}
    assert seen["metadata"]["generation"] == made["metadata"]["generation"] + 1


@pytest.mark.rows("SRV-007", "SRV-008")
def test_scale_reads_and_writes_the_paths_of_the_definition(api: Client) -> None:
    widgets = serve(
        api,
        subresources={"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
    )
    widgets.create("a", size=2)
    path = f"{widgets.path('a')}/scale"
    scale = api.get(path).expect(200)
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {"replicas": 2})
    api.patch(path, {"spec": {"replicas": 5}}).expect(200)
    assert api.get(widgets.path("a")).expect(200)["spec"]["size"] == 5


@pytest.mark.rows("WRI-002")
def test_generated_names_are_unique(api: Client) -> None:
    widgets = serve(api)
    body = widgets.make("x")
    body["metadata"] = {"generateName": "gen-"}
    names = {api.post(widgets.path(), body).expect(201)["metadata"]["name"] for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("gen-") and len(name) == 9 for name in names)


@pytest.mark.rows("WRI-012")
def test_a_dry_run_changes_nothing(api: Client) -> None:
    widgets = serve(api)
    api.post(widgets.path(), widgets.make("ghost"), dryRun="All").expect(201)
    api.get(widgets.path("ghost")).expect(404)
    kept = widgets.create("kept", color="red")
    api.patch(widgets.path("kept"), {"spec": {"color": "blue"}}, dryRun="All").expect(200)
    api.delete(widgets.path("kept"), dryRun="All").expect(200)
    assert api.get(widgets.path("kept")).expect(200) == kept


@pytest.mark.rows("WRI-001", "SSA-006")
def test_fields_that_a_create_sets_or_drops_have_no_owner(api: Client) -> None:
    widgets = serve(api)
    going = {"deletionTimestamp": "2026-01-02T03:04:05Z", "deletionGracePeriodSeconds": 5, "selfLink": "/x"}
    body = widgets.make("a", color="red")
    made = api.post(widgets.path(), {**body, "metadata": {"name": "a", **going}}).expect(201)["metadata"]
    assert going.keys().isdisjoint(made)
    (owner,) = made["managedFields"]
    assert set(owner["fieldsV1"]) == {"f:spec"}


@pytest.mark.rows("SRV-001", "VAL-013")
def test_paths_must_fit_the_scope_of_the_resource(api: Client) -> None:
    cluster = serve(api, "gadgets", scope="Cluster")
    cluster.create("a", color="red")
    assert api.get(f"/apis/{cluster.group}/v1/namespaces/default/gadgets/a").status == 404
    widgets = serve(api)
    widgets.create("a", color="red")
    assert api.get(f"/apis/{widgets.group}/v1/widgets/a").status == 404
    assert len(api.get(f"/apis/{widgets.group}/v1/widgets").expect(200)["items"]) == 1


@pytest.mark.rows("VER-001", "VER-003", "SRV-002", "SRV-014")
def test_an_object_is_readable_in_every_served_version(api: Client) -> None:
    wanted = definition(fresh_group())
    v1 = wanted["spec"]["versions"][0]
    wanted["spec"]["versions"] += [
        {**v1, "name": "v1beta1", "storage": False},
        {**v1, "name": "v1alpha1", "storage": False, "served": False},
    ]
    group = establish(api, wanted)["spec"]["group"]
    base = "namespaces/default/widgets"
    api.post(
        f"/apis/{group}/v1beta1/{base}",
        {"apiVersion": f"{group}/v1beta1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"color": "red"}},
    ).expect(201)
    seen = {version: api.get(f"/apis/{group}/{version}/{base}/a").expect(200) for version in ("v1", "v1beta1")}
    assert {version: it["apiVersion"] for version, it in seen.items()} == {
        "v1": f"{group}/v1",
        "v1beta1": f"{group}/v1beta1",
    }
    assert seen["v1"]["spec"] == seen["v1beta1"]["spec"]
    assert api.get(f"/apis/{group}/v1alpha1/{base}/a").status == 404
    served = [version["version"] for version in api.get(f"/apis/{group}").expect(200)["versions"]]
    assert served == ["v1", "v1beta1"]


@pytest.mark.rows("NUL-006", "NUL-008")
def test_stored_defaults_stay_after_the_default_is_removed(api: Client) -> None:
    widgets = serve(api, schema=noting({}))
    for name in ("read", "touched"):
        widgets.create(name, color="red")

    def notes() -> dict[str, str | None]:
        answer = api.get(widgets.path())
        if answer.status == 429:  # kube-apiserver fills a new cache after a change of the definition
            return {}
        return {item["metadata"]["name"]: item["spec"].get("note") for item in answer.expect(200)["items"]}

    def use(schema: dict[str, Any]) -> None:
        path, change = f"{DEFINITIONS}/widgets.{widgets.group}", {"op": "replace", "path": "/spec/versions/0/schema"}
        api.patch(path, [{**change, "value": schema}], JSON_PATCH).expect(200)

    use(noting({"default": "none"}))
    until(lambda: notes() == {"read": "none", "touched": "none"}, "the default is shown")
    api.patch(widgets.path("touched"), {}).expect(200)  # stores the default
    widgets.create("made", color="red")
    use(noting({}))
    until(lambda: notes().get("read", "") is None, "the default is not shown any more")
    assert notes() == {"made": "none", "read": None, "touched": "none"}
    api.patch(widgets.path("made"), {"spec": {"note": None}}).expect(200)
    assert notes() == {"made": None, "read": None, "touched": "none"}


def noting(more: dict[str, Any]) -> dict[str, Any]:
    note = {"type": "string", **more}
    spec = {"type": "object", "properties": {"color": {"type": "string"}, "note": note}}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
