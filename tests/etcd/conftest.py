"""Fixtures: a real etcd of each installed version, and our client with both transports."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from apiext.etcd.client import Etcd
from apiext.etcd.dial import dial
from tests.etcd import grpcio
from tests.support.etcd_binaries import Binary, NoBinary, _in_wheel, find_binary

TRANSPORTS = [pytest.param(dial, id="native"), pytest.param(grpcio.dial, id="grpc")]


def available() -> list[Binary]:
    """Return the etcds that ``find_binary`` finds, one of each version."""
    found: dict[Any, Binary] = {}
    named = os.environ.get("ETCD_BINARY")
    for wanted in [named] if named == "none" else (None, _in_wheel(), named):
        try:
            binary = find_binary(str(wanted) if wanted else None)
        except NoBinary:
            continue
        found.setdefault(binary.version, binary)
    return list(found.values())


BINARIES = available()


@dataclass
class RealEtcd:
    """A running etcd."""

    binary: Binary
    directory: Path
    port: int
    arguments: list[str]
    process: subprocess.Popen[bytes]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(self.arguments, cwd=self.directory, stdout=log, stderr=log)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait(20)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(binary: Binary, directory: Path, *flags: str, scheme: str = "http") -> Iterator[RealEtcd]:
    """Run an etcd on a TCP port."""
    port = free_port()
    arguments = [
        str(binary.path),
        "--name=t",
        "--data-dir=data",
        f"--listen-client-urls={scheme}://127.0.0.1:{port}",
        f"--advertise-client-urls={scheme}://127.0.0.1:{port}",
        "--listen-peer-urls=unix://peer.sock:0",
        "--initial-advertise-peer-urls=unix://peer.sock:0",
        "--initial-cluster=t=unix://peer.sock:0",
        "--heartbeat-interval=20",
        "--election-timeout=100",
        "--logger=zap",
        "--log-level=error",
        *flags,
    ]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(arguments, cwd=directory, stdout=log, stderr=log)
    etcd = RealEtcd(binary, directory, port, arguments, process)
    try:
        deadline = time.monotonic() + 20
        while not listens(port) and time.monotonic() < deadline:
            time.sleep(0.01)
        yield etcd
    finally:
        etcd.process.send_signal(signal.SIGCONT)
        etcd.stop()
        shutil.rmtree(directory / "data", ignore_errors=True)


@pytest.fixture(scope="session", params=BINARIES, ids=lambda binary: binary.text)
def etcd(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealEtcd]:
    """An etcd that all tests share; each test uses separate keys."""
    with running(request.param, tmp_path_factory.mktemp("etcd")) as started:
        yield started


@pytest.fixture(params=TRANSPORTS)
async def client(request: pytest.FixtureRequest, etcd: RealEtcd) -> AsyncIterator[Etcd]:
    """Our client of ``etcd``."""
    connected = Etcd([etcd.url], transport=request.param)
    await connected.start()
    yield connected
    await connected.close()
