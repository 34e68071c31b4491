"""A Sink that records a watcher's frames, and a watch group whose frames are JSON lines."""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import orjson

from apiext.storage.indexes import Term
from apiext.storage.store import Entry
from apiext.storage.watching import WatchGroup


class Seen(NamedTuple):
    """A frame; ``type`` is ADDED, MODIFIED, DELETED, BOOKMARK, END (of initial events) or ERROR."""

    type: str
    key: str
    revision: int
    raw: str = ""


class RecordingSink:
    """Records all frames in ``seen``; ``writes`` counts the calls of ``write``."""

    def __init__(self) -> None:
        self.paused = False
        self.closed = False
        self.ended = False
        self.writes = 0
        self.seen: list[Seen] = []
        self._news = asyncio.Event()

    def write(self, data: bytes) -> None:
        assert not self.ended
        assert not self.paused
        self._take(data)

    def end(self, data: bytes) -> None:
        assert not self.ended
        self.ended = self.closed = True
        self._take(data)

    def _take(self, data: bytes) -> None:
        self.writes += 1
        self.seen += [Seen(*orjson.loads(line)) for line in data.splitlines()]
        self._news.set()

    async def until(self, condition: Callable[["RecordingSink"], bool]) -> None:
        """Wait until the condition holds, at most ten seconds."""
        async with asyncio.timeout(10):
            while not condition(self):
                self._news.clear()
                await self._news.wait()

    async def reached(self, revision: int) -> list[Seen]:
        """Wait for a frame with this revision or a later one, or for the end.

        Return all events until then.
        """
        await self.until(lambda sink: sink.ended or any(seen.revision >= revision for seen in sink.seen))
        return self.events

    @property
    def events(self) -> list[Seen]:
        """The frames of types ADDED, MODIFIED and DELETED, without the stored bytes."""
        return [seen._replace(raw="") for seen in self.seen if seen.type in {"ADDED", "MODIFIED", "DELETED"}]


def line(*parts: object) -> bytes:
    """Encode a frame."""
    return orjson.dumps(parts) + b"\n"


def _frame(kind: str, entry: Entry) -> bytes:
    key = f"{entry.namespace}/{entry.name}" if entry.namespace else entry.name
    return line(kind, key, entry.revision, entry.raw.decode())


def watch_group(
    namespace: str | None = None,
    selects: Callable[[Entry], bool] | None = None,
    frame: Callable[[str, Entry], bytes] = _frame,
    key: str = "",
    route: Term | None = None,
    first: Callable[[Entry], bytes] | None = None,
) -> WatchGroup:
    """Return a watch group; two groups are equal only if they have the same key."""
    return WatchGroup(
        key=key or object(),
        namespace=namespace,
        selects=selects,
        frame=frame,
        bookmark=lambda revision, end: line("END" if end else "BOOKMARK", "", revision),
        expired=lambda asked, oldest: line("ERROR", "410", asked, str(oldest)),
        version="v1",
        route=route,
        first=first,
    )


def fold(seen: Iterable[Seen]) -> dict[str, int]:
    """Apply events in order; return key → revision of the existing objects."""
    state: dict[str, int] = {}
    for event in seen:
        if event.type == "DELETED":
            del state[event.key]
        elif event.type in {"ADDED", "MODIFIED"}:
            assert (event.key in state) is (event.type == "MODIFIED"), event
            state[event.key] = event.revision
    return state
