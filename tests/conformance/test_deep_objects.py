"""Objects nested deeper than this server can encode.

They come from a conversion webhook or another writer of etcd.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from apiext.conformance.support.conversion_webhook import PREFIX, Webhook, answer, renamed, serve_crontabs
from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import MERGE, TABLE, Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Etcd, Server

ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
MOST = 254


@pytest.fixture
def api(converting: Server) -> Client:
    """A client of the server."""
    return Client(converting.url)


def nested(levels: int) -> dict[str, Any]:
    """Return an object with this number of levels."""
    found: dict[str, Any] = {}
    for _ in range(levels - 1):
        found = {"b": found}
    return found


@pytest.mark.rows("VER-006")
@pytest.mark.parametrize("levels", [MOST, 900])
def test_too_deep_converted_object_is_an_error(api: Client, hook: Webhook, levels: int) -> None:
    hook.answer = answer(renamed)
    tabs = serve_crontabs(api, hook, schemas={"v1beta1": ANYTHING, "v1": ANYTHING})
    for name in ("a", "b"):
        tabs.create("v1beta1", name, spec={"x": 1})
    hook.answer = answer(lambda given, version: {**renamed(given, version), "spec": nested(levels)})
    about = f"conversion webhook for {tabs.group}/v1beta1, Kind=CronTab returned invalid"
    text = f"{about} object: default/a is nested deeper than {MOST} levels"
    assert api.get(tabs.path("v1", "a")).expect(500)["message"].endswith(f": {text}")
    assert api.patch(tabs.path("v1", "a"), {"x": 1}, MERGE).expect(500)["message"].endswith(f": {text}")
    listed = api.get(tabs.path("v1")).expect(500)["message"]
    assert listed.endswith(f": {about} converted object at index 0: default/a is nested deeper than {MOST} levels")
    made = {"apiVersion": f"{tabs.group}/v1", "kind": "CronTab", "metadata": {"name": "c"}}
    told = api.post(tabs.path("v1"), made).expect(500)["message"]
    assert told == text.replace("v1beta1", "v1").replace("default/a", "default/c")
    api.delete(tabs.path("v1beta1", "a")).expect(200)  # the stored version needs no conversion


@pytest.mark.rows("VER-006")
def test_converted_object_of_maximum_depth_is_accepted(api: Client, hook: Webhook) -> None:
    hook.answer = answer(renamed)
    tabs = serve_crontabs(api, hook, schemas={"v1beta1": ANYTHING, "v1": ANYTHING})
    tabs.create("v1beta1", "a", spec={"x": 1})
    hook.answer = answer(lambda given, version: {**renamed(given, version), "spec": nested(MOST - 1)})
    assert api.get(tabs.path("v1", "a")).expect(200)["spec"] == nested(MOST - 1)


def put(etcd: Etcd, key: str, document: dict[str, Any]) -> None:
    raw = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    etcd.call("kv/put", {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(raw).decode()})


def create_deep_object(api: Client, etcd: Etcd, levels: int) -> tuple[Resource, dict[str, Any]]:
    """Return a resource with an object "a", and an object "deep" with this many levels.

    The object "deep" is written directly to etcd.
    """
    widgets = serve(api, schema={"openAPIV3Schema": ANYTHING})
    made = widgets.create("a")
    made["metadata"] = {**made["metadata"], "name": "deep", "uid": "u"}
    del made["metadata"]["resourceVersion"]
    put(etcd, f"{PREFIX}/{widgets.group}/widgets/default/deep", {**made, "spec": nested(levels - 1)})
    until(lambda: api.get(widgets.path("deep")).status != 404, "the server has heard of it", within=10)
    return widgets, made


@pytest.mark.rows("ETC-003")
@pytest.mark.parametrize("levels", [MOST, MOST + 1, 400, 900])
def test_requests_report_a_too_deep_stored_object(api: Client, own_etcd: Etcd, levels: int) -> None:
    widgets, made = create_deep_object(api, own_etcd, levels)
    answers = [
        api.get(widgets.path("deep")),
        api.get(widgets.path()),
        api.get(widgets.path(), limit=9, resourceVersionMatch="NotOlderThan", resourceVersion="0"),
        api.get(widgets.path(), {"Accept": TABLE}),
        api.patch(widgets.path("deep"), {"metadata": {"labels": {"x": "y"}}}, MERGE),
        api.put(widgets.path("deep"), {**made, "metadata": {"name": "deep"}}),
        api.delete(widgets.path("deep")),
    ]
    if levels <= MOST:
        assert [found.status for found in answers[:4]] == [200] * 4
        return
    text = f": nested deeper than {MOST} levels"
    assert [found.status for found in answers] == [500] * len(answers)
    assert all(found.json["message"].endswith(text) for found in answers)
    key = f"/{widgets.group}/widgets/default/deep"
    assert [key in found.json["message"] for found in answers] == [True] * 4 + [False] * 2 + [True]
    assert api.get(widgets.path("a")).expect(200)["metadata"]["name"] == "a"


@pytest.mark.rows("ETC-003", "TAB-004")
def test_tables_include_an_object_of_maximum_depth(api: Client, own_etcd: Etcd) -> None:
    widgets, _ = create_deep_object(api, own_etcd, MOST)
    deep = api.get(widgets.path("deep")).expect(200)
    whole = {"includeObject": "Object", "fieldSelector": "metadata.name=deep"}
    tables = [
        api.get(widgets.path("deep"), {"Accept": TABLE}, includeObject="Object").expect(200),
        api.get(widgets.path(), {"Accept": TABLE}, **whole).expect(200),
    ]
    seen = api.get(widgets.path(), {"Accept": TABLE}, watch="true", timeoutSeconds="1", **whole)
    tables += [json.loads(line)["object"] for line in seen.text.splitlines()]
    assert [[row["object"] for row in found["rows"]] for found in tables] == [[deep]] * 3
