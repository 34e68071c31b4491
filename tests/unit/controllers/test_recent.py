"""A definition of several versions is decoded once for consecutive uses, and then freed."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from apiext.controllers import limits
from apiext.controllers.serving import Recent


class Document(dict[str, Any]):
    """A dict that supports weak references, so that a test can check when it is freed."""


class Reader:
    """A decoder of definitions that records its calls.

    A definition is the number of its versions.
    """

    def __init__(self) -> None:
        self.read: list[bytes] = []
        self.made: list[weakref.ref[Document]] = []

    def __call__(self, raw: bytes, revision: int) -> Document:
        self.read.append(raw)
        found = Document(spec={"versions": [{"name": f"v{number}"} for number in range(int(raw))]})
        self.made.append(weakref.ref(found))
        return found


def start_cache() -> tuple[Recent, Reader]:
    recent = Recent()
    recent.start()
    return recent, Reader()


async def test_last_multi_version_definition_is_cached() -> None:
    recent, reader = start_cache()
    first = recent.decoded(b"2", reader)
    assert recent.decoded(bytes(bytearray(b"2")), reader) is first
    assert await asyncio.to_thread(recent.decoded, b"2", reader) is first
    for raw in (b"1", b"1", b"3", b"3", b"2"):
        assert len(recent.decoded(raw, reader)["spec"]["versions"]) == int(raw)
    assert reader.read == [b"2", b"1", b"1", b"3", b"2"]


@pytest.mark.looptime
async def test_unused_definitions_are_freed() -> None:
    recent, reader = start_cache()
    for _ in range(3):
        for _ in range(10):
            recent.decoded(b"2", reader)
            await asyncio.sleep(limits.DECODED_KEPT * 0.9)
        await asyncio.sleep(limits.DECODED_KEPT * 1.2)
        gc.collect()
        assert reader.made.pop()() is None
    assert reader.read == [b"2"] * 3
    assert not reader.made


async def test_unstarted_or_closed_cache_keeps_no_definition() -> None:
    reader = Reader()
    unstarted, ended = Recent(), Recent()
    loop = asyncio.new_event_loop()
    ended._loop = loop
    loop.close()
    for recent in (unstarted, ended):
        recent.decoded(b"2", reader)
        recent.decoded(b"2", reader)
    gc.collect()
    assert [made() for made in reader.made] == [None] * 4
