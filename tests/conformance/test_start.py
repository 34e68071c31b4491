"""Start and stop of a server: the behaviour that scripts and test harnesses need."""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from apiext.conformance.support.definitions import definition, fresh_group, serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.support.processes import (
    ROOT,
    SERVE,
    Etcd,
    errors,
    free_port,
    log_lines,
    running_server,
    start_process,
    start_server,
    stop,
)

OWN = ["--insecure", "--port=0"]


def run(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SERVE, *flags], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.fixture
def etcd_flags(own_etcd: Etcd, tmp_path: Path) -> list[str]:
    """Flags of a server with the shared etcd and a new prefix."""
    return [*OWN, f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}"]


def test_ready_file_has_pid_etcd_and_kubeconfig(tmp_path: Path, etcd_flags: list[str], own_etcd: Etcd) -> None:
    with running_server(etcd_flags, tmp_path) as server:
        ready = server.ready
        assert server.process is not None
        assert ready["pid"] == server.process.pid
        assert ready["etcd"]["endpoints"] == [own_etcd.url]
        assert ready["etcd"]["prefix"] == f"/{tmp_path.name}"
        assert stat.S_IMODE(os.stat(ready["kubeconfig"]).st_mode) == 0o600
        assert Client(server.url).get("/readyz").text == "ok"
    lines = log_lines((tmp_path / "server.log").read_text())
    assert [line["event"] for line in lines if "event" in line] == ["starting", "ready", "stopping", "stopped"]
    [told] = [line for line in lines if line.get("event") == "ready"]
    assert {name: told[name] for name in ready} == ready


