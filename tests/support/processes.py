"""Start, signal and stop etcd and the server as processes."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.support.etcd_binaries import NoBinary, find_binary

ROOT = Path(__file__).resolve().parents[2]
SERVE = (sys.executable, "-m", "apiext", "serve")
START_WITHIN = 40.0
PLAIN_FLAGS = ("--insecure", "--port=0")
REFERENCE_FLAGS = (
    "--insecure", "--port=0",
    "--disable-admission-plugins=NamespaceLifecycle", "--runtime-config=apiextensions.k8s.io/v1beta1=false",
    "--controllers=*,-garbage-collector-controller", "--kubernetes-version=1.37.2", "--status-manager=refserver",
)  # fmt: skip
MEMORY = "--store=memory"
NAMES_A_STORE = ("--store", "--etcd-servers", "APIEXT_STORE", "APIEXT_ETCD_SERVERS")
store: list[str] = []
"""Flags for the store that pytest's ``--store`` names, for servers whose test names no store; empty for the default."""


def with_store(flags: Sequence[str], directory: Path, env: dict[str, str] | None = None) -> list[str]:
    """Add the flags of the store to those of a server.

    In an etcd, each data directory has its own prefix.
    """
    named = {flag.partition("=")[0] for flag in flags}
    if not store or named.union(env or ()).intersection(NAMES_A_STORE):
        return [*flags]
    if store == [MEMORY] or "--etcd-prefix" in named:
        return [*flags, *store]
    prefix = hashlib.sha256(bytes(directory.absolute())).hexdigest()[:16]
    return [*flags, *store, f"--etcd-prefix=/{prefix}"]


def free_port() -> int:
    """Return a free TCP port; another process may take it before its use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def etcd_binary() -> str:
    """Return the etcd for tests; skip the test if there is none.

    It is $ETCD_BINARY, else the best that is installed.
    """
    try:
        return str(find_binary(os.environ.get("ETCD_BINARY")).path)
    except NoBinary as error:
        pytest.skip(str(error))


def stop(process: subprocess.Popen[bytes], within: float = 15.0) -> int:
    """Send SIGTERM to a process, and SIGKILL after ``within`` seconds; return its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(within)
        except subprocess.TimeoutExpired:
            process.kill()
    return process.wait(within)


@dataclass
class Etcd:
    """A running etcd of one member on TCP."""

    process: subprocess.Popen[bytes]
    url: str
    directory: Path

    def call(self, method: str, message: dict[str, Any]) -> dict[str, Any]:
        """Call etcd's JSON gateway, which shares no code with the server under test."""
        request = urllib.request.Request(
            f"{self.url}/v3/{method}", data=json.dumps(message).encode(), headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            reply: dict[str, Any] = json.load(answer)
            return reply


@contextlib.contextmanager
def running_etcd(directory: Path, *flags: str) -> Iterator[Etcd]:
    """Run an etcd in ``directory``; yield it as soon as it answers a linearizable read."""
    client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
    directory.mkdir(parents=True, exist_ok=True)
    command = [
        etcd_binary(), "--name=test", f"--data-dir={directory / 'etcd'}", "--log-level=error",
        f"--listen-client-urls={client}", f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=test={peer}",
        "--heartbeat-interval=10", "--election-timeout=100", "--snapshot-count=10000", *flags,
    ]  # fmt: skip
    with (directory / "etcd.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    etcd = Etcd(process, client, directory)
    try:
        until(lambda: _etcd_answers(etcd), "etcd answers", START_WITHIN)
        yield etcd
    finally:
        stop(process)


def _etcd_answers(etcd: Etcd) -> bool:
    if etcd.process.poll() is not None:
        raise AssertionError(f"etcd ended with {etcd.process.returncode}: {tail(etcd.directory / 'etcd.log')}")
    try:
        return "header" in etcd.call("kv/range", {"key": "AA=="})
    except OSError:
        return False


@dataclass
class Server:
    """A running server; ``process`` is None if another process started it."""

    url: str
    process: subprocess.Popen[bytes] | None = None
    ready: dict[str, Any] = field(default_factory=dict)
    log: Path | None = None

    @property
    def pid(self) -> int:
        """The id of the process that gets signals."""
        return int(self.ready["pid"])

    def client(self) -> Client:
        """Return a client for a server with plain http."""
        return Client(self.url)

    def log_tail(self) -> str:
        """Return the end of the server's output, for messages of failed tests."""
        return tail(self.log) if self.log else ""


def log_lines(text: str) -> list[dict[str, Any]]:
    """Return the decoded lines of a server's log; each line is a JSON object."""
    return [json.loads(line) for line in text.splitlines()]


def errors(text: str) -> list[str]:
    """Return the messages with the level error in a server's log."""
    return [str(line["message"]) for line in log_lines(text) if line["level"] == "error"]


def tail(path: Path, size: int = 3000) -> str:
    """Return the last bytes of a log as text."""
    with contextlib.suppress(OSError), path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - size))
        return log.read().decode("utf-8", "replace")
    return ""


def start_server(
    directory: Path,
    flags: Sequence[str] = (),
    *,
    command: Sequence[str] = SERVE,
    env: dict[str, str] | None = None,
    root: Path = ROOT,
) -> Server:
    """Start a server with the data directory ``directory``, and wait for its ready file.

    Raise AssertionError if the server ends or is not ready within START_WITHIN. Skip a test that restarts a server
    without a store that lasts. ``root`` is the working directory of the process, from which ``python -m`` imports
    modules.
    """
    directory.mkdir(parents=True, exist_ok=True)
    ready_file, log_file = directory / "ready.json", directory / "server.log"
    ready_file.unlink(missing_ok=True)
    given = with_store(flags, directory, env)
    if store == [MEMORY] and len(given) > len(flags) and log_file.exists():
        pytest.skip(f"{MEMORY}: the test restarts a server and needs the objects that the first one stored")
    with log_file.open("ab") as log:
        arguments = [*command, *given, f"--data-dir={directory}", f"--ready-file={ready_file}"]
        process = start_process(arguments, log, env, root)
    server = Server("", process, {}, log_file)
    try:
        server.ready = until(lambda: _ready(server, ready_file), "the server is ready", START_WITHIN, every=0.005)
    except AssertionError:
        stop(process)
        raise
    server.url = str(server.ready["url"]).rstrip("/")
    return server


def start_process(
    command: Sequence[str], log: IO[bytes], env: dict[str, str] | None = None, root: Path = ROOT
) -> subprocess.Popen[bytes]:
    """Start a command without stdin in the directory ``root``."""
    return subprocess.Popen(
        list(command), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=root, env={**os.environ, **(env or {})}
    )


def _ready(server: Server, ready_file: Path) -> dict[str, Any] | None:
    assert server.process is not None
    if server.process.poll() is not None:
        raise AssertionError(f"the server ended with {server.process.returncode}:\n{server.log_tail()}")
    try:
        ready: dict[str, Any] = json.loads(ready_file.read_bytes())
        return ready
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def running_server(flags: Sequence[str] = (), directory: Path | None = None, **how: Any) -> Iterator[Server]:
    """Run a server; stop it with SIGTERM after the block.

    It uses a temporary directory if none is given.
    """
    with contextlib.ExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="apiext-test-")))
        server = start_server(directory, flags, **how)
        assert server.process is not None
        stack.callback(stop, server.process)
        yield server


@contextlib.contextmanager
def named_or_running(url: str | None, flags: Sequence[str], directory: Path) -> Iterator[Server]:
    """Yield the server with this URL if there is one, else run a server."""
    if url:
        yield Server(url)
        return
    with running_server(flags, directory) as started:
        yield started
