"""Three members of etcd: a follower, the leader, all of them die or stand still under load (F-02 to F-04, F-23)."""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.checkers import violations
from tests.faults.workload import Load
from tests.support import etcd_reader
from tests.support.definitions import Resource, serve
from tests.support.http_client import Client
from tests.support.processes import Etcd, etcd_binary, running_server, tail
from tests.support.waiting import busy, pause, until

MEMBERS, WRITERS, WATCHERS = 3, 4, 2
ELECTION = 1.0  # seconds without a heartbeat until members elect another leader
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}


def quiet_port() -> int:
    """Return a free port that no outgoing connection takes while its member is down."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Member(Etcd):
    """One member that can be started again where it was."""

    command: list[str]

    def begin(self) -> None:
        """Start it."""
        with (self.directory / "etcd.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()

    def status(self) -> dict[str, Any]:
        """Return what it says of itself, nothing if it does not answer."""
        request = urllib.request.Request(f"{self.url}/v3/maintenance/status", b"{}")
        try:
            with urllib.request.urlopen(request, timeout=1) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    @property
    def leads(self) -> bool:
        """Whether it is the leader, as it says itself."""
        found = self.status()
        return bool(found) and found.get("leader") == found["header"]["member_id"]


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[list[Member]]:
    """Run three members."""
    binary = etcd_binary()
    assert binary is not None, "no etcd: install one, or set ETCD_BINARY"
    peers = [f"http://127.0.0.1:{quiet_port()}" for _ in range(MEMBERS)]
    members = []
    for number, peer in enumerate(peers):
        client, place = f"http://127.0.0.1:{quiet_port()}", directory / f"m{number}"
        place.mkdir(parents=True)
        member = Member(None, client, place)  # type: ignore[arg-type]  # begin() starts it
        member.command = [
            binary, f"--name=m{number}", f"--data-dir={place / 'data'}", "--log-level=error",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
            "--initial-cluster=" + ",".join(f"m{at}={url}" for at, url in enumerate(peers)),
            "--heartbeat-interval=100", f"--election-timeout={ELECTION * 1000:g}", "--snapshot-count=10000",
        ]  # fmt: skip
        members.append(member)
        member.begin()
    try:
        until(lambda: any(member.leads for member in members), "there is a leader")
        yield members
    finally:
        for member in members:
            member.process.send_signal(signal.SIGCONT)
            member.kill()


def leader(members: list[Member]) -> Member:
    """Return the leader, once there is one."""
    return until(lambda: next((member for member in members if member.leads), None), "there is a leader")


def written(api: Client, widgets: Resource) -> float:
    """Return the seconds until a write is acknowledged; others may say that they did not happen, but nothing else."""
    began = time.monotonic()
    while True:
        answer = api.patch(widgets.path("probe"), {"metadata": {"labels": {"at": f"{time.monotonic():.6f}"}}})
        if answer.status == 200:
            return time.monotonic() - began
        assert answer.status in (500, 503, 504), answer.raw
        pause(0.02)


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
def test_a_cluster_that_loses_members_loses_nothing(tmp_path: Path) -> None:
    with cluster(tmp_path / "etcd") as members:
        flags = ["--insecure", "--port=0", "--etcd-servers=" + ",".join(member.url for member in members)]
        with running_server(flags, tmp_path / "server") as server:
            api = Client(server.url)
            widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
            widgets.create("probe")
            since = etcd_reader.head(members[0])
            load = Load(server.url, widgets.path(), f"{widgets.group}/v1", widgets.kind, seed=11)
            load.start(WRITERS, WATCHERS)
            _suffer(members, api, widgets)
            load.finish()
            kept = etcd_reader.history(leader(members), f"/registry/{widgets.group}/widgets/", since + 1)
            assert "Traceback" not in server.log_tail()
        found = violations(load.history, kept)
        logs = "".join(tail(member.directory / "etcd.log", 300) for member in members)
        assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20]) + logs
        assert len(load.history.writes) > 100, "too few acknowledged writes to judge by"


def _suffer(members: list[Member], api: Client, widgets: Resource) -> None:
    """Take members away, one at a time but for the last turn; each time writes go on soon."""
    first = leader(members)
    follower = next(member for member in members if member is not first)
    for victim, seconds in ((follower, 1.0), (first, ELECTION + 4.0)):
        pause(0.7)
        victim.kill()
        assert written(api, widgets) < seconds * busy()
        victim.begin()
        until(victim.status, "the member is back")
    for _ in range(2):
        frozen = leader(members)
        frozen.process.send_signal(signal.SIGSTOP)
        took = written(api, widgets) + written(api, widgets)
        frozen.process.send_signal(signal.SIGCONT)
        assert took < (ELECTION + 6.0) * busy()
        until(lambda: api.get("/readyz").status == 200, "ready again")
        assert leader(members)
    for member in members:
        member.kill()
    for member in members:
        member.begin()
    assert written(api, widgets) < 15.0 * busy()
