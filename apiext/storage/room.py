"""Free memory within the limits of control groups: the kernel kills a process that exceeds them."""

from functools import cache
from pathlib import Path
from time import monotonic

from msgspec import Struct

from apiext.storage import limits

# Seconds between looks at the free memory.
MEMORY_LOOK_EVERY = 0.02

_OWN = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_NO_BOUND = 1 << 50
_CACHED = (b"inactive_file", b"active_file")  # pages of files: the kernel takes them back first


class Files(Struct, frozen=True):
    """Where a control group tells of its memory; ``prefix`` is before the names in ``stat`` that mean all below it."""

    limit: Path
    usage: Path
    stat: Path
    prefix: bytes

    def left(self) -> tuple[int, int] | None:
        """Return the limit and its unused part in bytes, None without a limit."""
        try:
            limit = int(self.limit.read_bytes())
            used = int(self.usage.read_bytes())
            lines = dict(line.split(maxsplit=1) for line in self.stat.read_bytes().splitlines())
            cached = sum(int(lines.get(self.prefix + name, b"0")) for name in _CACHED)
        except (OSError, ValueError):  # "max", or a group without memory
            return None
        return (limit, limit - max(0, used - cached)) if limit < _NO_BOUND else None


def own_groups(own: Path = _OWN, mount: Path = _MOUNT) -> list[Files]:
    """Return the groups that bound the memory of this process, its own and those around it."""
    try:
        lines = own.read_text().splitlines()
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
    return own_groups()


class Room:
    """Reports whether more bytes fit into memory; without a memory limit, any number fits."""

    __slots__ = ("_groups", "_left", "_seen")

    def __init__(self, groups: list[Files] | None = None) -> None:
        self._groups = _groups_of_process() if groups is None else groups
        self._seen = 0.0
        self._left = 0

    @property
    def is_bounded(self) -> bool:
        """True if there is a limit."""
        return bool(self._groups)

    def limit(self) -> int:
        """Return the bytes that the process and its neighbours in the group may have in all, a lot without a bound."""
        return min((found[0] for files in self._groups if (found := files.left()) is not None), default=_NO_BOUND)

    def fits(self, size: int) -> bool:
        """Report whether ``size`` more bytes fit into memory."""
        if not self._groups:
            return True
        now = monotonic()
        if now - self._seen > MEMORY_LOOK_EVERY:
            self._seen = now
            self._left = min((self._spare(files) for files in self._groups), default=size)
        return size <= self._left

    def _spare(self, files: Files) -> int:
        found = files.left()
        if found is None:  # the bound was lifted
            return _NO_BOUND
        limit, left = found
        return left - min(limits.MEMORY_RESERVE, limit // 8)
