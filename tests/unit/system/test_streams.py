"""Output files that the server recreates, and streams that it uses unchanged."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiext import launch
from apiext.system import files
from apiext.system.streams import is_stream
from tests.support.configs import config_of


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Return an open file, as standard output may be, and its descriptor."""
    file = tmp_path / "log"
    file.write_bytes(b"before\n")
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
    yield file, descriptor
    os.close(descriptor)


@pytest.mark.parametrize(
    "form", ["/dev/fd/{}", "/proc/self/fd/{}", "/proc/thread-self/fd/{}", "/proc/{pid}/fd/{}", "link"]
)
def test_open_file_is_appended_to_and_not_replaced(log: tuple[Path, int], tmp_path: Path, form: str) -> None:
    file, descriptor = log
    path = Path(form.format(descriptor, pid=os.getpid()))
    if form == "link":
        (tmp_path / "first").symlink_to(f"/dev/fd/{descriptor}")
        path = tmp_path / "second"
        path.symlink_to("first")
    launch.prepare(config_of(data_dir=tmp_path, ready_file=str(path)))
    assert file.read_bytes() == b"before\n"
    files.write(path, b"ready\n")
    files.write(path, b"config\n")
    assert file.read_bytes() == b"before\nready\nconfig\n"
    assert os.fstat(descriptor).st_ino == file.stat().st_ino
    assert {entry.name for entry in tmp_path.iterdir()} <= {"log", "first", "second"}


def test_open_file_of_another_process_is_appended_to(log: tuple[Path, int]) -> None:
    file, descriptor = log
    path = f"/proc/{os.getpid()}/fd/{descriptor}"
    imports = "import sys, pathlib; from apiext.system import streams"
    code = f"{imports}; streams.write_stream(pathlib.Path(sys.argv[1]), b'more\\n')"
    subprocess.run([sys.executable, "-c", code, path], check=True)
    assert file.read_bytes() == b"before\nmore\n"


def test_is_stream_accepts_pipes_and_devices_only(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("file")
    told = {name: is_stream(tmp_path / name) for name in ("pipe", "file", "link", "loop")}
    assert told == {"pipe": True, "file": False, "link": False, "loop": False}
    assert is_stream(Path("/dev/null"))
    assert not is_stream(Path("/proc/self/fd"))
    files.write(tmp_path / "link", b"content")
    assert ((tmp_path / "link").is_symlink(), (tmp_path / "file").read_bytes()) == (True, b"content")


def test_link_refused_by_the_kernel_is_no_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Linux with fs.protected_symlinks refuses links of other users in shared directories.

    Our own check names them.
    """

    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_char_device", refuse)
    assert not is_stream(tmp_path / "link")
