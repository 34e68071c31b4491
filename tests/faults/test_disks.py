"""Slow and full disks of etcd and of the server.

The server keeps running, and no acknowledged write is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, until
from tests.faults import slow_disk
from tests.faults.checkers import violations
from tests.faults.small_disk import Disk, small_disk
from tests.faults.workload import Load
from tests.support import etcd_reader
from tests.support.processes import (
    ROOT,
    SERVE,
    Etcd,
    Server,
    errors,
    etcd_binary,
    running_etcd,
    running_server,
    stop,
)

OWN = ["--insecure", "--port=0"]
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
READY_WITHIN = 20.0  # seconds after the end of the fault of a disk
ROOM = 160  # MiB: etcd allocates 2 × 64 MiB for its log in advance
UNKNOWN = "Timeout: the outcome of the write is unknown: the store did not say whether it happened"


def script(place: Path, *lines: str) -> str:
    """Write a shell script that runs etcd with these lines; return its path."""
    asked = f'[ "$1" != --version ] || exec {etcd_binary()} "$@"'
    place.write_text("\n".join(("#!/bin/sh", asked, *lines, "")))
    place.chmod(0o755)
    return str(place)


def alive(api: Client) -> bool:
    """Report whether the server is alive, independent of etcd."""
    return api.get("/livez?exclude=etcd").status == 200


def ready(api: Client) -> bool:
    """Report whether the server is ready."""
    return api.get("/readyz").status == 200


@contextlib.contextmanager
def running_load(server: Server, etcd: Etcd, widgets: Resource) -> Iterator[Load]:
    """Run a load during the block; check at the end that there are no violations."""
    since = etcd_reader.head(etcd)
    load = Load(server.url, widgets.path(), f"{widgets.group}/v1", widgets.kind, seed=9)
    load.start(6, 3)
    yield load
    load.finish()
    kept = etcd_reader.history(etcd, f"/registry/{widgets.group}/widgets/", since + 1)
    found = violations(load.history, kept)
    assert not found, f"{len(found)} violations:\n" + "\n".join(found[:20])
    print(f"{len(load.history.writes)} acknowledged writes, {load.history.unknown} unknown")


# ---------------------------------------------------------------------- slow


@pytest.fixture
def seconds(tmp_path: Path) -> Path:
    """The file with the seconds of each fsync for a process under slow_disk."""
    file = tmp_path / "seconds"
    tried = subprocess.run([sys.executable, slow_disk.__file__, str(file), "true"], capture_output=True, check=False)
    if tried.returncode:
        why = tried.stderr.decode().strip().rpartition("\n")[2]
        print(f"no slow disk here: {why}")
        pytest.skip(f"no slow disk here, which seccomp's user notification makes: {why}")
    return file


@pytest.fixture
def slow(tmp_path: Path, seconds: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the seconds of each fsync of etcd."""
    file = seconds
    line = f'exec {sys.executable} {slow_disk.__file__} {file} {etcd_binary()} "$@"'
    monkeypatch.setenv("ETCD_BINARY", script(tmp_path / "slow-etcd", line))
    return file


