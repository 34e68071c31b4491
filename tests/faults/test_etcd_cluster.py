"""Three members of etcd under load.

A follower, the leader or all members are killed or paused.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.faults.checkers import violations
from tests.faults.members import ELECTION, Member, cluster, leader, written
from tests.faults.workload import Load
from tests.support import etcd_reader
from tests.support.processes import running_server, tail

WRITERS, WATCHERS = 4, 2
DIAL = 3.0  # seconds that the server waits for the first frame of a member
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
def test_loss_of_etcd_members_loses_no_acknowledged_write(tmp_path: Path) -> None:
    with cluster(tmp_path / "etcd") as members:
        flags = ["--insecure", "--port=0", "--etcd-servers=" + ",".join(member.url for member in members)]
        with running_server(flags, tmp_path / "server") as server:
            api = Client(server.url)
            widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
            widgets.create("probe")
            since = etcd_reader.head(members[0])
            load = Load(server.url, widgets.path(), f"{widgets.group}/v1", widgets.kind, seed=11)
            load.start(WRITERS, WATCHERS)
            _inject_member_faults(members, api, widgets)
            load.finish()
            kept = etcd_reader.history(leader(members), f"/registry/{widgets.group}/widgets/", since + 1)
            assert "Traceback" not in server.log_tail()
        found = violations(load.history, kept)
        logs = "".join(tail(member.directory / "etcd.log", 300) for member in members)
        assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20]) + logs
        assert len(load.history.writes) > 100, "too few acknowledged writes to judge by"


def _inject_member_faults(members: list[Member], api: Client, widgets: Resource) -> None:
    """Kill or pause members, one at a time and finally all.

    Check each time that writes soon succeed.
    """
    first = leader(members)
    follower = next(member for member in members if member is not first)
    for victim, seconds in ((follower, 1.0), (first, ELECTION + 4.0)):
        pause(0.7)
        victim.kill()
        prompt(written(api, widgets), seconds)
        victim.begin()
        until(victim.status, "the member is back")
    for _ in range(2):
        frozen = leader(members)
        frozen.process.send_signal(signal.SIGSTOP)
        took = written(api, widgets) + written(api, widgets)
        frozen.process.send_signal(signal.SIGCONT)
        prompt(took, 2 * ELECTION + 4 * DIAL)
        until(lambda: api.get("/readyz").status == 200, "ready again")
        assert leader(members)
    for member in members:
        member.kill()
    for member in members:
        member.begin()
    prompt(written(api, widgets), 15.0)
