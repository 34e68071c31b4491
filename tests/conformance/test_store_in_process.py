"""The embedded store: its flags, the state after a crash, and errors at the start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.support.processes import SERVE, Server, errors, running_server, start_server
from tests.support.sqlite_reader import SUBS

OWN = ["--insecure", "--port=0"]
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}
ROOM_WITHIN = 20.0  # seconds
MANY = 20_000
READ = "apiserver_watch_cache_initialization_duration_seconds_count"


def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SERVE, *flags], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )  # fmt: skip


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    return errors(ended.stderr)[-1]


def kill(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()


def test_sqlite_keeps_acknowledged_writes_after_a_kill(tmp_path: Path) -> None:
    server = start_server(tmp_path, [*OWN, "--store=sqlite"])
    assert server.ready["store"] == {"kind": "sqlite", "path": str(tmp_path / "store.db")}
    assert server.ready["etcd"] is None
    widgets = serve(Client(server.url))
    made = [widgets.create(f"w{number:02}")["metadata"]["resourceVersion"] for number in range(20)]
    kill(server)
    with running_server([*OWN, "--store=sqlite"], tmp_path) as again:
        found = Client(again.url).get(widgets.path()).expect(200)["items"]
        assert [it["metadata"]["resourceVersion"] for it in found] == made


def copy_stored_object(store: Path, prefix: str, name: str, count: int) -> None:
    """Copy a stored object ``count`` times, with new names.

    Write the copies into the store's file of a stopped server.
    """
    with contextlib.closing(sqlite3.connect(store)) as db, db:
        ((key, value),) = db.execute("SELECT key, value FROM kv WHERE key = ?", (f"{prefix}/{name}".encode(),))
        (last,) = db.execute("SELECT max(id) FROM kv").fetchone()
        revision = last // SUBS + 1
        for number in range(revision, revision + count):
            copy = f"{name}-{number:09}".encode()
            row = (number * SUBS, key.replace(name.encode(), copy), number, value.replace(name.encode(), copy))
            db.execute("INSERT INTO kv (id, key, created, version, lease, value) VALUES (?, ?, ?, 1, 0, ?)", row)


def test_readiness_waits_until_objects_are_read(tmp_path: Path) -> None:
    """Without this wait, the first lists of many objects would be a 429.

    kube-apiserver also waits, for its built-in kinds.
    """
    with running_server([*OWN, "--store=sqlite"], tmp_path) as server:
        widgets = serve(Client(server.url))
        widgets.create("original")
    copy_stored_object(tmp_path / "store.db", f"/registry/{widgets.group}/widgets/default", "original", MANY)
    for wait, there in (("1m", True), ("0s", False)):
        flags = [*OWN, "--store=sqlite", f"--storage-initialization-timeout={wait}"]
        with running_server(flags, tmp_path) as server:
            api = Client(server.url)
            assert api.get("/readyz/poststarthook/storage-readiness").text == "ok"
            assert (f'{READ}{{group="{widgets.group}",resource="widgets"}} 1' in api.get("/metrics").text) is there
            left = api.get(widgets.path(), limit=1).expect(200)["metadata"]["remainingItemCount"]
            assert left == MANY
            if not there:
                assert "the server is ready, but the objects of" in server.log_tail()


def test_memory_store_is_lost_with_the_process(tmp_path: Path) -> None:
    with running_server(OWN, tmp_path, env={"APIEXT_STORE": "memory"}) as server:
        assert server.ready["store"] == {"kind": "memory", "path": None}
        widgets = serve(Client(server.url))
        widgets.create("a")
    assert not list(tmp_path.glob("store*"))
    with running_server([*OWN, "--store=memory"], tmp_path) as server:
        assert Client(server.url).get(widgets.path()).status == 404


def test_second_server_on_the_data_directory_fails(tmp_path: Path) -> None:
    with running_server([*OWN, "--store=sqlite"], tmp_path) as server:
        ended = run(*OWN, "--store=sqlite", f"--data-dir={tmp_path}", f"--ready-file={tmp_path}/ready.json")
        assert ended.returncode == 1
        held = f"{tmp_path}/store.db is in use by process {server.pid}: end this process, or use another --data-dir"
        assert last_line(ended) == held
        assert json.loads((tmp_path / "ready.json").read_text()) == server.ready
        assert Client(server.url).get("/readyz").status == 200
    assert not (tmp_path / "ready.json").exists()


def test_damaged_store_ends_the_start_with_a_repair_hint(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"no database" * 1000)
    ended = run(*OWN, "--store=sqlite", f"--data-dir={tmp_path}")
    assert ended.returncode == 4
    text = "is damaged (file is not a database): see docs/recipes/repair-a-store.md to save its content"
    assert last_line(ended) == f"{tmp_path}/store.db {text}"


REFUSED = [
    (["--store=sqlite", "--etcd-servers=http://127.0.0.1:1"], "--store sqlite: cannot be combined with --etcd-servers"),
    (["--store=memory", "--workers=2"], "--workers 2 needs --etcd-servers"),
    (["--store=etcd"], "--store etcd: use sqlite or memory, or --etcd-servers for an etcd"),
    (["--store=sqlite", "--store-quota-bytes=0"], "--store-quota-bytes 0: it must be at least 1"),
    (["--store=sqlite", "--store-quota-bytes=1GB"], "--store-quota-bytes"),
]


@pytest.mark.parametrize(("flags", "said"), REFUSED)
def test_conflicting_store_flags_are_refused(tmp_path: Path, flags: list[str], said: str) -> None:
    ended = run(*OWN, *flags, f"--data-dir={tmp_path}")
    assert ended.returncode == 2
    assert said in last_line(ended)


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_full_store_refuses_writes_until_objects_are_deleted(tmp_path: Path, kind: str) -> None:
    flags = [*OWN, f"--store={kind}", "--store-quota-bytes=4000000", "--etcd-compaction-interval=100ms"]
    with running_server(flags, tmp_path) as server:
        api = Client(server.url)
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA})
        answers = [api.post(widgets.path(), widgets.make(f"w{number}", text="x" * 300_000)) for number in range(20)]
        codes = [answer.status for answer in answers]
        kept = codes.count(201)
        assert 5 < kept < 15
        assert codes == [201] * kept + [500] * (20 - kept)
        assert answers[-1].json["message"] == "Internal error occurred: etcdserver: mvcc: database space exceeded"
        assert api.patch(widgets.path("w0"), {"spec": {"text": "other"}}).status == 500
        assert api.get("/readyz").status == 200
        for number in range(kept):
            api.delete(widgets.path(f"w{number}")).expect(200)
        metrics = api.get("/metrics").text
        assert "\napiext_store_quota_bytes 4000000\n" in metrics
        assert "\napiext_store_commits_total " in metrics
        until(
            lambda: api.post(widgets.path(), widgets.make("after")).status == 201, "writes are taken again", ROOM_WITHIN
        )
        # the store logs the first line; the controller that compacts it logs the other one if it is faster
        lines = ("it was compacted and accepts writes again", "it was defragmented and allows writes again")
        until(
            lambda: any(line in server.log_tail() for line in lines), "the end of the full store is logged", ROOM_WITHIN
        )
