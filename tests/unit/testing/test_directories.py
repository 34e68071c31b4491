"""Directories of servers for tests: each server has one, and all are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from apiext.conformance.support.waiting import until
from apiext.testing import directories

WAIT = "import sys; sys.stdin.read()"
HOLD = f"""
import subprocess, sys
from apiext.testing.directories import Directory
own = Directory()
if "shared" in sys.argv:
    subprocess.Popen([sys.executable, "-c", {WAIT!r}], pass_fds=[own.descriptor])
print(own.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def holder(*given: str) -> subprocess.Popen[str]:
    """Start another process that has a directory.

    With "shared", a child process has it, too, until its input ends.
    """
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, *given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def read_directory(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_directory_is_deleted_on_exit(scratch: Path) -> None:
    with directories.Directory() as first, directories.Directory() as second:
        assert first.path != second.path
        assert first.path.parent == second.path.parent == scratch
        assert first.path.stat().st_mode & 0o777 == 0o700
        (first.path / "data").mkdir()
    assert list(scratch.iterdir()) == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first.descriptor)


def test_sweep_removes_only_directories_of_killed_processes(scratch: Path) -> None:
    others = [scratch / name for name in ("apiext-mine", "apiext-test-x", "other-x")]
    for other in others:  # of an unknown process
        other.mkdir()
    (scratch / "apiext-file").touch()
    (others[2] / directories.MARK).touch()
    (scratch / "apiext-link").symlink_to(others[2])
    with holder() as living, holder() as killed:
        used, left = read_directory(living), read_directory(killed)
        (left / "data" / "member").mkdir(parents=True)
        killed.kill()
        killed.wait()
        assert left.exists()
        with directories.Directory() as own:
            expected = {*others, used, own.path, scratch / "apiext-file", scratch / "apiext-link"}
            assert set(scratch.iterdir()) == expected
            assert (others[2] / directories.MARK).exists()
        living.kill()


def test_inherited_descriptor_keeps_the_directory(scratch: Path) -> None:
    with holder("shared") as tests:
        used = read_directory(tests)
        tests.kill()
        tests.wait()
        with directories.Directory():
            assert used.exists()

    def swept() -> bool:
        directories.sweep()
        return not used.exists()

    until(swept, "the child has ended, too", 20.0)
    assert list(scratch.iterdir()) == []


def test_sweep_keeps_directory_of_another_user(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = scratch / "apiext-left"
    left.mkdir()
    (left / directories.MARK).touch()
    monkeypatch.setattr(os, "getuid", lambda: 4711)  # of another user
    with directories.Directory():
        assert left.exists()
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with directories.Directory():
        assert not left.exists()
