"""A single etcd is paused, killed, full, silent, or replaced by an older copy.

The server handles each fault.
"""

from __future__ import annotations

import base64
import contextlib
import random
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.faults.checkers import violations
from tests.faults.workload import Load
from tests.support import etcd_reader
from tests.support.processes import (
    SERVE,
    Etcd,
    Server,
    etcd_binary,
    running_etcd,
    running_server,
    start_process,
    stop,
)

WRITERS, WATCHERS = 6, 3
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
READY_WITHIN = 15.0  # seconds after etcd is back


def freeze(etcd: Etcd, seconds: float) -> None:
    """Pause etcd for some seconds, like a hanging machine."""
    etcd.process.send_signal(signal.SIGSTOP)
    try:
        pause(seconds)
    finally:
        etcd.process.send_signal(signal.SIGCONT)


def kill(etcd: Etcd, seconds: float) -> None:
    """Kill etcd, and restart it with the same data after some seconds."""
    restart_etcd(etcd, signal.SIGKILL, lambda: pause(seconds))


def restart_etcd(etcd: Etcd, how: signal.Signals, between: Callable[[], object]) -> None:
    """Stop etcd with a signal, call ``between``, and start etcd again."""
    command = Path(f"/proc/{etcd.process.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
    etcd.process.send_signal(how)
    etcd.process.wait()
    between()
    with (etcd.directory / "etcd.log").open("ab") as log:
        etcd.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)


FAULTS = (freeze, kill, freeze, kill)


def ready(server: Server) -> bool:
    """Report whether the server is ready."""
    return Client(server.url).get("/readyz").status == 200


def fill_store(api: Client, widgets: Resource) -> int:
    """Create large objects until etcd is full; return their number."""
    for number in range(100):
        answer = api.post(widgets.path(), widgets.make(f"w{number}", text="x" * 200_000))
        if answer.status != 201:
            assert answer.expect(500)["message"].endswith("etcdserver: mvcc: database space exceeded")
            return number
    raise AssertionError("etcd is never full")


def empty_store(api: Client, widgets: Resource, count: int) -> None:
    """Check that the server refuses updates but accepts reads and deletions; delete all objects."""
    assert api.patch(widgets.path("w0"), {"spec": {"text": "other"}}).status == 500
    assert (api.get("/readyz").status, api.get("/livez").status) == (200, 200)
    with api.watch(widgets.path()) as watch:
        assert len(api.get(widgets.path()).expect(200)["items"]) == count
        for number in range(count):
            api.delete(widgets.path(f"w{number}")).expect(200)
        assert watch.next("DELETED")["object"]["metadata"]["name"] == "w0"


def accepts_writes(api: Client, widgets: Resource) -> bool:
    """Report whether the server accepts writes."""
    return api.post(widgets.path(), widgets.make("after")).status == 201


LITTLE = ("--quota-backend-bytes=6000000", "--backend-batch-limit=1")
OFTEN = ["--insecure", "--port=0", "--etcd-compaction-interval=1s"]


def is_compacted(etcd: Etcd, revision: int) -> bool:
    """Report whether etcd has compacted a revision."""
    try:
        etcd.call("kv/range", {"key": "AA==", "revision": str(revision)})
    except urllib.error.HTTPError as error:
        return b"has been compacted" in error.read()
    return False


def etcd_accepts(etcd: Etcd, what: str, **request: Any) -> bool:
    """Report whether etcd accepts a request."""
    try:
        etcd.call(what, request)
    except urllib.error.HTTPError as error:
        error.read()
        return False
    return True


