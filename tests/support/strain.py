"""Measure the CPU time of a server, its peak memory, and the delay of other requests."""

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

QUIET = 0.053  # seconds of the loop in slowness() on an idle machine
CALM = 1.0  # maximum seconds of a GET of /readyz


def slowness() -> tuple[float, float]:
    """Return the factors by which this machine is slower than an idle one, at least 1.

    They are for CPU time and wall-clock time.
    """
    cpu, clock, total = time.process_time(), time.monotonic(), 0
    for number in range(1_000_000):
        total += number & 3
    return max(1.0, (time.process_time() - cpu) / QUIET), max(1.0, (time.monotonic() - clock) / QUIET)


async def turns_beside(work: Coroutine[Any, Any, Found]) -> tuple[Found, int]:
    """Return the result of a coroutine, and the number of loop iterations of other tasks.

    Iterations during the coroutine are counted.
    """
    turns = 0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
    return task.result(), turns


def spent(server: Server) -> float:
    """Return the CPU seconds of the server; 0 if this process did not start it."""
    if server.process is None:
        return 0.0
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def memory(server: Server, name: str) -> float:
    """Return VmRSS or VmHWM of the server in MiB; 0 if this process did not start it."""
    if server.process is None:
        return 0.0
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(name))


def forget_peak(server: Server) -> None:
    """Reset the peak of the server's memory (VmHWM)."""
    if server.process is not None:
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")


@contextmanager
def strained(server: Server, *, cpu: float = 1.0, mib: float = 50.0) -> Iterator[None]:
    """Check the server's CPU and memory during the block, and that it answers /readyz."""
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
    asking = 0.002 * len(waits)  # CPU seconds for the GETs of /readyz
    print(f"{took:.2f} s of CPU ({slow:.1f} times slower than quiet), {grown:.1f} MiB, {max(waits):.3f} s")
    prompt(took, cpu * slow + asking, f"CPU on a machine {slow:.1f} times slower than quiet")
    assert grown < mib, f"{grown:.1f} MiB"
    prompt(max(waits), CALM * late, "others waited")
