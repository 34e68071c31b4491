"""Measure work of a server: its CPU, its peak of memory, and the delay of other requests meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import prompt
from tests.support.processes import Server

Found = TypeVar("Found")

QUIET = 0.053  # seconds of the spin below on an idle machine
CALM = 1.0  # seconds that /readyz may take meanwhile


def slowness() -> tuple[float, float]:
    """Return how many times slower than quiet this machine is just now, in CPU and by the clock, at least 1."""
    cpu, clock, total = time.process_time(), time.monotonic(), 0
    for number in range(1_000_000):
        total += number & 3
    return max(1.0, (time.process_time() - cpu) / QUIET), max(1.0, (time.monotonic() - clock) / QUIET)


async def turns_beside(work: Coroutine[Any, Any, Found]) -> tuple[Found, int]:
    """Return the result of a piece of work, and the number of loop turns of other tasks meanwhile."""
    turns = 0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    return task.result(), turns


def spent(server: Server) -> float:
    """Return the seconds of CPU of the server; 0 when it is none of ours."""
    if server.process is None:
        return 0.0
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory(server: Server, name: str) -> float:
    """Return VmRSS or VmHWM of the server in MiB; 0 when it is none of ours."""
    if server.process is None:
        return 0.0
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def forget_peak(server: Server) -> None:
    """Let the peak of the server's memory begin anew."""
    if server.process is not None:
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")


@contextmanager
def strained(server: Server, *, cpu: float = 1.0, mib: float = 50.0) -> Iterator[None]:
    """Check the CPU and memory that the server uses inside the block, and that it answers /readyz meanwhile."""
    over, waits = threading.Event(), [0.0]

    def ask() -> None:
        while not over.wait(0.01):
            began = time.monotonic()
            assert Client(server.url).get("/readyz").status == 200
            waits.append(time.monotonic() - began)

    asker = threading.Thread(target=ask)
    begun = slowness()
    forget_peak(server)
    took, had = spent(server), memory(server, "VmRSS")
    asker.start()
    try:
        yield
    finally:
        over.set()
        asker.join()
    took, grown = spent(server) - took, memory(server, "VmHWM") - had
    slow, late = map(max, zip(begun, slowness(), strict=True))
    asking = 0.002 * len(waits)  # of the CPU is ours
    print(f"{took:.2f} s of CPU ({slow:.1f} times slower than quiet), {grown:.1f} MiB, {max(waits):.3f} s")
    prompt(took, cpu * slow + asking, f"CPU on a machine {slow:.1f} times slower than quiet")
    assert grown < mib, f"{grown:.1f} MiB"
    prompt(max(waits), CALM * late, "others waited")
