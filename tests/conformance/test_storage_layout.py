"""Keys and values in etcd: kube-apiserver's layout, shared with other writers."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, is_true, serve
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, MERGE, Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Etcd, Server, running_server

PREFIX = "/layout"


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def stored(etcd: Etcd, key: str) -> tuple[bytes, int] | None:
    found = etcd.call("kv/range", {"key": encoded(key)}).get("kvs", [])
    return (base64.b64decode(found[0]["value"]), int(found[0]["mod_revision"])) if found else None


def put(etcd: Etcd, key: str, value: str) -> None:
    etcd.call("kv/put", {"key": encoded(key), "value": encoded(value)})


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Server]:
    """A server on the shared etcd."""
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={PREFIX}"]
    with running_server(flags, tmp_path_factory.mktemp("layout")) as server:
        yield server


@pytest.fixture
def api(layout: Server) -> Client:
    """A client of that server."""
    return Client(layout.url)


@pytest.mark.rows("ETC-001", "ETC-002", "ETC-005", "RV-001")
def test_object_is_stored_as_sorted_json_under_its_key(api: Client, own_etcd: Etcd) -> None:
    widgets = serve(api)
    made = widgets.create("a", color="red")
    found = stored(own_etcd, f"{PREFIX}/{widgets.group}/widgets/default/a")
    assert found is not None
    value, revision = found
    assert str(revision) == made["metadata"]["resourceVersion"]
    document = json.loads(value)
    assert "resourceVersion" not in document["metadata"]
    del made["metadata"]["resourceVersion"]
    assert document == made
    assert value == json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@pytest.mark.rows("ETC-001", "ETC-003")
def test_a_definition_is_kept_in_v1beta1_form(api: Client, own_etcd: Etcd) -> None:
    widgets = serve(api)
    found = stored(own_etcd, f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/widgets.{widgets.group}")
    assert found is not None
    document = json.loads(found[0])
    assert document["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    assert document["spec"]["version"] == "v1"
    assert document["spec"]["validation"]["openAPIV3Schema"]["type"] == "object"


@pytest.mark.rows("ETC-001", "NSP-006")
def test_namespaces_have_no_group_in_their_keys(own_etcd: Etcd, layout: Server) -> None:
    assert stored(own_etcd, f"{PREFIX}/namespaces/default") is not None


@pytest.mark.rows("ETC-006", "RV-020", "VER-011")
def test_object_of_unknown_version_ends_watches_with_the_error(api: Client, own_etcd: Etcd, layout: Server) -> None:
    widgets = serve(api)
    widgets.create("a")
    text = f"request to convert CR from an invalid group/version: {widgets.group}/v99"
    named = f"unable to read default/late: {text}"
    head = {"apiVersion": f"{widgets.group}/v99", "kind": widgets.kind}
    since = api.get(widgets.path()).expect(200)["metadata"]["resourceVersion"]
    with (
        api.watch(widgets.path(), resourceVersion=since) as watch,
        api.watch(widgets.path(), fieldSelector="metadata.name=a") as other,
    ):
        other.next("ADDED")
        put(
            own_etcd,
            f"{PREFIX}/{widgets.group}/widgets/default/late",
            json.dumps({**head, "metadata": {"name": "late", "namespace": "default"}}),
        )
        ended = watch.next("ERROR")["object"]
        assert (ended["code"], ended["message"]) == (500, named)
        api.patch(widgets.path("a"), {"spec": {"color": "red"}}).expect(200)
        assert other.next("MODIFIED")["object"]["spec"]["color"] == "red"
    with api.watch(widgets.path()) as watch:
        assert watch.next("ERROR")["object"]["message"] == named
    for path in (widgets.path(), widgets.path("late")):
        told = api.get(path).expect(500)["message"]
        assert f"/{widgets.group}/widgets/default/late, ResourceVersion: 0" in told
        assert told.endswith(text)
    assert "Traceback" not in layout.log_tail()


@pytest.mark.rows("ETC-006", "PRU-007", "NUL-005", "NUL-006")
def test_writes_of_another_server_are_read_at_once(api: Client, own_etcd: Etcd) -> None:
    widgets = serve(api)
    made = widgets.create("a", color="red")
    since = made["metadata"]["resourceVersion"]
    metadata = {**made["metadata"], "name": "b", "uid": "0f9c7a4e-0000-4000-8000-000000000001"}
    del metadata["resourceVersion"]
    foreign = {**made, "metadata": metadata, "spec": {"color": "blue", "unknown": 1}}
    with api.watch(widgets.path(), resourceVersion=since) as watch:
        put(own_etcd, f"{PREFIX}/{widgets.group}/widgets/default/b", json.dumps(foreign))
        event = watch.next("ADDED")
    assert event["object"]["spec"] == {"color": "blue", "note": "none"}
    assert api.get(widgets.path("b")).expect(200) == event["object"]
    own_etcd.call("kv/deleterange", {"key": encoded(f"{PREFIX}/{widgets.group}/widgets/default/b")})
    assert api.get(widgets.path("b")).status == 404


@pytest.mark.rows("ETC-006", "ETC-003")
def test_a_definition_written_by_another_server_is_served(api: Client, own_etcd: Etcd) -> None:
    widgets = serve(api)
    source = stored(own_etcd, f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/widgets.{widgets.group}")
    assert source is not None
    group = fresh_group()
    document = json.loads(source[0].decode().replace(widgets.group, group))
    document.pop("status", None)
    document["metadata"]["uid"] = "0f9c7a4e-0000-4000-8000-000000000002"
    put(
        own_etcd,
        f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/widgets.{group}",
        json.dumps(document),
    )

    def established() -> bool:
        answer = api.get(f"{DEFINITIONS}/widgets.{group}")
        return answer.status == 200 and is_true(answer.json, "Established")

    until(established, "the foreign definition is established", within=10)
    assert api.get(f"/apis/{group}/v1/widgets").expect(200)["items"] == []


@pytest.mark.rows("RV-020", "ETC-006")
def test_undecodable_value_fails_only_reads_that_include_it(api: Client, own_etcd: Etcd) -> None:
    widgets, others = serve(api), serve(api)
    widgets.create("a")
    others.create("a")
    key = f"{PREFIX}/{widgets.group}/widgets/default/broken"
    put(own_etcd, key, "not json")
    until(lambda: api.get(widgets.path("broken")).status == 500, "the broken object is noticed", within=5)
    assert api.get(widgets.path()).status == 500
    api.get(widgets.path("a")).expect(200)
    assert len(api.get(others.path()).expect(200)["items"]) == 1
    own_etcd.call("kv/deleterange", {"key": encoded(key)})
    until(lambda: api.get(widgets.path()).status == 200, "the list is whole again", within=5)


@pytest.mark.rows("RV-020", "RV-002")
def test_fast_path_of_cached_reads_reports_undecodable_value(api: Client, own_etcd: Etcd) -> None:
    widgets = serve(api)
    widgets.create("a")
    put(own_etcd, f"{PREFIX}/{widgets.group}/widgets/default/broken", "not json")
    until(lambda: api.get(widgets.path("broken")).status == 500, "the broken object is noticed", within=5)
    parts = urlsplit(api.url)
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)) as kept:
        for name, code in (("a", 200), ("broken", 500)):
            for _ in range(20):  # the first request uses the slow path, later requests on the connection the fast path
                kept.request("GET", f"{widgets.path(name)}?resourceVersion=0")
                answer = kept.getresponse()
                assert (answer.status, json.loads(answer.read())["kind"]) == (
                    code,
                    "Widget" if code == 200 else "Status",
                )


@pytest.mark.rows("ETC-008", "ETC-010")
def test_keys_of_other_resources_are_not_changed(api: Client, own_etcd: Etcd) -> None:
    put(own_etcd, f"{PREFIX}/pods/default/web", "k8s\x00something")
    put(own_etcd, f"{PREFIX}/some.example.com/things/a/b/c", "{}")
    widgets = serve(api)
    widgets.create("a")
    assert stored(own_etcd, f"{PREFIX}/pods/default/web") is not None
    assert len(api.get(widgets.path()).expect(200)["items"]) == 1


def compact(etcd: Etcd) -> None:
    head = int(etcd.call("kv/range", {"key": encoded("/none")})["header"]["revision"])
    etcd.call("kv/compaction", {"revision": head})


@pytest.mark.rows("RV-007", "RV-003", "ERR-17")
def test_continue_token_of_a_compacted_revision_expires(api: Client, own_etcd: Etcd) -> None:
    widgets = serve(api)
    for number in range(6):
        widgets.create(f"w{number}")
    first = api.get(widgets.path(), limit=2).expect(200)
    api.delete(widgets.path("w5")).expect(200)
    widgets.create("w6")
    compact(own_etcd)
    answer = api.get(widgets.path(), **{"limit": 2, "continue": first["metadata"]["continue"]})
    if answer.status == 200:  # the server may still have this revision in memory
        assert [item["metadata"]["name"] for item in answer.json["items"]] == ["w2", "w3"]
        return
    expired: dict[str, Any] = answer.expect(410)
    assert expired["reason"] == "Expired"
    rest = api.get(widgets.path(), **{"continue": expired["metadata"]["continue"]}).expect(200)
    assert [item["metadata"]["name"] for item in rest["items"]] == ["w2", "w3", "w4", "w6"]


@pytest.mark.rows("RV-009")
def test_watch_from_a_compacted_revision_expires(api: Client, own_etcd: Etcd, layout: Server) -> None:
    widgets = serve(api)
    old = 2
    widgets.create("a")
    compact(own_etcd)
    with api.watch(widgets.path(), resourceVersion=old) as watch:
        if watch.status == 410:
            return
        event = watch.next()
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
    assert event["object"]["message"].startswith(f"too old resource version: {old} (")


@pytest.mark.rows("CND-005", "DEL-005")
def test_definition_deleted_in_etcd_is_no_longer_served(api: Client, own_etcd: Etcd) -> None:
    wanted = definition(fresh_group())
    group = establish(api, wanted)["spec"]["group"]
    key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/widgets.{group}"
    own_etcd.call("kv/deleterange", {"key": encoded(key)})
    until(lambda: api.get(f"/apis/{group}/v1/widgets").status == 404, "the resource is gone", within=5)


@pytest.mark.rows("CRD-026")
@pytest.mark.parametrize("status", [{}, {"status": {}}], ids=["plain", "with status"])
def test_writes_without_a_storage_version_get_500(api: Client, own_etcd: Etcd, status: dict[str, Any]) -> None:
    wanted = definition(fresh_group(), subresources=status)
    group = establish(api, wanted)["spec"]["group"]
    key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/widgets.{group}"
    found = stored(own_etcd, key)
    assert found is not None
    changed = json.loads(found[0])
    changed["spec"]["versions"][0]["storage"] = False
    changed["metadata"]["generation"] += 1
    widgets = Resource(api, group, "widgets", "Widget")
    made = widgets.create("a")
    put(own_etcd, key, json.dumps(changed, sort_keys=True, separators=(",", ":")) + "\n")
    until(lambda: api.post(widgets.path(), widgets.make("b"), dryRun="All").status == 500, "it is known", within=10)
    told = [
        api.post(widgets.path(), widgets.make("b")),
        api.put(widgets.path("a"), made | {"spec": {"color": "red"}}),
        api.patch(widgets.path("a"), {"spec": {"color": "red"}}, MERGE),
        api.patch(widgets.path("a"), {**widgets.make("a"), "metadata": {}}, APPLY, fieldManager="m"),
    ]
    assert all("no version to store" in answer.expect(500)["message"] for answer in told), [it.text for it in told]
    api.get(widgets.path("a")).expect(200)
    api.delete(widgets.path("a")).expect(200)


@pytest.mark.rows("CND-001", "CRD-039")
def test_invalid_stored_names_are_never_accepted(api: Client, own_etcd: Etcd) -> None:
    group = fresh_group()
    establish(api, definition(group, "gadgets"))
    key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/"
    found = stored(own_etcd, f"{key}gadgets.{group}")
    assert found is not None
    document = json.loads(found[0].replace(b"gadget", b"widget").replace(b"Gadget", b"Widget"))
    document["metadata"]["uid"] = "of-others"
    document["spec"]["names"] |= {"singular": "A_b", "shortNames": ["X"]}
    document["status"] = {"acceptedNames": {"kind": "", "plural": ""}, "conditions": [], "storedVersions": ["v1"]}
    put(own_etcd, f"{key}widgets.{group}", json.dumps(document, sort_keys=True, separators=(",", ":")) + "\n")
    path = f"{DEFINITIONS}/widgets.{group}"
    until(lambda: api.get(path).status == 200, "the server has heard of it", within=10)
    establish(api, definition(group, "others"))  # its names are processed after those
    seen = api.get(path).expect(200)
    assert not seen["status"].get("conditions")
    assert seen["status"]["acceptedNames"] == {"kind": "", "plural": ""}
    assert api.get(f"/apis/{group}/v1/widgets").status == 404
    api.patch(path, {"spec": {"names": {"singular": "widget", "shortNames": ["wd"]}}}, MERGE).expect(200)
    until(lambda: is_true(api.get(path).expect(200), "Established"), "it is established", within=10)
