"""The access log has all lines in order, and no request waits for a slow reader."""

import asyncio
import json
import os
import time
from typing import Any

import pytest

from apiext import logs
from apiext.conformance.support.waiting import prompt
from apiext.http import limits
from apiext.http.access_log import AccessLog


def lines_of(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in raw.splitlines()]


def read_all(descriptor: int) -> bytes:
    parts = []
    while part := os.read(descriptor, 65_536):
        parts.append(part)
    os.close(descriptor)
    return b"".join(parts)


def put(log: AccessLog, number: int, size: int = 0) -> None:
    log.put({"number": number, "filling": "x" * size}, time.monotonic())


async def test_access_log_lines_are_complete_and_in_order() -> None:
    outlet, inlet = os.pipe()
    reading = asyncio.get_running_loop().run_in_executor(None, read_all, outlet)
    try:
        log = AccessLog(inlet, logs.formatter("json"))
        for number in range(500):
            put(log, number, 300)
            if number % 7 == 0:
                await asyncio.sleep(0)
        await log.stop()
    finally:
        os.close(inlet)  # otherwise the reader blocks the end of the loop
    found = lines_of(await reading)
    assert [line["number"] for line in found] == list(range(500))
    assert all(line["milliseconds"] >= 0 for line in found)


async def test_invalid_utf8_of_headers_is_replaced_in_the_log() -> None:
    outlet, inlet = os.pipe()
    try:
        log = AccessLog(inlet, logs.formatter("json"))
        log.put({"userAgent": b"a\xff".decode("utf-8", "surrogateescape")}, time.monotonic())
        await log.stop()
    finally:
        os.close(inlet)
    assert [line["userAgent"] for line in lines_of(read_all(outlet))] == ["a\ufffd"]


async def test_blocked_log_reader_neither_blocks_nor_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACCESS_HELD", 100_000)
    outlet, inlet = os.pipe()
    log = AccessLog(inlet, logs.formatter("json"))
    for number in range(1_000):
        put(log, number, 1_000)
        if number % 10 == 0:
            before = time.monotonic()
            await asyncio.sleep(0)
            prompt(time.monotonic() - before, 0.5)
    reading = asyncio.get_running_loop().run_in_executor(None, read_all, outlet)
    try:
        await log.stop()
    finally:
        os.close(inlet)
    found = lines_of(await reading)
    told = [line["count"] for line in found if line.get("event") == "requests not logged"]
    assert sum(told) > 0
    assert sum(told) + sum("number" in line for line in found) == 1_000


async def test_stop_does_not_wait_for_a_blocked_log_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ACCESS_FLUSH", 0.1)
    outlet, inlet = os.pipe()
    log = AccessLog(inlet, logs.formatter("json"))
    put(log, 0, 1_000_000)
    before = time.monotonic()
    await log.stop()
    prompt(time.monotonic() - before, 2)
    os.close(outlet)  # this ends the thread's write
    os.close(inlet)


async def test_closed_standard_error_is_ignored() -> None:
    outlet, inlet = os.pipe()
    os.close(outlet)
    log = AccessLog(inlet, logs.formatter("json"))
    put(log, 0)
    async with asyncio.timeout(20):
        while log._held:  # noqa: ASYNC110 - until the first write has failed
            await asyncio.sleep(0)
    put(log, 1)
    await log.stop()
    os.close(inlet)