def record_creates(api: Client, probes: Resource, answers: list[tuple[int, str]], over: threading.Event) -> None:
    """Create objects one by one, and append (status, message) of each response to ``answers``."""
    while not over.is_set():
        answer = api.request("POST", probes.path(), probes.make(f"p{len(answers)}"), timeout=60)
        answers.append((answer.status, "" if answer.status == 201 else answer.json["message"]))
        pause(0.05)


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
@pytest.mark.parametrize(
    "phases",
    [
        ((0.05, 2.0), (0.4, 5.0), (20.0, 0.0)),
        pytest.param(((0.2, 30), (1, 30), (3, 60), (30, 0)) * 2, marks=pytest.mark.long),
    ],
    ids=["short", "long"],
)
def test_slow_etcd_disk_loses_no_acknowledged_write(
    tmp_path: Path, slow: Path, phases: Sequence[tuple[float, float]]
) -> None:
    """A phase is (seconds of each fsync, seconds of the phase).

    A phase of 0 seconds lasts until a write has an unknown outcome.
    """
    with (
        running_etcd(tmp_path / "etcd") as etcd,
        running_server([*OWN, f"--etcd-servers={etcd.url}"], tmp_path / "server") as server,
    ):
        api = Client(server.url)
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
        probes = serve(api, "probes")
        answers: list[tuple[int, str]] = []
        over = threading.Event()
        prober = threading.Thread(target=record_creates, args=(api, probes, answers, over))
        with running_load(server, etcd, widgets) as load:
            prober.start()
            for seconds, lasting in phases:
                began, had = len(load.history.writes), len(answers)
                slow.write_text(str(seconds))
                if lasting:
                    pause(lasting)
                    assert len(load.history.writes) > began, f"no write at {seconds} s for each fsync"
                else:
                    until(lambda had=had: 504 in dict(answers[had:]), "a write is told to be in doubt", 40)
                    assert not ready(api)
                assert alive(api)
                slow.write_text("0")
                until(lambda: ready(api), "ready again", READY_WITHIN)
            over.set()
            prober.join()
        assert {code for code, _ in answers} <= {201, 503, 504}, answers
        assert {text for code, text in answers if code == 504} == {UNKNOWN}
        assert "Traceback" not in server.log_tail()


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
def test_hanging_store_disk_leaves_outcome_of_writes_unknown(tmp_path: Path, seconds: Path) -> None:
    """Writes wait for a slow disk; on a hanging disk their outcome is unknown.

    On a hanging disk, reads continue, and the server is not ready.
    """
    command = [sys.executable, slow_disk.__file__, str(seconds), *SERVE]
    with running_server([*OWN, "--store=sqlite"], tmp_path / "server", command=command) as server:
        api = Client(server.url)
        widgets = serve(api)
        made = widgets.create("before")
        seconds.write_text("4")
        widgets.create("slow")
        seconds.write_text("40")
        doubtful = api.request("POST", widgets.path(), widgets.make("hung"), timeout=60)
        assert doubtful.expect(504)["message"] == UNKNOWN
        assert api.get(widgets.path("before")).expect(200) == made
        assert api.get(widgets.path("hung")).status == 404
        assert alive(api)
        assert not ready(api)
        seconds.write_text("0")
        until(lambda: ready(api), "ready again", READY_WITHIN)
        widgets.create("after")
        names = [it["metadata"]["name"] for it in api.get(widgets.path()).expect(200)["items"]]
        assert names == ["after", "before", "hung", "slow"]
        assert "Traceback" not in server.log_tail()


# ---------------------------------------------------------------------- full


