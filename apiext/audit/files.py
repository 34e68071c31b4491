"""The audit log file: appends whole lines, rotates, compresses and removes old files.

It rotates as Go's lumberjack library.
"""

import contextlib
import fcntl
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from isal import igzip
from msgspec import Struct
from msgspec.structs import replace

from apiext.system import files
from apiext.system.streams import is_stream

MEGABYTE = 1024 * 1024
_STAMP = "%Y-%m-%dT%H-%M-%S"
_GZIP = ".gz"
_MODE = 0o600


class Rotation(Struct, frozen=True):
    """Limits of log rotation: size of a file in bytes, number and days of backups; 0: no limit.

    If ``compress`` is true, backups are compressed.
    """

    size: int = 100 * MEGABYTE
    backups: int = 100
    days: int = 366
    compress: bool = False


class ProcessLock:
    """A lock for processes that write to one destination.

    The kernel releases the lock when the process ends.
    """

    __slots__ = ("_lock",)

    def __init__(self, lock: Path) -> None:
        """Open the lock's file, and create it if it does not exist; raises OSError."""
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)

    def __enter__(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)


class LogFile:
    """A log file of whole lines. Only one thread at a time may call ``write``.

    ``lock`` excludes other processes. ``write`` puts lines into a file until it is full, and then into a new file. If
    ``write`` cannot write the lines for one file, it removes their written part from this file, if it can, and raises
    OSError. ``background`` runs the compression and removal of old files.
    """

    __slots__ = ("_background", "_descriptor", "_lock", "_now", "_path", "_rotation", "_size")

    def __init__(
        self,
        path: Path,
        rotation: Rotation,
        now: Callable[[], float] = time.time,
        background: Callable[[Callable[[], None]], object] = lambda work: work(),
        lock: ProcessLock | None = None,
    ) -> None:
        """Open the file, and create it if it does not exist; raises OSError."""
        self._path = path
        self._rotation = rotation
        self._now = now
        self._background = background
        self._lock = lock
        self._descriptor = -1
        self._size = 0
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open()
        if rotation.size:
            background(self._clean_up)

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines; raises OSError."""
        if self._lock is None:
            self._write(lines)
            return
        with self._lock:
            self._catch_up()
            self._write(lines)

    def _write(self, lines: Sequence[bytes]) -> None:
        for chunk in self._chunks(lines):
            if self._rotation.size and self._size and self._size + len(chunk) > self._rotation.size:
                self._rotate()
            self._append(chunk)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _chunks(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Yield chunks of joined lines: those for the current file, then those for each new file.

        A line that is longer than the maximum size of a file is a chunk of its own.
        """
        most = self._rotation.size
        if not most:
            yield b"".join(lines)
            return
        found: list[bytes] = []
        left = most - self._size
        for line in lines:
            if len(line) > left and found:
                yield b"".join(found)
                found = []
            if len(line) > left:
                left = most
            found.append(line)
            left -= len(line)
        if found:
            yield b"".join(found)

    def _append(self, chunk: bytes) -> None:
        if self._descriptor < 0:
            self._open()
        rest = memoryview(chunk)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            with contextlib.suppress(OSError):  # a partial line would corrupt the next one
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(chunk)

    def _open(self) -> None:
        files.target(self._path)  # raises OSError if the path is a symbolic link of another user
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)
        found = os.fstat(self._descriptor)
        self._size = found.st_size
        # /dev/null and /dev/stdout are not rotated
        if not stat.S_ISREG(found.st_mode) or is_stream(self._path):
            self._rotation = replace(self._rotation, size=0)

    def _catch_up(self) -> None:
        """Reopen the file if another worker has rotated it, and read its size."""
        if self._descriptor < 0:
            return
        own = os.fstat(self._descriptor)
        self._size = own.st_size
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(own, self._path.stat()):
                return
        self.close()
        self._open()

    def _rotate(self) -> None:
        """Rename the file to its backup name, and open a new file."""
        self.close()
        with contextlib.suppress(FileNotFoundError):  # another program has renamed the file already
            self._path.rename(self._backup_name())
        self._open()
        self._background(self._clean_up)

    def _backup_name(self) -> Path:
        stem, suffix = self._path.stem, self._path.suffix
        moment = int(self._now() * 1000)
        while True:
            stamp = datetime.fromtimestamp(moment // 1000, UTC).strftime(_STAMP) + f".{moment % 1000:03d}"
            found = self._path.with_name(f"{stem}-{stamp}{suffix}")
            if not found.exists() and not found.with_name(found.name + _GZIP).exists():
                return found
            # Here, the backup gets the next free millisecond instead.
            moment += 1  # upstream: a backup of the same millisecond is overwritten

    def _clean_up(self) -> None:
        """Remove backups over the limits; if configured, compress the remaining backups.

        The next call retries files for which this failed.
        """
        rotation = self._rotation
        found = self._old()
        backups: list[tuple[datetime, Path]] = []
        names: set[str] = set()
        now, most = self._now(), rotation.days * 86400  # not a timedelta: its number of days has a maximum
        for moment, path in found:
            names.add(path.name.removesuffix(_GZIP))
            too_old = rotation.days and now - moment.timestamp() > most
            if (rotation.backups and len(names) > rotation.backups) or too_old:
                with contextlib.suppress(OSError):
                    path.unlink()
            else:
                backups.append((moment, path))
        for _, path in backups if rotation.compress else ():
            if path.suffix != _GZIP:
                with contextlib.suppress(OSError):
                    _compress(path)

    def _old(self) -> list[tuple[datetime, Path]]:
        """Return (time, path) of each backup, newest first."""
        pattern = re.compile(
            rf"{re.escape(self._path.stem)}-(\d{{4}}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{{3}}){re.escape(self._path.suffix)}(\.gz)?"
        )
        found = []
        with contextlib.suppress(OSError):
            for entry in self._path.parent.iterdir():
                match = pattern.fullmatch(entry.name)
                if match is not None:
                    with contextlib.suppress(ValueError):
                        found.append((datetime.strptime(match[1], f"{_STAMP}.%f").replace(tzinfo=UTC), entry))
        return sorted(found, reverse=True)


def _compress(path: Path) -> None:
    """Replace a file by its compressed form; on failure, raise OSError and keep the file."""
    target = path.with_name(path.name + _GZIP)
    with path.open("rb") as source:
        fcntl.flock(source, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mode = path.stat().st_mode & 0o777  # raises OSError if another process has just compressed and removed it
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            with os.fdopen(descriptor, "wb") as raw:
                packer: Any = igzip.IGzipFile
                with packer("", "wb", 2, raw) as packed:
                    shutil.copyfileobj(source, packed, MEGABYTE)
        except OSError:
            target.unlink(missing_ok=True)
            raise
        path.unlink()


class Output:
    """Standard output as a destination of lines."""

    __slots__ = ("_lock",)

    def __init__(self, lock: ProcessLock | None = None) -> None:
        self._lock = lock

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines; raises OSError."""
        rest = memoryview(b"".join(lines))
        with self._lock or contextlib.nullcontext():
            while rest:
                rest = rest[os.write(1, rest) :]

    def close(self) -> None:
        """Do nothing: standard output stays open."""
