"""Labels that only a conversion webhook adds.

Selectors match the object in the requested version.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.conversion_webhook import CronTabs, Webhook, answer, crontab, serve_crontabs
from apiext.conformance.support.http_client import TABLE, Client
from tests.conformance.test_conversion import move_storage
from tests.support.processes import Server

METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


def labelled(given: dict[str, Any], api_version: str) -> dict[str, Any]:
    """Return a CronTab in another version, with two added labels.

    One label names the version, the other one the host.
    """
    found = crontab(given, api_version)
    metadata = found["metadata"]
    labels = {**metadata.get("labels", {}), "version": api_version.rpartition("/")[2]}
    labels["host"] = found.get("host") or found.get("hostPort", "").partition(":")[0]
    return {**found, "metadata": {**metadata, "labels": labels}}


@pytest.fixture
def api(converting: Server) -> Client:
    """A client of the server."""
    return Client(converting.url)


@pytest.fixture
def tabs(api: Client, hook: Webhook) -> CronTabs:
    """CronTabs whose labels the webhook adds.

    The objects a and b are stored without labels, and b was read before.
    """
    tabs = serve_crontabs(api, hook)
    hook.answer = answer(labelled)
    tabs.create("v1beta1", "a", hostPort="x:1")
    tabs.create("v1beta1", "b", hostPort="y:1")
    tabs.get("v1", "b")
    return tabs


def names(event: dict[str, Any]) -> tuple[str, list[str]]:
    """Return the type of an event, and the names of its objects."""
    found = event["object"]
    return event["type"], [row["object"]["metadata"]["name"] for row in found.get("rows", ())] or [
        found["metadata"]["name"]
    ]


FORMS = {"objects": {}, "tables": {"Accept": TABLE}, "metadata": {"Accept": METADATA}}


@pytest.mark.rows("SEL-003", "SEL-002", "RV-011")
@pytest.mark.parametrize("shown_before", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_watch_selects_by_converted_labels(api: Client, tabs: CronTabs, form: str, shown_before: bool) -> None:
    def change(hostport: str) -> None:
        api.patch(tabs.path("v1beta1", "a"), {"hostPort": hostport}).expect(200)
        if shown_before:
            tabs.get("v1", "a")

    with api.watch(tabs.path("v1"), headers=FORMS[form], labelSelector="version=v1,host=x") as watch:
        seen = [watch.next()]
        change("z:2")
        change("x:3")
        change("x:4")
        tabs.create("v1beta1", "other", hostPort="y:1")
        api.delete(tabs.path("v1beta1", "b")).expect(200)
        api.delete(tabs.path("v1beta1", "a")).expect(200)
        seen += [watch.next() for _ in range(4)]
    assert [*map(names, seen)] == [(kind, ["a"]) for kind in ("ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED")]
    if form == "objects":
        assert [it["object"]["port"] for it in seen] == ["1", "1", "3", "4", "4"]
        revisions = [int(it["object"]["metadata"]["resourceVersion"]) for it in seen]
        assert revisions == sorted(set(revisions))


@pytest.mark.rows("SEL-003", "RV-010")
def test_resumed_watch_selects_by_converted_labels(api: Client, tabs: CronTabs) -> None:
    start = api.get(tabs.path("v1")).expect(200)["metadata"]["resourceVersion"]
    api.patch(tabs.path("v1beta1", "a"), {"hostPort": "z:2"}).expect(200)
    api.delete(tabs.path("v1beta1", "b")).expect(200)
    tabs.create("v1beta1", "c", hostPort="y:9")
    tabs.get("v1", "c")
    for selector, expected in (
        ("host=x", [("DELETED", ["a"])]),
        ("host in (y,z),version", [("ADDED", ["a"]), ("DELETED", ["b"]), ("ADDED", ["c"])]),
        ("host!=y", [("MODIFIED", ["a"])]),
    ):
        with api.watch(tabs.path("v1"), labelSelector=selector, resourceVersion=start) as watch:
            assert [names(watch.next()) for _ in expected] == expected, selector


@pytest.mark.rows("SEL-003")
def test_stored_labels_replaced_by_conversion_select_nothing(api: Client, hook: Webhook, tabs: CronTabs) -> None:
    tabs.create("v1beta1", "c", hostPort="x:1", metadata={"labels": {"version": "v1beta1"}})
    shown = api.get(tabs.path("v1"), labelSelector="version=v1beta1").expect(200)["items"]
    assert shown == []
    with api.watch(tabs.path("v1"), labelSelector="version=v1beta1") as watch:
        with api.watch(tabs.path("v1beta1"), labelSelector="version=v1beta1") as stored:
            assert names(stored.next()) == ("ADDED", ["c"])
        move_storage(api, tabs, "v1")  # this ends both watches
        assert watch.read() == b""
