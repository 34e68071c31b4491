"""Groups, versions and resources, in the old and the aggregated form."""

import base64
import hashlib
from typing import Any

import orjson
import pytest

from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.served import Catalog
from apiext.discovery import aggregated, groups
from tests.unit.discovery.served import GADGETS, GROUP, WIDGETS, catalog, definition

ALL = ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
SOME = ["get", "patch", "update"]
WIDGET = {
    "name": "widgets",
    "singularName": "wdgt",
    "namespaced": True,
    "kind": "Widget",
    "verbs": ALL,
    "shortNames": ["wd", "wdg"],
    "categories": ["all", "mine"],
}
STATUS = {"name": "widgets/status", "singularName": "", "namespaced": True, "kind": "Widget", "verbs": SOME}
SCALE = {
    "name": "widgets/scale",
    "singularName": "",
    "namespaced": True,
    "group": "autoscaling",
    "version": "v1",
    "kind": "Scale",
    "verbs": SOME,
}
GADGET = {"name": "gadgets", "singularName": "gadget", "namespaced": False, "kind": "Gadget", "verbs": ALL}


def storage_hash(version: str, kind: str) -> str:
    return base64.b64encode(hashlib.sha256(f"{GROUP}/{version}/{kind}".encode()).digest()[:8]).decode()


@pytest.fixture
def served() -> Catalog:
    return catalog(WIDGETS, GADGETS)


@pytest.mark.rows("DIS-104", "VER-001")
def test_group_lists_versions_in_priority_order(served: Catalog) -> None:
    versions = [{"groupVersion": f"{GROUP}/{name}", "version": name} for name in ("v2", "v1", "v1beta1")]
    entry = {"name": GROUP, "versions": versions, "preferredVersion": versions[0]}
    assert groups.group(served, GROUP) == {"kind": "APIGroup", "apiVersion": "v1", **entry}
    assert groups.group_list(served) == {"kind": "APIGroupList", "apiVersion": "v1", "groups": [entry]}


@pytest.mark.rows("DIS-102", "DIS-103", "DIS-112")
def test_resource_list_has_resources_and_subresources(served: Catalog) -> None:
    found = groups.resource_list(served, GROUP, "v1beta1")
    widget = WIDGET | {"storageVersionHash": storage_hash("v1", "Widget")}
    gadget = GADGET | {"storageVersionHash": storage_hash("v1beta1", "Gadget")}
    assert found == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/v1beta1",
        "resources": [gadget, widget, STATUS, SCALE],
    }


@pytest.mark.rows("DIS-103")
def test_unserved_storage_version_has_no_hash() -> None:
    hidden = definition("things", "Thing", [{"name": "v1", "served": False}, {"name": "v2"}])
    found = groups.resource_list(catalog(hidden), GROUP, "v2")
    assert found is not None
    assert "storageVersionHash" not in found["resources"][0]


@pytest.mark.rows("DIS-105")
@pytest.mark.parametrize("version", ["v2alpha1", "v9", ""])
def test_unserved_group_or_version_is_not_found(served: Catalog, version: str) -> None:
    assert groups.resource_list(served, GROUP, version) is None
    assert groups.resource_list(served, "other.example.com", "v1") is None
    assert groups.group(served, "other.example.com") is None
    assert groups.group(served, "") is None


@pytest.mark.rows("DIS-104", "DIS-111")
def test_group_is_removed_with_last_resource(served: Catalog) -> None:
    fewer = served.without_resource(GROUP, "widgets")
    assert groups.resource_list(fewer, GROUP, "v1") is None
    assert groups.resource_list(fewer, GROUP, "v2") is not None
    assert groups.group(fewer.without_resource(GROUP, "gadgets"), GROUP) is None


@pytest.mark.rows("DIS-104")
def test_definitions_that_are_not_established_are_not_discovered() -> None:
    waiting = definition("things", "Thing", [{"name": "v1"}])
    waiting["status"]["conditions"] = []
    assert groups.group_list(catalog(waiting))["groups"] == []


