"""Record a process's system calls on files; compute possible disks after a power cut."""

from __future__ import annotations

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

SECTOR = 512  # bytes that a disk writes atomically
_NUMBERS = struct.Struct("=c8Q")
SOURCE = Path(__file__).with_name("disk_recorder.c")


@dataclass(frozen=True)
class Call:
    """A system call on a file.

    ``kind`` is w (write), t (truncate), s (sync) or u (unlink); times are nanoseconds of CLOCK_MONOTONIC.
    """

    kind: str
    file: str
    data: bytes
    offset: int
    began: int
    ended: int


def recorder(directory: Path) -> Path:
    """Compile the library that records calls.

    If there is no C compiler, skip the test with this reason.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the recorder of system calls")
    library = directory / "recorder.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    return library


def environment(library: Path, recorded: Path, record: Path) -> dict[str, str]:
    """Return the environment variables that record a process."""
    return {"LD_PRELOAD": str(library), "RECORDED": str(recorded), "RECORD": str(record)}


def read(record: Path) -> Iterator[Call]:
    """Yield the calls of a record in order."""
    raw = record.read_bytes()
    at = 0
    while at + _NUMBERS.size <= len(raw):
        kind, name, size, offset, _, began, ended, _, _ = _NUMBERS.unpack_from(raw, at)
        at += _NUMBERS.size
        file = raw[at : at + name].decode()
        at += name
        yield Call(kind.decode(), file, raw[at : at + size], offset, began, ended)
        at += size


class Disk:
    """The files at one time of a record: synced bytes, and later calls.

    Any subset of the later calls may be on the disk.
    """

    def __init__(self) -> None:
        self._synced: dict[str, bytearray] = {}
        self._loose: dict[str, list[Call]] = {}

    def take(self, call: Call) -> None:
        """Add the next call."""
        loose = self._loose.setdefault(call.file, [])
        if call.kind != "s":
            loose.append(call)
            return
        content = self._synced.setdefault(call.file, bytearray())
        for made in loose:
            if made.kind == "u":
                del self._synced[call.file]
                content = self._synced[call.file] = bytearray()
            else:
                _apply(content, made, 0, len(made.data))
        loose.clear()

    def image(self, chance: random.Random) -> dict[str, bytes]:
        """Return a possible content of the disk after a power cut.

        It has all synced bytes, and of each later call all, no or some sectors.
        """
        files: dict[str, bytes] = {}
        lost = chance.choice((0.0, 0.2, 0.5, 0.9, 1.0))
        for name, loose in self._loose.items():
            content: bytearray | None = bytearray(self._synced[name]) if name in self._synced else None
            for call in loose:
                if chance.random() < lost:
                    continue
                if call.kind == "u":
                    content = None
                    continue
                content = bytearray() if content is None else content
                if call.kind == "w" and chance.random() < 0.3:
                    for first in range(0, len(call.data), SECTOR):
                        if chance.random() < 0.5:
                            _apply(content, call, first, first + SECTOR)
                else:
                    _apply(content, call, 0, len(call.data))
            if content is not None:
                files[name] = bytes(content)
        return files


def _apply(content: bytearray, call: Call, first: int, last: int) -> None:
    if call.kind == "t":
        if call.offset < len(content):
            del content[call.offset :]
        else:
            content.extend(bytes(call.offset - len(content)))
        return
    data = call.data[first:last]
    at = call.offset + first
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(data)] = data
