"""A write in one version keeps the fields that only another version has (strategy None)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from apiext.conformance.support.conversion_webhook import Webhook, answer, renamed, serve_crontabs
from apiext.conformance.support.definitions import Resource
from apiext.conformance.support.http_client import APPLY, JSON_PATCH, MERGE, Answer, Client
from apiext.conformance.test_apply_versions import FREE, NUMBER, SCALE, TEXT, schema, versions
from tests.support.processes import Server

ITEM = {"type": "object", "properties": {"name": TEXT, "size": NUMBER}}
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
SUBRESOURCES = {"status": {}, **SCALE}


def merge_schemas(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """Return an object schema with the properties of two object schemas, one level deep."""
    return {**a, "properties": {**a["properties"], **b["properties"]}}


WEIGHED = merge_schemas(ITEM, {"properties": {"weight": NUMBER}})
OLD: dict[str, Any] = {
    "replicas": NUMBER,
    "a": TEXT,
    "inner": {"type": "object", "properties": {"x": TEXT}},
    "bare": {"type": "object"},
    "keyed": {"type": "array", "items": {**ITEM, "required": ["name"]}, **KEYED},
    "plain": {"type": "array", "items": ITEM},
    "named": {"type": "object", "additionalProperties": ITEM},
}
NEW: dict[str, Any] = {
    **OLD,
    "only": TEXT,
    "none": {**TEXT, "nullable": True},
    "filled": {**TEXT, "default": "x"},
    "inner": merge_schemas(OLD["inner"], {"properties": {"y": TEXT}}),
    "bare": {"type": "object", "properties": {"z": TEXT}},
    "keyed": {"type": "array", "items": {**WEIGHED, "required": ["name"]}, **KEYED},
    "plain": {"type": "array", "items": WEIGHED},
    "named": {"type": "object", "additionalProperties": WEIGHED},
}
STATUS = {"type": "object", "properties": {"phase": TEXT, "replicas": NUMBER}}
SHOWN: dict[str, Any] = {
    "replicas": 1,
    "a": "a",
    "inner": {"x": "x"},
    "bare": {},
    "keyed": [{"name": "k", "size": 1}, {"name": "l", "size": 1}],
    "plain": [{"name": "p", "size": 1}, {"name": "q", "size": 1}],
    "named": {"n": {"size": 1}},
}
WHOLE: dict[str, Any] = {
    **SHOWN,
    "only": "o",
    "none": None,
    "filled": "y",
    "inner": {"x": "x", "y": "y"},
    "bare": {"z": "z"},
    "keyed": [{"name": "k", "size": 1, "weight": 1}, {"name": "l", "size": 1, "weight": 2}],
    "plain": [{"name": "p", "size": 1, "weight": 3}, {"name": "q", "size": 1, "weight": 4}],
    "named": {"n": {"size": 1, "weight": 5}},
}


@pytest.fixture(scope="module")
def kinds(server: Server) -> tuple[Resource, Resource]:
    """A custom resource in its storage version, and in a version with fewer fields."""
    more = merge_schemas(STATUS, {"properties": {"why": TEXT}})
    v1, v1beta1 = versions(
        Client(server.url),
        {"name": "v1", "schema": schema(NEW, status=more), "subresources": SUBRESOURCES},
        {"name": "v1beta1", "schema": schema(OLD, status=STATUS), "subresources": SUBRESOURCES},
    )
    return v1, v1beta1


def patched(media: str, patch: Any, subresource: str = "", **query: Any) -> Callable[[Resource], Answer]:
    """Return a function that patches the object x."""

    def send(of: Resource) -> Answer:
        return of.api.request("PATCH", f"{of.path('x')}{subresource}", patch, {"Content-Type": media}, **query)

    return send


def applied(subresource: str = "", **content: Any) -> Callable[[Resource], Answer]:
    """Return a function that applies the object x."""

    def send(of: Resource) -> Answer:
        config = {**of.make("x"), **content}
        if "spec" not in content:
            del config["spec"]
        return patched(APPLY, config, subresource, fieldManager="m", force="true")(of)

    return send


def replaced(**spec: Any) -> Callable[[Resource], Answer]:
    """Return a function that PUTs the object x with changed fields of spec.

    The version is that of the resource. ``...`` removes a field.
    """

    def send(of: Resource) -> Answer:
        shown = of.api.get(of.path("x")).expect(200)
        wanted = {name: item for name, item in {**shown["spec"], **spec}.items() if item is not ...}
        return of.api.put(of.path("x"), {**shown, "spec": wanted})

    return send


def deleted_with_finalizer(of: Resource) -> Answer:
    """Delete the object x, which remains since it has a finalizer."""
    patch = {"metadata": {"finalizers": ["example.com/stay"]}}
    of.api.request("PATCH", of.path("x"), patch, {"Content-Type": MERGE}).expect(200)
    return of.api.delete(of.path("x"))


def scaled(of: Resource) -> Answer:
    """Replace the scale of the object x."""
    path = f"{of.path('x')}/scale"
    return of.api.put(path, {**of.api.get(path).expect(200), "spec": {"replicas": 5}})


def with_status(of: Resource) -> Answer:
    """Replace the status of the object x."""
    shown = of.api.get(of.path("x")).expect(200)
    return of.api.put(f"{of.path('x')}/status", {**shown, "status": {"phase": "down"}})


SET_INNER = [{"op": "replace", "path": "/spec/inner/x", "value": "b"}]
SET_PHASE = [{"op": "replace", "path": "/status/phase", "value": "down"}]
CHANGED_KEYED = [{"name": "l", "size": 2}, {"name": "m", "size": 3}]
WHOLE_KEYED = [{"name": "l", "size": 2, "weight": 2}, {"name": "m", "size": 3}]
WRITES: Mapping[str, tuple[Callable[[Resource], Answer], dict[str, Any]]] = {
    "PUT": (replaced(a="b"), {"a": "b"}),
    "PUT without an empty object": (replaced(bare=...), {}),
    "PUT of an associative list": (replaced(keyed=CHANGED_KEYED), {"keyed": WHOLE_KEYED}),
    "PUT of another order": (replaced(plain=SHOWN["plain"][::-1]), {"plain": WHOLE["plain"][::-1]}),
    "PUT of one item": (
        replaced(plain=[SHOWN["plain"][0], {"name": "q", "size": 9}]),
        {"plain": [WHOLE["plain"][0], {"name": "q", "size": 9, "weight": 4}]},
    ),
    "PUT without an item": (replaced(plain=SHOWN["plain"][1:]), {"plain": WHOLE["plain"][1:]}),
    "PUT of a map": (replaced(named={"n": {"size": 2}, "m": {}}), {"named": {"n": {"size": 2, "weight": 5}, "m": {}}}),
    "PUT without a key": (replaced(named={}), {"named": {}}),
    "merge patch": (patched(MERGE, {"spec": {"a": "b"}}), {"a": "b"}),
    "merge patch of labels": (patched(MERGE, {"metadata": {"labels": {"l": "m"}}}), {}),
    "merge patch of an object away": (patched(MERGE, {"spec": {"inner": None}}), {"inner": ...}),
    "JSON patch": (patched(JSON_PATCH, SET_INNER), {"inner": {"x": "b", "y": "y"}}),
    "apply": (applied(spec={"a": "b"}), {"a": "b"}),
    "apply of a list": (
        applied(spec={"keyed": [{"name": "k", "size": 7}]}),
        {"keyed": [{"name": "k", "size": 7, "weight": 1}, WHOLE["keyed"][1]]},
    ),
    "scale": (scaled, {"replicas": 5}),
    "patch of the scale": (patched(MERGE, {"spec": {"replicas": 5}}, "/scale"), {"replicas": 5}),
    "delete": (deleted_with_finalizer, {}),
}
STATUS_WRITES: Mapping[str, tuple[Callable[[Resource], Answer], str]] = {
    "PUT": (with_status, "down"),
    "merge patch": (patched(MERGE, {"status": {"phase": "down"}}, "/status"), "down"),
    "JSON patch": (patched(JSON_PATCH, SET_PHASE, "/status"), "down"),
    "apply": (applied("/status", status={"phase": "down"}), "down"),
    "apply of the spec": (applied(spec={"a": "b"}), "up"),
}


@pytest.fixture
def versioned(kinds: tuple[Resource, Resource]) -> tuple[Resource, Resource]:
    """The custom resource with a new object x that has fields of both versions."""
    v1, v1beta1 = kinds
    api, path = v1.api, v1.path("x")
    if (found := api.get(path)).status == 200:
        if found.json["metadata"].get("finalizers"):
            api.request("PATCH", path, {"metadata": {"finalizers": None}}, {"Content-Type": MERGE}).expect(200)
        api.delete(path)
    v1.create("x", **WHOLE)
    up = {"status": {"phase": "up", "replicas": 1, "why": "w"}}
    api.request("PATCH", f"{path}/status", up, {"Content-Type": MERGE}).expect(200)
    assert api.get(v1beta1.path("x")).expect(200)["spec"] == SHOWN
    return v1, v1beta1


@pytest.mark.rows("VER-003", "WRI-004", "WRI-007")
@pytest.mark.parametrize("name", list(WRITES))
def test_write_keeps_fields_that_its_version_lacks(versioned: tuple[Resource, Resource], name: str) -> None:
    v1, v1beta1 = versioned
    send, changed = WRITES[name]
    assert send(v1beta1).status == 200
    found = v1.api.get(v1.path("x")).expect(200)
    assert found["spec"] == {key: item for key, item in {**WHOLE, **changed}.items() if item is not ...}
    assert found["status"] == {"phase": "up", "replicas": 1, "why": "w"}


@pytest.mark.rows("VER-003", "SRV-005")
@pytest.mark.parametrize("name", list(STATUS_WRITES))
def test_status_write_keeps_fields_that_its_version_lacks(versioned: tuple[Resource, Resource], name: str) -> None:
    v1, v1beta1 = versioned
    send, phase = STATUS_WRITES[name]
    assert send(v1beta1).expect(200)["status"]["phase"] == phase
    found = v1.api.get(v1.path("x")).expect(200)
    assert found["status"] == {"phase": phase, "why": "w"} | ({} if name == "PUT" else {"replicas": 1})
    assert found["spec"] == WHOLE | ({"a": "b"} if phase == "up" else {})


@pytest.mark.rows("VER-003", "WRI-006")
def test_unchanged_write_stores_nothing_in_each_version(versioned: tuple[Resource, Resource]) -> None:
    before = versioned[0].api.get(versioned[0].path("x")).expect(200)["metadata"]["resourceVersion"]
    for of in versioned:
        answer = patched(MERGE, {}, dryRun="All")(of).expect(200)
        assert answer["spec"] == (WHOLE if of.version == "v1" else SHOWN)
        assert patched(MERGE, {})(of).expect(200)["metadata"]["resourceVersion"] == before


@pytest.mark.rows("VER-003", "SSA-009")
def test_applier_removes_fields_applied_in_another_version(versioned: tuple[Resource, Resource]) -> None:
    v1, v1beta1 = versioned
    applied(spec={"only": "n", "inner": {"y": "n"}, "bare": {"z": "n"}})(v1).expect(200)
    changed = {"only": "n", "inner": {"x": "x", "y": "n"}, "bare": {"z": "n"}}
    assert v1.api.get(v1.path("x")).expect(200)["spec"] == {**WHOLE, **changed}
    applied(spec={"a": "b"})(v1beta1).expect(200)
    found = v1.api.get(v1.path("x")).expect(200)["spec"]
    assert "only" not in found
    assert (found["a"], found["inner"], found["filled"], found["none"]) == ("b", {"x": "x"}, "y", None)


@pytest.mark.rows("VER-003", "SSA-001", "SSA-011")
def test_apply_is_pruned_by_the_storage_version(api: Client) -> None:
    schemas = [{"type": "object", "properties": {"spec": spec}} for spec in (FREE, {"type": "object"})]
    of = zip(("v1", "v1beta1"), schemas, strict=True)
    v1, v1beta1 = versions(api, *({"name": name, "schema": {"openAPIV3Schema": it}} for name, it in of))

    def spec() -> Any:
        return api.get(v1.path("x")).expect(200)["spec"]

    assert applied(spec={"a": 1})(v1beta1).expect(201)["spec"] == {}
    assert spec() == {"a": 1}
    assert applied(spec={"a": 1})(v1beta1).expect(200)["spec"] == {}
    assert spec() == {"a": 1}
    patched(MERGE, {"spec": {"b": {"c": 1, "d": [1]}}})(v1).expect(200)
    applied(spec={"b": {"e": 2}})(v1beta1).expect(200)
    assert spec() == {"b": {"c": 1, "d": [1], "e": 2}}  # only this applier owned the field a
    applied(spec={})(v1beta1).expect(200)
    assert spec() == {"b": {"c": 1, "d": [1]}}
    for send in (patched(MERGE, {"spec": {"x": 1}}), replaced(), patched(MERGE, {"spec": None})):
        send(v1beta1).expect(200)
        assert spec() == {"b": {"c": 1, "d": [1]}}


@pytest.mark.rows("VER-003", "VER-004", "SSA-011")
def test_apply_converted_by_webhook_is_pruned_by_storage_version(
    converting: Server, converting_webhook: Webhook
) -> None:
    converting_webhook.answer = answer(renamed)
    schemas = {
        "v1": {"type": "object", "properties": {"spec": FREE}},
        "v1beta1": {"type": "object", "properties": {"spec": {"type": "object"}}},
    }
    tabs = serve_crontabs(Client(converting.url), converting_webhook, storage="v1", schemas=schemas)
    config = {"apiVersion": f"{tabs.group}/v1beta1", "kind": "CronTab", "metadata": {"name": "x"}, "spec": {"a": 1}}
    for code in (201, 200):
        path, headers = tabs.path("v1beta1", "x"), {"Content-Type": APPLY}
        made = tabs.api.request("PATCH", path, config, headers, fieldManager="m", force="true").expect(code)
        assert made["spec"] == {}
        assert tabs.get("v1", "x")["spec"] == {"a": 1}
