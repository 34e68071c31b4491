"""The ready file of another server: whose stays, and whose is taken for what it is, a word about the past."""

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiext import launch
from apiext.config import Config, EtcdConfig
from apiext.conformance.support.waiting import until
from apiext.etcd.datadir import DataDir

ETCD = EtcdConfig(("http://127.0.0.1:1",))


@pytest.fixture
def other() -> Iterator[int]:
    """A process that is there."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    return tmp_path / "ready"


def say(ready: Path, pid: object, port: int = 1) -> None:
    ready.write_text(json.dumps({"url": f"https://127.0.0.1:{port}", "pid": pid}))


@pytest.fixture
def directory(tmp_path: Path, other: int) -> Iterator[DataDir]:
    """A directory that the other process holds, as far as can be seen."""
    found = DataDir(tmp_path / "etcd")
    found.make()
    found.lock()
    (found.root / "lock").write_text(f"{other}\n")
    yield found
    found.unlock()


def test_who_holds_the_data_directory_keeps_it(tmp_path: Path, ready: Path, directory: DataDir, other: int) -> None:
    config = Config(tmp_path, port=0, ready_file=str(ready))
    say(ready, other)
    launch.prepare(config)
    assert ready.exists()
    directory.unlock()  # the other one has let go meanwhile
    directory.lock()
    launch.forget_earlier(config)
    assert not ready.exists()


def test_who_listens_on_the_port_keeps_it(tmp_path: Path, ready: Path, other: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        config = Config(tmp_path, port=port, ready_file=str(ready), etcd=ETCD)
        say(ready, other, port)
        launch.prepare(config)
        assert ready.exists()

    def goes() -> bool:
        launch.prepare(config)
        return not ready.exists()

    until(goes, "nobody listens on the port any more")


@pytest.mark.usefixtures("directory")
def test_what_names_nobody_who_keeps_us_from_starting_goes(tmp_path: Path, ready: Path, other: int) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, os.getpid(), os.getppid(), 0, -1, "1", None, 10**30, True):
        say(ready, pid)
        launch.prepare(Config(tmp_path, port=0, ready_file=str(ready)))
        assert not ready.exists(), pid
    for text in ("", "{", "[]", "7", '{"pid": 1}', "\udcff", json.dumps({"pid": other, "url": "https://[:x"})):
        ready.write_bytes(text.encode("utf-8", "surrogateescape"))
        launch.prepare(Config(tmp_path / "elsewhere", port=0, ready_file=str(ready)))
        assert not ready.exists(), text
    say(ready, other)
    launch.prepare(Config(tmp_path, port=0, ready_file=str(ready), etcd=ETCD))
    assert not ready.exists(), "the directory of a private etcd is in nobody's way who has an etcd"


def test_a_directory_is_held_by_who_has_locked_it(tmp_path: Path, directory: DataDir, other: int) -> None:
    seen = DataDir(tmp_path / "etcd")
    assert seen.holder() == other
    directory.unlock()
    assert seen.holder() is None
    assert DataDir(tmp_path / "nothing").holder() is None
    assert not (tmp_path / "nothing").exists()
    for text in ("", "x"):
        (seen.root / "lock").write_text(text)
        with (seen.root / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert seen.holder() is None


def test_who_ends_takes_its_own_away(tmp_path: Path, ready: Path, other: int) -> None:
    config = Config(tmp_path, ready_file=str(ready))
    launch.retract(config)
    say(ready, other)
    launch.retract(config)
    assert ready.exists(), "another server tells of itself by now"
    say(ready, os.getpid())
    launch.retract(config)
    assert not ready.exists()
    launch.retract(Config(tmp_path))
