"""`apiext migrate` during writes of clients, killed midway: no object is lost."""

from __future__ import annotations

import base64
import itertools
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.conversion_webhook import answer, crontab, failed, running_webhook, serve_crontabs
from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import prompt, until
from tests.support.processes import Etcd, Server, free_port, running_etcd, running_server, start_server, stop
from tests.support.shared import ROOT

TEXT, SIZE = {"type": "string"}, {"type": "integer"}
OBJECTS, LONG_OBJECTS = 600, 20_000


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """An etcd that the tests read."""
    with running_etcd(tmp_path_factory.mktemp("migrate-etcd")) as started:
        yield started


@pytest.fixture(scope="module")
def server(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with ``etcd``."""
    flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}", "--etcd-prefix=/migrate"]
    with running_server(flags, tmp_path_factory.mktemp("migrate")) as started:
        yield started


@pytest.fixture
def api(server: Server) -> Client:
    """A client of ``server``."""
    return Client(server.url)


def schema(**properties: Any) -> dict[str, Any]:
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}}


def versions(storage: str, *, old: dict[str, Any] | None = None, served: bool = True) -> list[dict[str, Any]]:
    """Return v1 and v2, one of which is the storage version; ``old`` is another schema of v1."""
    same = schema(size=SIZE, count=SIZE, token=TEXT, previous=TEXT)
    return [
        {"name": "v1", "served": served, "storage": storage == "v1", "schema": old or same},
        {"name": "v2", "served": True, "storage": storage == "v2", "schema": same},
    ]


def define(api: Client, storage: str = "v1", **how: Any) -> Resource:
    wanted = definition(fresh_group())
    wanted["spec"]["versions"] = versions(storage, **how)
    group = establish(api, wanted)["spec"]["group"]
    return Resource(api, group, "widgets", "Widget", "v1")


def move(api: Client, widgets: Resource, storage: str, **how: Any) -> None:
    """Change the storage version."""
    name = f"{DEFINITIONS}/widgets.{widgets.group}"
    api.patch(name, {"spec": {"versions": versions(storage, **how)}}).expect(200)


def stored_versions(api: Client, widgets: Resource) -> list[str]:
    found: list[str] = api.get(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)["status"]["storedVersions"]
    return found


def in_etcd(etcd: Etcd, widgets: Resource) -> dict[str, dict[str, Any]]:
    """Return name → object as stored in etcd."""
    start = f"/migrate/{widgets.group}/{widgets.plural}/".encode()
    end = start[:-1] + bytes([start[-1] + 1])
    found = etcd.call(
        "kv/range", {"key": base64.b64encode(start).decode(), "range_end": base64.b64encode(end).decode()}
    )
    objects = [json.loads(base64.b64decode(kv["value"])) for kv in found.get("kvs", [])]
    return {it["metadata"]["name"]: it for it in objects}


def kept_in(etcd: Etcd, widgets: Resource) -> set[str]:
    return {it["apiVersion"].rpartition("/")[2] for it in in_etcd(etcd, widgets).values()}


def command(server: Server, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "apiext", "migrate", "--server", server.url, *arguments]


def migrate(server: Server, *arguments: str, within: float = 120.0) -> tuple[int, list[dict[str, Any]], str]:
    """Run the command; return its exit code, events and stderr."""
    ended = subprocess.run(
        command(server, *arguments),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=within,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return ended.returncode, [json.loads(line) for line in ended.stdout.splitlines()], ended.stderr


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == name]


@pytest.mark.rows("VER-002", "VER-014", "UPD-007", "ETC-009")
def test_migrated_objects_allow_removal_of_the_old_version(server: Server, api: Client, etcd: Etcd) -> None:
    widgets = define(api)
    for number in range(30):
        widgets.create(f"w{number}", namespace="default" if number % 2 else "kube-system", size=number)
    before = {name: it["spec"] for name, it in in_etcd(etcd, widgets).items()}
    generations = {name: it["metadata"]["generation"] for name, it in in_etcd(etcd, widgets).items()}
    move(api, widgets, "v2")
    widgets.create("new", size=99)
    assert kept_in(etcd, widgets) == {"v1", "v2"}
    code, events, said = migrate(server, "widgets." + widgets.group)
    assert (code, said) == (0, "")
    assert [event["event"] for event in events if event["event"] != "progress"] == ["started", "rewritten", "migrated"]
    [told] = named(events, "rewritten")
    assert (told["rewritten"], told["already"], told["failed"]) == (30, 1, 0)
    assert kept_in(etcd, widgets) == {"v2"}
    assert stored_versions(api, widgets) == ["v2"]
    after = in_etcd(etcd, widgets)
    assert {name: it["spec"] for name, it in after.items()} == before | {"new": {"size": 99}}
    assert {name: it["metadata"]["generation"] for name, it in after.items()} == generations | {"new": 1}
    assert api.get(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)["status"]["conditions"]
    wanted = [version for version in versions("v2") if version["name"] == "v2"]
    api.patch(f"{DEFINITIONS}/widgets.{widgets.group}", {"spec": {"versions": wanted}}).expect(200)
    code, events, _ = migrate(server, f"widgets.{widgets.group}")
    assert (code, [event["event"] for event in events]) == (0, ["up to date"])


@pytest.mark.rows("VER-002", "VER-014")
def test_next_run_continues_a_killed_migration(server: Server, api: Client, etcd: Etcd, tmp_path: Path) -> None:
    widgets = define(api)
    name = f"widgets.{widgets.group}"
    for number in range(OBJECTS):
        widgets.create(f"w{number}", size=number)
    move(api, widgets, "v2")
    out = (tmp_path / "out").open("wb")
    process = subprocess.Popen(command(server, "--rate=200", name), stdout=out, stdin=subprocess.DEVNULL, cwd=ROOT)
    try:
        until(
            lambda: sum(it["apiVersion"].endswith("/v2") for it in in_etcd(etcd, widgets).values()) > 50, "some moved"
        )
    finally:
        process.kill()
        process.wait()
        out.close()
    moved = sum(it["apiVersion"].endswith("/v2") for it in in_etcd(etcd, widgets).values())
    assert 50 < moved < OBJECTS
    assert stored_versions(api, widgets) == ["v1", "v2"], "a version was forgotten while objects are in it"
    code, events, _ = migrate(server, "--rate=0", name)
    assert code == 0
    [told] = named(events, "rewritten")
    assert told["rewritten"] + told["already"] == OBJECTS
    assert told["already"] >= moved
    assert kept_in(etcd, widgets) == {"v2"}
    assert stored_versions(api, widgets) == ["v2"]


class Writers:
    """Clients that write in both versions during the migration.

    They increment counters by compare-and-swap, create and delete.
    """

    def __init__(self, api: Client, widgets: Resource, counters: int = 3) -> None:
        self.api, self.widgets = api, widgets
        self.over = threading.Event()
        self.counted = 0
        self.made: set[str] = set()
        self.wrong: list[str] = []
        self._lock = threading.Lock()
        self._counters = [f"counter-{number}" for number in range(counters)]
        for name in self._counters:
            widgets.create(name, count=0)
        self._threads = [threading.Thread(target=self._write, args=(number,), daemon=True) for number in range(4)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(20)

    def total(self) -> int:
        return sum(int(self.api.get(self.widgets.path(name)).expect(200)["spec"]["count"]) for name in self._counters)

    def _write(self, number: int) -> None:
        group, kind = self.widgets.group, self.widgets.kind
        mine = Resource(self.api, group, "widgets", kind, "v2" if number % 2 else "v1")
        turn = 0
        while not self.over.is_set():
            turn += 1
            path = mine.path(self._counters[turn % len(self._counters)])
            read = self.api.get(path).json
            read["spec"]["count"] += 1
            put = self.api.put(path, read)
            if put.status not in (200, 409):
                self.wrong.append(f"{put.status} {put.raw[:200]!r}")
            name = f"made-{number}-{turn}"
            created = self.api.post(mine.path(), mine.make(name, size=turn))
            with self._lock:
                self.counted += put.status == 200
                if created.status == 201:
                    self.made.add(name)
                else:
                    self.wrong.append(f"{created.status} {created.raw[:200]!r}")


def _beside_writers(server: Server, api: Client, etcd: Etcd, objects: int) -> None:
    widgets = define(api)
    for number in range(objects):
        widgets.create(f"w{number}", size=number)
    writers = Writers(api, widgets)
    writers.start()
    move(api, widgets, "v2")
    try:
        code, events, said = migrate(server, "--rate=0", f"widgets.{widgets.group}", within=900)
    finally:
        writers.finish()
    print({**named(events, "rewritten")[-1], "counted": writers.counted, "made": len(writers.made)})
    assert (code, said, writers.wrong[:3]) == (0, "", [])
    assert writers.total() == writers.counted, "an update was lost"
    kept = in_etcd(etcd, widgets)
    assert kept.keys() == {f"w{number}" for number in range(objects)} | writers.made | {
        "counter-0",
        "counter-1",
        "counter-2",
    }
    assert {it["apiVersion"].rpartition("/")[2] for it in kept.values()} == {"v2"}
    assert stored_versions(api, widgets) == ["v2"]


@pytest.mark.rows("VER-002", "VER-014", "VER-015")
def test_migration_beside_writers_loses_no_update(server: Server, api: Client, etcd: Etcd) -> None:
    _beside_writers(server, api, etcd, 300)


@pytest.mark.long
def test_long_migration_beside_writers_loses_no_update(server: Server, api: Client, etcd: Etcd) -> None:
    _beside_writers(server, api, etcd, LONG_OBJECTS)


def test_migration_restarts_after_a_definition_edit(server: Server, api: Client, etcd: Etcd) -> None:
    widgets = define(api)
    for number in range(OBJECTS):
        widgets.create(f"w{number}", size=number)
    move(api, widgets, "v2")
    process = subprocess.Popen(
        command(server, "--rate=400", f"widgets.{widgets.group}"),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
    )
    until(lambda: "v2" in kept_in(etcd, widgets), "some moved")
    move(api, widgets, "v1")  # objects that were already migrated now have an old version
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    events = [json.loads(line) for line in out.splitlines()]
    assert named(events, "restarted")
    assert kept_in(etcd, widgets) == {"v1"}
    assert stored_versions(api, widgets) == ["v1"]


@pytest.mark.rows("VER-003")
def test_migration_keeps_fields_missing_in_the_new_version(server: Server, api: Client, etcd: Etcd) -> None:
    old = schema(size=SIZE, legacy=TEXT)
    widgets = define(api, old=old)
    widgets.create("safe", size=1)
    widgets.create("rich", size=2, legacy="of value")
    move(api, widgets, "v2", old=old)
    code, events, _ = migrate(server, f"widgets.{widgets.group}")
    assert code == 1
    [failed] = named(events, "failed")
    assert failed["object"] == "default/rich"
    assert failed["message"] == "v2 does not have spec.legacy: see --allow-loss"
    assert in_etcd(etcd, widgets)["rich"]["spec"] == {"size": 2, "legacy": "of value"}
    assert in_etcd(etcd, widgets)["safe"]["apiVersion"].endswith("/v2")
    assert stored_versions(api, widgets) == ["v1", "v2"]
    code, events, _ = migrate(server, "--allow-loss", f"widgets.{widgets.group}")
    assert code == 0
    assert in_etcd(etcd, widgets)["rich"]["spec"] == {"size": 2}
    assert stored_versions(api, widgets) == ["v2"]


@pytest.mark.rows("VER-008", "VER-014")
def test_flapping_webhook_only_repeats_migration_runs(server: Server, api: Client, etcd: Etcd, tmp_path: Path) -> None:
    good, calls = answer(crontab), itertools.count()

    def flapping(review: dict[str, Any]) -> Any:
        return (good if next(calls) % 3 else failed("out to lunch"))(review)

    with running_webhook(tmp_path) as hook:
        hook.answer = good
        crontabs = serve_crontabs(api, hook)
        for number in range(60):
            crontabs.create("v1beta1", f"c{number}", hostPort=f"host{number}:80")
        name = f"crontabs.{crontabs.group}"
        there = api.get(f"{DEFINITIONS}/{name}").expect(200)
        for version in there["spec"]["versions"]:
            version["storage"] = version["name"] == "v1"
        api.patch(f"{DEFINITIONS}/{name}", {"spec": {"versions": there["spec"]["versions"]}}).expect(200)
        hook.answer = failed("out to lunch")
        code, _, said = migrate(server, name)
        assert (code, "out to lunch" in said) == (1, True)
        hook.answer = flapping
        widgets = Resource(api, crontabs.group, "crontabs", "CronTab", "v1")
        for _ in range(30):
            stored = api.get(f"{DEFINITIONS}/{name}").expect(200)["status"]["storedVersions"]
            assert stored == ["v1beta1", "v1"], "a version was forgotten before its objects were rewritten"
            code, _, _ = migrate(server, "--rate=0", name)
            if code == 0:
                break
        kept = in_etcd(etcd, widgets)
        assert {it["apiVersion"].rpartition("/")[2] for it in kept.values()} == {"v1"}
        assert {key: (it["host"], it["port"]) for key, it in kept.items()} == {
            f"c{number}": (f"host{number}", "80") for number in range(60)
        }
        assert api.get(f"{DEFINITIONS}/{name}").expect(200)["status"]["storedVersions"] == ["v1"]


def test_migration_fails_if_storage_version_is_not_served(server: Server, api: Client, etcd: Etcd) -> None:
    widgets = define(api, "v2")
    Resource(api, widgets.group, "widgets", "Widget", "v2").create("a", size=1)
    move(api, widgets, "v1", served=False)
    code, events, said = migrate(server, f"widgets.{widgets.group}")
    assert (code, events) == (1, [])
    assert "does not serve its storage version" in said
    assert stored_versions(api, widgets) == ["v2", "v1"]
    api.delete(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)  # it would affect tests of --all


def test_migration_waits_for_a_restarting_server(etcd: Etcd, tmp_path: Path) -> None:
    flags = ["--insecure", f"--port={free_port()}", f"--etcd-servers={etcd.url}", "--etcd-prefix=/migrate"]
    first = start_server(tmp_path / "first", flags)
    assert first.process is not None
    api = Client(first.url)
    widgets = define(api)
    for number in range(OBJECTS):
        widgets.create(f"w{number}", size=number)
    move(api, widgets, "v2")
    process = subprocess.Popen(
        command(first, "--rate=400", f"widgets.{widgets.group}"),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
    )
    try:
        until(lambda: "v2" in kept_in(etcd, widgets), "some moved")
        first.process.kill()
        first.process.wait()
        second = start_server(tmp_path / "second", flags)
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0, out
        assert kept_in(etcd, widgets) == {"v2"}
        assert stored_versions(Client(second.url), widgets) == ["v2"]
        assert second.process is not None
        stop(second.process)
    finally:
        process.kill()
        stop(first.process)


def test_all_flag_migrates_every_outdated_definition(server: Server, api: Client, etcd: Etcd) -> None:
    first, second, third = define(api), define(api), define(api)
    for widgets in (first, second, third):
        widgets.create("a", size=1)
    for widgets in (first, second):
        move(api, widgets, "v2")
    code, events, said = migrate(server, "--all")
    assert (code, said) == (0, "")
    done = {event["resource"] for event in named(events, "migrated")}
    assert {f"widgets.{first.group}", f"widgets.{second.group}"} <= done
    assert f"widgets.{third.group}" not in done
    assert kept_in(etcd, second) == {"v2"}


@pytest.mark.rows("AUT-001", "VER-014")
def test_migration_uses_the_server_of_the_kubeconfig(etcd: Etcd, tmp_path: Path) -> None:
    flags = ["--port=0", f"--etcd-servers={etcd.url}", "--etcd-prefix=/migrate-by-https"]
    with running_server(flags, tmp_path) as secure:
        kubeconfig = str(secure.ready["kubeconfig"])
        given = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
        authority = base64.b64decode(given["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
        headers = {"Authorization": f"Bearer {given['users'][0]['user']['token']}"}
        api = Client(secure.url, headers, ssl.create_default_context(cadata=authority))
        widgets = define(api)
        widgets.create("a", size=1)
        move(api, widgets, "v2")
        arguments = [sys.executable, "-m", "apiext", "migrate", "widgets"]
        ended = subprocess.run(
            arguments,
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=60,
            check=False,
            env={**os.environ, "KUBECONFIG": kubeconfig},
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert stored_versions(api, widgets) == ["v2"]
        refused = subprocess.run(
            [*arguments, "--server", secure.url], capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
        )
        assert refused.returncode == 1
        assert "CERTIFICATE_VERIFY_FAILED" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nothing.example.com"], 1, "no definition matches nothing.example.com; name it as plural.group"),
        ([], 2, "name resources, or use --all"),
        (["--all", "x"], 2, "name resources, or use --all"),
        (["--rate=-1", "x"], 2, "--rate must be at least 0"),
        (["--parallel=1000", "x"], 2, "--parallel from 1 to 64"),
    ],
)
def test_invalid_arguments_are_rejected(server: Server, arguments: list[str], code: int, words: str) -> None:
    ended, events, said = migrate(server, *arguments)
    assert (ended, events) == (code, [])
    assert words in said


def test_interrupted_migration_prints_how_to_continue(server: Server, api: Client, etcd: Etcd) -> None:
    widgets = define(api)
    for number in range(100):
        widgets.create(f"w{number}", size=number)
    move(api, widgets, "v2")
    process = subprocess.Popen(
        command(server, "--rate=10", f"widgets.{widgets.group}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        cwd=ROOT,
    )
    until(lambda: "v2" in kept_in(etcd, widgets), "some moved")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert (process.returncode, said) == (1, b"apiext: stopped; run the command again to continue\n")
    assert stored_versions(api, widgets) == ["v1", "v2"]
    api.delete(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)


def test_unreachable_server_is_reported_at_once() -> None:
    nobody = Server(f"http://127.0.0.1:{free_port()}")
    began = time.monotonic()
    code, events, said = migrate(nobody, "--all")
    assert (code, events) == (1, [])
    assert "does not respond: [Errno 111] Connection refused" in said
    prompt(time.monotonic() - began, 20)


def test_migration_draws_a_progress_bar_on_a_terminal(server: Server, api: Client) -> None:
    widgets = define(api)
    for number in range(20):
        widgets.create(f"w{number}", size=number)
    move(api, widgets, "v2")
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        command(server, f"widgets.{widgets.group}"), stdout=theirs, stdin=subprocess.DEVNULL, cwd=ROOT
    )
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:
        pass  # the other end of the terminal is closed
    os.close(ours)
    assert process.wait(20) == 0
    assert b"[##############################] 20/20" in shown
    assert b"storedVersions v2" in shown
