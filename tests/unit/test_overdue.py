"""A hanging test is ended, and its error contains the position."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading

import pytest

from tests.support.overdue import TookTooLong, bounded
from tests.support.shared import ROOT


async def never_told(event: asyncio.Event) -> None:
    await event.wait()


def test_timeout_report_names_waiting_tasks() -> None:
    async def hang() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(never_told(asyncio.Event()), name="who waits")

    with pytest.raises(TookTooLong) as over, bounded("one", 0.02):
        asyncio.run(hang())
    assert "one: not within 0.02 s\n" in str(over.value)
    assert re.search(r"\n  who waits: test_overdue\.py:\d+ never_told > locks\.py:\d+ wait", str(over.value))


def test_timeout_interrupts_a_blocking_wait() -> None:
    with pytest.raises(TookTooLong), bounded("one", 0.02):
        threading.Event().wait(10)
    with bounded("two", 10.0):
        pass


def test_leftover_thread_does_not_block_process_exit() -> None:
    code = (
        "import threading\nfrom tests.support import overdue\n"
        "overdue.EXIT = 0.1\nthreading.Thread(target=threading.Event().wait, args=(50,)).start()\n"
        "overdue.Overdue().pytest_unconfigure(object())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert "threading.py" in done.stderr