@pytest.fixture
def hangups() -> Iterator[None]:
    """Let child processes handle SIGHUP, also if the tests run under nohup.

    Under nohup, child processes inherit an ignored signal.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.rows("LIM-003")
@pytest.mark.usefixtures("hangups")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda it: it.name)
def test_signal_ends_watches_and_the_process(tmp_path: Path, etcd_flags: list[str], number: signal.Signals) -> None:
    with running_server(etcd_flags, tmp_path) as server:
        client = Client(server.url)
        widgets = serve(client)
        with client.watch(
            widgets.path(), resourceVersion=client.get(widgets.path()).json["metadata"]["resourceVersion"]
        ) as watch:
            started = time.monotonic()
            assert server.process is not None
            server.process.send_signal(number)
            assert list(watch) == []  # the watch ends with the last chunk, not with a reset
        assert server.process.wait(10) == 0
        prompt(time.monotonic() - started, 5)


def in_a_shell(text: str) -> list[str]:
    """Return the beginning of a command that runs the server in a shell with this script."""
    return ["sh", "-c", text, "sh", *SERVE]


def test_server_ignores_sighup_if_its_parent_does(tmp_path: Path, etcd_flags: list[str]) -> None:
    with running_server(etcd_flags, tmp_path, command=in_a_shell("trap '' HUP; exec \"$@\"")) as server:
        os.kill(server.pid, signal.SIGHUP)
        pause(0.2)
        assert Client(server.url).get("/readyz").text == "ok"


@pytest.mark.parametrize("workers", ["--workers=1", "--workers=2"])
@pytest.mark.parametrize("streams", ["0<&-", "2>&-", "0<&- 1>&- 2>&-", "2>/dev/full"])
def test_server_runs_with_closed_standard_streams(
    tmp_path: Path, etcd_flags: list[str], streams: str, workers: str
) -> None:
    flags = [*etcd_flags, workers, "--v=2", "--allow-privileged", "--runtime-config=batch/v3=true"]  # two warnings
    with running_server(flags, tmp_path, command=in_a_shell(f'exec "$@" {streams}')) as server:
        assert serve(Client(server.url)).create("a")
        assert server.process is not None
        os.kill(server.pid, signal.SIGTERM)
        assert server.process.wait(15) == 0


@pytest.mark.rows("LIM-003")
def test_shutdown_waits_for_a_partly_sent_body(tmp_path: Path, etcd_flags: list[str]) -> None:
    head = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 7\r\n\r\n"
    with running_server(etcd_flags, tmp_path) as server:
        port = int(server.url.rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port), 10) as client:
            client.sendall(head + b"gar")
            until(
                lambda: 'apiserver_current_inflight_requests{request_kind="mutating"} 1' in metrics(server.url), "begun"
            )
            assert server.process is not None
            server.process.send_signal(signal.SIGTERM)
            until(lambda: connection_is_refused(port), "nobody else is let in")
            client.sendall(b"bage")
            assert client.recv(4096).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert server.process.wait(10) == 0


def metrics(url: str) -> str:
    return Client(url).get("/metrics").text


def connection_is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False


@pytest.mark.rows("LIM-003", "HLT-001")
def test_readiness_fails_first_during_shutdown_delay(tmp_path: Path, etcd_flags: list[str]) -> None:
    with running_server([*etcd_flags, "--shutdown-delay-duration=2s"], tmp_path) as server:
        client = Client(server.url)
        assert client.get("/readyz").text == "ok"
        assert server.process is not None
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        failing = until(lambda: (it := client.get("/readyz")).status == 500 and it, "readiness fails", every=0.01)
        assert failing.text.endswith("[-]shutdown failed: reason withheld\nreadyz check failed\n")
        assert client.get("/livez").text == client.get("/healthz").text == "ok"
        client.get("/api/v1/namespaces/default").expect(200)
        assert server.process.wait(10) == 0
        assert time.monotonic() - began > 2


@pytest.mark.parametrize("workers", ["--workers=1", "--workers=2"])
def test_a_signal_ends_a_server_that_waits_for_etcd(tmp_path: Path, workers: str) -> None:
    with (tmp_path / "log").open("wb+") as log:
        flags = [workers, f"--data-dir={tmp_path}", "--etcd-servers=http://127.0.0.1:1"]
        process = start_process([*SERVE, *OWN, *flags], log)
        try:
            until(lambda: b"no connection to etcd" in (tmp_path / "log").read_bytes(), "it tries")
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 4
            prompt(time.monotonic() - began, 3)
        finally:
            stop(process)
        assert b"stopped before etcd at http://127.0.0.1:1 answered" in (tmp_path / "log").read_bytes()


@pytest.mark.rows("ETC-001")
def test_objects_survive_a_restart(tmp_path: Path) -> None:
    with running_server(OWN, tmp_path) as server:
        widgets = serve(Client(server.url))
        made = widgets.create("kept", color="red")
    with running_server(OWN, tmp_path) as server:
        again = Client(server.url).get(widgets.path("kept")).expect(200)
    assert again == made


def test_objects_survive_a_kill(tmp_path: Path) -> None:
    first = start_server(tmp_path, OWN)
    assert first.process is not None
    try:
        made = serve(Client(first.url)).create("kept", color="red")
    finally:
        first.process.kill()
        first.process.wait()
    with running_server(OWN, tmp_path) as second:
        group = made["apiVersion"].split("/")[0]
        path = f"/apis/{group}/v1/namespaces/default/widgets/kept"
        assert Client(second.url).get(path).expect(200) == made


def test_a_signal_ends_a_server_that_waits_for_its_data_directory(tmp_path: Path) -> None:
    flags = [*OWN, "--store=sqlite"]
    with running_server(flags, tmp_path), (tmp_path / "log").open("wb+") as log:
        second = start_process([*SERVE, *flags, f"--data-dir={tmp_path}"], log)
        try:
            until(lambda: b"waiting 10s for its end" in (tmp_path / "log").read_bytes(), "it says what it waits for")
            began = time.monotonic()
            second.send_signal(signal.SIGTERM)
            assert second.wait(30) == 1
            prompt(time.monotonic() - began, 3)
        finally:
            stop(second)
        assert (tmp_path / "log").read_bytes().count(b"is in use by process") == 2


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        (["--insecure", "--bind-address=0.0.0.0"], 2, "loopback"),
        (["--workers=0"], 2, "workers"),
        (["--nonsense"], 2, "nonsense"),
        (["--port=banana"], 2, "port"),
        (["--etcd-servers=ftp://x"], 2, "etcd-servers"),
        (["--etcd-servers=http://:1"], 2, "etcd-servers"),
        (["--etcd-servers=http://a:b"], 2, "etcd-servers"),
        (["--etcd-servers=http://127.0.0.1:99999"], 2, "etcd-servers"),
        (["--insecure", "--port=0", "--etcd-servers=http://127.0.0.1:1", "--etcd-wait=1"], 4, "etcd"),
        (["--request-timeout=1.2.3s"], 2, "--request-timeout 1.2.3s"),
        (["--kubernetes-version=1.x"], 2, "--kubernetes-version 1.x"),
        (["--max-requests-inflight=-1"], 2, "--max-requests-inflight"),
        (["--config=/nowhere/x.yaml"], 2, "--config /nowhere/x.yaml"),
    ],
    ids=[
        "open insecure", "workers", "unknown flag", "port", "scheme", "no host", "no port", "high port", "no etcd",
        "duration", "version", "negative", "config",
    ],
)  # fmt: skip
def test_invalid_flag_is_named_in_the_error(tmp_path: Path, flags: list[str], code: int, says: str) -> None:
    ended = run(*flags, f"--data-dir={tmp_path}")
    assert (ended.returncode, says in ended.stderr) == (code, True), ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--tls-cert-file=/nowhere/a", "--tls-private-key-file=/nowhere/b"], "--tls-cert-file /nowhere/a: No such"),
        (["--client-ca-file=/nowhere/ca"], "--client-ca-file /nowhere/ca: No such"),
        (["--client-ca-file={bad}"], "--client-ca-file {bad}: "),
        (["--token-auth-file=/nowhere/tokens"], "--token-auth-file /nowhere/tokens: No such"),
        (["--token-auth-file={bad}"], "--token-auth-file {bad}: token file, line 1: expected at least 3 columns"),
        (["--tls-san=m\u00fcnchen.de"], "--tls-san m\u00fcnchen.de: DNSName values should be"),
        (["--data-dir={spoilt}"], "--data-dir {spoilt}/pki: "),
        (["--kubeconfig={directory}"], "--kubeconfig {directory}: Is a directory"),
        (["--kubeconfig={bad}"], "--kubeconfig {bad}: it has other content, which would be lost; `apiext kubeconfig"),
        (["--ready-file={directory}"], "--ready-file {directory}: Is a directory"),
        (["--ready-file={bad}/x"], "--ready-file {bad}/x: Not a directory"),
        (["--data-dir={bad}"], "--data-dir {bad}: File exists"),
        (["--service-account-signing-key-file=/nowhere/k"], "--service-account-signing-key-file /nowhere/k: No such"),
        (
            ["--service-account-jwks-uri=http://a"],
            "--service-account-jwks-uri requires https scheme, parsed as: http://a",
        ),
        (["--service-account-signing-key-file={bad}"], "--service-account-signing-key-file {bad}: "),
        (
            ["--service-account-signing-key-file={locked}"],
            "--service-account-signing-key-file {locked}: its key is encrypted with a passphrase",
        ),
        (["--service-account-key-file={locked}"], "--service-account-key-file {locked}: data does not contain any"),
        (["--service-account-key-file=/nowhere/k"], "--service-account-key-file /nowhere/k: No such"),
        (["--service-account-key-file={bad}"], "--service-account-key-file {bad}: data does not contain any valid RSA"),
        (["--service-account-issuer="], "--service-account-issuer is empty: tokens need an issuer"),
        (["--service-resolver=/nowhere/s"], "--service-resolver /nowhere/s: No such file or directory"),
        (["--service-resolver={bad}"], "--service-resolver {bad}: expected a mapping of name.namespace:port"),
        (["--admission-control-config-file=/nowhere/a"], "--admission-control-config-file /nowhere/a: No such"),
        (["--config=/nowhere/c"], "--config /nowhere/c: No such file or directory"),
        (
            ["--audit-policy-file={policy}", "--audit-webhook-config-file=/nowhere/w"],
            "--audit-webhook-config-file /nowhere/w: No such file or directory",
        ),
        (["--audit-policy-file={policy}", "--audit-log-path={directory}"], "--audit-log-path {directory}: Is a dir"),
        (["--etcd-cafile=/nowhere/ca"], "--etcd-cafile /nowhere/ca: No such"),
        (["--etcd-cafile={bad}"], "--etcd-cafile {bad}: "),
        (
            ["--etcd-certfile=/nowhere/c", "--etcd-keyfile={bad}"],
            "--etcd-certfile /nowhere/c, --etcd-keyfile {bad}: No such",
        ),
        (["--etcd-certfile={bad}", "--etcd-keyfile={bad}"], "--etcd-certfile {bad}, --etcd-keyfile {bad}: "),
        (["--bind-address=192.0.2.7"], "--bind-address 192.0.2.7: "),
        (["--bind-address=no such host"], "--bind-address no such host: "),
    ],
)
def test_unusable_files_and_addresses_are_named_in_the_error(
    tmp_path: Path, own_etcd: Etcd, flags: list[str], says: str
) -> None:
    names = {"bad": "bad", "policy": "policy", "directory": "", "spoilt": "spoilt", "locked": "locked"}
    places = {name: tmp_path / place for name, place in names.items()}
    places["bad"].write_text("nonsense\n")
    places["locked"].write_bytes(
        ec.generate_private_key(ec.SECP256R1()).private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
        )
    )
    (places["spoilt"] / "pki").mkdir(parents=True)
    for file in ("ca.crt", "ca.key"):
        (places["spoilt"] / "pki" / file).write_text("nonsense\n")
    places["policy"].write_text("{apiVersion: audit.k8s.io/v1, kind: Policy, rules: [{level: None}]}")
    given = [flag.format(**places) for flag in flags]
    ended = run("--port=0", f"--data-dir={tmp_path}", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/files", *given)
    said = says.format(**places)
    assert (ended.returncode, errors(ended.stderr)[-1][: len(said)]) == (2, said)
    assert "Traceback" not in ended.stderr


def test_modules_in_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("raise SystemExit(77)")
    begins = (ROOT / "scripts" / "serve").read_text().splitlines()[-1]
    begins = begins.replace('"$root/.venv/bin/python"', shlex.quote(sys.executable))
    ended = subprocess.run(
        ["/bin/sh", "-c", begins, "serve", "--version"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (ended.returncode, ended.stdout[:13]) == (0, "Kubernetes v1"), ended.stderr


def test_start_refuses_etcd_data_of_an_earlier_release(tmp_path: Path) -> None:
    """The server must not start: with a new store its objects would seem to be lost."""
    (tmp_path / "etcd" / "data" / "member").mkdir(parents=True)
    ended = run(*OWN, f"--data-dir={tmp_path}")
    assert ended.returncode == 2
    data = f"{tmp_path}/etcd/data"
    remedy = f"`etcd --data-dir {data}` and --etcd-servers http://127.0.0.1:2379, or move {tmp_path}/etcd away"
    told = f"--data-dir {tmp_path}: its objects are in {data}, in the etcd of an earlier release: use {remedy}"
    assert errors(ended.stderr) == [told]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["etcd"]


def test_stale_ready_file_is_removed_at_the_start(tmp_path: Path) -> None:
    stale, log = tmp_path / "ready.json", tmp_path / "log"
    stale.write_text("{}")
    flags = [f"--data-dir={tmp_path / 'd'}", f"--ready-file={stale}", "--etcd-servers=http://127.0.0.1:1"]
    with log.open("wb+") as stream:
        process = start_process([*SERVE, *OWN, *flags], stream)
        try:
            until(lambda: b"no connection to etcd" in log.read_bytes(), "it tries")
            assert not stale.exists()
        finally:
            stop(process)


def test_default_data_directory_is_in_xdg_data_home(tmp_path: Path, own_etcd: Etcd) -> None:
    environment = {"XDG_DATA_HOME": str(tmp_path / "share"), "APIEXT_ETCD_SERVERS": own_etcd.url}
    ready, log = tmp_path / "ready", tmp_path / "log"
    with log.open("wb+") as stream:
        process = start_process([*SERVE, *OWN, f"--ready-file={ready}", "--etcd-prefix=/xdg"], stream, environment)
        try:
            until(ready.exists, "the server is ready")
            told = json.loads(ready.read_text())
        finally:
            stop(process)
    directory = tmp_path / "share" / "apiext"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert told["kubeconfig"] == str(directory / "admin.kubeconfig")
    assert told.keys() == {"url", "pid", "kubeconfig", "store", "etcd"}
    assert told["store"] == {"kind": "etcd", "path": None}
    assert told["etcd"].keys() == {"endpoints", "prefix"}
    written = yaml.safe_load((directory / "admin.kubeconfig").read_text())
    assert written["users"] == []
    assert [each["cluster"] for each in written["clusters"]] == [{"server": told["url"]}]
    assert told["url"].startswith("http://127.0.0.1:")


def test_port_in_use_exits_with_code_3(tmp_path: Path, own_etcd: Etcd) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        ended = run("--insecure", f"--port={port}", f"--data-dir={tmp_path}", f"--etcd-servers={own_etcd.url}")
    assert ended.returncode == 3, ended.stderr
    why = "Address already in use; choose another --port, or 0 for a free one"
    assert errors(ended.stderr)[-1] == f"cannot listen on 127.0.0.1:{port}: {why}"


def test_flags_of_kube_apiserver_are_accepted_with_one_warning(tmp_path: Path, own_etcd: Etcd) -> None:
    flags = [
        "--allow-privileged=true", "--authorization-mode=RBAC", "--kubernetes-service-node-port=0",
        "--disable-admission-plugins=NodeRestriction", "--runtime-config=api/all=true,batch/v3=true",
        "--watch-cache=true",
        "--insecure", f"--secure-port={free_port()}", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=bare",
    ]  # fmt: skip
    server = start_server(tmp_path, flags)
    assert server.process is not None
    stop(server.process)
    log = (tmp_path / "server.log").read_text()
    for word in ("kubernetes-service-node-port", "NodeRestriction", "batch/v3"):
        assert log.count(word) == 1, log
    assert server.ready["etcd"]["prefix"] == "/bare"


def test_warning_about_old_etcd_is_logged(tmp_path: Path, own_etcd: Etcd, etcd_flags: list[str]) -> None:
    version = own_etcd.call("maintenance/status", {})["version"]
    major, minor, patch = map(int, version.split("."))
    old = (major, minor, patch) < ((3, 4, 31) if minor < 5 else (3, 5, 13))
    with running_server(etcd_flags, tmp_path) as server:
        text = f"is {version}; before 3.4.31 and 3.5.13, watches can lose events"
        assert (text in server.log_tail()) is old


def test_help_has_no_insecure_port_for_envtest() -> None:
    ended = run("--help")
    assert ended.returncode == 0
    assert not re.search(r"^\s*--insecure-port\b", ended.stdout, re.M)


def test_flags_override_environment_variables(tmp_path: Path, own_etcd: Etcd) -> None:
    environment = {
        "APIEXT_ETCD_SERVERS": own_etcd.url,
        "APIEXT_ETCD_PREFIX": "/from-environment",
        "APIEXT_INSECURE": "true",
        "APIEXT_PORT": "1",
    }
    server = start_server(tmp_path, ["--port=0"], env=environment)
    assert server.process is not None
    stop(server.process)
    assert server.ready["etcd"] == {"endpoints": [own_etcd.url], "prefix": "/from-environment"}


HELD_BACK = """
import asyncio, os, sys
from apiext.storage import limits
from apiext import __main__
from apiext.controllers.serving import Serving

