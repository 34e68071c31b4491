"""Run a cluster of etcd members as processes.

They run on this machine or in the network namespaces of network.py.
"""

from __future__ import annotations

import contextlib
import json
import random
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from apiext.conformance.support.definitions import Resource
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, until
from tests.support.processes import Etcd, etcd_binary

MEMBERS = 3
ELECTION = 1.0  # seconds without a heartbeat until members elect another leader
Place = Callable[[], AbstractContextManager[None]]
Machine = tuple[str, Place]
HERE: Sequence[Machine] = (("127.0.0.1", contextlib.nullcontext),) * MEMBERS


def quiet_port() -> int:
    """Return a free port outside of the range that the kernel uses for outgoing connections."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Member(Etcd):
    """A member that can be restarted with the same data, on its machine."""

    command: list[str]
    place: Place = contextlib.nullcontext

    def begin(self) -> None:
        """Start the member."""
        with self.place(), (self.directory / "etcd.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def kill(self) -> None:
        """Kill the member."""
        self.process.kill()
        self.process.wait()

    def call(self, method: str, message: dict[str, Any]) -> dict[str, Any]:
        """Call the member from its machine."""
        with self.place():
            return super().call(method, message)

    def status(self) -> dict[str, Any]:
        """Return the status that the member reports, empty if it does not answer."""
        request = urllib.request.Request(f"{self.url}/v3/maintenance/status", b"{}")
        try:
            with self.place(), urllib.request.urlopen(request, timeout=1) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}

    @property
    def leads(self) -> bool:
        """True if the member reports itself as the leader."""
        found = self.status()
        return bool(found) and found.get("leader") == found["header"]["member_id"]


@contextlib.contextmanager
def cluster(directory: Path, machines: Sequence[Machine] = HERE) -> Iterator[list[Member]]:
    """Run one member on each machine."""
    binary = etcd_binary()
    peers = [f"http://{address}:{quiet_port()}" for address, _ in machines]
    members = []
    for number, (peer, (address, place)) in enumerate(zip(peers, machines, strict=True)):
        client, files = f"http://{address}:{quiet_port()}", directory / f"m{number}"
        files.mkdir(parents=True)
        member = Member(None, client, files)  # type: ignore[arg-type]  # begin() starts the process
        member.place = place
        member.command = [
            binary, f"--name=m{number}", f"--data-dir={files / 'data'}", "--log-level=error",
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
    """Wait until there is a leader, and return it."""
    return until(lambda: next((member for member in members if member.leads), None), "there is a leader")


def written(api: Client, widgets: Resource) -> float:
    """Retry a write until it is acknowledged; return the seconds.

    Failed attempts may only return 500, 503 or 504.
    """
    began = time.monotonic()
    while True:
        answer = api.patch(widgets.path("probe"), {"metadata": {"labels": {"at": f"{time.monotonic():.6f}"}}})
        if answer.status == 200:
            return time.monotonic() - began
        assert answer.status in (500, 503, 504), answer.raw
        pause(0.02)
