"""Mount a small tmpfs in a mount namespace of the test.

Only the test can use the namespace, which ends with the test.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.processes import ROOT

MIB = 1 << 20
_KEEP = 'mount -t tmpfs -o size="$1"m tmpfs "$0" && echo ok && exec cat'


class Disk:
    """The disk at ``path``, a path below /proc of the process that holds the mount namespace."""

    def __init__(self, path: Path, inside: Sequence[str]) -> None:
        self.path = path
        self.inside = inside
        """Words before a command that needs the real path of the disk, such as SQLite."""
        self._filler = path / "filler"

    def fill(self) -> None:
        """Write until the disk is full."""
        with self._filler.open("ab", buffering=0) as filler:
            for size in (MIB, 4096, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Free the space that ``fill`` has used."""
        self._filler.unlink()

    def space(self) -> int:
        """Return the number of free bytes."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_bsize


@contextlib.contextmanager
def small_disk(place: Path, mib: int) -> Iterator[Disk]:
    """Mount a disk of ``mib`` MiB.

    Skip the test with the reason if the system does not allow it.
    """
    place.mkdir(parents=True)
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    try:
        keeper = subprocess.Popen(
            [*unshare, "sh", "-c", _KEEP, str(place), str(mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except FileNotFoundError as error:
        pytest.skip(f"no disk of our own: {error}")
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        said = keeper.stdout.readline()
        if said != b"ok\n":
            print(f"no disk of our own: {said!r}")
            pytest.skip(f"no disk of our own, which root or a user namespace gives: {said.decode().strip()}")
        enter = ["nsenter", "--preserve-credentials", f"--target={keeper.pid}", "--mount", f"--wd={ROOT}"]
        inside = enter if os.geteuid() == 0 else [*enter, "--user"]
        yield Disk(Path(f"/proc/{keeper.pid}/root{place.resolve()}"), inside)
    finally:
        keeper.stdin.close()
        keeper.wait(10)
        keeper.stdout.close()
