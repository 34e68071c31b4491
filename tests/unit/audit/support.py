"""Helpers for tests of the audit log: events, and an output with settable faults."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Sequence

from apiext.audit.events import Event, RequestAttributes, Trail
from apiext.audit.policy import COMPLETE, REQUEST_RESPONSE, Verdict

WHEN = 1_767_355_200.25


def trail(level: int = REQUEST_RESPONSE, *, bare: bool = False, omitted: Sequence[str] = (), uri: str = "/a") -> Trail:
    """Return a trail of a GET by alice."""
    user = {"username": "alice", "uid": "7", "groups": ["devs"]}
    attributes = RequestAttributes("id-1", uri, "get", user, ["10.0.0.1"], "curl/8", WHEN)
    return Trail(
        Verdict(level, frozenset(omitted), bare), attributes, {"resource": "widgets", "name": "a", "apiVersion": "v1"}
    )


def event(stage: str = COMPLETE, *, size: int = 0, level: int = REQUEST_RESPONSE, name: str = "a") -> Event:
    """Return an event that counts ``size`` bytes."""
    return trail(level, uri=f"/{name}").event(stage, WHEN + 1, {"metadata": {}, "code": 200}, None, size)


class Place:
    """An output that stores lines in memory; it may be full, or block until a test releases it."""

    def __init__(self) -> None:
        self.written: list[list[bytes]] = []
        self.full = False
        self.open = threading.Event()
        self.open.set()
        self.closed = False
        self._begun = threading.Event()

    async def begun(self) -> None:
        """Wait until a thread has begun to write."""
        assert await asyncio.to_thread(self._begun.wait, 10)

    @property
    def lines(self) -> list[bytes]:
        """All written lines."""
        return [line for lines in self.written for line in lines]

    def write(self, lines: Sequence[bytes]) -> None:
        """Store lines."""
        self._begun.set()
        assert self.open.wait(10)
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.written.append(list(lines))

    def close(self) -> None:
        """Record that the log was closed."""
        self.closed = True
