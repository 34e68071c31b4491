"""The embedded store syncs each write to the disk before its response."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client
from tests.faults.disk_record import environment, read, recorder
from tests.support.processes import running_server

WRITES = 60


@pytest.mark.rows("ETC-005")
def test_response_follows_a_sync_begun_after_the_request(tmp_path: Path) -> None:
    directory, record = tmp_path / "server", tmp_path / "record"
    directory.mkdir()
    recorded = environment(recorder(tmp_path), directory, record)
    asked: list[tuple[str, int, int]] = []
    with running_server(["--insecure", "--port=0", "--store=sqlite"], directory, env=recorded) as server:
        api = Client(server.url)
        widgets = serve(api)
        for number in range(WRITES):
            name = f"w{number}"
            began = time.monotonic_ns()
            if number % 3 == 2:
                api.delete(widgets.path(f"w{number - 1}")).expect(200)
            else:
                api.post(widgets.path(), widgets.make(name)).expect(201)
            asked.append((name, began, time.monotonic_ns()))
    calls = [call for call in read(record) if call.file == "store.db-wal"]
    syncs = [call for call in calls if call.kind == "s"]
    writes = [call for call in calls if call.kind == "w"]
    for name, began, ended in asked:
        inside = [call for call in writes if began <= call.began and call.ended <= ended]
        assert inside, f"{name} was answered before it was written"
        last = max(call.ended for call in inside)
        assert any(last <= call.began and call.ended <= ended for call in syncs), f"{name} was answered before its sync"
