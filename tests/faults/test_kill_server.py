"""A server that is killed repeatedly under load loses no acknowledged write.

Watchers get each event once.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause
from tests.faults.checkers import violations
from tests.faults.history import History
from tests.faults.workload import Load
from tests.support import etcd_reader, sqlite_reader
from tests.support.etcd_reader import Event
from tests.support.processes import SERVE, Etcd, Server, free_port, running_etcd, start_server, stop

WRITERS, WATCHERS = 8, 4
MUTANTS = ("dropped-event", "stale-read", "no-revision-compare")
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}


@dataclass(frozen=True)
class Profile:
    """The number of kills, the time range before each, and the minimum work of a valid run.

    ``alive`` is the range in seconds.
    """

    kills: int
    alive: tuple[float, float]
    writes: int = 2000
    resumed: int = 10


SHORT = Profile(12, (0.2, 1.0), writes=800)
LONG = Profile(300, (0.5, 2.0))
MUTATED = Profile(3, (0.8, 1.2), writes=0, resumed=1)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that outlives the servers, and that the tests can read."""
    with running_etcd(tmp_path_factory.mktemp("fault-etcd")) as started:
        yield started


def run(etcd: Etcd, directory: Path, profile: Profile, command: Sequence[str] = SERVE) -> tuple[History, list[Event]]:
    """Run the load while the server is killed; return the history and the content of etcd."""
    seed = int(os.environ.get("FAULT_SEED", "0")) or random.randrange(1, 2**31)
    print(f"FAULT_SEED={seed}")
    chance, prefix = random.Random(seed), f"/{directory.name}"
    flags = ["--insecure", f"--port={free_port()}", f"--etcd-servers={etcd.url}", f"--etcd-prefix={prefix}"]
    server = start_server(directory, flags, command=command)
    try:
        widgets = serve(Client(server.url), schema={"openAPIV3Schema": SCHEMA})
        since = etcd_reader.head(etcd)
        load = Load(server.url, widgets.path(), f"{widgets.group}/v1", widgets.kind, seed)
        load.start(WRITERS, WATCHERS)
        for kills in range(3 * profile.kills):  # a slow machine needs more kills for the same number of writes
            if kills >= profile.kills and len(load.history.writes) >= profile.writes:
                break
            pause(chance.uniform(*profile.alive))
            server = _kill_and_restart(server, directory, flags, command, load.history)
        load.finish()
        kept = etcd_reader.history(etcd, f"{prefix}/{widgets.group}/widgets/", since + 1)
        shown = {
            it["metadata"]["name"]: int(it["metadata"]["resourceVersion"]) for it in _listed(server, widgets.path())
        }
        if shown != etcd_reader.state(etcd, f"{prefix}/{widgets.group}/widgets/"):
            load.history.wrong.append("the last list is not what etcd holds")
        return load.history, kept
    finally:
        if server.process:
            stop(server.process)


def _listed(server: Server, path: str) -> list[dict[str, dict[str, str]]]:
    items: list[dict[str, dict[str, str]]] = Client(server.url).get(path).expect(200)["items"]
    return items


def _kill_and_restart(
    server: Server, directory: Path, flags: Sequence[str], command: Sequence[str], history: History
) -> Server:
    assert server.process is not None
    server.process.kill()
    server.process.wait()
    started = time.monotonic()
    again = start_server(directory, flags, command=command)
    history.kills += 1
    history.ready.append(time.monotonic() - started)
    return again


def _check(history: History, kept: list[Event], profile: Profile) -> None:
    ready = sorted(history.ready)
    print(
        f"{history.kills} kills, {len(history.writes)} acknowledged writes, {history.unknown} unknown, "
        f"{len(history.reads)} reads, {history.resumed} resumed watches, {len(kept)} events; "
        f"ready again after {ready[len(ready) // 2]:.2f} s (median), {ready[-1]:.2f} s (worst)"
    )
    found = violations(history, kept)
    assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20])
    assert history.kills >= profile.kills
    assert len(history.writes) >= profile.writes, f"only {len(history.writes)} acknowledged writes: too few to judge by"
    assert history.resumed >= profile.resumed, f"only {history.resumed} resumed watches: too few to judge by"


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
def test_kills_lose_no_acknowledged_write(etcd: Etcd, tmp_path: Path) -> None:
    history, kept = run(etcd, tmp_path, SHORT)
    _check(history, kept, SHORT)


@pytest.mark.long
def test_many_kills_lose_no_acknowledged_write(etcd: Etcd, tmp_path: Path) -> None:
    history, kept = run(etcd, tmp_path, LONG)
    _check(history, kept, LONG)


@pytest.mark.parametrize("mutant", MUTANTS)
def test_checkers_detect_a_mutated_server(etcd: Etcd, tmp_path: Path, mutant: str) -> None:
    command = [sys.executable, "-m", "tests.support.mutants", mutant, "serve"]
    history, kept = run(etcd, tmp_path, MUTATED, command)
    found = violations(history, kept)
    print(f"{len(found)} violations, such as {found[:2]}")
    assert found, f"{mutant} went unnoticed through {len(history.writes)} writes: the checkers prove nothing"


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
@pytest.mark.parametrize("profile", [SHORT, pytest.param(LONG, marks=pytest.mark.long)], ids=["short", "long"])
def test_kills_with_embedded_store_lose_no_acknowledged_write(tmp_path: Path, profile: Profile) -> None:
    seed = int(os.environ.get("FAULT_SEED", "0")) or random.randrange(1, 2**31)
    print(f"FAULT_SEED={seed}")
    chance, flags = random.Random(seed), ["--insecure", f"--port={free_port()}", "--store=sqlite"]
    server = start_server(tmp_path, flags)
    try:
        widgets = serve(Client(server.url), schema={"openAPIV3Schema": SCHEMA})
        load = Load(server.url, widgets.path(), f"{widgets.group}/v1", widgets.kind, seed)
        load.start(WRITERS, WATCHERS)
        for kills in range(3 * profile.kills):
            if kills >= profile.kills and len(load.history.writes) >= profile.writes:
                break
            pause(chance.uniform(*profile.alive))
            server = _kill_and_restart(server, tmp_path, flags, SERVE, load.history)
        load.finish()
        kept = sqlite_reader.history(tmp_path / "store.db", f"/registry/{widgets.group}/widgets/")
        listed = {it["metadata"]["name"]: it["metadata"]["resourceVersion"] for it in _listed(server, widgets.path())}
        newest = {event.name: event for event in kept}
        assert listed == {name: str(event.revision) for name, event in newest.items() if event.value is not None}
    finally:
        if server.process:
            stop(server.process)
    _check(load.history, kept, profile)
