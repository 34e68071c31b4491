"""Report the start and the end of a server: ready file, log lines, notices to systemd.

This module also logs the reason of a failed start.
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import shlex
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from apiext import cli, logs
from apiext.config import ALWAYS_ALLOW, ETCD, Config, ConfigError, Listening
from apiext.embedded.opening import holder
from apiext.system import files, sockets
from apiext.system.streams import is_stream

log = logging.getLogger(__name__)

_LAST_PID = 2**22  # the largest process id of Linux

Exits = Sequence[tuple[type[BaseException], int]]
"""(exception type, exit code) of each kind of failure; the first match counts."""


class PortInUseError(Exception):
    """The error if the configured port is in use, or if the server has no permission to use it."""


class StoppedError(Exception):
    """The error if a signal stopped the server before it was ready."""

    def __init__(self) -> None:
        super().__init__("a signal stopped the server before it was ready")


class Ready(Struct, frozen=True):
    """The URL of a ready server, and the path of its admin kubeconfig."""

    url: str
    kubeconfig: str


def ending_signals() -> list[signal.Signals]:
    """Return the signals that shut the server down.

    SIGHUP is not one of them if the parent process ignores it, as nohup does.
    """
    outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [signal.SIGTERM, signal.SIGINT] + ([] if outlives else [signal.SIGHUP])


@contextlib.contextmanager
def file_of(flag: str, file: object) -> Iterator[None]:
    """Turn an error about a file or directory into a ConfigError that names the flag.

    The error of a full disk stays an OSError.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise  # not caused by the flag
        text = getattr(error, "strerror", None) or str(error).removeprefix(f"{file}: ")
        named = str(getattr(error, "filename", None))
        raise ConfigError(f"--{flag} {named if named.startswith(f'{file}/') else file}: {text}") from error


def open_log(config: Config) -> None:
    """Set up the log of a process from its configuration."""
    logs.open_log(config.output.logging_format, config.worker.number if config.worker is not None else 0)
    logs.set_verbosity(config.output.verbosity, quiet=config.output.quiet)
    if config.worker is None:
        where = ", ".join(config.store.etcd.servers) or str(config.store_file or "memory")
        log.info("starting", extra=logs.fields(event="starting", pid=os.getpid(), store=where))


def age() -> float:
    """Return the age of this process in seconds.

    If the age is unknown, return the seconds since apiext.logs was imported.
    """
    try:
        ticks = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
        found = time.clock_gettime(time.CLOCK_BOOTTIME) - int(ticks) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return time.monotonic() - logs.LOADED
    return max(found, 0.0)


def refused(listening: Listening, error: OSError) -> Exception:
    """Return the error of an address at which the server cannot listen."""
    if error.errno not in (errno.EADDRINUSE, errno.EACCES):
        text = f"--bind-address {listening.bind_address}: {error.strerror or error}; use an address of this machine"
        return ConfigError(text)
    return PortInUseError(
        f"cannot listen on {listening.bind_address}:{listening.port}: {os.strerror(error.errno)}; "
        "choose another --port, or 0 for a free one"
    )


def explain(error: BaseException, exits: Exits) -> int:
    """Log the reason of a failure; return the exit code.

    If ``exits`` has the type of the exception, the reason is one line. Other exceptions are bugs; the log has their
    traceback.
    """
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    for kind, code in exits:
        if isinstance(error, kind):
            text = str(error)
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                text = f"{error.strerror}: check --data-dir, --ready-file and --audit-log-path"
            elif isinstance(error, OSError) and error.filename:
                text = f"{error.filename}: {error.strerror}"
            logs.error(text)
            return code
    log.error("the server failed", exc_info=error)
    logs.flush()
    return cli.EXIT_FAILURE


def ended(config: Config, code: int) -> int:
    """Log the end of the server, and flush the log; return the exit code. Workers log nothing."""
    if config.worker is None:
        log.info("stopped", extra=logs.fields(event="stopped", pid=os.getpid(), exitCode=code))
    logs.flush()
    return code


def facts_of(config: Config, ready: Ready) -> dict[str, Any]:
    """Return the content of the ready file."""
    etcd = config.store.etcd
    return {
        "url": ready.url,
        "pid": os.getpid(),
        "kubeconfig": ready.kubeconfig,
        "store": {"kind": config.store.kind, "path": str(file) if (file := config.store_file) else None},
        "etcd": {"endpoints": etcd.servers, "prefix": etcd.prefix} if etcd.servers else None,
    }


