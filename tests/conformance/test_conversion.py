"""Objects in all versions of a definition that a webhook converts.

The example is that of the Kubernetes documentation.
"""

from __future__ import annotations

import base64
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from apiext.conformance.support.conversion_webhook import (
    CRONTAB_SCHEMAS,
    PREFIX,
    TEXT,
    CronTabs,
    Webhook,
    answer,
    conversion,
    crontab,
    failed,
    renamed,
    serve_crontabs,
    slowly,
)
from apiext.conformance.support.definitions import fresh_group
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, TABLE, Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Etcd, Server


@pytest.fixture
def api(converting: Server) -> Client:
    """A client of the server."""
    return Client(converting.url)


def stored(etcd: Etcd, tabs: CronTabs, name: str) -> dict[str, Any]:
    """Return the object that is stored in etcd."""
    key = f"{PREFIX}/{tabs.group}/crontabs/default/{name}".encode()
    found = etcd.call("kv/range", {"key": base64.b64encode(key).decode()})["kvs"][0]
    document: dict[str, Any] = json.loads(base64.b64decode(found["value"]))
    return document


def reviewed_names(hook: Webhook) -> list[list[str]]:
    """Return the names of the objects of each review."""
    return [[it["metadata"]["name"] for it in request["objects"]] for request in hook.requests()]


