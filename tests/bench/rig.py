"""Start servers for measurements, and read their CPU and memory from the operating system."""

from __future__ import annotations

import contextlib
import json
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from apiext.conformance.support.definitions import establish
from apiext.conformance.support.http_client import Client
from tests.bench import wire
from tests.support.processes import ROOT, SERVE, Etcd, Server, running_etcd, start_server, stop

_OF_PROCESS = 2  # CPUCLOCK_SCHED: Linux combines it with a process id to a clock id
SPIN = 5_000_000  # rounds of the loop
SPIN_REFERENCE = 0.125  # seconds of the loop on the reference machine
PLURAL, GROUP = "benches", "bench.example.com"
RULES = [{"rule": "self.p00.size() < 100"}, {"rule": "self.n00 <= self.n01"}]


def _loop(rounds: int) -> float:
    began, total = time.process_time(), 0
    for number in range(rounds):
        total += number & 7
    return time.process_time() - began


def spin() -> float:
    """Return the seconds of a fixed loop: a measure of the current speed of this machine."""
    return min(_loop(SPIN) for _ in range(3))


def pace() -> float:
    """Return the time of a loop of about 50 ms, divided by its time on the reference machine."""
    return _loop(SPIN * 2 // 5) * 5 / 2 / SPIN_REFERENCE


def cpu_of(pid: int) -> float:
    """Return the CPU seconds (user and system) of a process, with a resolution of nanoseconds."""
    return time.clock_gettime((~pid << 3) | _OF_PROCESS)


def rss_of(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def process_tree(pid: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    children = [int(it) for path in Path(f"/proc/{pid}/task").glob("*/children") for it in path.read_text().split()]
    return [pid, *(it for child in children for it in process_tree(child))]


def interpreter() -> str:
    """Return the version and build of the interpreter."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    build = "no PGO"
    if "--enable-optimizations" in arguments:
        build = "PGO"
    elif sys.base_prefix == "/usr":  # Debian optimizes its builds without this option
        build = "the distribution's build"
    return f"CPython {sys.version.split()[0]} ({build})"


def definition(number: int | None = None) -> dict[str, Any]:
    """Return a definition of 80 properties and two CEL rules."""
    plural, kind = (PLURAL, "Bench") if number is None else (f"b{number:03}s", f"B{number:03}")
    properties: dict[str, Any] = {f"p{index:02}": {"type": "string", "maxLength": 1000} for index in range(60)}
    properties |= {f"n{index:02}": {"type": "integer", "default": index} for index in range(20)}
    spec: dict[str, Any] = {"type": "object", "properties": properties, "x-kubernetes-validations": RULES}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [
                {
                    "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                        "spec": spec, "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
                    }}},
                }
            ],
        },
    }  # fmt: skip


def thing(name: str, turn: int = 0, **metadata: Any) -> bytes:
    """Return an object of about 1 KiB; objects with another ``turn`` are different."""
    spec: dict[str, Any] = {f"p{index:02}": f"value {index:02} of {name}"[:24] for index in range(26)}
    spec |= {"p59": f"turn {turn}", "n00": 1, "n01": 2}
    document = {
        "apiVersion": f"{GROUP}/v1", "kind": "Bench", "metadata": {"name": name, **metadata}, "spec": spec,
    }  # fmt: skip
    return json.dumps(document, separators=(",", ":")).encode()


@dataclass
class Rig:
    """A running server with its flags, directory and store."""

    server: Server
    etcd: Etcd | None
    """None if the server uses its default store."""
    directory: Path
    flags: list[str]
    env: dict[str, str]
    command: Sequence[str] = SERVE
    root: Path = ROOT
    """Working directory of the server."""
    rules: bool = False
    paces: list[float] = field(default_factory=list)
    """The results of ``pace`` at each reading of the CPU."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the server."""
        parts = urlsplit(self.server.url)
        return parts.hostname or "127.0.0.1", parts.port or 80

    @property
    def api(self) -> Client:
        """A new client of the server."""
        return Client(self.server.url)

    def path(self, name: str = "") -> str:
        """Return the path of the collection, or of an object."""
        base = f"/apis/{GROUP}/v1/namespaces/default/{PLURAL}"
        return f"{base}/{name}" if name else base

    def cpu(self) -> float:
        """Return the CPU seconds (user and system) of the server process.

        Also append the current pace to ``paces``. So each measurement has the pace directly before and after it.
        """
        used = cpu_of(self.server.pid)
        self.paces.append(pace())
        return used

    def rss(self) -> float:
        """Return the resident memory of the server process in MiB."""
        return rss_of(self.server.pid)

    def define(self) -> None:
        """Establish the measured definition.

        Set ``rules`` to true if the server evaluates its CEL rules.
        """
        establish(self.api, definition())
        breaking = thing("breaking").replace(b'"n01":2', b'"n01":0')
        self.rules = self.api.post(self.path(), breaking, dryRun="All").status == 422

    def fill(self, count: int, start: int = 0) -> None:
        """Create ``count`` objects with names o00000, o00001, …"""
        names = (f"o{number:05}" for number in range(start, start + count))
        wire.run(self.address, (wire.request("POST", self.path(), thing(name)) for name in names), 16)

    def restart(self) -> float:
        """Restart the server with the same data; return the seconds until it is ready."""
        assert self.server.process is not None
        stop(self.server.process)
        began = time.perf_counter()
        self.server = start_server(self.directory, self.flags, command=self.command, env=self.env, root=self.root)
        return time.perf_counter() - began


@contextlib.contextmanager
def rig(*more: str, root: Path = ROOT, bytecode: Path | None = None) -> Iterator[Rig]:
    """Run a server of a source tree on plain http with a new etcd.

    The server has default flags and the flags ``more``. ``bytecode`` is a directory that several servers of a tree
    share, so that only the first compiles the tree.
    """
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="apiext-bench-")))
        etcd = stack.enter_context(running_etcd(directory / "etcd"))
        flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}", *more]
        # an installed server has compiled bytecode
        env = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode or directory / "bytecode")}
        env["PYTHONPATH"] = str(root)
        server = start_server(directory / "server", flags, env=env, root=root)
        made = Rig(server, etcd, directory / "server", flags, env, root=root)
        stack.callback(lambda: stop(made.server.process) if made.server.process else None)
        yield made
