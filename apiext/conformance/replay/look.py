"""Find the facts by which a server differs from the recorded server.

This happens before the scenarios are played.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from apiext.conformance.replay.recorded import Scenario
from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import patient, until

NAMESPACES = "/api/v1/namespaces"
FOREIGN = "another make"
_NAMED = re.compile(r"/namespaces/([a-z0-9][a-z0-9-]*)/")
_COLLECTOR = 4.0  # seconds for a garbage collector to finish a deletion
_CONNECTIONS = 12  # requests: each of two processes behind one port answers at least one, except in 1 of 2,000 runs
_CONTROLLER = 10.0  # seconds for a controller to finish the deletion of namespaces


@dataclass(frozen=True)
class Look:
    """Facts of a server.

    ``facts`` are names, such as "garbage collector"; ``where`` in circumstances.yaml and the mark ``has`` of tests use
    them. ``manager`` is the field manager with which the server itself writes the status of definitions.
    """

    manager: str = ""
    facts: frozenset[str] = frozenset()


def look(api: Client) -> Look:
    """Find the facts of a server; for this, create and delete a definition and a namespace."""
    group = fresh_group()
    establish(api, definition(group))
    widgets = Resource(api, group, "widgets", "Widget")
    path = f"{DEFINITIONS}/widgets.{group}"
    try:
        made = api.get(path).expect(200)
        entries = made["metadata"].get("managedFields", [])
        manager = next((it["manager"] for it in entries if it.get("subresource") == "status"), "")
        missing = api.post(widgets.path("", f"no-{secrets.token_hex(4)}"), widgets.make("a"), dryRun="All")
        collected = _collected(widgets)
    finally:
        api.delete(path)
    version = api.get("/version")
    told = version.json if version.status == 200 else {}
    truths = {
        "namespace lifecycle": missing.status == 404,
        "garbage collector": collected,
        "namespace controller": _emptied(api),
        "metrics of one process": len({_started(api) for _ in range(_CONNECTIONS)}) == 1,
        "no list of groups": api.get("/apis").status == 404,
        "v1beta1": api.get("/apis/apiextensions.k8s.io/v1beta1").status == 200,
        "aggregator": api.get("/apis/apiregistration.k8s.io/v1").status == 200,
        FOREIGN: told.get("compiler") != "python",
    }
    return Look(manager, frozenset(name for name, holds in truths.items() if holds))


def _collected(widgets: Resource) -> bool:
    """Return whether a controller finishes a foreground deletion."""
    api, path = widgets.api, widgets.path("a")
    api.post(widgets.path(), widgets.make("a")).expect(201)
    api.delete(path, propagationPolicy="Foreground").expect(200)
    patient(lambda: api.get(path).status != 200, _COLLECTOR)
    return api.patch(path, {"metadata": {"finalizers": None}}).status == 404


def _started(api: Client) -> str:
    """Return the line of /metrics with the start time of the process that answers."""
    lines = api.get("/metrics").text.splitlines()
    return next((line for line in lines if line.startswith("process_start_time_seconds ")), "")


def _emptied(api: Client) -> bool:
    """Return whether a controller finishes the deletion of a namespace."""
    name = f"look-{secrets.token_hex(4)}"
    if api.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).status != 201:
        return False
    api.delete(f"{NAMESPACES}/{name}")
    return _finalize(api, [name])


def namespaces_of(scenarios: Iterable[Scenario]) -> Collection[str]:
    """Return the namespaces that the paths of the scenarios' requests contain."""
    paths = [step.get("path", "") for scenario in scenarios for step in scenario.steps]
    return sorted({name for path in paths for name in _NAMED.findall(path)})


@contextmanager
def namespaces(api: Client, names: Iterable[str]) -> Iterator[None]:
    """Create those of the namespaces that are missing, and delete the created ones at the end.

    Do nothing if the server has no namespaces.
    """
    made = []
    if api.get(NAMESPACES).status == 200:
        for name in names:
            until(lambda name=name: not _is_ending(api, name), f"namespace {name} is gone")  # type: ignore[misc]
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            if api.post(NAMESPACES, body).status == 201:
                made.append(name)
    try:
        yield
    finally:
        delete_namespaces(api, made)


def delete_namespaces(api: Client, names: Collection[str]) -> None:
    """Delete the namespaces that still exist, and wait for the end of their deletion."""
    left = [name for name in names if api.delete(f"{NAMESPACES}/{name}").status != 404]
    _finalize(api, left)


def _is_ending(api: Client, name: str) -> bool:
    answer = api.get(f"{NAMESPACES}/{name}")
    return answer.status == 200 and "deletionTimestamp" in answer.json["metadata"]


def _finalize(api: Client, names: Sequence[str]) -> bool:
    """Wait until a controller has finished the deletion of namespaces, and return True.

    If no controller finishes it in time, finish it here, and return False. kube-apiserver without
    kube-controller-manager has no such controller.
    """
    if patient(lambda: not any(_is_ending(api, name) for name in names), _CONTROLLER):
        return True
    for name in names:
        left = api.get(f"{NAMESPACES}/{name}")
        if left.status == 200:
            api.put(f"{NAMESPACES}/{name}/finalize", {**left.json, "spec": {"finalizers": []}})
    return False
