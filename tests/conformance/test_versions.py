"""Several versions of a resource: their order, storage, conversion, and the removal of one."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, condition, definition, establish, fresh_group, is_true
from apiext.conformance.support.http_client import DEFINITIONS, TABLE, Answer, Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Etcd, Server, running_server

PREFIX = "/versions"
ORDERED = ["v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"]


@pytest.fixture(scope="module")
def versions_server(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Server]:
    """A server whose etcd the tests can read."""
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={PREFIX}"]
    with running_server(flags, tmp_path_factory.mktemp("versions")) as server:
        yield server


@pytest.fixture
def own(versions_server: Server) -> Client:
    """A client of that server."""
    return Client(versions_server.url)


def spec_of(**properties: Any) -> dict[str, Any]:
    """Return a schema whose spec has these properties."""
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}


TEXT = {"type": "string"}


def with_versions(group: str, *versions: dict[str, Any]) -> dict[str, Any]:
    """Return a definition of widgets; by default versions are served and have the same schema."""
    wanted = definition(group)
    wanted["spec"]["versions"] = [
        {"served": True, "storage": False, "schema": spec_of(color=TEXT, note=TEXT), **version} for version in versions
    ]
    return wanted


def serve(api: Client, *versions: dict[str, Any]) -> dict[str, Resource]:
    """Create a definition with these versions; return name of the version → the resource in it."""
    group = fresh_group()
    establish(api, with_versions(group, *versions))
    return {it["name"]: Resource(api, group, "widgets", "Widget", it["name"]) for it in versions}


def replace_versions(api: Client, group: str, *versions: dict[str, Any]) -> Answer:
    """Replace the versions of a definition."""
    name = f"{DEFINITIONS}/widgets.{group}"

    def written() -> Answer | None:
        stored = api.get(name).expect(200)
        stored["spec"]["versions"] = with_versions(group, *versions)["spec"]["versions"]
        answer = api.put(name, stored)
        return answer if answer.status != 409 else None  # 409: a controller has changed the definition

    return until(written, "the definition is changed")


def stored_versions(api: Client, group: str) -> list[str]:
    found: list[str] = api.get(f"{DEFINITIONS}/widgets.{group}").expect(200)["status"]["storedVersions"]
    return found


def stored(etcd: Etcd, group: str, name: str) -> dict[str, Any]:
    """Return the object that is stored in etcd."""
    key = base64.b64encode(f"{PREFIX}/{group}/widgets/default/{name}".encode()).decode()
    found: dict[str, Any] = json.loads(base64.b64decode(etcd.call("kv/range", {"key": key})["kvs"][0]["value"]))
    return found


STATUS: dict[str, Any] = {"status": {}}
V1, V2 = {"name": "v1", "storage": True}, {"name": "v2"}
OLD, NEW = {"name": "v1"}, {"name": "v2", "storage": True}


@pytest.mark.rows("VER-001", "DIS-104")
@pytest.mark.parametrize(
    "order", [ORDERED, ORDERED[::-1], sorted(ORDERED)], ids=["as documented", "reversed", "by name"]
)
def test_versions_are_listed_by_priority(api: Client, order: list[str]) -> None:
    served = serve(api, *({"name": name, "storage": name == "foo1"} for name in order))
    group = served["v1"].group
    told = api.get(f"/apis/{group}").expect(200)
    assert [it["version"] for it in told["versions"]] == ORDERED
    assert told["preferredVersion"]["version"] == "v10"
    [listed] = [it for it in api.get("/apis").expect(200)["groups"] if it["name"] == group]
    assert (listed["versions"], listed["preferredVersion"]) == (told["versions"], told["preferredVersion"])


@pytest.mark.rows("VER-001", "SRV-002")
def test_unserved_version_is_never_preferred(api: Client) -> None:
    group = serve(api, {"name": "v3", "served": False}, {"name": "v2beta1"}, {"name": "v1beta1", "storage": True})[
        "v3"
    ].group
    told = api.get(f"/apis/{group}").expect(200)
    assert [it["version"] for it in told["versions"]] == ["v2beta1", "v1beta1"]
    assert told["preferredVersion"]["version"] == "v2beta1"
    for path in (f"/apis/{group}/v3", f"/apis/{group}/v3/namespaces/default/widgets"):
        assert api.get(path).status == 404


@pytest.mark.rows("VER-002", "VER-003", "VER-014", "VER-015", "UPD-006", "CRD-039", "UPD-007")
def test_documented_migration_of_the_storage_version(own: Client, own_etcd: Etcd) -> None:
    """The storage version changes while two objects exist; then the old version is removed."""
    first, second = {"name": "v1beta1", "storage": True}, {"name": "v1"}
    served = serve(own, first)
    beta, group = served["v1beta1"], served["v1beta1"].group
    stable = Resource(own, group, "widgets", "Widget", "v1")
    beta.create("first", color="red")
    assert stored(own_etcd, group, "first")["apiVersion"] == f"{group}/v1beta1"
    replace_versions(own, group, {"name": "v1beta1"}, {"name": "v1", "storage": True}).expect(200)
    assert stored_versions(own, group) == ["v1beta1", "v1"]
    shown = {it.version: own.get(it.path("first")).expect(200) for it in (beta, stable)}
    assert shown["v1"] | {"apiVersion": ""} == shown["v1beta1"] | {"apiVersion": ""}
    assert stored(own_etcd, group, "first")["apiVersion"] == f"{group}/v1beta1"  # reads do not rewrite objects
    beta.create("second", color="blue")
    assert stored(own_etcd, group, "second")["apiVersion"] == f"{group}/v1"
    assert {it["metadata"]["name"] for it in own.get(beta.path()).expect(200)["items"]} == {"first", "second"}
    rewritten = own.put(beta.path("first"), shown["v1beta1"]).expect(200)  # changes only the stored version
    assert rewritten["metadata"]["resourceVersion"] != shown["v1beta1"]["metadata"]["resourceVersion"]
    assert rewritten["metadata"]["generation"] == 1
    assert stored(own_etcd, group, "first")["apiVersion"] == f"{group}/v1"
    again = own.put(beta.path("first"), rewritten).expect(200)
    assert again["metadata"]["resourceVersion"] == rewritten["metadata"]["resourceVersion"]
    refused = replace_versions(own, group, second | {"storage": True}).expect(422)
    assert refused["details"]["causes"][0]["message"] == (
        'Invalid value: "v1beta1": missing from spec.versions; v1beta1 was previously a storage version, and must '
        "remain in spec.versions until a storage migration ensures no data remains persisted in v1beta1 and removes "
        "v1beta1 from status.storedVersions"
    )
    assert refused["details"]["causes"][0]["field"] == "status.storedVersions[0]"
    own.patch(f"{DEFINITIONS}/widgets.{group}/status", {"status": {"storedVersions": ["v1"]}}).expect(200)
    replace_versions(own, group, second | {"storage": True}).expect(200)
    assert own.get(beta.path("first")).status == 404
    assert own.get(stable.path("first")).expect(200)["spec"] == {"color": "red"}


@pytest.mark.rows("CRD-039", "UPD-006", "UPD-007")
def test_stored_versions_change_only_by_server_and_status(api: Client) -> None:
    group = serve(api, V1, V2)["v1"].group
    name = f"{DEFINITIONS}/widgets.{group}"
    given = api.get(name).expect(200)
    given["status"]["storedVersions"] = ["v2", "v9"]
    assert api.put(name, given).expect(200)["status"]["storedVersions"] == ["v1"]  # the main resource cannot change it
    replace_versions(api, group, OLD, NEW).expect(200)
    replace_versions(api, group, V1, V2).expect(200)
    assert stored_versions(api, group) == ["v1", "v2"]  # in the order of their use, each once
    api.patch(f"{name}/status", {"status": {"storedVersions": ["v9"]}}).expect(200)  # the status is not validated
    refused = api.patch(name, {"metadata": {"labels": {"a": "b"}}}).expect(422)
    assert [cause["field"] for cause in refused["details"]["causes"]] == ["status.storedVersions[0]"]
    assert 'status.storedVersions[0]: Invalid value: "v9": missing from spec.versions' in refused["message"]
    assert stored_versions(api, group) == ["v9"]
    body = with_versions(fresh_group(), V1)
    body["status"] = {"storedVersions": ["v7"], "acceptedNames": {"plural": "x", "kind": "Y"}, "conditions": []}
    assert api.post(DEFINITIONS, body).expect(201)["status"] == {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1"],
    }


@pytest.mark.rows("VER-003", "SRV-014", "NUL-005")
def test_each_version_is_pruned_by_its_schema(api: Client) -> None:
    served = serve(
        api,
        V1 | {"schema": spec_of(color=TEXT, old=TEXT)},
        V2 | {"schema": spec_of(color=TEXT, new={"type": "string", "default": "fresh"})},
    )
    v1, v2 = served["v1"], served["v2"]
    v1.create("a", color="red", old="kept", new="unknown here")
    assert api.get(v1.path("a")).expect(200)["spec"] == {"color": "red", "old": "kept"}
    assert api.get(v2.path("a")).expect(200)["spec"] == {
        "color": "red"
    }  # stored objects get their own version's defaults
    made = api.post(v2.path(), v2.make("b", color="blue", old="unknown here")).expect(201)
    assert made["spec"] == {"color": "blue"}
    assert api.get(v1.path("b")).expect(200)["spec"] == {"color": "blue"}
    patched = api.patch(v2.path("a"), {"spec": {"color": "green"}}).expect(200)
    assert patched["spec"] == {"color": "green"}
    assert api.get(v1.path("a")).expect(200)["spec"] == {"color": "green", "old": "kept"}  # old is no field of v2


@pytest.mark.rows("WRI-012", "VER-003")
def test_dry_run_response_equals_the_stored_write(api: Client) -> None:
    served = serve(api, V1, V2 | {"schema": spec_of(color=TEXT, new=TEXT)})
    path = served["v2"].path("a")
    served["v1"].create("a", color="red")
    change = {"spec": {"color": "blue", "new": "unknown to what is stored"}}
    tried, done = (api.patch(path, change, **query).expect(200)["spec"] for query in ({"dryRun": "All"}, {}))
    assert tried == done == {"color": "blue"}


@pytest.mark.rows("VER-003", "WRI-017", "SRV-005")
@pytest.mark.parametrize("way", ["status", "delete"])
def test_rewrite_in_new_storage_version_adds_its_defaults(api: Client, way: str) -> None:
    """A rewrite in a new storage version adds its defaults even if no body is decoded.

    The write of /status and the delete do not decode a body. So an object that is stored in another version lacks the
    defaults of the new version.
    """
    newer = {"name": "v2", "schema": spec_of(note=TEXT, size={"type": "integer", "default": 3}), "subresources": STATUS}
    older = {"name": "v1", "subresources": STATUS}
    served = serve(api, {**older, "storage": True}, newer)
    body = served["v1"].make("x", note="a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(served["v1"].path(), body).expect(201)
    replace_versions(api, served["v1"].group, older, {**newer, "storage": True}).expect(200)
    path, full = served["v2"].path("x"), {"note": "a", "size": 3}
    before = api.get(path).expect(200)
    assert before["spec"] == {"note": "a"}

    def write_stored_object(**query: str) -> dict[str, Any]:
        answer = api.put(f"{path}/status", before, **query) if way == "status" else api.delete(path, **query)
        shown: dict[str, Any] = answer.expect(200)
        return shown

    until(lambda: write_stored_object(dryRun="All")["spec"] == full, "a dry run shows it, too")
    answer = write_stored_object()
    assert answer["spec"] == full
    assert api.get(path).expect(200) == answer


@pytest.mark.rows("SRV-014", "TAB-001", "SRV-005")
def test_versions_have_separate_columns_and_subresources(api: Client) -> None:
    columns = [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}]
    served = serve(
        api,
        V1 | {"additionalPrinterColumns": columns, "selectableFields": [{"jsonPath": ".spec.color"}]},
        V2 | {"subresources": {"status": {}}, "schema": spec_of(color=TEXT)},
    )
    v1, v2 = served["v1"], served["v2"]
    v1.create("a", color="red")
    v1.create("b", color="blue")
    names = {
        it.version: [
            column["name"] for column in api.get(it.path(), {"Accept": TABLE}).expect(200)["columnDefinitions"]
        ]
        for it in (v1, v2)
    }
    assert names == {"v1": ["Name", "Color"], "v2": ["Name", "Age"]}
    chosen = api.get(v1.path(), fieldSelector="spec.color=red").expect(200)["items"]
    assert [it["metadata"]["name"] for it in chosen] == ["a"]
    assert api.get(v2.path(), fieldSelector="spec.color=red").status == 400
    assert api.get(f"{v2.path('a')}/status").status == 200
    assert api.get(f"{v1.path('a')}/status").status == 404


@pytest.mark.rows("SRV-016", "VER-001")
def test_deprecated_versions_warn(api: Client) -> None:
    own_words = "v1alpha1 is going; see the notes"
    served = serve(
        api,
        {"name": "v1alpha1", "deprecated": True, "deprecationWarning": own_words},
        {"name": "v1beta1", "deprecated": True},
        {"name": "v1", "storage": True},
    )
    group = served["v1"].group
    beta = f"{group}/v1beta1 Widget is deprecated; use {group}/v1 Widget"
    for version, text in (("v1alpha1", own_words), ("v1beta1", beta), ("v1", "")):
        widgets, name = served[version], f"of-{version}"
        expected = [f'299 - "{text}"'] if text else []
        created = api.post(widgets.path(), widgets.make(name, color="red"))
        answers = (
            created, api.get(widgets.path(name)), api.get(widgets.path()), api.put(widgets.path(name), created.json),
            api.patch(widgets.path(name), {"spec": {"color": "blue"}}), api.delete(widgets.path(name)),
            api.get(widgets.path("missing")), api.post(widgets.path(), {"kind": "Other"}), api.delete(widgets.path()),
        )  # fmt: skip
        assert [answer.warnings for answer in answers] == [expected] * len(answers)
        with api.watch(widgets.path(), timeoutSeconds=1) as watch:
            assert watch.headers.get("warning", "") == "".join(expected)


@pytest.mark.rows("SRV-016")
def test_deprecation_warning_names_only_a_newer_stable_version(api: Client) -> None:
    served = serve(api, {"name": "v1", "storage": True}, {"name": "v2", "deprecated": True})
    v2 = served["v2"]
    assert api.get(v2.path()).warnings == [f'299 - "{v2.group}/v2 Widget is deprecated"']
    assert replace_versions(api, v2.group, V1, V2).status == 200
    until(lambda: api.get(v2.path()).warnings == [], "the warning is gone")


@pytest.mark.rows("VER-015", "VER-002", "RV-010")
def test_watches_deliver_objects_of_all_versions(api: Client) -> None:
    served = serve(api, V1, V2)
    v1, v2 = served["v1"], served["v2"]
    v1.create("before", color="red")
    replace_versions(api, v1.group, OLD, NEW).expect(200)
    since = api.get(v1.path()).expect(200)["metadata"]["resourceVersion"]
    with api.watch(v1.path()) as old_watch, api.watch(v2.path(), resourceVersion=since) as new_watch:
        assert old_watch.next()["object"]["apiVersion"] == f"{v1.group}/v1"
        v1.create("after", color="blue")
        api.patch(v2.path("before"), {"spec": {"color": "green"}}).expect(200)
        for watch, version in ((old_watch, "v1"), (new_watch, "v2")):
            events = [watch.next(), watch.next()]
            assert [(it["type"], it["object"]["metadata"]["name"]) for it in events] == [
                ("ADDED", "after"),
                ("MODIFIED", "before"),
            ]
            assert {it["object"]["apiVersion"] for it in events} == {f"{v1.group}/{version}"}


@pytest.mark.rows("RV-009", "VER-014")
def test_watch_resumed_before_definition_was_recreated_expires(api: Client) -> None:
    """A watch that resumes from before a definition was recreated must list again.

    The recreated definition has other versions.
    """
    group = serve(api, V1)["v1"].group
    before, after = (Resource(api, group, "widgets", "Widget", version) for version in ("v1", "v2"))
    old = api.get(before.path()).expect(200)["metadata"]["resourceVersion"]
    before.create("x", color="red")
    name = f"{DEFINITIONS}/widgets.{group}"
    api.delete(name).expect(200)
    until(lambda: api.get(name).status == 404, "the definition is gone", within=20)
    establish(api, with_versions(group, NEW))
    until(lambda: api.get(after.path()).status == 200, "it is served")
    fresh = api.get(after.path()).expect(200)["metadata"]["resourceVersion"]
    with api.watch(after.path(), resourceVersion=fresh) as watch:
        with api.watch(after.path(), resourceVersion=old) as resumed:
            told = resumed.next("ERROR")["object"]
            assert (told["code"], told["reason"]) == (410, "Expired")
            assert told["message"].startswith(f"too old resource version: {old} (")
        after.create("y", color="blue")
        assert watch.next("ADDED")["object"]["metadata"]["name"] == "y"


@pytest.mark.differs("an edit of a definition ends all of its watches")
@pytest.mark.rows("SRV-015", "SRV-002")
def test_definition_edit_ends_only_affected_watches(api: Client) -> None:
    third = {"name": "v3", "schema": spec_of(other=TEXT)}
    served = serve(api, V1, V2, third)
    v1, v2, group = served["v1"], served["v2"], served["v1"].group
    since = api.get(v1.path()).expect(200)["metadata"]["resourceVersion"]
    described = spec_of(color={**TEXT, "description": "as painters call it", "title": "Color"}, note=TEXT)
    with api.watch(v1.path(), resourceVersion=since) as first, api.watch(v2.path(), resourceVersion=since) as second:
        replace_versions(api, group, V1 | {"schema": described}, V2 | {"schema": described}, third).expect(200)
        v1.create("a")
        assert [watch.next()["object"]["metadata"]["name"] for watch in (first, second)] == ["a", "a"]
        replace_versions(api, group, V1, V2 | {"served": False}, third).expect(200)
        assert list(second) == []
        assert api.get(v2.path()).status == 404
        v1.create("b")
        assert first.next()["object"]["metadata"]["name"] == "b"
        since = api.get(served["v3"].path()).expect(200)["metadata"]["resourceVersion"]
        with api.watch(served["v3"].path(), resourceVersion=since) as other:
            touched = third | {"schema": spec_of(other={"type": "integer"})}
            replace_versions(api, group, V1, V2 | {"served": False}, touched).expect(200)
            assert list(other) == []
        v1.create("c")
        assert first.next()["object"]["metadata"]["name"] == "c"
        replace_versions(api, group, V1 | {"schema": spec_of(color=TEXT)}, V2 | {"served": False}, touched).expect(200)
        assert list(first) == []


@pytest.mark.rows("SRV-015")
def test_added_or_removed_version_ends_all_watches(api: Client) -> None:
    v1 = serve(api, V1)["v1"]
    for versions in ((V1, V2), (V1,)):
        since = api.get(v1.path()).expect(200)["metadata"]["resourceVersion"]
        with api.watch(v1.path(), resourceVersion=since) as watch:
            replace_versions(api, v1.group, *versions).expect(200)
            assert list(watch) == []


@pytest.mark.rows("CND-002", "CND-004", "CND-010")
def test_definition_without_conflicts_is_established(api: Client) -> None:
    group = serve(api, V1)["v1"].group
    found = api.get(f"{DEFINITIONS}/widgets.{group}").expect(200)["status"]
    assert [(it["type"], it["status"], it["reason"], it["message"]) for it in found["conditions"]] == [
        ("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        ("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
    ]
    assert all(len(it["lastTransitionTime"]) == len("2026-01-01T00:00:00Z") for it in found["conditions"])
    before = {it["type"]: it["lastTransitionTime"] for it in found["conditions"]}
    replace_versions(api, group, V1, V2).expect(200)
    after = api.get(f"{DEFINITIONS}/widgets.{group}").expect(200)["status"]["conditions"]
    assert {it["type"]: it["lastTransitionTime"] for it in after} == before


@pytest.mark.rows("CND-001", "CND-002", "CND-003", "CND-005")
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("plural", None, ""), ("singular", "widget", "SingularConflict"), ("shortNames", ["wd"], "ShortNamesConflict"),
        ("kind", "Widget", "KindConflict"), ("listKind", "WidgetList", "ListKindConflict"),
    ],
)  # fmt: skip
def test_names_in_use_are_not_accepted(api: Client, name: str, value: Any, reason: str) -> None:
    first = definition(fresh_group())
    group = first["spec"]["group"]
    first["spec"]["names"]["shortNames"] = ["wd"]
    establish(api, first)
    second = definition(group, "gadgets")
    second["spec"]["names"] |= {"listKind": "GadgetList"} | ({name: value} if value else {})
    second["spec"]["names"]["categories"] = ["all"]  # shared with other tests
    api.post(DEFINITIONS, second).expect(201)
    path = f"{DEFINITIONS}/gadgets.{group}"
    told = until(lambda: condition(api.get(path).expect(200), "NamesAccepted"), "the names are judged")
    if not reason:
        assert told["status"] == "True"
        return
    taken = value[0] if isinstance(value, list) else value
    assert (told["status"], told["reason"], told["message"]) == ("False", reason, f'"{taken}" is already in use')
    found = until(lambda: condition(api.get(path).expect(200), "Established"), "it is told")
    assert (found["status"], found["reason"], found["message"]) == (
        "False",
        "NotAccepted",
        "not all names are accepted",
    )
    accepted = api.get(path).expect(200)["status"]["acceptedNames"]
    wanted = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    assert {key: accepted.get(key) for key in wanted if key != name} == {
        key: text for key, text in wanted.items() if key != name
    }
    assert api.get(f"/apis/{group}/v1/gadgets").status == 404
    assert [it["name"] for it in api.get(f"/apis/{group}/v1").expect(200)["resources"]] == ["widgets"]
    renamed = {"shortNames": ["other"]} if name == "shortNames" else None
    if renamed:
        api.patch(f"{DEFINITIONS}/widgets.{group}", {"spec": {"names": renamed}}).expect(200)
    else:
        api.delete(f"{DEFINITIONS}/widgets.{group}").expect(200)
    until(lambda: is_true(api.get(path).expect(200), "Established"), "the name is free and taken", within=15)


@pytest.mark.rows("CND-002", "CND-003")
def test_established_stays_true_after_a_name_conflict(api: Client) -> None:
    first = definition(fresh_group())
    group = first["spec"]["group"]
    first["spec"]["names"]["shortNames"] = ["wd"]
    establish(api, first)
    establish(api, definition(group, "gadgets"))
    path = f"{DEFINITIONS}/gadgets.{group}"
    api.patch(path, {"spec": {"names": {"shortNames": ["wd", "gd"]}}}).expect(200)
    until(lambda: not is_true(api.get(path).expect(200), "NamesAccepted"), "the name is refused")
    found = api.get(path).expect(200)
    assert is_true(found, "Established")
    assert "wd" not in found["status"]["acceptedNames"].get("shortNames", [])
    assert api.get(f"/apis/{group}/v1/gadgets").status == 200


@pytest.mark.rows("CND-008", "CRD-038")
@pytest.mark.parametrize(
    ("annotation", "status", "reason", "message"),
    [
        ("https://example.com/review/1", "True", "ApprovedAnnotation", "approved in https://example.com/review/1"),
        ("unapproved, a test", "False", "UnapprovedAnnotation", 'not approved: "unapproved, a test"'),
    ],
)
def test_condition_reports_approval_of_protected_groups(
    api: Client, annotation: str, status: str, reason: str, message: str
) -> None:
    wanted = definition(f"{fresh_group()}.k8s.io")
    wanted["metadata"]["annotations"] = {"api-approved.kubernetes.io": annotation}
    establish(api, wanted)
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"
    told = until(lambda: condition(api.get(path).expect(200), "KubernetesAPIApprovalPolicyConformant"), "it is judged")
    assert (told["status"], told["reason"], told["message"]) == (status, reason, message)
    del wanted["metadata"]["annotations"]
    assert api.post(f"{DEFINITIONS}?dryRun=All", wanted).status == 422


@pytest.mark.rows("CND-009", "DEL-003", "DEL-006")
def test_terminating_condition_reports_deletion_progress(api: Client) -> None:
    widgets = serve(api, V1)["v1"]
    held = widgets.make("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(widgets.path(), held).expect(201)
    path = f"{DEFINITIONS}/widgets.{widgets.group}"
    assert api.delete(path, dryRun="All").status == 200
    assert not condition(api.get(path).expect(200), "Terminating")
    since = api.get(path).expect(200)["metadata"]["resourceVersion"]
    selector = f"metadata.name=widgets.{widgets.group}"
    with api.watch(DEFINITIONS, fieldSelector=selector, resourceVersion=since, timeout=60) as watch:
        deleting = api.delete(path).expect(200)
        told = condition(deleting, "Terminating") or {}
        assert (told["status"], told["reason"]) == ("True", "InstanceDeletionPending")
        assert told["message"] == (
            "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
        )
        seen = []
        while not seen or seen[-1][0] != "DELETED":
            if seen and seen[-1][1:] == ("True", "InstanceDeletionInProgress"):
                api.patch(widgets.path("held"), {"metadata": {"finalizers": None}})
            event = watch.next()
            told = condition(event["object"], "Terminating") or {}
            seen.append((event["type"], told["status"], told["reason"]))
    reasons = [it[2] for it in seen]
    assert reasons[0] == "InstanceDeletionPending"
    assert "InstanceDeletionInProgress" in reasons
    assert seen[-1][0] == "DELETED"
    assert api.get(path).status == 404
