"""The file of an audit log: whole lines or nothing, rotated as lumberjack does it, old ones compressed and removed."""

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
    """When a file is put aside, and how many of those are kept for how many days; 0 is no bound."""

    size: int = 100 * MEGABYTE
    backups: int = 100
    days: int = 366
    compress: bool = False


class Turn:
    """Lets several processes write to one place, one at a time; the lock goes with a process that is killed."""

    __slots__ = ("_lock",)

    def __init__(self, lock: Path) -> None:
        """Make the lock's file if need be; raises OSError."""
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)

    def __enter__(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)


class LogFile:
    """A file that grows by whole lines; used by one thread at a time, and with a turn by several processes.

    ``write`` raises OSError when a line could not be written; then nothing of it is in the file. ``aside`` runs what
    takes long and can wait: removing and compressing what was put aside.
    """

    __slots__ = ("_aside", "_descriptor", "_now", "_path", "_rotation", "_size", "_turn")

    def __init__(
        self,
        path: Path,
        rotation: Rotation,
        now: Callable[[], float] = time.time,
        aside: Callable[[Callable[[], None]], object] = lambda work: work(),
        turn: Turn | None = None,
    ) -> None:
        """Make the file if need be; raises OSError."""
        self._path = path
        self._rotation = rotation
        self._now = now
        self._aside = aside
        self._turn = turn
        self._descriptor = -1
        self._size = 0
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._open()
        if rotation.size:
            aside(self._tidy)

    def write(self, lines: Sequence[bytes]) -> None:
        """Append lines, all of them or none of those that are in one file; raises OSError."""
        if self._turn is None:
            self._write(lines)
            return
        with self._turn:
            self._catch_up()
            self._write(lines)

    def _write(self, lines: Sequence[bytes]) -> None:
        for chunk in self._chunks(lines):
            if self._rotation.size and self._size and self._size + len(chunk) > self._rotation.size:
                self._rotate()
            self._append(chunk)

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _chunks(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Yield joined lines that fit what is left of a file; a line of more than a whole file is one of its own."""
        most = self._rotation.size
        if not most:
            yield b"".join(lines)
            return
        found: list[bytes] = []
        room = most - self._size
        for line in lines:
            if len(line) > room and found:
                yield b"".join(found)
                found = []
            if len(line) > room:
                room = most
            found.append(line)
            room -= len(line)
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
            with contextlib.suppress(OSError):  # a torn line would spoil the next one
                os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(chunk)

    def _open(self) -> None:
        files.target(self._path)  # raises for a link of another user
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)
        found = os.fstat(self._descriptor)
        self._size = found.st_size
        # /dev/null and /dev/stdout are not to be put aside
        if not stat.S_ISREG(found.st_mode) or is_stream(self._path):
            self._rotation = replace(self._rotation, size=0)

    def _catch_up(self) -> None:
        """Continue in the file that other workers write to, which may be a new one."""
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
        """Put the file aside under a name with the time, and begin a new one."""
        self.close()
        with contextlib.suppress(FileNotFoundError):  # another program moved it: that is rotation as well
            self._path.rename(self._backup_name())
        self._open()
        self._aside(self._tidy)

    def _backup_name(self) -> Path:
        stem, suffix = self._path.stem, self._path.suffix
        moment = int(self._now() * 1000)
        while True:
            stamp = datetime.fromtimestamp(moment // 1000, UTC).strftime(_STAMP) + f".{moment % 1000:03d}"
            found = self._path.with_name(f"{stem}-{stamp}{suffix}")
            if not found.exists() and not found.with_name(found.name + _GZIP).exists():
                return found
            moment += 1  # upstream: a file of the same millisecond is lost

    def _tidy(self) -> None:
        """Remove files that are too many or too old, and compress the rest; what fails is left for the next time."""
        rotation = self._rotation
        found = self._old()
        kept: list[tuple[datetime, Path]] = []
        names: set[str] = set()
        now, most = self._now(), rotation.days * 86400  # no timedelta: the number of days has no limit
        for moment, path in found:
            names.add(path.name.removesuffix(_GZIP))
            too_old = rotation.days and now - moment.timestamp() > most
            if (rotation.backups and len(names) > rotation.backups) or too_old:
                with contextlib.suppress(OSError):
                    path.unlink()
            else:
                kept.append((moment, path))
        for _, path in kept if rotation.compress else ():
            if path.suffix != _GZIP:
                with contextlib.suppress(OSError):
                    _compress(path)

    def _old(self) -> list[tuple[datetime, Path]]:
        """Return the files put aside with their times, the newest first."""
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
    """Replace a file by its compressed form; the whole one stays when that fails, or another process is at it."""
    target = path.with_name(path.name + _GZIP)
    with path.open("rb") as source:
        fcntl.flock(source, fcntl.LOCK_EX | fcntl.LOCK_NB)
        mode = path.stat().st_mode & 0o777  # raises OSError as well if another process has just done it
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
    """Standard output as a place for lines."""

    __slots__ = ("_turn",)

    def __init__(self, turn: Turn | None = None) -> None:
        self._turn = turn

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines; raises OSError."""
        rest = memoryview(b"".join(lines))
        with self._turn or contextlib.nullcontext():
            while rest:
                rest = rest[os.write(1, rest) :]

    def close(self) -> None:
        """Do nothing: standard output stays open."""
