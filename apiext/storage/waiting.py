"""Changes of one resource whose key a plug-in has to open first: they wait, and what follows them of that resource.

Everything else goes on. The resource is shown as it was before the first of them; who reads what is newest waits, too.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from apiext.storage import limits
from apiext.storage.store import NotReady, StoreError

if TYPE_CHECKING:
    from apiext.storage.collection import Collection

# Seconds before values without a data key are decrypted again.
KMS_AGAIN_FIRST = 1.0

log = logging.getLogger(__name__)

EarlyChange = tuple[str, int, bytes | None]
"""The key, the revision, and what is stored, None for a deletion."""


class Home(Protocol):
    """What is needed of the store."""

    @property
    def revision(self) -> int:
        """How far the store has come."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what takes longer than a turn of the loop."""

    async def get_key(self, key: str) -> tuple[bytes, int] | None:
        """Return the value and revision of a key of etcd; raises StoreError."""

    async def read_again(self, col: "Collection") -> None:
        """Fill a collection anew."""


class Waiting:
    """What waits of one collection, and how far it has come.

    ``held`` is the revision of the first change that waits, 0 for none.
    """

    def __init__(self, col: "Collection", home: Home, behind: "set[Collection]") -> None:
        """``behind`` are all collections in which something waits."""
        self._col = col
        self._home = home
        self._behind = behind
        self._turn: object = None
        self._done: asyncio.Event | None = None
        self._reviving = False
        self.held = 0

    @property
    def revision(self) -> int:
        """The revision that the state is at."""
        return self.held - 1 if self.held else self._home.revision

    def hold(self, change: EarlyChange) -> None:
        """Keep a change until its key is known or refused, and all that follow."""
        col = self._col
        col.taking = False
        col.early.append(change)
        self.held = change[1]
        self._done = asyncio.Event()
        self._behind.add(col)
        self._turn = turn = object()
        self._home.spawn(self._catch_up(turn))

    def release(self) -> None:
        """Nothing waits any more."""
        self.held = 0
        self._turn = None
        self._behind.discard(self._col)
        if self._done is not None:
            self._done.set()

    async def done(self) -> None:
        """Wait until nothing waits; raises NotReady after limits.FRESH_WAIT."""
        try:
            async with asyncio.timeout(limits.FRESH_WAIT):
                while self.held and self._done is not None:
                    await self._done.wait()
        except TimeoutError as error:
            raise NotReady(f"{self._col.resource} waits for a key management plug-in") from error

    async def _catch_up(self, turn: object) -> None:
        """Show what waits, once its keys are known or refused; not if its turn was over before it began."""
        col = self._col
        while self._turn is turn:
            batch = list(col.early)
            values = [(key, value) for key, _, value in batch if value is not None]
            await col.prepare(values)
            for at in range(0, len(batch), limits.KMS_HELD_SLICE):
                if self._turn is not turn:
                    for _, value in values:
                        col.close_again(value)
                    return
                self._show(batch[at : at + limits.KMS_HELD_SLICE])
                if self._turn is turn and not col.early:
                    col.taking = True
                    self.release()
                    return
                await asyncio.sleep(0)

    def _show(self, part: list[EarlyChange]) -> None:
        for change in part:
            self.held = change[1] + 1
            self._col.take(*change)
        del self._col.early[: len(part)]
        if self._col.early:
            self.held = self._col.early[0][1]

    # -- values whose key could not be had

    def lack(self, key: str, reason: str) -> None:
        """A value could not be opened for want of its key: it is tried again from time to time, as all of them."""
        if not self._reviving:
            self._reviving = True
            log.warning(
                "%s %s, and perhaps others, cannot be read for want of a key: %s", self._col.resource, key, reason
            )
            self._home.spawn(self._revive())

    async def _revive(self) -> None:
        pause = KMS_AGAIN_FIRST
        try:
            while True:
                await asyncio.sleep(pause)
                if self._col.waiting is not self or self._col.dropped or not (keys := self._col.lacking()):
                    return
                if self._col.sealing is None or not self._col.sealing.well() or not self._col.ready:
                    pause = KMS_AGAIN_FIRST
                elif await self._opens(keys):
                    await self._home.read_again(self._col)
                    pause = KMS_AGAIN_FIRST
                else:
                    pause = min(2 * pause, limits.KMS_AGAIN_LAST)
        finally:
            self._reviving = False

    async def _opens(self, keys: list[str]) -> bool:
        """Tell whether one of a few values opens by now: others of them each time."""
        for key in keys[: limits.KMS_AGAIN_TRIES]:
            self._col.broken[key] = self._col.broken.pop(key)
            try:
                found = await self._home.get_key(self._col.prefix + key)
                if found is not None:
                    await self._col.entry_opened(key, found[1], found[0])
                    return True
            except (StoreError, ValueError):
                continue
        return False


async def caught_up(behind: "set[Collection]", reading: "Collection | None") -> None:
    """Wait until nothing of a collection, None: of all, waits for its key, and it is filled; raises NotReady.

    A fill is of the moment at which it began: what came since may have to wait when it is there.
    """
    for col in [*behind] if reading is None else []:
        if col.waiting is not None:
            await col.waiting.done()
    while reading is not None and not reading.dropped:
        if not reading.ready:
            await filled(reading)
        elif reading.waiting is not None and reading.waiting.held:
            await reading.waiting.done()
        else:
            return


async def filled(col: "Collection") -> None:
    """Wait a while until a collection is filled: who would have to wait longer is told to come again (RV-019)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limits.FRESH_WAIT):
            await col.wait_ready()
    if not col.ready:
        raise NotReady(f"{col.resource} is not in the cache")
