"""Run a server in little memory, attack it, and measure the delay of another client.

An example of an attack; README.md describes which attacks belong here:

    def test_a_large_body(victim: Victim) -> None:
        with victim.attacked():
            answers = at_once(30, lambda number: victim.api.post(PATH, BODY))
        assert {refusal(answer) for answer in answers} == {429}
        victim.restart()
"""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

from apiext.conformance.support.http_client import Answer, Client
from apiext.conformance.support.waiting import pause, prompt, until
from tests.support.memory_group import MemoryGroup, memory_group
from tests.support.processes import SERVE, Etcd, Server, running_etcd, start_server, stop
from tests.support.strain import memory, spent

MEMORY = 512  # MiB: memory limit of the server
STALL = 0.5  # maximum CPU seconds of the server during a GET of another client
PLAIN = ("--insecure", "--port=0")
BYSTANDER = "/api/v1/namespaces/default"
Found = TypeVar("Found")


@dataclass
class Victim:
    """A server with a memory limit, over an etcd without this limit.

    ``group`` is None on a machine without control groups: then the server has no limit, and the test compares its peak
    memory. ``headers`` are the headers of the bystander.
    """

    etcd: Etcd
    directory: Path
    flags: Sequence[str]
    group: MemoryGroup | None
    command: Sequence[str] = SERVE
    headers: dict[str, str] = field(default_factory=dict)
    server: Server = field(default_factory=lambda: Server(""))

    @property
    def api(self) -> Client:
        """A client of the server with the headers of the bystander."""
        return self.client(self.headers)

    def client(self, headers: dict[str, str]) -> Client:
        """Return a client that sends these headers, and accepts any certificate."""
        tls = None
        if self.server.url.startswith("https"):
            tls = ssl.create_default_context()
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        return Client(self.server.url, headers, tls)

    def start(self) -> None:
        """Start the server with the memory limit."""
        prefix = self.group.prefix if self.group is not None else ()
        flags = [*self.flags, f"--etcd-servers={self.etcd.url}"]
        self.server = start_server(self.directory, flags, command=[*prefix, *self.command])

    def stop(self) -> None:
        """Stop the server with SIGTERM."""
        if self.server.process is not None:
            stop(self.server.process)

    def restart(self) -> None:
        """Restart the server with the same store.

        Check that it was not killed before, and that it answers.
        """
        self.check()
        self.stop()
        self.start()
        self.api.get(BYSTANDER).expect(200)
        self.check()

    def needs_bound(self) -> None:
        """Skip a test that makes no sense without a memory limit, such as many bodies at once."""
        if self.group is None:
            pytest.skip("this machine allows no control group for memory (the reason is printed above)")

    def check(self) -> None:
        """Check that the server runs, and that its peak memory is below the limit."""
        process = self.server.process
        assert process is not None
        if (code := process.poll()) is not None:
            pytest.fail(f"the server was killed (exit code {code}); its log ends:\n{self.server.log_tail()}")
        peak = memory(self.server, "VmHWM")
        assert peak < MEMORY, f"{peak:.0f} MiB would be a kill"

    @contextlib.contextmanager
    def attacked(self, stall: float = STALL) -> Iterator[Bystander]:
        """Send GETs from another client during an attack.

        Then check that they were answered and that the server runs. During a GET the server may use at most ``stall``
        CPU seconds.
        """
        bystander = Bystander(self)
        bystander.start()
        try:
            yield bystander
        finally:
            bystander.stop()
            print(bystander)
        self.check()
        assert bystander.fault is None, f"a bystander's GET failed: {bystander.fault!r}"
        prompt(bystander.cpu, stall, "a bystander's GET waited for seconds of CPU")


class Bystander:
    """Another client, which sends GETs one after the other, each on a new connection.

    ``cpu`` and ``clock`` are the maximum CPU seconds of the server, and wall-clock seconds, during a GET. CPU includes
    all threads of the server, and does not depend on the load of the machine.
    """

    def __init__(self, victim: Victim) -> None:
        self.cpu = self.clock = 0.0
        self.count = 0
        self.fault: Exception | None = None
        self._victim, self._api = victim, victim.api
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        """Start to send GETs, and wait for the first response."""
        self._had = spent(self._victim.server)
        self._thread.start()
        until(lambda: self.count or self.fault, "the bystander's first answer")

    def stop(self) -> None:
        """Stop after the current GET."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        server = self._victim.server
        while not self._over.is_set() and self.fault is None:
            began, had = time.monotonic(), spent(server)
            try:
                self._api.get(BYSTANDER).expect(200)
                self.cpu = max(self.cpu, spent(server) - had)
            except Exception as error:
                self.fault = error
            self.clock = max(self.clock, time.monotonic() - began)
            self.count += 1
            pause(0.02)

    def __str__(self) -> str:
        with contextlib.suppress(OSError, StopIteration):  # the server has exited
            took, peak = spent(self._victim.server) - self._had, memory(self._victim.server, "VmHWM")
            return (
                f"{took:.2f} s of CPU, {peak:.0f} MiB at most; "
                f"{self.count} GETs, the longest of {self.cpu:.2f} s of CPU, {self.clock:.2f} s by the clock"
            )
        return "the server is gone"


@contextlib.contextmanager
def running_victim(
    directory: Path, flags: Sequence[str] = PLAIN, *, command: Sequence[str] = SERVE, token: str = ""
) -> Iterator[Victim]:
    """Run a server in MEMORY MiB with a new etcd.

    ``token`` is the token of the bystander, if it needs one.
    """
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with memory_group(MEMORY) as group, running_etcd(directory / "etcd") as etcd:
        victim = Victim(etcd, directory / "server", flags, group, command, headers)
        victim.start()
        try:
            yield victim
        finally:
            victim.stop()


def at_once(count: int, send: Callable[[int], Found]) -> list[Found]:
    """Call ``send(number)`` in ``count`` threads at the same time; return the results."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(send, range(count)))


def refusal(answer: Answer) -> int:
    """Return the code of a precise refusal.

    Check that it is a Status of 4xx with a reason and a message.
    """
    assert 400 <= answer.status < 500, f"{answer.status}: {answer.raw[:500]!r}"
    told = json.loads(answer.raw) if answer.raw[:1] == b"{" else yaml.safe_load(answer.raw)
    assert (told["kind"], told["status"], told["code"]) == ("Status", "Failure", answer.status)
    assert told["reason"], told
    assert told["message"], told
    if answer.status == 429:
        assert int(answer.headers["retry-after"]) > 0
    return answer.status
