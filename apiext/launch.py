"""What a server tells who started it: the ready file and the ready line, and why it could not start."""

import contextlib
import errno
import json
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apiext import cli
from apiext.config import ALWAYS_ALLOW, Config, ConfigError

log = logging.getLogger(__name__)

Exits = Sequence[tuple[type[BaseException], int]]
"""Kinds of failures, and the exit code of each (command-line.md)."""


class PortInUseError(Exception):
    """Somebody else listens where we were told to."""


@dataclass(frozen=True, slots=True)
class Ready:
    """What is known of a server once it serves; ``etcd_pid`` is that of a private etcd."""

    url: str
    kubeconfig: str
    endpoints: Sequence[str]
    etcd_pid: int | None
    seconds: float


def log_to_stderr(config: Config) -> None:
    """Have warnings and errors on standard error, with the number of a worker."""
    who = f"apiext worker {config.worker.number}" if config.worker is not None else "apiext"
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format=f"{who}: %(levelname)s %(name)s: %(message)s")


def refused(config: Config, error: OSError) -> Exception:
    """Return what to say when the address cannot be listened on."""
    if error.errno not in (errno.EADDRINUSE, errno.EACCES):
        text = f"--bind-address {config.bind_address}: {error.strerror or error}; name an address of this machine"
        return ConfigError(text)
    return PortInUseError(
        f"cannot listen on {config.bind_address}:{config.port}: {error.strerror or error}; "
        "choose another --port, or 0 for a free one"
    )


def explain(error: BaseException, exits: Exits) -> int:
    """Say in a line why a server ends; return its exit code."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    for kind, code in exits:
        if isinstance(error, kind):
            print(f"apiext: {error}", file=sys.stderr, flush=True)
            return code
    log.error("the server failed", exc_info=error)
    return cli.EXIT_FAILURE


def announce(config: Config, ready: Ready) -> None:
    """Write the ready file and say what to type next."""
    facts: dict[str, Any] = {
        "url": ready.url,
        "pid": os.getpid(),
        "kubeconfig": ready.kubeconfig,
        "etcd": {"endpoints": ready.endpoints, "prefix": config.etcd.prefix, "pid": ready.etcd_pid},
    }
    if config.ready_file:
        write_atomically(Path(config.ready_file), json.dumps(facts) + "\n", 0o600)
    tell_init("READY=1")
    if config.quiet:
        return
    took = round(ready.seconds * 1000)
    if not sys.stderr.isatty():
        print(json.dumps({"event": "ready", **facts, "milliseconds": took}), file=sys.stderr, flush=True)
        return
    where = "own etcd" if ready.etcd_pid is not None else ", ".join(ready.endpoints)
    if config.insecure:
        mode = "http, no authentication"
    elif config.authorization_modes[0] == ALWAYS_ALLOW:
        mode = "https, every authenticated user may do everything"
    else:
        mode = f"https, requests are judged by {', '.join(config.authorization_modes)}"
    if config.workers > 1:
        mode += f"; {config.workers} workers"
    lines = (
        f"apiext is ready after {took} ms: {ready.url} (Kubernetes {config.kubernetes_version}; {mode})",
        f"objects are kept in {where} under {config.etcd.prefix}",
        "",
        "You can use it now:",
        f"  export KUBECONFIG={ready.kubeconfig}",
        "  kubectl get crd",
    )
    print("\n".join(lines), file=sys.stderr, flush=True)


def tell_init(text: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell who started the server by systemd's protocol (sd_notify): ``READY=1``, ``STOPPING=1``; nobody is fine."""
    place = environment.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    address = "\0" + place[1:] if place.startswith("@") else place
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.setblocking(False)
        told.sendto(text.encode(), address)


def remove(path: str) -> None:
    """Remove a file if it is there."""
    Path(path).unlink(missing_ok=True)


def write_atomically(path: Path, text: str, mode: int) -> None:
    """Write a file so that a reader sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    temporary.replace(path)
