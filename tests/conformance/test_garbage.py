"""Garbage collection over HTTP: owners and dependents under each propagation policy.

There are no endless waits.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import MERGE, Client
from apiext.conformance.support.waiting import until
from tests.support.processes import running_server

pytestmark = pytest.mark.rows("WRI-018")

OWNER_NAMES = ("owner", "other")
PATIENCE = 60  # seconds; other servers check for new kinds each half minute


def reference(owner: dict[str, Any], *, block: bool = True) -> dict[str, Any]:
    """Return the owner reference of a dependent."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": block,
    }


def child(widgets: Resource, name: str, *owners: dict[str, Any], finalizers: tuple[str, ...] = ()) -> dict[str, Any]:
    """Create an object that the owners own."""
    wanted = widgets.make(name, color="blue")
    wanted["metadata"]["ownerReferences"] = [reference(owner) for owner in owners]
    wanted["metadata"]["finalizers"] = list(finalizers)
    made: dict[str, Any] = widgets.api.post(widgets.path(), wanted).expect(201)
    return made


def delete(widgets: Resource, name: str, policy: str) -> None:
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
    assert widgets.api.request("DELETE", widgets.path(name), body).status in (200, 202)


def wait_until_gone(widgets: Resource, name: str) -> None:
    until(lambda: widgets.api.get(widgets.path(name)).status == 404, f"{name} is gone", within=PATIENCE)


def test_background_deletes_dependents_after_the_owner(api: Client) -> None:
    widgets = serve(api)
    owner, other = (widgets.create(name) for name in OWNER_NAMES)
    child(widgets, "only", owner)
    child(widgets, "shared", owner, other)
    delete(widgets, "owner", "Background")
    assert api.get(widgets.path("owner")).status == 404
    wait_until_gone(widgets, "only")

    def reference_is_removed() -> bool:
        owners = api.get(widgets.path("shared")).expect(200)["metadata"]["ownerReferences"]
        return [one["uid"] for one in owners] == [other["metadata"]["uid"]]

    until(reference_is_removed, "the shared one has lost the reference", within=PATIENCE)


def test_foreground_deletes_dependents_before_the_owner(api: Client) -> None:
    widgets = serve(api)
    owner = widgets.create("owner")
    child(widgets, "held", owner, finalizers=("example.com/hold",))
    child(widgets, "free", owner)
    delete(widgets, "owner", "Foreground")
    wait_until_gone(widgets, "free")
    until(
        lambda: "deletionTimestamp" in api.get(widgets.path("held")).expect(200)["metadata"],
        "the held one is marked",
        within=PATIENCE,
    )
    assert api.get(widgets.path("owner")).expect(200)["metadata"]["finalizers"] == ["foregroundDeletion"]
    api.patch(widgets.path("held"), {"metadata": {"finalizers": None}}).expect(200)
    wait_until_gone(widgets, "owner")


def test_orphan_removes_owner_references_of_dependents(api: Client) -> None:
    widgets = serve(api)
    owner = widgets.create("owner")
    before = child(widgets, "left", owner)
    delete(widgets, "owner", "Orphan")
    wait_until_gone(widgets, "owner")
    left = api.get(widgets.path("left")).expect(200)
    assert "ownerReferences" not in left["metadata"]
    assert left["spec"] == before["spec"]
    assert left["metadata"]["generation"] == 1
    assert "f:ownerReferences" not in str(left["metadata"]["managedFields"])


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
def test_owner_without_dependents_is_deleted(api: Client, policy: str) -> None:
    widgets = serve(api)
    widgets.create("owner")
    delete(widgets, "owner", policy)
    wait_until_gone(widgets, "owner")


def test_owners_of_unserved_kinds_keep_their_dependents(api: Client) -> None:
    widgets = serve(api)
    cow = {"apiVersion": "v1", "kind": "Cow", "metadata": {"name": "p", "uid": "0c5f3b3e-0000-4000-8000-000000000000"}}
    kept = child(widgets, "kept", cow)
    child(widgets, "lost", {**widgets.create("owner"), "metadata": {"name": "owner", "uid": "not-it"}})
    wait_until_gone(widgets, "lost")
    assert api.get(widgets.path("kept")).expect(200) == kept


