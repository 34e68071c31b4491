"""Directories of servers for tests: each is held by a lock, and what killed processes left behind is swept away."""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

PREFIX = "apiext-"
MARK = "apiext-testing.lock"  # a file in each of them; its user has a lock on it, which ends with the process


class Directory:
    """A new directory below that of temporary files, gone when the ``with`` block is left.

    A process that is given ``descriptor`` holds it, too, as long as it lives.
    """

    def __init__(self) -> None:
        sweep()
        self._temporary = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._temporary.name)
        unmarked = self.path / f".{MARK}"
        self.descriptor = os.open(unmarked, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(OSError):  # a file system without locks: then nothing is swept there
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            unmarked.rename(self.path / MARK)  # locked before another process can see it

    def __enter__(self) -> "Directory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            _empty(self.path)
        self._temporary.cleanup()
        os.close(self.descriptor)


def sweep() -> None:
    """Remove this project's directories without a process; leave others, and those that cannot be examined."""
    for mark in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{MARK}"):
        with suppress(OSError):
            _remove(mark)


def _remove(mark: Path) -> None:
    """Remove a directory; raises OSError when it is held."""
    if mark.parent.is_symlink() or mark.parent.lstat().st_uid != os.getuid():
        return
    descriptor = os.open(mark, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _empty(mark.parent)
        mark.unlink()
        mark.parent.rmdir()
    finally:
        os.close(descriptor)


def _empty(directory: Path) -> None:
    """Remove all but the mark, so that the next process recognises a half-removed directory."""
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != MARK:
            path.unlink(missing_ok=True)
