"""etcd is frozen, killed and started again under load: nothing acknowledged is lost, no watcher misses or repeats."""

from __future__ import annotations

import random
import signal
import subprocess
from pathlib import Path

import pytest

from tests.faults.checkers import violations
from tests.faults.workload import Load
from tests.support import etcd_reader
from tests.support.definitions import serve
from tests.support.http_client import Client
from tests.support.processes import Etcd, Server, running_etcd, running_server, stop
from tests.support.waiting import pause, until

WRITERS, WATCHERS = 6, 3
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
READY_WITHIN = 15.0  # seconds after etcd is back


def freeze(etcd: Etcd, seconds: float) -> None:
    """Stop etcd for a while, as a machine that hangs does."""
    etcd.process.send_signal(signal.SIGSTOP)
    try:
        pause(seconds)
    finally:
        etcd.process.send_signal(signal.SIGCONT)


def kill(etcd: Etcd, seconds: float) -> None:
    """Kill etcd and start it again, as it was, after a while."""
    command = Path(f"/proc/{etcd.process.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    etcd.process.kill()
    etcd.process.wait()
    pause(seconds)
    with (etcd.directory / "etcd.log").open("ab") as log:
        etcd.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


FAULTS = (freeze, kill, freeze, kill)


def ready(server: Server) -> bool:
    """Return whether the server says that it is ready."""
    return Client(server.url).get("/readyz").status == 200


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
def test_what_etcd_suffers_loses_nothing(tmp_path: Path) -> None:
    chance, prefix = random.Random(tmp_path.name), "/suffering"
    with running_etcd(tmp_path / "etcd") as etcd:
        try:
            flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}", f"--etcd-prefix={prefix}"]
            with running_server(flags, tmp_path / "server") as server:
                widgets = serve(Client(server.url), schema={"openAPIV3Schema": SCHEMA})
                since = etcd_reader.head(etcd)
                load = Load(server.url, widgets.path(), f"{widgets.group}/v1", widgets.kind, seed=7)
                load.start(WRITERS, WATCHERS)
                for fault in FAULTS:
                    pause(chance.uniform(0.5, 1.5))
                    fault(etcd, chance.uniform(0.3, 4.5))
                    until(lambda: ready(server), f"ready again after {fault.__name__}", READY_WITHIN)
                    assert Client(server.url).get("/livez").status == 200
                load.finish()
                kept = etcd_reader.history(etcd, f"{prefix}/{widgets.group}/widgets/", since + 1)
                assert "Traceback" not in server.log_tail()
            found = violations(load.history, kept)
            assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20])
            assert len(load.history.writes) > 100, "too few acknowledged writes to judge by"
        finally:
            stop(etcd.process)
