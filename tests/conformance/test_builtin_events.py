"""Events: two API groups with the same stored objects; and disabled built-in APIs.

Stored events expire.
"""

from __future__ import annotations

import base64
import json
import secrets
import time
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.events import event as one_event
from apiext.conformance.support.http_client import Client
from tests.support.processes import Etcd, running_server

OLD, NEW = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"


def event(name: str) -> dict[str, Any]:
    about = {"kind": "Widget", "namespace": "default", "name": name}
    body = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "involvedObject": about}
    return {**body, "reason": "Made", "message": "done", "type": "Normal", "count": 2, "source": {"component": "maker"}}


@pytest.mark.rows("RV-001")
def test_both_event_groups_serve_the_same_objects(api: Client) -> None:
    name = f"e-{secrets.token_hex(4)}"
    with api.watch(NEW) as watch:
        old = api.post(OLD, event(name)).expect(201)
        new = api.get(f"{NEW}/{name}").expect(200)
        assert new["metadata"] == old["metadata"]
        assert (new["regarding"], new["note"]) == (old["involvedObject"], "done")
        assert (new["deprecatedCount"], new["deprecatedSource"]) == (2, {"component": "maker"})
        assert "involvedObject" not in new
        while (seen := watch.next("ADDED")["object"])["metadata"]["name"] != name:
            pass
        assert seen == new
    assert api.get(f"{OLD}/{name}").expect(200) == old
    assert api.delete(f"{NEW}/{name}").status == 200
    assert api.get(f"{OLD}/{name}").status == 404


@pytest.mark.rows("ERR-07", "ERR-06", "WRI-018")
def test_errors_name_the_stored_kind_and_deletes_do_not_propagate(api: Client) -> None:
    name = f"e-{secrets.token_hex(4)}"
    wrong = api.post(NEW, {"metadata": {"name": name}}).expect(422)
    assert wrong["message"].startswith(f'Event "{name}" is invalid: ')
    assert "group" not in wrong["details"]
    api.post(OLD, event(name)).expect(201)
    other = api.request("DELETE", f"{NEW}/{name}", {"preconditions": {"uid": "other"}}).expect(409)
    assert f'fulfilled on Event "{name}": the UID' in other["message"]
    assert api.request("DELETE", f"{NEW}/{name}", {"propagationPolicy": "Orphan"}).expect(200)["status"] == "Success"
    assert api.get(f"{NEW}/{name}").expect(404)["message"] == f'events.events.k8s.io "{name}" not found'


@pytest.mark.rows("RV-002", "RV-003", "RV-005")
def test_events_are_read_without_a_cache(api: Client) -> None:
    about = {"labelSelector": f"test={secrets.token_hex(4)}"}
    for _ in range(2):
        body = event(f"e-{secrets.token_hex(4)}")
        body["metadata"]["labels"] = dict([about["labelSelector"].split("=")])
        api.post(OLD, body).expect(201)
    for path in (OLD, NEW):
        page = api.get(path, **about, limit=1, resourceVersion=0).expect(200)
        assert len(page["items"]) == 1, "upstream: a limit is ignored by caches only"
        token = json.loads(base64.urlsafe_b64decode(page["metadata"]["continue"] + "=="))
        assert token["start"] == f"{page['items'][0]['metadata']['name']}\0"
        rest = {"limit": 1, "continue": page["metadata"]["continue"]}
        assert len(api.get(path, **about, **rest).expect(200)["items"]) == 1


FAR = {"resourceVersion": 2**62}


@pytest.mark.rows("RV-002", "RV-003")
def test_future_resource_version_fails_without_waiting(api: Client) -> None:
    began = time.monotonic()
    for path in (OLD, NEW, f"{NEW}/none"):
        for more in ({}, {"limit": 1}, {"resourceVersionMatch": "Exact"}) if path != f"{NEW}/none" else ({},):
            wrong = api.get(path, **FAR, **more)
            assert "retry-after" not in wrong.headers
            refused = wrong.expect(504)
            assert refused["message"].startswith(f"Timeout: Too large resource version: {2**62}, current: ")
            cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            assert refused["details"] == {"causes": [cause]}
    state = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    watched = time.monotonic()
    with api.watch(NEW, **FAR, **state) as watch:
        assert 1 <= watch.next("ERROR")["object"]["details"]["retryAfterSeconds"] <= 3  # upstream: random
    assert time.monotonic() - watched < 3, "it would be three seconds"
    assert time.monotonic() - began < 12, "each would be three seconds"


