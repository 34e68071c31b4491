"""The file of an audit log.

It has rotation like lumberjack's, and no partial lines when the disk is full.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from apiext.audit.files import LogFile, ProcessLock, Rotation

pytestmark = pytest.mark.rows("AUD-001")

NOON = 1_767_355_200.0  # 2026-01-02T12:00:00Z


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "audit.log"


@pytest.fixture
def clock() -> Clock:
    return Clock()


def names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.parent.iterdir())


def test_log_file_and_directory_are_private(path: Path) -> None:
    file = LogFile(path, Rotation())
    file.write([b"a\n", b"b\n"])
    file.close()
    assert path.read_bytes() == b"a\nb\n"
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_outputs_that_are_not_files_are_never_rotated(tmp_path: Path) -> None:
    place = tmp_path / "pipe"
    os.mkfifo(place)
    reader = os.open(place, os.O_RDONLY | os.O_NONBLOCK)
    file = LogFile(place, Rotation(size=10))
    for _ in range(3):
        file.write([b"0123456789\n"])
    file.close()
    assert os.read(reader, 100) == b"0123456789\n" * 3
    os.close(reader)
    assert [entry.name for entry in tmp_path.iterdir()] == ["pipe"]


def test_symlink_to_an_open_descriptor_is_never_rotated(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        (tmp_path / "stdout").symlink_to(f"/dev/fd/{log.fileno()}")
        file = LogFile(tmp_path / "stdout", Rotation(size=5))
        file.write([b"aaaa\n", b"bbbb\n"])
        file.close()
    assert (tmp_path / "log").read_bytes() == b"aaaa\nbbbb\n"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["log", "stdout"]


def test_existing_log_file_is_appended_to(path: Path, clock: Clock) -> None:
    for _ in range(2):
        file = LogFile(path, Rotation(size=100), clock)
        file.write([b"0123456789\n"])
        file.close()
    assert path.read_bytes() == b"0123456789\n" * 2


def test_full_file_is_rotated_to_a_name_with_the_time(path: Path, clock: Clock) -> None:
    file = LogFile(path, Rotation(size=10), clock)
    file.write([b"aaaa\n", b"bbbb\n", b"cccc\n"])
    clock.now += 1.25
    file.write([b"dddd\n", b"eeee\n"])
    file.close()
    assert names(path) == ["audit-2026-01-02T12-00-00.000.log", "audit-2026-01-02T12-00-01.250.log", "audit.log"]
    assert [entry.read_bytes() for entry in sorted(path.parent.iterdir())] == [
        b"aaaa\nbbbb\n",
        b"cccc\ndddd\n",
        b"eeee\n",
    ]


def test_two_rotations_in_one_millisecond_keep_both_files(path: Path, clock: Clock) -> None:
    # upstream: a backup of the same millisecond is overwritten
    file = LogFile(path, Rotation(size=5), clock)
    file.write([b"aaaa\n", b"bbbb\n", b"cccc\n"])
    file.close()
    assert names(path) == ["audit-2026-01-02T12-00-00.000.log", "audit-2026-01-02T12-00-00.001.log", "audit.log"]


def test_line_over_the_file_size_gets_its_own_file(path: Path, clock: Clock) -> None:
    file = LogFile(path, Rotation(size=5), clock)
    file.write([b"a\n", b"0123456789\n", b"b\n"])
    file.close()
    assert [entry.read_bytes() for entry in sorted(path.parent.iterdir())] == [b"a\n", b"0123456789\n", b"b\n"]


def test_file_without_max_size_is_never_rotated(path: Path) -> None:
    file = LogFile(path, Rotation(size=0))
    for _ in range(3):
        file.write([b"x" * 1000 + b"\n"])
    file.close()
    assert names(path) == ["audit.log"]


def test_rotation_keeps_the_maximum_number_of_backups(path: Path, clock: Clock) -> None:
    file = LogFile(path, Rotation(size=5, backups=2), clock)
    for line in (b"aaaa\n", b"bbbb\n", b"cccc\n", b"dddd\n"):
        clock.now += 1
        file.write([line])
    file.close()
    kept = sorted(path.parent.iterdir())
    assert [entry.read_bytes() for entry in kept] == [b"bbbb\n", b"cccc\n", b"dddd\n"]


def test_rotation_deletes_backups_over_the_maximum_age(path: Path, clock: Clock) -> None:
    file = LogFile(path, Rotation(size=5, backups=0, days=3), clock)
    for line in (b"aaaa\n", b"bbbb\n", b"cccc\n"):
        clock.now += 2 * 86400
        file.write([line])
    file.close()
    assert [entry.read_bytes() for entry in sorted(path.parent.iterdir())] == [b"aaaa\n", b"bbbb\n", b"cccc\n"]
    clock.now += 86401
    LogFile(path, Rotation(size=5, backups=0, days=3), clock).close()  # a start also deletes old files
    assert [entry.read_bytes() for entry in sorted(path.parent.iterdir())] == [b"bbbb\n", b"cccc\n"]


@pytest.mark.parametrize("days", [740_000, 10**400])
def test_huge_maximum_age_never_expires_backups(path: Path, clock: Clock, days: int) -> None:
    file = LogFile(path, Rotation(size=5, backups=2, days=days), clock)
    for line in (b"aaaa\n", b"bbbb\n", b"cccc\n", b"dddd\n"):
        clock.now += 100 * 366 * 86400
        file.write([line])
    file.close()
    kept = sorted(path.parent.iterdir())
    assert [entry.read_bytes() for entry in kept] == [b"bbbb\n", b"cccc\n", b"dddd\n"]


def test_rotation_deletes_only_its_own_backups(path: Path, clock: Clock) -> None:
    path.parent.mkdir()
    others = ["audit-old.log", "audit-2026-01-01T00-00-00.000.txt", "other-2020-01-01T00-00-00.000.log"]
    for name in others:
        (path.parent / name).touch()
    file = LogFile(path, Rotation(size=5, backups=1, days=1), clock)
    file.write([b"aaaa\n", b"bbbb\n"])
    file.close()
    assert set(others) < set(names(path))


def test_rotated_files_are_compressed_on_request(path: Path, clock: Clock) -> None:
    later: list[Callable[[], None]] = []
    file = LogFile(path, Rotation(size=5, compress=True), clock, later.append)
    file.write([b"aaaa\n", b"bbbb\n"])
    assert names(path) == ["audit-2026-01-02T12-00-00.000.log", "audit.log"]
    for work in later:  # while a thread writes
        work()
    file.close()
    packed = path.with_name("audit-2026-01-02T12-00-00.000.log.gz")
    assert names(path) == [packed.name, "audit.log"]
    assert gzip.decompress(packed.read_bytes()) == b"aaaa\n"
    assert packed.stat().st_mode & 0o777 == 0o600


def test_two_processes_rotate_one_file_without_lost_lines(path: Path, clock: Clock) -> None:
    path.parent.mkdir()
    lock = path.with_name("lock")
    one, two = (LogFile(path, Rotation(size=20, compress=True), clock, lock=ProcessLock(lock)) for _ in range(2))
    lines = [b"%04d\n" % number for number in range(40)]
    for number in range(0, 40, 4):
        one.write(lines[number : number + 1])
        two.write(lines[number + 1 : number + 4])
    one.close()
    two.close()
    packed = [gzip.decompress(path.with_name(name).read_bytes()) for name in names(path) if name.endswith(".gz")]
    assert len(packed) == 9
    assert b"".join((*packed, path.read_bytes())) == b"".join(lines)
    assert all(len(text) <= 20 for text in packed)


def test_a_file_is_compressed_by_one_process(path: Path, clock: Clock) -> None:
    file = LogFile(path, Rotation(size=5, compress=True), clock)
    old = path.with_name("audit-2026-01-02T11-00-00.000.log")
    old.write_bytes(b"old\n")
    with old.open("rb") as another:
        fcntl.flock(another, fcntl.LOCK_EX)  # as another process that compresses the file
        file.write([b"aaaa\n", b"bbbb\n"])
    assert old.name in names(path)
    assert old.name + ".gz" not in names(path)
    file.write([b"cccc\n"])
    file.close()
    assert gzip.decompress(path.with_name(old.name + ".gz").read_bytes()) == b"old\n"


def test_deleted_file_is_recreated_at_the_next_rotation(path: Path, clock: Clock) -> None:
    file = LogFile(path, Rotation(size=5), clock)
    file.write([b"aaaa\n"])
    path.unlink()
    file.write([b"bbbb\n"])
    file.close()
    assert path.read_bytes() == b"bbbb\n"


def test_full_disk_leaves_no_partial_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = LogFile(path, Rotation())
    file.write([b"before\n"])
    written, left = os.write, [4]

    def write(descriptor: int, data: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = written(descriptor, bytes(data)[: left[0]])
        left[0] -= count
        return count

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(OSError, match="No space left"):
        file.write([b"lost\n"])
    assert path.read_bytes() == b"before\n"
    left[0] = 100
    file.write([b"after\n"])
    file.close()
    assert path.read_bytes() == b"before\nafter\n"
