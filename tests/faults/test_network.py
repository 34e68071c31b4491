"""Links between the server and three members of etcd fail, or are slow or lossy.

They fail in one or both directions.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.faults.checkers import violations
from tests.faults.members import Member, cluster, leader, written
from tests.faults.network import Network, network
from tests.faults.workload import Load
from tests.support import etcd_reader
from tests.support.processes import Server, running_server

WRITERS, WATCHERS = 4, 2
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
API, ETCD = "api", ("etcd-0", "etcd-1", "etcd-2")


@dataclass
class Rig:
    """A server on one simulated machine, and members of etcd on three other machines."""

    net: Network
    members: list[Member]
    server: Server
    api: Client
    widgets: Resource

    def of(self, member: Member) -> str:
        """Return the name of a member's machine."""
        return next(name for name in ETCD if f"/{self.net.address(name)}:" in member.url)

    def ready(self) -> bool:
        """Report whether the server is ready; check that it is alive without etcd."""
        assert self.api.get("/livez?exclude=etcd").status == 200  # upstream's livez fails with etcd
        return self.api.get("/readyz").status == 200


@contextlib.contextmanager
def rig(directory: Path) -> Iterator[Rig]:
    """Run server and members; the test enters the network of the server's machine."""
    with network([API, *ETCD]) as net:
        machines = [(net.address(name), functools.partial(net.inside, name)) for name in ETCD]
        with cluster(directory / "etcd", machines) as members, net.inside(API):
            members.sort(key=lambda member: not member.leads)  # the server uses the first member that answers
            flags = ["--insecure", "--port=0", "--etcd-servers=" + ",".join(member.url for member in members)]
            with running_server(flags, directory / "server") as server:
                api = Client(server.url)
                widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
                widgets.create("probe")
                yield Rig(net, members, server, api, widgets)


@contextlib.contextmanager
def running_load(rig: Rig, seed: int) -> Iterator[Load]:
    """Run writers and watchers during the block.

    Check afterwards that no write or event was lost.
    """
    widgets = serve(rig.api, schema={"openAPIV3Schema": SCHEMA})
    since = etcd_reader.head(leader(rig.members))
    load = Load(rig.server.url, widgets.path(), f"{widgets.group}/v1", widgets.kind, seed)
    load.start(WRITERS, WATCHERS)
    yield load
    load.finish()
    first = leader(rig.members)
    with first.place():
        kept = etcd_reader.history(first, f"/registry/{widgets.group}/widgets/", since + 1)
    found = violations(load.history, kept)
    print(f"{len(load.history.writes)} writes, {load.history.unknown} unknown, {load.history.resumed} resumed watches")
    assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20]) + rig.server.log_tail()
    assert "Traceback" not in rig.server.log_tail()


def cut_off(rig: Rig, chance: random.Random) -> None:
    """Drop all packets between the server and etcd, in one direction or both."""
    ways = chance.choice(([(API, None), (None, API)], [(API, None)], [(None, API)]))
    for source, target in ways:
        rig.net.link(source, target, up=False)
    until(lambda: not rig.ready(), "readiness fails", within=5)
    assert rig.api.get(rig.widgets.path("probe") + "?timeout=1s").status in (503, 504), (
        "a read that etcd did not confirm"
    )
    rig.net.heal()
    until(rig.ready, "ready again", within=5)


def cut_link_to_the_leader(rig: Rig, _chance: random.Random) -> None:
    """Cut the link between the server and the leader; the members still reach each other."""
    rig.net.cut(API, [rig.of(leader(rig.members))])
    prompt(written(rig.api, rig.widgets), 10)  # a call without a response and a connect take three seconds each


def isolate_the_leader(rig: Rig, chance: random.Random) -> None:
    """Cut the leader off from the other members, in one or both directions.

    The leader answers the server, but commits nothing.
    """
    first = rig.of(leader(rig.members))
    source, target = chance.choice(((None, first), (first, None), (first, first)))
    for other in ETCD:
        if source is None or target is first:
            rig.net.link(other, first, up=False)
        if target is None or source is first:
            rig.net.link(first, other, up=False)
    prompt(written(rig.api, rig.widgets), 15)
    rig.net.heal()


def minority(rig: Rig, _chance: random.Random) -> None:
    """Let the server reach only one member, which reaches no other member."""
    last = next(rig.of(member) for member in rig.members if not member.leads)
    others = [name for name in ETCD if name != last]
    rig.net.cut(last, others)
    rig.net.cut(API, others)
    until(lambda: not rig.ready(), "readiness fails", within=8)
    rig.net.heal()
    until(rig.ready, "ready again", within=8)


def flapping(rig: Rig, chance: random.Random) -> None:
    """Cut and restore the link repeatedly."""
    for _ in range(6):
        rig.net.cut(API, ETCD)
        pause(chance.uniform(0.1, 0.6))
        rig.net.heal()
        pause(chance.uniform(0.1, 0.4))
    until(rig.ready, "ready again", within=5)


BAD = {"delay": 0.2, "jitter": 0.1, "loss": 0.05, "rate": 125_000}  # seconds, seconds, share, bytes per second
PARTITIONS = (cut_off, cut_link_to_the_leader, isolate_the_leader, minority, flapping)


def _inject_partitions(rig: Rig, rounds: int, faults: int) -> None:
    seed = int(os.environ.get("FAULT_SEED", "0")) or random.randrange(1, 2**31)
    print(f"FAULT_SEED={seed}")
    chance = random.Random(seed)
    for _ in range(rounds):
        with running_load(rig, seed):
            for fault in chance.sample(PARTITIONS, faults):
                pause(0.5)
                print(fault.__name__, flush=True)
                fault(rig, chance)
                rig.net.heal()
                prompt(written(rig.api, rig.widgets), 8)


def _write_slowly(rig: Rig, size: int) -> None:
    """Write a large object over a slow and lossy link; the write must succeed."""
    with running_load(rig, 3):
        rig.net.between(API, ETCD, **BAD)
        began = time.monotonic()
        rig.api.request("POST", rig.widgets.path(), rig.widgets.make("big", text="x" * size), timeout=60).expect(201)
        print(f"{size} bytes are written in {time.monotonic() - began:.1f} s")
        # a request to etcd after so many bytes may take longer than the two seconds of /readyz (as upstream)
        until(rig.ready, "ready when the line is free again", within=10)
        rig.net.heal()


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005", "HLT-001", "HLT-002")
def test_partitions_and_a_slow_link_lose_no_acknowledged_write(tmp_path: Path) -> None:
    with rig(tmp_path) as made:
        _inject_partitions(made, 1, 2)
        _write_slowly(made, 100_000)


@pytest.mark.long
def test_many_partitions_lose_no_acknowledged_write(tmp_path: Path) -> None:
    with rig(tmp_path) as made:
        _inject_partitions(made, 10, len(PARTITIONS))
        _write_slowly(made, 900_000)