def announce(config: Config, ready: Ready) -> None:
    """Write the ready file, notify systemd, and log the ready line with the next commands.

    With --quiet, the line is not logged.
    """
    facts = facts_of(config, ready)
    if config.output.ready_file:
        with file_of("ready-file", config.output.ready_file):
            path = files.target(Path(config.output.ready_file))
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write(path, (json.dumps(facts) + "\n").encode())
    notify_systemd("READY=1")
    if config.output.quiet:
        return
    took = round(age() * 1000)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # the server raises the soft limit to this hard limit
    where = str(config.store_file or "memory (lost when the process ends)")
    if config.store.kind == ETCD:
        where = ", ".join(config.store.etcd.servers)
    if config.listening.insecure:
        mode = "http, no authentication"
    elif config.auth.modes[0] == ALWAYS_ALLOW:
        mode = "https, authenticated users may do everything"
    else:
        mode = f"https, requests are authorized by {', '.join(config.auth.modes)}"
    if config.workers > 1:
        mode += f"; {config.workers} workers"
    lines = (
        f"store: {where}, prefix {config.store.etcd.prefix}",
        "",
        "Next commands:",
        f"  export KUBECONFIG={shlex.quote(ready.kubeconfig)}",
        "  kubectl get crd",
    )
    facts_and_times = {"event": "ready", **facts, "milliseconds": took, "maxOpenFiles": most}
    text = f"apiext is ready after {took} ms: {ready.url} (Kubernetes {config.apis.kubernetes_version}; {mode})"
    log.info("%s", text, extra={**logs.fields(**facts_and_times), "lines": lines})


def notify_systemd(text: str, environment: Mapping[str, str] = os.environ) -> None:
    """Notify systemd (sd_notify) of ``READY=1`` or ``STOPPING=1``, if it started the server."""
    path = environment.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.setblocking(False)
        channel.sendto(text.encode(), address)


def prepare(config: Config) -> None:
    """Create and check the data directory, and remove the ready file of an earlier server."""
    with file_of("data-dir", config.data_dir):
        config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.check_private(config.data_dir, _PRIVATE)
    _refuse_earlier_etcd(config)
    remove_earlier_ready_file(config)


def _refuse_earlier_etcd(config: Config) -> None:
    """Raise ConfigError if an earlier release ran an etcd in the data directory of the store.

    Raise nothing if the store is not a file.
    """
    before = config.data_dir / "etcd"
    if config.store_file is not None and before.is_dir():
        data = before / "data"
        raise ConfigError(
            f"--data-dir {config.data_dir}: its objects are in {data}, in the etcd of an earlier release: use "
            f"`etcd --data-dir {data}` and --etcd-servers http://127.0.0.1:2379, or move {before} away"
        )


_PRIVATE = (
    "store.db", "store.db-wal", "store.db-shm", "store.lock", "admin.token", "pki",
    "pki/ca.key", "pki/ca.crt", "pki/ca.cross.crt", "pki/serving.key", "pki/serving.crt", "pki/service-accounts.key",
)  # fmt: skip
"""Files of the data directory that the server trusts: a user with write access could become its administrator."""


def remove_earlier_ready_file(config: Config) -> None:
    """Remove the ready file of a server that has ended.

    The file of a running server with the same directory or port stays, since this start will fail. If the start
    succeeds nevertheless, the caller calls this function again.
    """
    path = Path(config.output.ready_file)
    if config.output.ready_file and not is_stream(path):
        with file_of("ready-file", path):
            path = files.target(path)
            if not _belongs_to_running(config, _ready_file_content(path)):
                files.remove(path)


def retract(config: Config) -> None:
    """Report that this server ends, and remove its ready file.

    A remaining file would announce the next server before it is ready.
    """
    notify_systemd("STOPPING=1")
    if config.worker is None:
        log.info("stopping", extra=logs.fields(event="stopping", pid=os.getpid()))
    path = Path(config.output.ready_file)
    if config.output.ready_file and not is_stream(path):
        with contextlib.suppress(OSError):
            path = files.target(path)
            if _ready_file_content(path).get("pid") == os.getpid():
                files.remove(path)


def _belongs_to_running(config: Config, ready: Mapping[str, Any]) -> bool:
    """Report whether a running server with the same directory or address owns a ready file."""
    pid = ready.get("pid")
    if type(pid) is not int or not 0 < pid <= _LAST_PID or pid == os.getpid() or not _is_running(pid):
        return False
    if config.store_file is not None and holder(config.store_file) == pid:
        return True
    # port 0 in the configuration matches no URL
    there = str(ready.get("url")).endswith(f":{config.listening.port}")
    # process ids are reused, also by other programs
    return there and sockets.is_taken(config.listening.bind_address, config.listening.port)


def _is_running(pid: int) -> bool:
    """Report whether a process runs, and is not a zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        # the state follows the name, which may contain anything
        return not Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].lstrip().startswith("Z")
    except OSError:
        return True


def _ready_file_content(path: Path) -> Mapping[str, Any]:
    """Return the content of a ready file, empty without a valid file."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):  # the caller removes the file, and reports the error then
        return {}
    return found if isinstance(found, dict) else {}


def caught(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log exceptions that the event loop caught, except OSErrors of futures that are not tasks.

    Such an OSError comes from a connection attempt whose awaiting task was cancelled, so no code can retrieve it.
    """
    future = context.get("future")
    unseen = future is not None and not isinstance(future, asyncio.Task)
    if not (unseen and isinstance(context.get("exception"), OSError)):
        loop.default_exception_handler(context)
