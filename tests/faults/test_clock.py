"""The wall clock jumps forwards and backwards under load.

Times may be wrong, but not order, expiry and leases.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import DEFINITIONS, TABLE, Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.faults.checkers import violations
from tests.faults.workload import Load
from tests.support import etcd_reader, sqlite_reader
from tests.support.processes import running_etcd, running_server

HOUR = 3600.0
JUMPS = (HOUR, -HOUR, -0.5)  # each jump is undone during the deletion of a definition
WRITERS, WATCHERS = 4, 2
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
Clock = Callable[[float], None]


def _ages(api: Client, widgets: Resource) -> set[str]:
    rows = api.get(widgets.path(), {"Accept": TABLE}).expect(200)["rows"]
    return {row["cells"][-1] for row in rows}


def _delete_definition(api: Client, definition: str) -> None:
    api.delete(definition).expect(200)
    until(lambda: api.get(definition).status == 404, "the definition goes, and its object with it", within=5)


def _check_clock_jumps(api: Client, widgets: Resource, wrong_by: Clock) -> None:
    """Let the clock jump while a watch is open, an event is stored, and a definition is deleted.

    The watch is short.
    """
    ready = api.get("/readyz?verbose")
    event = {
        "metadata": {"name": "kept"},
        "involvedObject": {"kind": "Widget", "namespace": "default"},
        "reason": "Clock",
    }
    api.post("/api/v1/namespaces/default/events", event).expect(201)
    for shift in JUMPS:
        with api.watch(widgets.path(), resourceVersion=0, timeoutSeconds=2) as watch:
            began = time.monotonic()
            wrong_by(shift)
            pause(0.2)
            made = widgets.create(f"at-{shift:g}-{time.monotonic_ns()}")
            told = watch.next("ADDED")
            while told["object"]["metadata"]["name"] != made["metadata"]["name"]:
                told = watch.next("ADDED")
            watch.read()
            took = time.monotonic() - began
            assert took >= 1.9, "a watch ends after its own time"
            prompt(took, 4, "a watch ends after its own time")
        other = serve(api, "gadgets")
        other.create("g")
        wrong_by(-shift)
        _delete_definition(api, f"{DEFINITIONS}/gadgets.{other.group}")
        assert all(age.strip("<>").isalnum() for age in _ages(api, widgets))
        assert api.get("/readyz?verbose").text == ready.text
    api.get("/api/v1/namespaces/default/events/kept").expect(200)


@pytest.mark.rows("RV-017", "RV-009", "WRI-005")
@pytest.mark.parametrize("store", ["sqlite", pytest.param("etcd", marks=pytest.mark.long)])
def test_clock_jumps_change_only_timestamps(tmp_path: Path, store: str) -> None:
    file = tmp_path / "shift"

    def wrong_by(seconds: float) -> None:
        file.write_text(f"{seconds}")

    wrong_by(0)
    command = [sys.executable, "-m", "tests.faults.wrong_clock", str(file), "serve"]
    flags = ["--insecure", "--port=0"]
    with contextlib.ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(tmp_path / "etcd")) if store == "etcd" else None
        flags.append(f"--etcd-servers={etcd.url}" if etcd else "--store=sqlite")
        with running_server(flags, tmp_path / "server", command=command) as server:
            api = Client(server.url)
            widgets, loaded = (serve(api, schema={"openAPIV3Schema": SCHEMA}) for _ in range(2))
            prefix = f"/registry/{loaded.group}/widgets/"
            load = Load(server.url, loaded.path(), f"{loaded.group}/v1", loaded.kind, seed=14)
            load.start(WRITERS, WATCHERS)
            _check_clock_jumps(api, widgets, wrong_by)
            load.finish()
            if etcd:
                kept = etcd_reader.history(etcd, prefix, 1)
            else:
                kept = sqlite_reader.history(tmp_path / "server" / "store.db", prefix)
            assert "Traceback" not in server.log_tail()
    found = violations(load.history, kept)
    assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20])
    times = [event.value["metadata"]["creationTimestamp"] for event in kept if event.value and event.created]
    assert times != sorted(times), "the clock did not jump under the writers"
