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

_OF_PROCESS = 2  # Linux makes the clock of a process out of its id and this (CPUCLOCK_SCHED)
SPIN = 5_000_000  # rounds of the loop
SPIN_REFERENCE = 0.125  # seconds of the spin loop on the machine of the goals
PLURAL, GROUP = "benches", "bench.example.com"
RULES = [{"rule": "self.p00.size() < 100"}, {"rule": "self.n00 <= self.n01"}]


def _loop(rounds: int) -> float:
    began, total = time.process_time(), 0
    for number in range(rounds):
        total += number & 7
    return time.process_time() - began


def spin() -> float:
    """Return the seconds of a fixed loop: how fast this interpreter on this machine is just now."""
    return min(_loop(SPIN) for _ in range(3))


def pace() -> float:
    """Return how much longer a loop takes than on the machine of the goals, on average over some 50 ms."""
    return _loop(SPIN * 2 // 5) * 5 / 2 / SPIN_REFERENCE


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU, user and system, that a process has used, in nanoseconds' resolution."""
    return time.clock_gettime((~pid << 3) | _OF_PROCESS)


def rss_of(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def process_tree(pid: int) -> list[int]:
    """Return a process and all its descendants, as /proc lists them."""
    children = [int(it) for path in Path(f"/proc/{pid}/task").glob("*/children") for it in path.read_text().split()]
    return [pid, *(it for child in children for it in process_tree(child))]


def interpreter() -> str:
    """Return the version and build of the interpreter."""
    arguments = sysconfig.get_config_var("CONFIG_ARGS") or ""
    build = "no PGO"
    if "--enable-optimizations" in arguments:
        build = "PGO"
    elif sys.base_prefix == "/usr":  # Debian profiles its builds without the option of configure
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
    """Return an object of about 1 KiB; ``turn`` makes one unlike the one before."""
    spec: dict[str, Any] = {f"p{index:02}": f"value {index:02} of {name}"[:24] for index in range(26)}
    spec |= {"p59": f"turn {turn}", "n00": 1, "n01": 2}
    document = {
        "apiVersion": f"{GROUP}/v1", "kind": "Bench", "metadata": {"name": name, **metadata}, "spec": spec,
    }  # fmt: skip
    return json.dumps(document, separators=(",", ":")).encode()


@dataclass
class Rig:
    """A running server, and what there is to know about its process."""

    server: Server
    etcd: Etcd | None
    """None if the server keeps objects as it does by default."""
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
        """Where it listens."""
        parts = urlsplit(self.server.url)
        return parts.hostname or "127.0.0.1", parts.port or 80

    @property
    def api(self) -> Client:
        """A plain client."""
        return Client(self.server.url)

    def path(self, name: str = "") -> str:
        """Return the path of the collection, or of an object."""
        base = f"/apis/{GROUP}/v1/namespaces/default/{PLURAL}"
        return f"{base}/{name}" if name else base

    def cpu(self) -> float:
        """Return the seconds of CPU, user and system, that the server process has used; /proc has only hundredths.

        It measures the pace as well, so that each measurement has some values of it right before and after.
        """
        used = cpu_of(self.server.pid)
        self.paces.append(pace())
        return used

    def rss(self) -> float:
        """Return the resident memory of the server process in MiB."""
        return rss_of(self.server.pid)

    def define(self) -> None:
        """Establish the definition that is measured with, and see whether its CEL rules are held."""
        establish(self.api, definition())
        breaking = thing("breaking").replace(b'"n01":2', b'"n01":0')
        self.rules = self.api.post(self.path(), breaking, dryRun="All").status == 422

    def fill(self, count: int, start: int = 0) -> None:
        """Create objects o00000, o00001, …"""
        names = (f"o{number:05}" for number in range(start, start + count))
        wire.run(self.address, (wire.request("POST", self.path(), thing(name)) for name in names), 16)

    def restart(self) -> float:
        """Stop and start the server on the same data; return the seconds to ready."""
        assert self.server.process is not None
        stop(self.server.process)
        began = time.perf_counter()
        self.server = start_server(self.directory, self.flags, command=self.command, env=self.env, root=self.root)
        return time.perf_counter() - began


@contextlib.contextmanager
def rig(*more: str, root: Path = ROOT, bytecode: Path | None = None) -> Iterator[Rig]:
    """Run a server of a source tree on plain http over an etcd of its own, with default flags and those given.

    ``bytecode`` is a directory that several servers of one tree share, so that only the first has to compile it.
    """
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="apiext-bench-")))
        etcd = stack.enter_context(running_etcd(directory / "etcd"))
        flags = ["--insecure", "--port=0", f"--etcd-servers={etcd.url}", *more]
        # an installed server has its bytecode, whatever this process writes
        env = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode or directory / "bytecode")}
        env["PYTHONPATH"] = str(root)
        server = start_server(directory / "server", flags, env=env, root=root)
        made = Rig(server, etcd, directory / "server", flags, env, root=root)
        stack.callback(lambda: stop(made.server.process) if made.server.process else None)
        yield made