@pytest.fixture(scope="module")
def deletes_when_full(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the test if a full etcd of this version, such as 3.5.1, refuses all transactions."""
    with running_etcd(tmp_path_factory.mktemp("full"), *LITTLE) as etcd:
        names = [base64.b64encode(f"k{number}".encode()).decode() for number in range(100)]
        value = base64.b64encode(b"x" * 200_000).decode()
        assert not all(etcd_accepts(etcd, "kv/put", key=name, value=value) for name in names), "etcd is never full"
        if not etcd_accepts(etcd, "kv/txn", success=[{"request_delete_range": {"key": names[0]}}]):
            pytest.skip(f"{etcd_binary()} takes no deletes in transactions when it is full; newer ones do")


@pytest.mark.rows("OPS-002")
@pytest.mark.usefixtures("deletes_when_full")
def test_full_etcd_is_compacted_but_not_disarmed(tmp_path: Path) -> None:
    with (
        running_etcd(tmp_path / "etcd", *LITTLE) as etcd,
        running_server([*OFTEN, f"--etcd-servers={etcd.url}"], tmp_path / "server") as server,
    ):
        api = Client(server.url)
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
        empty_store(api, widgets, fill_store(api, widgets))
        head = etcd_reader.head(etcd)
        until(lambda: is_compacted(etcd, head - 1), "what is deleted is forgotten", READY_WITHIN)
        assert not accepts_writes(api, widgets), "it is not ours to defragment"
        assert "etcdctl alarm disarm" in server.log_tail()
        etcd.call("maintenance/defragment", {})
        for alarm in etcd.call("maintenance/alarm", {"action": "GET"})["alarms"]:
            etcd.call("maintenance/alarm", {**alarm, "action": "DEACTIVATE"})
        until(lambda: accepts_writes(api, widgets), "writes are taken again", READY_WITHIN)


@pytest.mark.rows("OPS-002")
@pytest.mark.usefixtures("deletes_when_full")
def test_full_embedded_store_accepts_writes_after_compaction(tmp_path: Path) -> None:
    with running_server([*OFTEN, "--store=sqlite", "--store-quota-bytes=6000000"], tmp_path / "server") as server:
        api = Client(server.url)
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
        empty_store(api, widgets, fill_store(api, widgets))
        until(lambda: accepts_writes(api, widgets), "writes are taken again", READY_WITHIN)
        assert "it was compacted and accepts writes again" in server.log_tail()


@contextlib.contextmanager
def on_its_own_etcd(tmp_path: Path) -> Iterator[tuple[Etcd, Server]]:
    """A server and its etcd, whose process the test may replace."""
    with (
        running_etcd(tmp_path / "etcd") as etcd,
        running_server(["--insecure", "--port=0", f"--etcd-servers={etcd.url}"], tmp_path / "server") as server,
    ):
        try:
            yield etcd, server
        finally:
            stop(etcd.process)


@pytest.mark.rows("RV-009", "RV-017")
def test_restored_backup_ends_watches_and_replaces_cache(tmp_path: Path) -> None:
    data, copy = tmp_path / "etcd" / "etcd", tmp_path / "copy"
    with on_its_own_etcd(tmp_path) as (etcd, server):
        api = Client(server.url)
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
        widgets.create("old")
        restart_etcd(etcd, signal.SIGTERM, lambda: shutil.copytree(data, copy))
        until(lambda: ready(server), "ready again", READY_WITHIN)
        for number in range(20):
            widgets.create(f"lost-{number}")
        other = serve(api, "gadgets")
        head = api.get(widgets.path()).expect(200)["metadata"]["resourceVersion"]
        with api.watch(widgets.path(), resourceVersion=head) as watch:
            restart_etcd(etcd, signal.SIGTERM, lambda: (shutil.rmtree(data), shutil.copytree(copy, data)))
            assert watch.next("ERROR")["object"]["code"] == 410
        until(lambda: ready(server), "ready again", READY_WITHIN)
        listed = api.get(widgets.path()).expect(200)
        assert [item["metadata"]["name"] for item in listed["items"]] == ["old"]
        assert int(listed["metadata"]["resourceVersion"]) < int(head)
        assert api.get(other.path()).status == 404
        widgets.create("lost-0")
        assert api.get(widgets.path(), resourceVersion=head).status == 504
        assert "the store went back from revision" in server.log_tail()


@pytest.mark.rows("RV-009", "RV-017")
def test_restored_backup_keeps_writes_acknowledged_after_it(tmp_path: Path) -> None:
    data, copy, more = tmp_path / "etcd" / "etcd", tmp_path / "copy", 30
    with on_its_own_etcd(tmp_path) as (etcd, server):
        api = Client(server.url)
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
        restart_etcd(etcd, signal.SIGTERM, lambda: shutil.copytree(data, copy))
        until(lambda: ready(server), "ready again", READY_WITHIN)
        for number in range(5):
            widgets.create(f"lost-{number}")
        head = api.get(widgets.path()).expect(200)["metadata"]["resourceVersion"]
        with api.watch(widgets.path(), resourceVersion=head) as watch, ThreadPoolExecutor(more) as pool:
            waiting: list[Any] = []

            def restore_copy() -> None:
                waiting.extend(pool.submit(create_widget, api, widgets, f"new-{number}") for number in range(more))
                pause(0.5)
                shutil.rmtree(data)
                shutil.copytree(copy, data)

            restart_etcd(etcd, signal.SIGTERM, restore_copy)
            made = {name for name in (one.result() for one in waiting) if name}
            assert watch.next("ERROR")["object"]["code"] == 410
        until(lambda: ready(server), "ready again", READY_WITHIN)
        listed = {item["metadata"]["name"] for item in api.get(widgets.path()).expect(200)["items"]}
        assert made <= listed, "what was acknowledged is there"
        assert not any(name.startswith("lost-") for name in listed), "what was lost with the store is not shown"
        assert "the store went back from revision" in server.log_tail()


@pytest.mark.rows("RV-009", "RV-017")
def test_restored_backup_past_the_known_revision_ends_watches(tmp_path: Path) -> None:
    data, copy = tmp_path / "etcd" / "etcd", tmp_path / "copy"
    with on_its_own_etcd(tmp_path) as (etcd, server):
        api = Client(server.url)
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
        widgets.create("old")
        restart_etcd(etcd, signal.SIGTERM, lambda: shutil.copytree(data, copy))
        until(lambda: ready(server), "ready again", READY_WITHIN)
        for number in range(5):
            widgets.create(f"lost-{number}")
        head = etcd_reader.head(etcd)
        with api.watch(widgets.path(), resourceVersion=str(head)) as watch:
            server.process.send_signal(signal.SIGSTOP)
            try:
                restart_etcd(etcd, signal.SIGTERM, lambda: (shutil.rmtree(data), shutil.copytree(copy, data)))
                until(lambda: write_foreign_key(etcd), "etcd takes writes", READY_WITHIN)
                while etcd_reader.head(etcd) < head + 10:
                    assert write_foreign_key(etcd)
            finally:
                server.process.send_signal(signal.SIGCONT)
            assert watch.next("ERROR")["object"]["code"] == 410
        until(lambda: ready(server), "ready again", READY_WITHIN)
        listed = api.get(widgets.path()).expect(200)
        assert [item["metadata"]["name"] for item in listed["items"]] == ["old"]
        assert int(listed["metadata"]["resourceVersion"]) >= head + 10
        assert "the store went back to an older state and was then changed" in server.log_tail()


def write_foreign_key(etcd: Etcd) -> bool:
    """Write a key outside all prefixes; report whether etcd accepted it."""
    with contextlib.suppress(OSError):
        return "header" in etcd.call("kv/put", {"key": "bm9ib2R5", "value": ""})
    return False


def create_widget(api: Client, widgets: Resource, name: str) -> str:
    """Create an object; return its name, or "" if the create failed."""
    return name if api.post(widgets.path(), widgets.make(name)).status == 201 else ""


@pytest.mark.rows("HLT-001", "HLT-002")
def test_readyz_fails_while_etcd_is_silent(tmp_path: Path) -> None:
    with on_its_own_etcd(tmp_path) as (etcd, server):
        etcd.process.send_signal(signal.SIGSTOP)
        try:
            until(lambda: not ready(server), "it is told, though nobody asks anything else", within=5)
        finally:
            etcd.process.send_signal(signal.SIGCONT)
        until(lambda: ready(server), "it is ready again", within=5)


@contextlib.contextmanager
def proxy_with_budget(etcd: Etcd, size: int) -> Iterator[str]:
    """Yield the URL of a proxy to etcd that stops forwarding responses after ``size`` bytes."""
    left = [size]

    def copy(source: socket.socket, target: socket.socket, *, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1000):
                left[0] -= len(data) * counted
                if left[0] > 0 or not counted:
                    target.sendall(data)

    class Line(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", int(etcd.url.rpartition(":")[2]))) as there:
                back = threading.Thread(target=copy, args=(there, self.request), kwargs={"counted": True}, daemon=True)
                back.start()
                copy(self.request, there, counted=False)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Line) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_signal_ends_a_start_that_waits_for_etcd(tmp_path: Path) -> None:
    ready, log = tmp_path / "ready", tmp_path / "log"
    with running_etcd(tmp_path / "etcd") as etcd, proxy_with_budget(etcd, 1500) as url, log.open("wb") as out:
        flags = [f"--etcd-servers={url}", f"--data-dir={tmp_path / 'server'}", f"--ready-file={ready}"]
        server = start_process([*SERVE, "--insecure", "--port=0", *flags], out)
        try:
            until(lambda: b"closing a connection to etcd" in log.read_bytes(), "etcd is silent")
            assert not ready.exists()
            server.send_signal(signal.SIGTERM)
            began = time.monotonic()
            assert server.wait(30) == 4
            prompt(time.monotonic() - began, 5, "the end of the start")
            assert b"stopped before " in log.read_bytes()
        finally:
            server.kill()
            server.wait()


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
def test_etcd_faults_lose_no_acknowledged_write(tmp_path: Path) -> None:
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
