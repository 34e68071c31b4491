"""Changes of one resource that are buffered until a KMS plug-in has decrypted their data key, with all later ones.

Other resources go on. Reads show this one as of before the first buffered change; consistent reads wait.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from apiext.storage import limits
from apiext.storage.state import CachedState
from apiext.storage.store import NotReady, StoreError
from apiext.storage.stored_values import StoredValues

# Seconds before values without a data key are decrypted again.
KMS_AGAIN_FIRST = 1.0

log = logging.getLogger(__name__)

EarlyChange = tuple[str, int, bytes | None]
"""The key, the revision, and the stored value, None for a deletion."""


class Arrivals:
    """Changes of one resource from the root watch: applied at once while ``open``, else buffered in ``early``."""

    __slots__ = ("early", "open")

    def __init__(self) -> None:
        self.open = False
        self.early: list[EarlyChange] = []

    def take_all(self) -> list[EarlyChange]:
        """Return the buffered changes, and empty the buffer."""
        early, self.early = self.early, []
        return early


class Home(Protocol):
    """The store that a collection belongs to."""

    @property
    def revision(self) -> int:
        """The revision that the store's watch has reached."""

    @property
    def behind(self) -> "set[Waiting]":
        """The buffers, of all collections, with buffered changes."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task."""

    async def get_key(self, key: str) -> tuple[bytes, int] | None:
        """Return the value and revision of a key of etcd; raises StoreError."""


class Waiting:
    """The buffered changes of one collection whose data keys are being decrypted.

    ``held`` is the revision of the first of them, 0 for none.
    """

    def __init__(
        self,
        home: Home,
        arrivals: Arrivals,
        state: CachedState,
        values: StoredValues,
        take: Callable[[str, int, bytes | None], None],
        fill_again: Callable[[], Awaitable[None]],
    ) -> None:
        """``take`` applies a change; ``fill_again`` reads the collection anew."""
        self._home = home
        self._arrivals = arrivals
        self._state = state
        self._values = values
        self._take = take
        self._fill_again = fill_again
        self._turn: object = None  # the task that applies the buffered changes; another value ends it
        self._done: asyncio.Event | None = None
        self._reviving = False
        self._closed = False
        self.held = 0

    @property
    def revision(self) -> int:
        """The revision of the collection's objects."""
        return self.held - 1 if self.held else self._home.revision

    def hold(self, change: EarlyChange) -> None:
        """Buffer a change until its key is decrypted or refused, and all that follow."""
        self._arrivals.open = False
        self._arrivals.early.append(change)
        self.held = change[1]
        self._done = asyncio.Event()
        self._home.behind.add(self)
        self._turn = turn = object()
        self._home.spawn(self._catch_up(turn))

    def release(self) -> None:
        """Wake waiting readers: the buffered changes were applied, or a fill brings them."""
        self.held = 0
        self._turn = None
        self._home.behind.discard(self)
        if self._done is not None:
            self._done.set()

    def close(self) -> None:
        """Stop: no plug-in has data keys of the collection any more, or it was dropped."""
        self.release()
        self._closed = True

    async def done(self) -> None:
        """Wait until no change is buffered; raises NotReady after limits.FRESH_WAIT."""
        try:
            async with asyncio.timeout(limits.FRESH_WAIT):
                while self.held and self._done is not None:
                    await self._done.wait()
        except TimeoutError as error:
            raise NotReady(f"{self._state.resource} waits for a key management plug-in") from error

    async def _catch_up(self, turn: object) -> None:
        """Apply the buffered changes once their keys are decrypted or refused, unless another turn has begun."""
        arrivals = self._arrivals
        while self._turn is turn:
            batch = list(arrivals.early)
            values = [(key, value) for key, _, value in batch if value is not None]
            await self._values.prepare(values)
            for at in range(0, len(batch), limits.KMS_HELD_SLICE):
                if self._turn is not turn:
                    for _, value in values:
                        self._values.drop_ahead(value)
                    return
                self._apply(batch[at : at + limits.KMS_HELD_SLICE])
                if self._turn is turn and not arrivals.early:
                    arrivals.open = True
                    self.release()
                    return
                await asyncio.sleep(0)

    def _apply(self, part: list[EarlyChange]) -> None:
        for change in part:
            self.held = change[1] + 1
            self._take(*change)
        early = self._arrivals.early
        del early[: len(part)]
        if early:
            self.held = early[0][1]

    # -- values without a data key

    def lack(self, key: str, reason: str) -> None:
        """Decrypt values again from time to time, since a plug-in could not decrypt the data key of one."""
        if not self._reviving:
            self._reviving = True
            log.warning(
                "%s %s, and perhaps more objects, cannot be read without their key: %s",
                self._state.resource,
                key,
                reason,
            )
            self._home.spawn(self._revive())

    async def _revive(self) -> None:
        pause = KMS_AGAIN_FIRST
        try:
            while True:
                await asyncio.sleep(pause)
                if self._closed or not (keys := self._state.lacking()):
                    return
                encryption = self._values.encryption
                if encryption is None or not encryption.is_healthy() or not self._state.ready:
                    pause = KMS_AGAIN_FIRST
                elif await self._one_decrypts(keys):
                    await self._fill_again()
                    pause = KMS_AGAIN_FIRST
                else:
                    pause = min(2 * pause, limits.KMS_AGAIN_LAST)
        finally:
            self._reviving = False

    async def _one_decrypts(self, keys: list[str]) -> bool:
        """Return whether one of a few values decrypts by now; each call tries other values."""
        broken = self._state.broken
        for key in keys[: limits.KMS_AGAIN_TRIES]:
            broken[key] = broken.pop(key)
            try:
                found = await self._home.get_key(self._state.prefix + key)
                if found is not None:
                    await self._values.prepare([(key, found[0])])
                    self._values.entry_of(key, found[1], found[0], self._state.known(key))
                    return True
            except (StoreError, ValueError):
                continue
        return False