@pytest.mark.rows("ERR-04")
def test_create_of_existing_event_conflicts(api: Client) -> None:
    path, wanted = one_event("events.k8s.io")
    name = wanted["metadata"]["name"]
    api.post(path, wanted).expect(201)
    plain = api.post(path, wanted).expect(409)
    assert plain["message"] == f'events.events.k8s.io "{name}" already exists'
    # upstream: reports the group in which the object is stored
    made = api.post(path, {**wanted, "metadata": {"name": name, "generateName": "x-"}}).expect(409)
    assert made["message"].startswith(f'events "{name}" already exists, the server was not able to generate a unique')
    assert made["details"] == {"name": name, "kind": "events", "retryAfterSeconds": 1}


@pytest.mark.rows("ERR-09")
def test_immutable_field_errors_show_stored_values(api: Client) -> None:
    about = {"kind": "Widget", "namespace": "default", "name": "w"}
    body: dict[str, Any] = {
        "metadata": {"name": f"e-{secrets.token_hex(4)}"}, "regarding": about, "reason": "Made", "type": "Normal",
        "action": "Make", "eventTime": "2026-11-21T03:05:11.000000Z", "reportingController": "example.com/maker",
        "reportingInstance": "one",
    }  # fmt: skip
    made = api.post(NEW, body).expect(201)
    place = f"{NEW}/{made['metadata']['name']}"
    for change, says in (
        ({"type": ""}, 'type: Invalid value: "": field is immutable'),
        ({"deprecatedSource": {"host": "h"}}, 'source: Invalid value: {"Component":"","Host":"h"}: field is'),
        ({"related": {"kind": "X"}}, 'related: Invalid value: {"Kind":"X","Namespace":"","Name":"","UID":"",'),
    ):
        assert says in api.put(place, {**made, **change}).expect(422)["message"]
    api.delete(place).expect(200)


@pytest.mark.rows("WRI-001", "VAL-013")
def test_core_event_names_may_be_path_segments(api: Client) -> None:
    name = f"E {secrets.token_hex(4)}"
    api.post(OLD, event(name)).expect(201)
    api.delete(f"{OLD}/{name.replace(' ', '%20')}").expect(200)
    assert "a lowercase RFC 1123 subdomain" in api.post(NEW, {"metadata": {"name": name}}).expect(422)["message"]


@pytest.mark.rows("ETC-004", "ETC-007")
def test_only_events_are_stored_with_a_lease(tmp_path: Path, own_etcd: Etcd) -> None:
    prefix = f"/lease-{secrets.token_hex(4)}"
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={prefix}"]
    with running_server(flags, tmp_path) as server:
        api = Client(server.url)
        for number in range(3):
            api.post(OLD, event(f"e{number}")).expect(201)
        api.post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}}).expect(201)
    found = {}
    for key in ("events/default/e0", "events/default/e2", "configmaps/default/c"):
        wanted = base64.b64encode(f"{prefix}/{key}".encode()).decode()
        found[key] = own_etcd.call("kv/range", {"key": wanted})["kvs"][0].get("lease", "0")
    assert found["configmaps/default/c"] == "0"
    assert found["events/default/e0"] == found["events/default/e2"] != "0", "they share one"
    lease = own_etcd.call("lease/timetolive", {"ID": found["events/default/e0"]})
    assert 3600 <= int(lease["grantedTTL"]) <= 3660


