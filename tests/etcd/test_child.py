"""The private child as a process: start, stop, death, and what a killed server leaves behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from apiext.conformance.support.waiting import prompt
from apiext.etcd import datadir, server
from apiext.etcd.binaries import Binary
from apiext.etcd.client import Etcd
from apiext.etcd.datadir import DataDir, DirectoryInUse
from apiext.etcd.server import EtcdServer, ServerError, flags
from tests.etcd.conftest import BINARIES
from tests.etcd.test_calls import until

DURABLE = [binary for binary in BINARIES if binary.durable]
FRAGILE = [binary for binary in BINARIES if not binary.durable]


@asynccontextmanager
async def child(directory: Path, binary: Binary) -> AsyncIterator[tuple[EtcdServer, Etcd]]:
    started = await EtcdServer.start(directory, binary=str(binary.path))
    try:
        client = Etcd(started.endpoints)
        await client.start()
        yield started, client
        await client.close()
    finally:
        await started.stop()


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.text)
async def test_keeps_its_data(tmp_path: Path, binary: Binary) -> None:
    for number in range(3):
        began = time.monotonic()
        async with child(tmp_path / "store", binary) as (started, client):
            assert (await client.create(b"/%d" % number, b"v")).ok
            prompt(time.monotonic() - began, 3)  # 0.1 to 0.3 on a quiet machine
            assert (await client.range(b"/", b"0")).count == number + 1
            assert started.version == binary.text
            assert started.development_only is not binary.durable
            assert [text for text in started.warnings if "in order" in text] == []
            pid = started.pid
        assert not datadir.is_running(pid)
    assert (tmp_path / "store").stat().st_mode & 0o777 == 0o700


async def test_long_path(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*["directory-with-a-long-name" * 2] * 4)
    async with child(directory, BINARIES[0]) as (started, client):
        assert len(started.endpoints[0]) > 200
        assert (await client.create(b"/k", b"v")).ok


def test_on_uvloop(tmp_path: Path) -> None:
    async def story() -> None:
        async with child(tmp_path / "store", BINARIES[0]) as (started, client):
            first = await client.create(b"/k", b"1")
            pid = started.pid
            os.kill(pid, signal.SIGKILL)
            await until(lambda: started.pid != pid and client.connected)
            assert (await client.update(b"/k", b"2", first.revision)).ok

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())


@pytest.mark.skipif(not FRAGILE, reason="no etcd here that a crash can damage")
async def test_fragile_version_is_named(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    async with child(directory, FRAGILE[0]) as (started, client):
        (warning,) = started.warnings
        assert "development only" in warning
        pid = started.pid
        os.kill(pid, signal.SIGKILL)
        await until(lambda: started.pid != pid and client.connected)
        assert "lost or renumbered" in started.warnings[1]
    (directory / "stopped-in-order").unlink()  # as if the server had been killed too
    async with child(directory, FRAGILE[0]) as (started, _):
        assert "was not stopped in order" in started.warnings[1]


async def test_two_servers_on_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LOCK_PATIENCE", 0.1)
    async with child(tmp_path / "store", BINARIES[0]) as (_, client):
        with pytest.raises(DirectoryInUse, match=str(os.getpid())):
            await EtcdServer.start(tmp_path / "store")
        assert (await client.create(b"/k", b"v")).ok


async def test_etcd_that_does_not_start(tmp_path: Path) -> None:
    broken = tmp_path / "etcd"
    broken.write_text('#!/bin/sh\n[ "$1" = --version ] && echo etcd Version: 3.5.9 && exit\necho no room >&2\nexit 3\n')
    broken.chmod(0o755)
    with pytest.raises(ServerError, match="ended with code 3: no room"):
        await EtcdServer.start(tmp_path / "store", binary=str(broken))
    async with child(tmp_path / "store", BINARIES[0]) as (_, client):  # the lock was given back
        assert (await client.create(b"/k", b"v")).ok


def run(arguments: list[Any], **how: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(arguments, **how)


SERVER = """
import asyncio, sys
from pathlib import Path
from apiext.etcd.client import Etcd
from apiext.etcd.server import EtcdServer
from apiext.conformance.support.waiting import busy
async def main():
    server = await EtcdServer.start(Path(sys.argv[1]), binary=sys.argv[2])
    client = Etcd(server.endpoints)
    await client.start()
    client.watch(b"/", b"0", 0, on_batch=lambda batch: None, on_end=lambda error: None)
    await client.create(b"/k", b"v")
    print(server.pid, flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.text)
async def test_killed_server(tmp_path: Path, binary: Binary) -> None:
    arguments = [sys.executable, "-c", SERVER, str(tmp_path / "store"), str(binary.path)]
    with run(arguments, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        pid = int(first.stdout.readline())
        first.send_signal(signal.SIGKILL)
    async with child(tmp_path / "store", binary) as (started, client):
        assert started.pid == pid if started.adopted else not datadir.is_running(pid)
        found = await client.get(b"/k")
        assert found is not None
        assert found.value == b"v"


@asynccontextmanager
async def left_over(directory: DataDir) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a child as a killed server leaves it where a parent's death is no signal."""
    directory.make()
    arguments = [BINARIES[0].path, *flags(BINARIES[0])]
    with run(arguments, cwd=directory.run, stderr=subprocess.DEVNULL) as process:
        directory.remember_child(process.pid)
        await until((directory.run / datadir.SOCKET).exists)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.terminate()


async def test_child_that_is_still_well_is_adopted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LEAVE_PATIENCE", 0.5)
    directory = DataDir(tmp_path / "store")
    async with left_over(directory) as process:
        async with child(directory.root, BINARIES[0]) as (started, client):
            assert (started.pid, started.adopted) == (process.pid, True)
            assert "is used further" in started.warnings[0]
            assert (await client.create(b"/k", b"v")).ok
        assert not datadir.is_running(process.pid)
    async with child(directory.root, BINARIES[0]) as (started, client):
        assert not started.adopted
        assert await client.get(b"/k") is not None


async def test_adopted_child_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LEAVE_PATIENCE", 0.5)
    directory = DataDir(tmp_path / "store")
    async with left_over(directory) as process, child(directory.root, BINARIES[0]) as (started, client):
        process.kill()
        await until(lambda: started.pid != process.pid and client.connected)
        assert not started.adopted
        assert (await client.create(b"/k", b"v")).ok


async def test_child_that_neither_answers_nor_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAVE_PATIENCE", "STOP_PATIENCE"):
        monkeypatch.setattr(server, name, 0.2)
    directory = DataDir(tmp_path / "store")
    async with left_over(directory) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.raises(ServerError, match="neither answers nor stops"):
            await EtcdServer.start(directory.root, binary=str(BINARIES[0].path))
        assert datadir.is_running(process.pid)
