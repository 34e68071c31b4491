"""Temporary directories of test servers.

A process locks a file in each directory that it uses. If the process is killed, a later process finds no lock and
deletes the directory.
"""

import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

PREFIX = "apiext-"
MARK = "apiext-testing.lock"  # file in each directory; a process that uses the directory locks this file until it ends


class Directory:
    """A new temporary directory, deleted at the end of the ``with`` block.

    ``descriptor`` is the locked file. A child process that inherits it holds the lock until the child ends.
    """

    def __init__(self) -> None:
        sweep()
        self._temporary = tempfile.TemporaryDirectory(prefix=PREFIX, ignore_cleanup_errors=True)
        self.path = Path(self._temporary.name)
        unmarked = self.path / f".{MARK}"
        self.descriptor = os.open(unmarked, os.O_RDWR | os.O_CREAT, 0o600)
        with suppress(OSError):  # without locks in the file system, no later process deletes this directory
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            unmarked.rename(self.path / MARK)  # other processes see only locked files

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
    """Delete the directories of earlier test servers that no process uses.

    Skip directories that this process cannot open or delete.
    """
    for mark in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/{MARK}"):
        with suppress(OSError):
            _remove(mark)


def _remove(mark: Path) -> None:
    """Delete the directory that contains the file ``mark``, unless another user owns it.

    Raise OSError if a process uses the directory.
    """
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
    """Delete everything in a directory except the file MARK.

    So the next process recognises a partly deleted directory.
    """
    for path in directory.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != MARK:
            path.unlink(missing_ok=True)