@pytest.mark.rows("ETC-004", "ETC-007")
def test_event_is_deleted_when_its_lease_expires(tmp_path: Path, own_etcd: Etcd) -> None:
    prefix = f"/short-{secrets.token_hex(4)}"
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={prefix}"]
    with running_server([*flags, "--event-ttl=30s"], tmp_path) as server:
        api = Client(server.url)
        made = api.post(OLD, event("short")).expect(201)
        key = base64.b64encode(f"{prefix}/events/default/short".encode()).decode()
        lease = own_etcd.call("kv/range", {"key": key})["kvs"][0]["lease"]
        assert int(own_etcd.call("lease/timetolive", {"ID": lease})["grantedTTL"]) == 31, (
            "shared for a twentieth of 30 s"
        )
        with api.watch(OLD, resourceVersion=made["metadata"]["resourceVersion"]) as watch:
            own_etcd.call("lease/revoke", {"ID": lease})  # as etcd does when the lease expires
            assert watch.next("DELETED")["object"]["metadata"]["name"] == "short"
        assert api.get(f"{OLD}/short").status == 404
        assert api.post(OLD, event("next")).status == 201, "a lease that is no more is not used again"


@pytest.mark.rows("DIS-12")
def test_built_in_apis_can_be_turned_off(tmp_path: Path, own_etcd: Etcd) -> None:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/off-{secrets.token_hex(4)}"]
    some = [*flags, "--runtime-config=coordination.k8s.io/v1=false,events.k8s.io/v1=false"]
    with running_server(some, tmp_path / "some") as server:
        api = Client(server.url)
        groups = {group["name"] for group in api.get("/apis").expect(200)["groups"]}
        assert "rbac.authorization.k8s.io" in groups
        assert not {"coordination.k8s.io", "events.k8s.io"} & groups
        assert api.get("/apis/coordination.k8s.io/v1/leases").status == 404
    with running_server([*flags, "--runtime-config=api/all=false"], tmp_path / "none") as server:
        api = Client(server.url)
        assert [group["name"] for group in api.get("/apis").expect(200)["groups"]] == ["apiextensions.k8s.io"]
        core = {entry["name"] for entry in api.get("/api/v1").expect(200)["resources"]}
        assert core == {"namespaces", "namespaces/status", "namespaces/finalize"}


@pytest.mark.rows("ETC-004")
def test_protobuf_secret_of_kube_apiserver_is_read(tmp_path: Path, own_etcd: Etcd) -> None:
    prefix = f"/real-{secrets.token_hex(4)}"
    # Secret{metadata{name, namespace, uid, creationTimestamp}, data{a: x}, type}, as kube-apiserver stores it
    metadata = b"\x0a\x04real" + b"\x1a\x07default" + b"\x2a\x02u1" + b"\x42\x06\x08\x80\xf8\xbd\xc9\x06"
    entry = b"\x0a\x01a" + b"\x12\x01x"
    raw = b"\x0a" + bytes([len(metadata)]) + metadata + b"\x12" + bytes([len(entry)]) + entry + b"\x1a\x06Opaque"
    kind = b"\x0a\x02v1" + b"\x12\x06Secret"
    value = b"k8s\x00" + b"\x0a" + bytes([len(kind)]) + kind + b"\x12" + bytes([len(raw)]) + raw + b"\x1a\x00\x22\x00"
    key = base64.b64encode(f"{prefix}/secrets/default/real".encode()).decode()
    own_etcd.call("kv/put", {"key": key, "value": base64.b64encode(value).decode()})
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix={prefix}"]
    with running_server(flags, tmp_path) as server:
        api = Client(server.url)
        path = "/api/v1/namespaces/default/secrets/real"
        shown = api.get(path).expect(200)
        assert (shown["data"], shown["type"], shown["metadata"]["uid"]) == ({"a": "eA=="}, "Opaque", "u1")
        assert api.put(path, {**shown, "data": {"b": "eQ=="}}).status == 200
    stored = own_etcd.call("kv/range", {"key": key})["kvs"][0]["value"]
    assert json.loads(base64.b64decode(stored))["data"] == {"b": "eQ=="}
