"""Storage migrations with the garbage collector.

The collector changes metadata but not the stored version.
"""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, is_true
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.faults.test_migrate import command, define, move, stored_versions
from tests.faults.test_migrations import PATH, api, ask, etcd, over, server, versions_of
from tests.support.processes import Etcd, Server
from tests.support.shared import ROOT

__all__ = ["api", "etcd", "server"]  # fixtures
OWNERS = "/api/v1/namespaces/default/configmaps"
OBJECTS, OWNED = 600, 20


def owned(api: Client) -> tuple[Resource, str]:
    """Return widgets stored in v1 while v2 is the storage version, and the path of an owner.

    It is one of two owners of the last widget.
    """
    widgets = define(api)
    for number in range(OBJECTS):
        widgets.create(f"w{number:04}", size=number)
    owners: list[dict[str, Any]] = []
    for letter in "ab":
        made = api.post(OWNERS, {"metadata": {"name": f"{letter}-{widgets.group}"}}).expect(201)["metadata"]
        owners.append({"apiVersion": "v1", "kind": "ConfigMap", "name": made["name"], "uid": made["uid"]})
    for number in range(OWNED):
        wanted = widgets.make(f"x{number:02}", size=number)
        wanted["metadata"]["ownerReferences"] = owners
        api.post(widgets.path(), wanted).expect(201)
    move(api, widgets, "v2")
    return widgets, f"{OWNERS}/{owners[0]['name']}"


def has_one_owner(api: Client, widgets: Resource) -> bool:
    found = [api.get(widgets.path(f"x{number:02}")).expect(200) for number in range(OWNED)]
    return all(len(it["metadata"]["ownerReferences"]) == 1 for it in found)


@pytest.mark.rows("VER-002")
def test_migration_covers_objects_of_the_garbage_collector(api: Client, etcd: Etcd) -> None:
    widgets, owner = owned(api)
    name = f"m-{widgets.group}"
    ask(api, name, widgets.group)
    until(lambda: (api.get(f"{PATH}/{name}").expect(200).get("status") or {}).get("resourceVersion"), "it has begun")
    api.delete(owner, propagationPolicy="Background").expect(200)
    assert is_true(over(api, name), "Succeeded")
    assert (versions_of(etcd, widgets), stored_versions(api, widgets)) == ({"v2"}, ["v2"])
    until(lambda: has_one_owner(api, widgets), "the collector is done")
    assert versions_of(etcd, widgets) == {"v2"}


@pytest.mark.rows("VER-002")
def test_migrate_command_covers_objects_of_the_garbage_collector(server: Server, api: Client, etcd: Etcd) -> None:
    widgets, owner = owned(api)
    asked = [*command(server, "--rate=250", f"widgets.{widgets.group}")]
    with subprocess.Popen(asked, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as running:
        until(lambda: len(versions_of(etcd, widgets)) == 2, "some moved")
        api.delete(owner, propagationPolicy="Background").expect(200)
        told, _ = running.communicate(timeout=120)
        assert running.returncode == 0, told
    assert (versions_of(etcd, widgets), stored_versions(api, widgets)) == ({"v2"}, ["v2"])
