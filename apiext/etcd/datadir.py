"""The private child's directory: who holds it, which child runs on it, whether the last one was stopped in order."""

import fcntl
import json
import os
from pathlib import Path
from typing import IO

SOCKET = "etcd.sock:0"  # etcd wants a port even there; it becomes part of the file's name
PEER_SOCKET = "peer.sock:0"
_MODE = 0o600


class DirectoryInUse(Exception):
    """Another server holds the directory."""


class DataDir:
    """``data`` is etcd's own, ``run`` has the sockets and is the child's working directory; nobody else may enter."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.data = self.root / "data"
        self.run = self.root / "run"
        self.log = self.root / "etcd.log"
        self._lock_file = self.root / "lock"
        self._pid_file = self.root / "etcd.pid"
        self._clean = self.root / "stopped-in-order"
        self._lock: int | None = None

    @property
    def endpoint(self) -> str:
        """Where the child listens."""
        return f"unix://{self.run / SOCKET}"

    def make(self) -> None:
        """Create what is missing, closed to others."""
        for path in (self.root, self.data, self.run):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.data, self.run):
            path.chmod(0o700)

    def lock(self) -> None:
        """Hold the directory until ``unlock`` or the end of this process; DirectoryInUse."""
        lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(lock, 32).decode("ascii", "replace").strip()
            os.close(lock)
            by = f"is in use by process {holder or 'unknown'}"
            raise DirectoryInUse(f"{self.root} {by}: end that one, or take another directory") from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        self._lock = lock

    def unlock(self) -> None:
        """Let others have the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def holder(self) -> int | None:
        """Return the process that holds the directory, None when there is none or nobody knows it."""
        try:
            with self._lock_file.open("rb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return int(lock.read(32))
        except (OSError, ValueError):
            pass
        return None

    def has_data(self) -> bool:
        """Tell whether an etcd has run here."""
        return (self.data / "member").exists()

    def take_clean_mark(self) -> bool:
        """Tell whether the last child was stopped in order; from now on it counts as not."""
        try:
            self._clean.unlink()
        except FileNotFoundError:
            return False
        return True

    def mark_clean(self) -> None:
        """Say that the child was stopped in order."""
        self._clean.touch(mode=_MODE)

    def remember_child(self, pid: int) -> None:
        """Note the child, so that a later server finds it when this one is killed."""
        scratch = self._pid_file.with_suffix(".new")
        with open(scratch, "w", opener=_opened) as note:
            note.write(f"{pid} {start_time(pid)}\n")
        scratch.replace(self._pid_file)

    def forget_child(self) -> None:
        """Note that there is no child."""
        self._pid_file.unlink(missing_ok=True)

    def running_child(self) -> int | None:
        """Return the pid of a child that is still there, None when there is none."""
        try:
            pid, since = self._pid_file.read_text().split()
        except (FileNotFoundError, ValueError):
            return None
        return int(pid) if since == start_time(int(pid)) and is_running(int(pid)) else None

    def clear_sockets(self) -> None:
        """Remove what a killed child left: etcd takes it for a running one."""
        for name in (SOCKET, PEER_SOCKET):
            (self.run / name).unlink(missing_ok=True)

    def open_log(self, mode: str) -> IO[bytes]:
        """Open the child's log, closed to others."""
        return open(self.log, mode, opener=_opened)

    def last_words(self, size: int = 400) -> str:
        """Return why the child died, cut to ``size`` characters: what it last called fatal, else its last line."""
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - 10_000))
                lines = file.read().decode("utf-8", "replace").split("\n")
        except OSError:
            return ""
        said = next((text for line in reversed(lines) if (text := _reason(line))), "")
        return (said or next((line for line in reversed(lines) if line.strip()), ""))[:size]


def _opened(path: str, flags: int) -> int:
    descriptor = os.open(path, flags, _MODE)
    os.fchmod(descriptor, _MODE)  # older versions left it to the umask
    return descriptor


def _reason(line: str) -> str:
    """Return what a line of etcd's log says of its end, without the stack; empty for any other line."""
    if line.startswith("panic: "):
        return line
    if not line.startswith('{"level":"'):
        return ""
    try:
        told = json.loads(line)
    except ValueError:
        return ""
    if told.get("level") not in ("fatal", "panic"):
        return ""
    rest = [f"{name}: {it}" for name, it in told.items() if name not in ("level", "ts", "caller", "msg", "stacktrace")]
    return "; ".join([str(told.get("msg")), *rest])


def is_running(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _stat(pid)[:1] != ["Z"]


def start_time(pid: int) -> str:
    """Return when a process began, in a form that only serves comparison: pids are used again. "-" when unknown."""
    fields = _stat(pid)
    return fields[19] if len(fields) > 19 else "-"


def _stat(pid: int) -> list[str]:
    # fields of /proc/pid/stat from the state on; the name before may contain anything
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
