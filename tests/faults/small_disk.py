"""A small disk: a tmpfs in a mount namespace that only the test sees and that ends with it."""

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
    """The disk at ``path``, which leads through the process that holds the mount namespace."""

    def __init__(self, path: Path, inside: Sequence[str]) -> None:
        self.path = path
        self.inside = inside
        """Words before a command that has to find the disk by its real path, as SQLite has."""
        self._filler = path / "filler"

    def fill(self) -> None:
        """Write until nothing more fits."""
        with self._filler.open("ab", buffering=0) as filler:
            for size in (MIB, 4096, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give that space back."""
        self._filler.unlink()

    def space(self) -> int:
        """Return the bytes that are left."""
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_bsize


@contextlib.contextmanager
def small_disk(place: Path, mib: int) -> Iterator[Disk]:
    """Mount a disk of so many MiB; skips, with the reason, where the system does not let us."""
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