def test_foreground_deletion_of_definition_with_owners_completes(api: Client) -> None:
    widgets = serve(api)
    owner = widgets.create("owner")
    child(widgets, "child", owner)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.{widgets.group}"
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    assert api.request("DELETE", path, body).status in (200, 202)
    until(lambda: api.get(path).status == 404, "the definition is gone", within=20)


def test_disabled_collector_keeps_dependents_and_finalizers(tmp_path: Path) -> None:
    flags = ["--insecure", "--port=0", "--controllers=*,-garbage-collector-controller"]
    with running_server(flags, tmp_path) as server:
        api = Client(server.url)
        widgets = serve(api)
        child(widgets, "child", {**widgets.make("never"), "metadata": {"name": "never", "uid": "none"}})
        widgets.create("owner")
        delete(widgets, "owner", "Orphan")
        assert api.get(widgets.path("owner")).expect(200)["metadata"]["finalizers"] == ["orphan"]
        assert api.get(widgets.path("child")).status == 200


def events_about(api: Client, namespace: str, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the Events about an object."""
    listed = api.get(f"/api/v1/namespaces/{namespace}/events", fieldSelector=f"involvedObject.uid={about['uid']}")
    return list(listed.expect(200)["items"])


def test_owner_in_another_namespace_creates_an_event(api: Client) -> None:
    widgets, place = serve(api), f"n-{secrets.token_hex(4)}"
    api.post("/api/v1/namespaces", {"metadata": {"name": place}}).expect(201)
    owner = widgets.create("owner")
    wanted = widgets.make("child", color="blue")
    wanted["metadata"] |= {"namespace": place, "ownerReferences": [reference(owner)]}
    child = api.post(widgets.path(namespace=place), wanted).expect(201)["metadata"]
    [event] = until(lambda: events_about(api, place, child), "the event is there", within=PATIENCE)
    until(lambda: api.get(widgets.path("child", namespace=place)).status == 404, "the child is gone", within=PATIENCE)
    kind, uid = f"{widgets.group}/v1/Widget", owner["metadata"]["uid"]
    told = f"[{kind}, namespace: {place}, name: owner, uid: {uid}]"
    assert event["message"] == f'ownerRef {told} does not exist in namespace "{place}"'
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "OwnerRefInvalidNamespace", 1)
    assert event["source"] == {"component": "garbage-collector-controller"}
    assert event["reportingComponent"] == "garbage-collector-controller"
    assert event["involvedObject"] == {
        "apiVersion": f"{widgets.group}/v1",
        "kind": "Widget",
        "namespace": place,
        "name": "child",
        "uid": child["uid"],
    }
    assert event["metadata"]["name"].startswith("child.")
    assert event["firstTimestamp"] == event["lastTimestamp"]
    api.delete(f"/api/v1/namespaces/{place}").expect(200)


def test_namespaced_owner_of_cluster_object_creates_an_event(api: Client) -> None:
    widgets = serve(api)
    owner, name = widgets.create("owner"), f"n-{secrets.token_hex(4)}"
    metadata = {"name": name, "ownerReferences": [reference(owner)]}
    made = api.post("/api/v1/namespaces", {"metadata": metadata}).expect(201)["metadata"]
    [event] = until(lambda: events_about(api, "default", made), "the event is there", within=PATIENCE)
    told = f"[{widgets.group}/v1/Widget, namespace: , name: owner, uid: {owner['metadata']['uid']}]"
    assert event["message"] == f'ownerRef {told} does not exist in namespace ""'
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Namespace", "name": name, "uid": made["uid"]}
    api.patch(f"/api/v1/namespaces/{name}", {"metadata": {"labels": {"a": "b"}}}, MERGE).expect(200)  # validated again
    widgets.create("later")
    assert "deletionTimestamp" not in api.get(f"/api/v1/namespaces/{name}").expect(200)["metadata"]
    assert len(events_about(api, "default", made)) == 1
    api.delete(f"/api/v1/namespaces/{name}").expect(200)


def test_missing_owner_creates_no_event(api: Client) -> None:
    widgets = serve(api)
    owner = widgets.create("owner")
    delete(widgets, "owner", "Background")
    made = child(widgets, "late", owner)["metadata"]
    wait_until_gone(widgets, "late")
    assert events_about(api, "default", made) == []
