"""Paths of character devices, pipes and open file descriptors, such as /dev/stdout.

The server writes directly to such a path. A regular file is replaced by a new file instead (``files.write``).
"""

import os
import re
from pathlib import Path

_DESCRIPTOR = re.compile(r"/proc/([0-9]+)(?:/task/[0-9]+)?/fd/([0-9]+)")
_LINKS = 40  # maximum number of followed links, as in Linux


def is_stream(path: Path) -> bool:
    """Report whether a path is a character device, a pipe or a process's open file descriptor."""
    try:
        return path.is_char_device() or path.is_fifo() or _descriptor(path) is not None
    except PermissionError:  # with fs.protected_symlinks, Linux does not follow the link of another user
        return False


def write_stream(path: Path, content: bytes) -> None:
    """Write to a stream; raise OSError.

    A descriptor of this process is used directly, not opened again, since other processes may share its position in
    the file.
    """
    process, number = _descriptor(path) or (0, -1)
    own = process == os.getpid()
    descriptor = number if own else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
    finally:
        if not own:
            os.close(descriptor)


def is_descriptor(path: Path) -> bool:
    """Report whether a path itself is an open file descriptor of a process.

    If the path is a link, it is not followed.
    """
    return _DESCRIPTOR.fullmatch(os.path.join(os.path.realpath(path.parent), path.name)) is not None


def _descriptor(path: Path) -> tuple[int, int] | None:
    """Return (process id, descriptor number) of the file descriptor to which a path leads.

    Return None if there is none.
    """
    for _ in range(_LINKS):
        path = Path(os.path.realpath(path.parent), path.name)
        if (found := _DESCRIPTOR.fullmatch(str(path))) is not None:
            return int(found[1]), int(found[2])
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None
