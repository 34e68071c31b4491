"""The ready file of another server that runs or has exited, and a stale ready file."""

import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiext import launch
from apiext.config import Config, ConfigError, EtcdConfig
from apiext.conformance.support.waiting import until
from apiext.embedded.opening import holder
from tests.support.configs import config_of

ETCD = EtcdConfig(("http://127.0.0.1:1",))


@pytest.fixture
def other_pid() -> Iterator[int]:
    """The id of a running process."""
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    return tmp_path / "ready"


def write_ready_file(ready: Path, pid: object, port: int = 1) -> None:
    ready.write_text(json.dumps({"url": f"https://127.0.0.1:{port}", "pid": pid}))


class Held:
    """A locked store; the lock file contains the id of a process."""

    def __init__(self, path: Path, pid: int) -> None:
        self.path = path.with_suffix(".lock")
        self.path.write_text(f"{pid}\n")
        self._lock = self.path.open()
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def unlock(self) -> None:
        self._lock.close()


@pytest.fixture
def directory(tmp_path: Path, other_pid: int) -> Iterator[Held]:
    """A data directory that the other process seems to use."""
    found = Held(tmp_path / "store.db", other_pid)
    yield found
    found.unlock()


def test_the_ready_file_stays_while_the_data_directory_is_locked(
    tmp_path: Path, ready: Path, directory: Held, other_pid: int
) -> None:
    config = config_of(tmp_path, port=0, ready_file=str(ready))
    write_ready_file(ready, other_pid)
    launch.prepare(config)
    assert ready.exists()
    directory.unlock()  # the other server has exited
    launch.remove_earlier_ready_file(config)
    assert not ready.exists()


def test_the_ready_file_stays_while_the_port_is_used(tmp_path: Path, ready: Path, other_pid: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        config = config_of(tmp_path, port=port, ready_file=str(ready), etcd=ETCD)
        write_ready_file(ready, other_pid, port)
        launch.prepare(config)
        assert ready.exists()

    def ready_file_is_removed() -> bool:
        launch.prepare(config)
        return not ready.exists()

    until(ready_file_is_removed, "nobody listens on the port any more")


@pytest.mark.usefixtures("directory")
def test_stale_or_invalid_ready_file_is_removed(tmp_path: Path, ready: Path, other_pid: int) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    for pid in (gone.pid, os.getpid(), os.getppid(), 0, -1, "1", None, 10**30, True):
        write_ready_file(ready, pid)
        launch.prepare(config_of(tmp_path, port=0, ready_file=str(ready)))
        assert not ready.exists(), pid
    for text in ("", "{", "[]", "7", '{"pid": 1}', "\udcff", json.dumps({"pid": other_pid, "url": "https://[:x"})):
        ready.write_bytes(text.encode("utf-8", "surrogateescape"))
        launch.prepare(config_of(tmp_path / "elsewhere", port=0, ready_file=str(ready)))
        assert not ready.exists(), text
    write_ready_file(ready, other_pid)
    launch.prepare(config_of(tmp_path, port=0, ready_file=str(ready), etcd=ETCD))
    assert not ready.exists(), "a store is in nobody's way who has an etcd"


def test_holder_is_the_process_that_locked_the_directory(tmp_path: Path, directory: Held, other_pid: int) -> None:
    store = tmp_path / "store.db"
    assert holder(store) == other_pid
    directory.unlock()
    assert holder(store) is None
    assert holder(tmp_path / "nothing.db") is None
    assert not (tmp_path / "nothing.lock").exists()
    for text in ("", "x"):
        directory.path.write_text(text)
        with directory.path.open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert holder(store) is None


def test_etcd_data_of_an_earlier_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "etcd/data/member").mkdir(parents=True)
    with pytest.raises(ConfigError) as refused:
        launch.prepare(Config(tmp_path))
    assert str(refused.value) == (
        f"--data-dir {tmp_path}: its objects are in {tmp_path}/etcd/data, in the etcd of an earlier release: use "
        f"`etcd --data-dir {tmp_path}/etcd/data` and --etcd-servers http://127.0.0.1:2379, or move {tmp_path}/etcd away"
    )
    launch.prepare(config_of(tmp_path, etcd=ETCD))
    launch.prepare(config_of(tmp_path, named="memory"))


def test_retract_removes_only_own_ready_file(tmp_path: Path, ready: Path, other_pid: int) -> None:
    config = config_of(tmp_path, ready_file=str(ready))
    launch.retract(config)
    write_ready_file(ready, other_pid)
    launch.retract(config)
    assert ready.exists(), "another server tells of itself by now"
    write_ready_file(ready, os.getpid())
    launch.retract(config)
    assert not ready.exists()
    launch.retract(Config(tmp_path))
