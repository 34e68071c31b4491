"""Free memory of the process within the limits of its control groups.

The kernel kills a process over a limit.
"""

from functools import cache
from pathlib import Path
from time import monotonic

from msgspec import Struct

from apiext.storage import limits

# Seconds for which a reading of the free memory is cached.
MEMORY_CACHED = 0.02

_OWN_GROUPS = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 50
_CACHED = (b"inactive_file", b"active_file")  # cached pages of files, which the kernel frees on demand


class Files(Struct, frozen=True):
    """The files that contain the memory limit and the usage of a control group.

    In the file ``stat``, the names of the values that include child groups begin with ``prefix``.
    """

    limit: Path
    usage: Path
    stat: Path
    prefix: bytes

    def left(self) -> tuple[int, int] | None:
        """Return the limit and the unused memory in bytes; None if the group has no limit."""
        try:
            limit = int(self.limit.read_bytes())
            used = int(self.usage.read_bytes())
            lines = dict(line.split(maxsplit=1) for line in self.stat.read_bytes().splitlines())
            cached = sum(int(lines.get(self.prefix + name, b"0")) for name in _CACHED)
        except (OSError, ValueError):  # the limit is "max", or the group has no memory controller
            return None
        return (limit, limit - max(0, used - cached)) if limit < _UNLIMITED else None


def control_groups(own_groups: Path = _OWN_GROUPS, mount: Path = _MOUNT) -> list[Files]:
    """Return the control groups with a memory limit that contain this process."""
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:
        return []
    found: list[Files] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, limit, usage, prefix = mount, "memory.max", "memory.current", b""
        elif "memory" in controllers.split(","):
            root, limit, usage, prefix = mount / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", b"total_"
        else:
            continue
        inner = root / path.lstrip("/")
        for group in (inner, *inner.parents):
            if not group.is_relative_to(root):
                break
            found.append(Files(group / limit, group / usage, group / "memory.stat", prefix))
    return [files for files in found if files.left() is not None]


@cache
def _groups_of_process() -> list[Files]:
    return control_groups()


class FreeMemory:
    """The free memory of the process. Without a memory limit, any number of bytes fits."""

    __slots__ = ("_groups", "_left", "_seen")

    def __init__(self, groups: list[Files] | None = None) -> None:
        self._groups = _groups_of_process() if groups is None else groups
        self._seen = 0.0
        self._left = 0

    @property
    def is_limited(self) -> bool:
        """True if a control group limits the memory."""
        return bool(self._groups)

    def limit(self) -> int:
        """Return the smallest memory limit of the control groups in bytes.

        Return a very large number if there is no limit.
        """
        return min((found[0] for files in self._groups if (found := files.left()) is not None), default=_UNLIMITED)

    def fits(self, size: int) -> bool:
        """Report whether ``size`` more bytes fit into memory and leave a reserve free.

        The reserve is limits.MEMORY_RESERVE, but at most an eighth of the memory limit.
        """
        if not self._groups:
            return True
        now = monotonic()
        if now - self._seen > MEMORY_CACHED:
            self._seen = now
            self._left = min((self._unreserved(files) for files in self._groups), default=size)
        return size <= self._left

    def _unreserved(self, files: Files) -> int:
        found = files.left()
        if found is None:  # the limit was removed
            return _UNLIMITED
        limit, left = found
        return left - min(limits.MEMORY_RESERVE, limit // 8)
