"""Run programs in a control group that limits their memory, if this machine allows it."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from apiext.conformance.support.waiting import until

MIB = 1 << 20
_GROUPS = (  # cgroup version 1, then version 2
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    (Path("/sys/fs/cgroup"), "memory.max"),
)
_numbers = itertools.count()


@dataclass(frozen=True)
class MemoryGroup:
    """A memory limit of ``mib`` MiB for a command that begins with the words in ``prefix``."""

    mib: int
    prefix: Sequence[str]


@contextlib.contextmanager
def memory_group(mib: int) -> Iterator[MemoryGroup | None]:
    """Create a control group with a limit of ``mib`` MiB.

    Yield None and print the reason if this is impossible. Root creates a group of version 1 or 2; other users request a
    scope from systemd.
    """
    reasons: list[str] = []
    for parent, limit in _GROUPS:
        try:
            group = _made(parent, limit, mib)
        except OSError as error:
            reasons.append(str(error))
            continue
        try:
            yield MemoryGroup(mib, ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "bounded"))
        finally:
            _remove(group)
        return
    scope = ("systemd-run", "--user", "--scope", "--quiet", f"-pMemoryMax={mib}M", "-pMemorySwapMax=0")
    if reason := _fault([*scope, "true"]):
        print("no control group for memory:", *reasons, reason, sep="\n  ")
        yield None
    else:
        yield MemoryGroup(mib, scope)


def _made(parent: Path, limit: str, mib: int) -> Path:
    """Return a new control group with this limit; raise OSError if the system refuses it."""
    group = parent / f"apiext-{os.getpid()}-{next(_numbers)}"
    group.mkdir()
    try:
        (group / limit).write_text(f"{mib * MIB}")
    except OSError:
        group.rmdir()
        raise
    return group


def _remove(group: Path) -> None:
    """Remove a control group as soon as its programs have exited."""
    until(lambda: not (group / "cgroup.procs").read_text(), "the group is empty", 10)
    group.rmdir()


def _fault(command: Sequence[str]) -> str:
    """Return the reason of a command's failure, empty if it succeeds."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stderr.strip() or f"exit code {done.returncode}" if done.returncode else ""