@pytest.mark.rows("VER-002", "VER-004", "VER-009")
def test_webhook_converts_the_crontab_of_the_documentation(api: Client, hook: Webhook, own_etcd: Etcd) -> None:
    tabs = serve_crontabs(api, hook)
    made = tabs.create("v1beta1", "local-crontab", hostPort="localhost:1234")
    assert made["hostPort"] == "localhost:1234"
    assert hook.requests() == []

    shown = tabs.get("v1", "local-crontab")
    assert (shown["apiVersion"], shown["host"], shown["port"]) == (f"{tabs.group}/v1", "localhost", "1234")
    assert "hostPort" not in shown
    assert shown["metadata"] == made["metadata"]
    request = hook.reviews[0]
    assert (request["apiVersion"], request["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert request["request"]["desiredAPIVersion"] == f"{tabs.group}/v1"
    assert request["response"] == {"uid": "", "convertedObjects": None, "result": {"metadata": {}}}  # a template
    asked = {name: value for name, value in made["metadata"].items() if name != "resourceVersion"}
    assert request["request"]["objects"] == [{**made, "metadata": asked}]  # as recorded; the documentation differs
    assert hook.paths == ["/convert?timeout=30s"]
    assert hook.headers[0]["content-type"] == "application/json"

    made = tabs.create("v1", "remote-crontab", host="example.com", port="2345")
    assert (made["host"], made["port"], "hostPort" in made) == ("example.com", "2345", False)
    raw = stored(own_etcd, tabs, "remote-crontab")
    assert (raw["apiVersion"], raw["hostPort"], "host" in raw) == (f"{tabs.group}/v1beta1", "example.com:2345", False)
    assert tabs.get("v1beta1", "remote-crontab")["hostPort"] == "example.com:2345"
    assert tabs.get("v1", "remote-crontab") == made


@pytest.mark.rows("VER-012", "VER-004")
def test_webhook_converts_each_object_revision_once(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    for _ in range(3):
        assert tabs.get("v1", "a")["host"] == "a"
        assert tabs.get("v1", "a", resourceVersion="0")["host"] == "a"
        assert api.get(tabs.path("v1")).expect(200)["items"][0]["host"] == "a"
    assert reviewed_names(hook) == [["a"]]
    api.patch(tabs.path("v1beta1", "a"), {"hostPort": "b:2"}).expect(200)
    assert tabs.get("v1", "a", resourceVersion="0")["host"] == "b"
    assert reviewed_names(hook) == [["a"], ["a"]]


@pytest.mark.rows("VER-012")
def test_readers_at_the_same_time_share_a_call(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    hook.answer = slowly(0.3, answer(crontab))
    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(lambda _: tabs.get("v1", "a")["host"], range(12)))
    assert found == ["a"] * 12
    assert reviewed_names(hook) == [["a"]]


@pytest.mark.rows("VER-012")
def test_requests_in_the_stored_version_call_no_webhook(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    with api.watch(tabs.path("v1beta1")) as watch:
        tabs.create("v1beta1", "a", hostPort="a:1")
        api.patch(tabs.path("v1beta1", "a"), {"hostPort": "b:2"}).expect(200)
        api.get(tabs.path("v1beta1")).expect(200)
        api.delete(tabs.path("v1beta1", "a")).expect(200)
        assert watch.next("DELETED")["object"]["hostPort"] == "b:2"
    assert api.get(tabs.path("v1")).expect(200)["items"] == []
    assert hook.requests() == []


@pytest.mark.rows("VER-004", "VER-002")
def test_list_converts_objects_of_other_versions_in_batches(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    for number in range(230):
        tabs.create("v1beta1", f"o{number:03}", hostPort=f"h{number}:1")
    move_storage(api, tabs, "v1")
    tabs.create("v1", "zz", host="already", port="1")
    hook.forget()
    hook.answer = answer(crontab)
    listed = api.get(tabs.path("v1")).expect(200)
    assert [it["host"] for it in listed["items"]] == [*(f"h{number}" for number in range(230)), "already"]
    asked = reviewed_names(hook)
    assert sorted(map(len, asked)) == [30, 100, 100]
    assert sorted(name for batch in asked for name in batch) == [f"o{number:03}" for number in range(230)]
    assert api.get(tabs.path("v1")).expect(200)["items"] == listed["items"]
    assert len(hook.requests()) == 3
    tabs.create("v1", "zzz", host="more", port="1")
    api.patch(tabs.path("v1", "o007"), {"host": "changed"}).expect(200)
    after = {it["metadata"]["name"]: it["host"] for it in api.get(tabs.path("v1")).expect(200)["items"]}
    assert (after["o007"], after["zzz"], len(after)) == ("changed", "more", 232)
    assert reviewed_names(hook)[3:] == [["o007"], ["o007"]]  # old and new object, in the manager's version


def move_storage(api: Client, tabs: CronTabs, version: str, **served: bool) -> None:
    """Change the storage version, and wait until the server uses it."""
    path = f"{DEFINITIONS}/crontabs.{tabs.group}"
    versions = api.get(path).expect(200)["spec"]["versions"]
    for one in versions:
        one["storage"] = one["name"] == version
        one["served"] = served.get(one["name"], one["served"])
    api.patch(path, {"spec": {"versions": versions}}).expect(200)


@pytest.mark.rows("VER-004")
@pytest.mark.parametrize("form", ["pages", "table", "yaml", "metadata", "exact", "pretty", "compressed"])
def test_lists_of_each_media_type_return_converted_objects(api: Client, hook: Webhook, form: str) -> None:
    tabs = serve_crontabs(api, hook, additionalPrinterColumns=[{"name": "H", "type": "string", "jsonPath": ".host"}])
    for number in range(5):
        tabs.create("v1beta1", f"o{number}", hostPort=f"h{number}:1")
    hosts = [f"h{number}" for number in range(5)]
    path = tabs.path("v1")
    if form == "pages":
        first = api.get(path, limit=3).expect(200)
        rest = api.get(path, limit=3, **{"continue": first["metadata"]["continue"]}).expect(200)
        assert [it["host"] for it in first["items"] + rest["items"]] == hosts
    elif form == "table":
        found = api.get(path, {"Accept": TABLE}).expect(200)
        assert [row["cells"][1] for row in found["rows"]] == hosts
    elif form == "yaml":
        text = api.get(path, {"Accept": "application/yaml"}).text
        assert re.findall(r"host: (\w+)", text) == hosts
    elif form == "metadata":
        accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
        assert len(api.get(path, {"Accept": accept}).expect(200)["items"]) == 5
    elif form == "exact":
        revision = api.get(path).expect(200)["metadata"]["resourceVersion"]
        tabs.create("v1beta1", "later", hostPort="later:1")
        query = {"resourceVersion": revision, "resourceVersionMatch": "Exact"}
        assert [it["host"] for it in api.get(path, **query).expect(200)["items"]] == hosts
    elif form == "pretty":
        assert [it["host"] for it in api.get(path, pretty="true").expect(200)["items"]] == hosts
    else:
        assert [it["host"] for it in api.get(path, {"Accept-Encoding": "gzip"}).expect(200)["items"]] == hosts


@pytest.mark.rows("VER-008", "VER-012", "VER-015")
def test_watch_delivers_events_in_the_requested_version(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "before", hostPort="before:1")
    with api.watch(tabs.path("v1")) as watch:
        assert watch.next()["object"]["host"] == "before"
        for number in range(20):
            tabs.create("v1beta1", f"o{number:02}", hostPort=f"h{number}:1")
        api.patch(tabs.path("v1", "o00"), {"host": "changed"}).expect(200)
        api.delete(tabs.path("v1beta1", "o01")).expect(200)
        seen = [watch.next() for _ in range(22)]
    assert [it["object"]["host"] for it in seen[:20]] == [f"h{number}" for number in range(20)]
    assert [(it["type"], it["object"]["host"]) for it in seen[20:]] == [("MODIFIED", "changed"), ("DELETED", "h1")]
    revisions = [int(it["object"]["metadata"]["resourceVersion"]) for it in seen]
    assert revisions == sorted(set(revisions))
    assert {it["object"]["apiVersion"] for it in seen} == {f"{tabs.group}/v1"}


@pytest.mark.rows("VER-015", "VER-002")
def test_watch_delivers_objects_of_old_and_new_storage_versions(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "old", hostPort="old:1")
    move_storage(api, tabs, "v1")
    tabs.create("v1beta1", "new", hostPort="new:1")
    for version, field, shown in (("v1", "host", ["new", "old"]), ("v1beta1", "hostPort", ["new:1", "old:1"])):
        with api.watch(tabs.path(version)) as watch:
            assert [watch.next()["object"][field] for _ in range(2)] == shown


@pytest.mark.rows("VER-008", "ERR-22")
def test_failed_conversion_ends_watch_with_an_error(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    with api.watch(tabs.path("v1")) as watch:
        assert watch.next("ADDED")["object"]["host"] == "a"
        hook.answer = failed("the webhook is tired")
        tabs.create("v1beta1", "b", hostPort="b:1")
        event = watch.next()
        assert watch.read() == b""
    assert event["type"] == "ERROR"
    message = f"conversion webhook for {tabs.group}/v1beta1, Kind=CronTab failed: the webhook is tired"
    assert (event["object"]["kind"], event["object"]["code"]) == ("Status", 500)
    assert event["object"]["message"] == message
    refused = api.get(tabs.path("v1"), watch="true")
    assert (refused.status, refused.json["message"]) == (500, message)
    assert "reason" not in refused.json
    hook.answer = answer(crontab)
    with api.watch(tabs.path("v1")) as watch:
        assert [watch.next()["object"]["host"] for _ in range(2)] == ["a", "b"]


@pytest.mark.rows("VER-002", "VER-004")
def test_all_verbs_write_in_a_version_that_is_not_stored(api: Client, hook: Webhook, own_etcd: Etcd) -> None:
    status = {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}
    replicas = {"type": "object", "properties": {"replicas": {"type": "integer"}}}
    more = {"spec": replicas, "status": replicas}
    schemas = {name: {**it, "properties": {**it["properties"], **more}} for name, it in CRONTAB_SCHEMAS.items()}
    tabs = serve_crontabs(api, hook, schemas=schemas, subresources=status)
    made = tabs.create("v1", "a", host="a", port="1", spec={"replicas": 1})
    path = tabs.path("v1", "a")

    updated = api.put(path, {**made, "port": "2"}).expect(200)
    assert (updated["host"], updated["port"], updated["metadata"]["generation"]) == ("a", "2", 2)
    same = api.put(path, updated).expect(200)
    assert same["metadata"]["resourceVersion"] == updated["metadata"]["resourceVersion"]
    assert api.patch(path, {"host": "b"}).expect(200)["host"] == "b"
    assert api.patch(path, [{"op": "replace", "path": "/port", "value": "3"}], "application/json-patch+json").expect(
        200
    )
    applied = {"apiVersion": f"{tabs.group}/v1", "kind": "CronTab", "metadata": {"name": "a"}, "host": "c"}
    assert api.patch(path, applied, APPLY, fieldManager="m", force="true").expect(200)["host"] == "c"
    assert api.patch(f"{path}/status", {"status": {"replicas": 4}}).expect(200)["status"] == {"replicas": 4}
    assert api.patch(f"{path}/scale", {"spec": {"replicas": 5}}).expect(200)["spec"] == {"replicas": 5}
    assert api.get(f"{path}/scale").expect(200)["status"] == {"replicas": 4}
    raw = stored(own_etcd, tabs, "a")
    assert (raw["apiVersion"], raw["hostPort"], raw["spec"]) == (f"{tabs.group}/v1beta1", "c:3", {"replicas": 5})
    assert tabs.get("v1", "a")["metadata"]["uid"] == made["metadata"]["uid"]

    before = stored(own_etcd, tabs, "a")
    assert api.patch(path, {"host": "dry"}, dryRun="All").expect(200)["host"] == "dry"
    dry = {**applied, "metadata": {"name": "dry"}, "port": "9"}
    assert api.post(tabs.path("v1"), dry, dryRun="All").expect(201)["port"] == "9"
    assert stored(own_etcd, tabs, "a") == before
    assert api.get(tabs.path("v1", "dry")).status == 404

    created = api.patch(tabs.path("v1", "n"), {**applied, "metadata": {"name": "n"}}, APPLY, fieldManager="m").expect(
        201
    )
    assert created["host"] == "c"
    api.patch(tabs.path("v1", "n"), {"metadata": {"finalizers": ["example.com/hold"]}}).expect(200)
    going = api.delete(tabs.path("v1", "n")).expect(200)
    assert going["metadata"]["deletionTimestamp"]
    assert api.patch(tabs.path("v1", "n"), {"metadata": {"finalizers": None}}).expect(200)["host"] == "c"
    gone = api.delete(tabs.path("v1")).expect(200)
    assert [(it["apiVersion"], it["host"]) for it in gone["items"]] == [(f"{tabs.group}/v1", "c")]
    assert api.get(tabs.path("v1beta1")).expect(200)["items"] == []


@pytest.mark.rows("VER-002")
def test_applies_in_two_versions_conflict_on_the_same_field(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    body = {"kind": "CronTab", "metadata": {"name": "a"}}
    old = {**body, "apiVersion": f"{tabs.group}/v1beta1", "hostPort": "a:1"}
    new = {**body, "apiVersion": f"{tabs.group}/v1", "host": "b"}
    api.patch(tabs.path("v1beta1", "a"), old, APPLY, fieldManager="old").expect(201)
    refused = api.patch(tabs.path("v1", "a"), new, APPLY, fieldManager="new").expect(409)
    assert refused["details"]["causes"][0]["field"] == ".hostPort"
    assert refused["message"] == 'Apply failed with 1 conflict: conflict with "old": .hostPort'
    found = api.patch(tabs.path("v1", "a"), new, APPLY, fieldManager="new", force="true").expect(200)
    assert (found["host"], found["port"]) == ("b", "1")
    owners = {it["manager"]: it["fieldsV1"] for it in found["metadata"]["managedFields"]}
    assert owners["new"] == {"f:host": {}}
    again = api.patch(tabs.path("v1beta1", "a"), {**old, "hostPort": "b:1"}, APPLY, fieldManager="old", force="true")
    assert again.expect(200)["hostPort"] == "b:1"


@pytest.mark.rows("SSA-014", "VER-002")
def test_applier_changes_its_version_beside_another_manager(api: Client, hook: Webhook) -> None:
    spec = {"type": "object", "properties": {"a": TEXT, "b": TEXT}}
    schema = {"type": "object", "properties": {"spec": spec}}
    hook.answer = answer(renamed)
    tabs = serve_crontabs(api, hook, storage="v1", schemas=dict.fromkeys(("v1", "v1beta1", "v1alpha1"), schema))

    def apply(version: str, label: str, **spec: str) -> dict[str, Any]:
        metadata = {"name": "a", "labels": {"a": label}}
        body = {"apiVersion": f"{tabs.group}/{version}", "kind": "CronTab", "metadata": metadata, "spec": spec}
        path = tabs.path(version, "a")
        return api.patch(path, body, APPLY, fieldManager="m", force="true").expect((201, 200)[label != "1"])

    apply("v1alpha1", "1", a="x")
    api.patch(tabs.path("v1", "a"), {"spec": {"b": "y"}}, fieldManager="other").expect(200)
    # upstream: the order of all versions after the first is random, so that this is sometimes a 500
    found = apply("v1beta1", "2", b="z")
    assert (found["spec"], found["metadata"]["labels"]) == ({"b": "z"}, {"a": "2"})


@pytest.mark.rows("VER-003", "NUL-005", "PRU-007")
def test_conversion_applies_defaults_before_and_prunes_after(api: Client, hook: Webhook) -> None:
    def schema(**properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}

    schemas = {
        "v1beta1": schema(a=TEXT, old={**TEXT, "default": "from v1beta1"}),
        "v1": schema(a=TEXT, old=TEXT, new={**TEXT, "default": "from v1"}),
    }
    tabs = serve_crontabs(api, hook, schemas=schemas)
    hook.answer = answer(
        lambda it, version: {**it, "apiVersion": version, "junk": 1, "spec": {**it["spec"], "junk": 1}}
    )
    tabs.create("v1beta1", "a", spec={"a": "x"})
    assert tabs.get("v1", "a")["spec"] == {"a": "x", "old": "from v1beta1"}
    assert "junk" not in tabs.get("v1", "a")
    made = tabs.create("v1", "b", spec={"a": "y"})
    assert made["spec"] == {"a": "y", "old": "from v1beta1"}
    assert hook.requests()[-2]["objects"][0]["spec"] == {"a": "y", "new": "from v1"}


@pytest.mark.rows("SEL-001", "SEL-002", "VER-012")
def test_field_selector_matches_in_the_requested_version(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    path = f"{DEFINITIONS}/crontabs.{tabs.group}"
    versions = api.get(path).expect(200)["spec"]["versions"]
    versions[1]["selectableFields"] = [{"jsonPath": ".host"}]
    api.patch(path, {"spec": {"versions": versions}}).expect(200)
    for name, host in (("a", "x"), ("b", "y"), ("c", "x")):
        tabs.create("v1beta1", name, hostPort=f"{host}:1")
    listed = until(lambda: _selected(api, tabs), "the field can be selected")
    assert [it["metadata"]["name"] for it in listed] == ["a", "c"]
    first = api.get(tabs.path("v1"), fieldSelector="host=x", limit=1).expect(200)
    assert [it["metadata"]["name"] for it in first["items"]] == ["a"]
    rest = api.get(tabs.path("v1"), fieldSelector="host=x", limit=1, **{"continue": first["metadata"]["continue"]})
    assert [it["metadata"]["name"] for it in rest.expect(200)["items"]] == ["c"]
    with api.watch(tabs.path("v1"), fieldSelector="host=x") as watch:
        assert [watch.next()["object"]["metadata"]["name"] for _ in range(2)] == ["a", "c"]
        api.patch(tabs.path("v1beta1", "a"), {"hostPort": "z:1"}).expect(200)
        gone = watch.next()
        api.patch(tabs.path("v1beta1", "b"), {"hostPort": "x:2"}).expect(200)
        come = watch.next()
    assert (gone["type"], gone["object"]["host"], come["type"], come["object"]["port"]) == (
        "DELETED",
        "x",
        "ADDED",
        "2",
    )
    hook.forget()
    hook.answer = answer(crontab)
    for number in range(3):
        tabs.create("v1beta1", f"n{number}", hostPort="n:1")
    with api.watch(tabs.path("v1"), fieldSelector="metadata.name=n1") as watch:
        assert watch.next()["object"]["host"] == "n"
    assert [it["metadata"]["name"] for it in api.get(tabs.path("v1"), fieldSelector="metadata.name=n1").json["items"]]
    assert reviewed_names(hook) == [["n1"]]


@pytest.mark.rows("VER-002", "RV-005")
def test_pages_of_a_label_selector_span_all_namespaces(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    places = [("default", "a"), ("default", "b"), ("kube-system", "a"), ("kube-system", "b")]
    for namespace, name in places:
        tabs.create("v1beta1", name, namespace, hostPort="x:1", metadata={"labels": {"a": "b"}})
    found: list[tuple[str, ...]] = []
    token = ""
    while not found or token:
        page = api.get(tabs.path("v1", "", ""), labelSelector="a=b", limit=1, **{"continue": token}).expect(200)
        found += [(it["metadata"]["namespace"], it["metadata"]["name"], it["host"]) for it in page["items"]]
        token = page["metadata"].get("continue", "")
    assert found == [(*place, "x") for place in places]


@pytest.mark.rows("WRI-021", "VER-004")
def test_deletecollection_marks_objects_with_finalizers(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="x:1", metadata={"finalizers": ["example.com/hold"]})
    assert [it["host"] for it in api.delete(tabs.path("v1")).expect(200)["items"]] == ["x"]
    assert tabs.get("v1", "a")["metadata"]["deletionTimestamp"]
    api.patch(tabs.path("v1", "a"), {"metadata": {"finalizers": None}}).expect(200)
    assert api.get(tabs.path("v1", "a")).status == 404


@pytest.mark.rows("WRI-021", "VER-009")
def test_deletecollection_deletes_nothing_if_conversion_fails(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    for name in "ab":
        tabs.create("v1beta1", name, hostPort="x:1")
    works = hook.answer
    hook.answer = lambda request: (failed("not b") if "b" in [*_names(request)] else works)(request)
    assert api.delete(tabs.path("v1")).expect(500)["message"].endswith("not b")
    assert [it["metadata"]["name"] for it in api.get(tabs.path("v1beta1")).expect(200)["items"]] == ["a", "b"]


def _names(request: dict[str, Any]) -> list[str]:
    return [it["metadata"]["name"] for it in request["objects"]]


def _selected(api: Client, tabs: CronTabs) -> list[dict[str, Any]] | None:
    found = api.get(tabs.path("v1"), fieldSelector="host=x")
    return found.json["items"] if found.status == 200 else None


@pytest.mark.rows("VER-009", "UPD-006")
def test_new_settings_take_effect_at_once(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook, "/old")
    tabs.create("v1beta1", "a", hostPort="a:1")
    assert tabs.get("v1", "a")["host"] == "a"
    hook.answers = {"/new": answer(lambda it, version: {**renamed(it, version), "host": "new"}), "/old": failed("old")}
    path = f"{DEFINITIONS}/crontabs.{tabs.group}"
    api.patch(path, {"spec": {"conversion": conversion(hook.client_config("/new"))}}).expect(200)
    assert tabs.get("v1", "a")["host"] == "new"
    assert api.get(tabs.path("v1")).expect(200)["items"][0]["host"] == "new"
    api.patch(path, {"spec": {"conversion": {"strategy": "None", "webhook": None}}}).expect(200)
    assert "host" not in tabs.get("v1", "a")


@pytest.mark.rows("VER-013")
def test_conversions_are_counted(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    hook.answer = failed()
    assert api.get(tabs.path("v1", "a")).status == 500
    hook.answer = answer(crontab)
    tabs.get("v1", "a")
    text = api.get("/metrics").text
    labels = f'crd_name="crontabs.{tabs.group}",from_version="v1beta1",to_version="v1"'
    for succeeded in ("true", "false"):
        counted = f'apiserver_crd_conversion_webhook_duration_seconds_count{{{labels},succeeded="{succeeded}"}} 1'
        assert counted in text
    failure = "conversion_webhook_malformed_response_failure"
    for name in ("request_total", "duration_seconds_count"):
        assert f'apiserver_conversion_webhook_{name}{{result="failure",failure_type="{failure}"}}' in text
        assert f'apiserver_conversion_webhook_{name}{{result="success",failure_type=""}}' in text


@pytest.mark.rows("B1-003", "B1-002", "VER-004")
def test_webhook_of_a_v1beta1_definition_converts_objects(api: Client, hook: Webhook) -> None:
    group = fresh_group()
    versions = [
        {"name": name, "served": True, "storage": name == "v1beta1", "schema": {"openAPIV3Schema": schema}}
        for name, schema in CRONTAB_SCHEMAS.items()
    ]
    webhook = {"strategy": "Webhook", "webhookClientConfig": hook.client_config("/crdconvert")}
    names = {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "shortNames": ["ct"]}
    spec = {
        "group": group, "versions": versions, "conversion": webhook, "names": names, "preserveUnknownFields": False,
    }  # fmt: skip
    document = {
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"crontabs.{group}"},
        "spec": spec,
    }
    api.post(DEFINITIONS.replace("/v1/", "/v1beta1/"), document).expect(201)
    tabs = CronTabs(api, group)
    until(lambda: api.get(tabs.path("v1")).status == 200, "the definition is served")
    tabs.create("v1", "a", host="a", port="1")
    assert tabs.get("v1beta1", "a")["hostPort"] == "a:1"
    assert hook.paths[0] == "/crdconvert?timeout=30s"
    assert hook.reviews[0]["apiVersion"] == "apiextensions.k8s.io/v1beta1"


@pytest.mark.rows("VER-011", "VER-014")
def test_reads_fail_if_the_stored_version_was_removed(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    move_storage(api, tabs, "v1")
    path = f"{DEFINITIONS}/crontabs.{tabs.group}"
    versions = api.get(path).expect(200)["spec"]["versions"]
    kept = {"spec": {"versions": [one for one in versions if one["name"] == "v1"]}}
    assert api.patch(path, kept).status == 422
    api.patch(f"{path}/status", {"status": {"storedVersions": ["v1"]}}).expect(200)
    api.patch(path, kept).expect(200)
    for found in (api.get(tabs.path("v1", "a")), api.get(tabs.path("v1"))):
        text = f"request to convert CR from an invalid group/version: {tabs.group}/v1beta1"
        assert found.expect(500)["message"].endswith(f": {text}")
    assert hook.requests() == []