gate, compile = sys.argv.pop(), Serving._compile

async def held(self, facts):
    usual, limits.FRESH_WAIT = limits.FRESH_WAIT, 0.1  # who asks meanwhile need not wait long
    while not os.path.exists(gate):
        await asyncio.sleep(0.02)
    limits.FRESH_WAIT = usual
    await compile(self, facts)

Serving._compile, Serving._compile_at_once = held, lambda self, facts: None
sys.exit(__main__.main())
"""


@pytest.mark.rows("HLT-003", "ERR-03")
def test_a_server_is_not_ready_until_all_definitions_are_served(
    tmp_path: Path, own_etcd: Etcd, etcd_flags: list[str]
) -> None:
    wanted = {**definition(fresh_group()), "status": {"conditions": [{"type": "Established", "status": "True"}]}}
    wanted["metadata"].update(uid="d1", generation=1, creationTimestamp="2026-01-01T00:00:00Z")
    key = f"/{tmp_path.name}/apiextensions.k8s.io/customresourcedefinitions/{wanted['metadata']['name']}"
    put = {
        "key": base64.b64encode(key.encode()).decode(),
        "value": base64.b64encode(json.dumps(wanted).encode()).decode(),
    }
    own_etcd.call("kv/put", put)
    gate, ready, port = tmp_path / "gate", tmp_path / "ready", free_port()
    flags = [*etcd_flags, f"--port={port}", f"--data-dir={tmp_path}", f"--ready-file={ready}", str(gate)]
    with (tmp_path / "log").open("wb") as log:
        process = start_process([sys.executable, "-c", HELD_BACK, "serve", *flags], log)
    api, path = Client(f"http://127.0.0.1:{port}"), f"/apis/{wanted['spec']['group']}/v1/widgets"
    try:
        until(lambda: not connection_is_refused(port), "it listens")
        assert [api.get(each).status for each in ("/livez/ping", "/readyz", "/readyz/informer-sync")] == [200, 500, 500]
        waits = api.get(path)
        assert (waits.status, waits.headers["retry-after"], ready.exists()) == (503, "5", False)
        gate.touch()
        until(ready.exists, "it is ready")
        assert [api.get(each).status for each in ("/readyz", path)] == [200, 200]
    finally:
        stop(process)