@pytest.mark.rows("DEL-004")
def test_terminating_definition_offers_no_write_verbs() -> None:
    going = definition("things", "Thing", [{"name": "v1"}], also=["Terminating"])
    found = groups.resource_list(catalog(going), GROUP, "v1")
    assert found is not None
    assert found["resources"][0]["verbs"] == ["delete", "deletecollection", "get", "list", "watch"]
    shown = orjson.loads(aggregated.document(catalog(going), core=False).body)
    assert shown["items"][0]["versions"][0]["resources"][0]["verbs"] == found["resources"][0]["verbs"]


def with_builtins(served: Catalog) -> Catalog:
    for resource in builtin_resources(v1beta1=False):
        served = served.with_resource(resource)
    return served


@pytest.mark.rows("DIS-101", "DIS-107", "NSP-001")
def test_built_in_groups_come_first(served: Catalog) -> None:
    everything = with_builtins(served)
    early = everything.with_resource(
        next(iter(catalog(definition("as", "A", [{"name": "v1"}], group="a.io")).resources.values()))
    )
    names = [entry["name"] for entry in groups.group_list(early)["groups"]]
    own = {group for (group, _), resource in early.resources.items() if resource.builtin} - {""}
    assert (set(names[: len(own)]), names[len(own) :]) == (own, ["a.io", GROUP])
    assert (names[0], names[len(own) - 1]) == ("apiregistration.k8s.io", "storagemigration.k8s.io")  # by priority
    assert groups.core_versions(everything, "h:1") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "h:1"}],
    }
    core = groups.resource_list(everything, "", "v1")
    assert core is not None
    assert (core["groupVersion"], "apiVersion" in core) == ("v1", False)  # as upstream
    assert next(entry for entry in core["resources"] if entry["name"] == "namespaces")["shortNames"] == ["ns"]


def subresources(version: str) -> list[dict[str, Any]]:
    own = {"group": GROUP, "version": version, "kind": "Widget"}
    scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    return [
        {"subresource": "status", "responseKind": own, "verbs": SOME},
        {"subresource": "scale", "responseKind": scale, "verbs": SOME},
    ]


@pytest.mark.rows("DIS-106")
def test_aggregated_discovery_lists_all_resources(served: Catalog) -> None:
    def gadget(version: str) -> dict[str, Any]:
        return {
            "resource": "gadgets",
            "responseKind": {"group": GROUP, "version": version, "kind": "Gadget"},
            "scope": "Cluster",
            "singularResource": "gadget",
            "verbs": ALL,
        }

    def widget(version: str) -> dict[str, Any]:
        return {
            "resource": "widgets",
            "responseKind": {"group": GROUP, "version": version, "kind": "Widget"},
            "scope": "Namespaced",
            "singularResource": "wdgt",
            "verbs": ALL,
            "shortNames": ["wd", "wdg"],
            "categories": ["all", "mine"],
            "subresources": subresources(version),
        }

    found = aggregated.document(served, core=False)
    assert orjson.loads(found.body) == {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": GROUP},
                "versions": [
                    {"version": "v2", "resources": [gadget("v2")], "freshness": "Current"},
                    {"version": "v1", "resources": [widget("v1")], "freshness": "Current"},
                    {"version": "v1beta1", "resources": [gadget("v1beta1"), widget("v1beta1")], "freshness": "Current"},
                ],
            }
        ],
    }


@pytest.mark.rows("DIS-106", "DIS-107")
def test_discovery_etag_is_hash_of_json_body(served: Catalog) -> None:
    everything = with_builtins(served)
    core, others = aggregated.document(everything, core=True), aggregated.document(everything, core=False)
    assert [item["metadata"] for item in orjson.loads(core.body)["items"]] == [{}]
    assert others.etag == f'"{hashlib.sha512(others.body).hexdigest().upper()}"'
    for encoding in ("application/yaml", "application/vnd.kubernetes.protobuf"):
        assert aggregated.document(everything, core=False, encoding=encoding).etag == others.etag
    assert aggregated.document(everything.without_resource(GROUP, "gadgets"), core=False).etag != others.etag
