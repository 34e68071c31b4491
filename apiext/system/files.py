"""Write, check and remove files of the server: no other user can exchange them.

The user of this process and root are trusted.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path

from apiext.system.streams import is_descriptor, is_stream, write_stream

_LINKS = 40  # maximum number of followed links, as in Linux


def target(path: Path) -> Path:
    """Follow the links of this user and of root from a path; return the path of the file.

    Raise PermissionError for a link or pipe of another user, and OSError (ELOOP) for too many links. The function
    resolves only links at the end of the path; the kernel follows links in its directories. The text of such a link can
    be misleading: /proc/1/root has the text "/", but leads to the root directory of process 1.
    """
    for _ in range(_LINKS):
        try:
            found = path.lstat()
        except OSError:  # the caller gets the error when it opens the path
            return path
        if stat.S_ISLNK(found.st_mode) and not is_descriptor(path):
            _check_owner(path, found, "link")
            path = path.parent / path.readlink()
            continue
        if stat.S_ISFIFO(found.st_mode):
            _check_owner(path, found, "pipe")
        return path
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def write(path: Path, content: bytes) -> None:
    """Write a file atomically; only its owner may read it.

    Write to a stream, such as /dev/null, in place.

    Raise PermissionError if the path is a link or pipe of an untrusted user, since that user could exchange the file.
    Raise PermissionError also in these cases:

    - All users may write to the directory, the directory is sticky, and an existing file belongs to another user.
    - All users may write to the directory, and the directory is not sticky.
    - The directory belongs to an untrusted user, is not sticky, and its group is neither 0 nor one of this process.

    The last two cases do not apply to mounted volumes, and not to a process that runs as root. Raise OSError for other
    errors.
    """
    path = target(path)
    if is_stream(path):  # a device such as /dev/null must not be replaced by a file
        write_stream(path, content)
        return
    parent = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        shared = _check_directory(path.parent, os.fstat(parent))
        if shared and not _is_ours(path.name, parent):
            raise _refused(path, "it belongs to another user, in a directory that all users may write to")
        scratch = f".{path.name[:200]}.{secrets.token_hex(8)}"
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=parent)
        try:
            with os.fdopen(descriptor, "wb") as out:
                out.write(content)
            os.replace(scratch, path.name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(scratch, dir_fd=parent)
            raise
    finally:
        os.close(parent)


def remove(path: Path) -> None:
    """Remove a file if it exists and belongs to the user of this process.

    Raise OSError if this fails.
    """
    try:
        if path.lstat().st_uid == os.geteuid():
            path.unlink()
    except FileNotFoundError:
        pass


def check_private(root: Path, names: Iterable[str]) -> None:
    """Raise PermissionError if an untrusted user owns or may write to ``root`` or files in it.

    ``names`` are the checked files in the directory ``root``. Group 0 and the groups of this process may have write
    access, as with volumes of a pod. All users may have write access to a sticky directory. If ``root`` is a mounted
    volume, only the files are checked, and the owner of ``root`` is trusted: all users can often write to volumes of
    containers.
    """
    volume = root.is_mount()
    trusted = [root.stat().st_uid] if volume else []
    for path in (*([] if volume else [root]), *(root / name for name in names)):
        try:
            link, found = path.lstat(), path.stat()
        except FileNotFoundError:
            continue
        for one in (link, found):
            _check_owner(path, one, "directory" if stat.S_ISDIR(one.st_mode) else "file", trusted)
        mode = stat.S_IMODE(found.st_mode)
        sticky = stat.S_ISDIR(found.st_mode) and mode & stat.S_ISVTX
        if mode & stat.S_IWOTH and not sticky:
            raise _open_to_all(path, mode)
        if mode & stat.S_IWGRP and not sticky and found.st_gid not in _groups():
            text = f"group {found.st_gid} may write to it (mode {mode:o}): remove this permission with chmod g-w"
            raise _refused(path, text)


def _check_directory(path: Path, found: os.stat_result) -> bool:
    """Report whether a directory is sticky, and all users may create files in it.

    Raise PermissionError in the last two cases of ``write``.
    """
    shared = bool(found.st_mode & stat.S_IWOTH)
    if found.st_mode & stat.S_ISVTX:
        return shared
    if os.geteuid() != 0 and not path.is_mount():
        if shared:
            raise _open_to_all(path, stat.S_IMODE(found.st_mode))
        if found.st_gid not in _groups():
            _check_owner(path, found, "directory")
    return False


def _is_ours(name: str, parent: int) -> bool:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_uid == os.geteuid()
    except FileNotFoundError:
        return True


def _groups() -> set[int]:
    return {0, os.getegid(), *os.getgroups()}


def _check_owner(path: Path, found: os.stat_result, kind: str, trusted: Sequence[int] = ()) -> None:
    own = os.geteuid()
    if found.st_uid not in (0, own, *trusted):
        raise _refused(path, f"this {kind} belongs to user {found.st_uid}, and the server runs as user {own}")


def _open_to_all(path: Path, mode: int) -> PermissionError:
    return _refused(path, f"all users may write to it (mode {mode:o}): remove this permission with chmod o-w")


def _refused(path: Path, text: str) -> PermissionError:
    return PermissionError(errno.EPERM, text, str(path))