def start_error(*flags: str) -> str:
    """Run a server that cannot start; return its error."""
    ended = subprocess.run(
        [*SERVE, *flags], cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60
    )
    assert (ended.returncode, "Traceback" in ended.stderr) == (1, False), ended.stderr
    [error] = errors(ended.stderr)
    return error


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk of ROOM MiB."""
    with small_disk(tmp_path / "disk", ROOM) as made:
        yield made


def test_start_fails_on_a_full_disk(disk: Disk, own_etcd: Etcd, tmp_path: Path) -> None:
    elsewhere = [f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}"]
    disk.fill()
    for flags in (
        [*OWN, f"--data-dir={disk.path}/data"],
        ["--port=0", f"--data-dir={disk.path}/data", *elsewhere],
        [*OWN, f"--data-dir={tmp_path}/data", f"--ready-file={disk.path}/ready", *elsewhere],
    ):
        said = start_error(*flags)
        assert said == "No space left on device: check --data-dir, --ready-file and --audit-log-path"
    disk.free()
    with running_server(OWN, disk.path / "data", command=[*disk.inside, *SERVE]) as server:
        serve(Client(server.url)).create("a")


def test_server_with_a_full_disk_accepts_writes_to_etcd(disk: Disk, own_etcd: Etcd, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
    flags = [
        *OWN, f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}", "--v=3",
        f"--audit-policy-file={policy}", f"--audit-log-path={disk.path}/audit.log",
    ]  # fmt: skip
    with running_server(flags, disk.path / "server") as server:
        api = Client(server.url)
        widgets = serve(api)
        with api.watch(widgets.path(), resourceVersion=0) as watch:
            for state in ("before", "full", "after"):
                disk.fill() if state == "full" else None
                for number in range(20):
                    widgets.create(f"{state}-{number}")
                    assert watch.next("ADDED")["object"]["metadata"]["name"] == f"{state}-{number}"
                api.delete(widgets.path(f"{state}-0")).expect(200)
                assert watch.next("DELETED")["object"]["metadata"]["name"] == f"{state}-0"
                assert ready(api)
                disk.free() if state == "full" else None
        assert server.process is not None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
        lines = (disk.path / "audit.log").read_text().splitlines()
        assert any(json.loads(line).get("objectRef", {}).get("name") == "after-0" for line in lines)
        assert "after-0" in server.log_tail(), "requests are logged again"


@pytest.mark.rows("RV-017", "RV-009", "WRI-005", "ETC-005")
def test_full_store_disk_loses_no_acknowledged_write(disk: Disk, tmp_path: Path) -> None:
    """No acknowledged write is lost, and deletions succeed.

    The server accepts writes again once there is space.
    """
    flags, command = [*OWN, "--store=sqlite"], [*disk.inside, *SERVE]
    with running_server(flags, disk.path / "server", command=command) as server:
        assert server.process is not None
        api = Client(server.url)
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
        kept = {}
        disk.fill()
        refused = 0
        for number in range(200):
            answer = api.post(widgets.path(), widgets.make(f"w{number:03}", text="x" * 200_000))
            if answer.status == 201:
                kept[f"w{number:03}"] = answer.json["metadata"]["resourceVersion"]
            else:
                assert answer.expect(500)["message"].endswith("etcdserver: mvcc: database space exceeded")
                refused += 1
                if refused == 5:
                    break
        assert refused == 5
        assert alive(api)
        for name in list(kept)[:3]:
            api.delete(widgets.path(name)).expect(200)
            del kept[name]
        listed = api.get(widgets.path()).expect(200)["items"]
        assert {it["metadata"]["name"]: it["metadata"]["resourceVersion"] for it in listed} == kept
        disk.free()
        until(
            lambda: api.post(widgets.path(), widgets.make("after")).status == 201,
            "writes are taken again",
            2 * READY_WITHIN,
        )
        until((disk.path / "server" / "store.reserve").exists, "the reserve is there again", READY_WITHIN)
        assert "Traceback" not in (disk.path / "server" / "server.log").read_text()
        assert stop(server.process) == 0
    with running_server(flags, disk.path / "server", command=command) as server:
        listed = Client(server.url).get(widgets.path()).expect(200)["items"]
        found = {it["metadata"]["name"]: it["metadata"]["resourceVersion"] for it in listed}
        assert {name: version for name, version in found.items() if name != "after"} == kept


def test_start_fails_with_one_line_on_a_read_only_directory(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    mounted = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && echo mounted >&2 && exec "$@"'
    try:
        ended = subprocess.run(
            [*unshare, "sh", "-c", mounted, str(directory), *SERVE, *OWN, f"--data-dir={directory}"],
            cwd=ROOT, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60,
        )  # fmt: skip
    except FileNotFoundError as error:
        pytest.skip(f"no directory can be mounted: {error}")
    first, *lines = ended.stderr.splitlines() or [""]
    if first != "mounted":
        pytest.skip(f"no directory can be mounted, which root or a user namespace may do: {first}")
    assert ended.returncode == 4
    fault = "cannot be written (Read-only file system)"
    text = f"{fault}: give this user write access to the directory, or use another --data-dir"
    assert errors("\n".join(lines)) == [f"{directory}/store.db {text}"]
