"""Buffer for changes of one resource while a KMS plug-in decrypts their data key.

Later changes of this resource wait until the earlier ones are applied; those of other resources do not wait. Reads
return the state before the first buffered change, but consistent reads wait until the buffer is empty. The root watch
is the store's watch of all keys. A fill reads all objects of a collection from the store.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from apiext.storage import limits
from apiext.storage.state import CachedState
from apiext.storage.store import NotReady, StoreError
from apiext.storage.stored_values import StoredValues

# Seconds until the first retry to decrypt values whose data key no plug-in could decrypt.
KMS_AGAIN_FIRST = 1.0

log = logging.getLogger(__name__)

EarlyChange = tuple[str, int, bytes | None]
"""(key, revision, stored value); the value of a deletion is None."""


class Arrivals:
    """Changes of one resource from the root watch.

    While ``open`` is false, the changes are buffered in ``early``.
    """

    __slots__ = ("early", "open")

    def __init__(self) -> None:
        self.open = False
        self.early: list[EarlyChange] = []

    def take_all(self) -> list[EarlyChange]:
        """Return the buffered changes, and empty the buffer."""
        early, self.early = self.early, []
        return early


class OwnerStore(Protocol):
    """The store of a collection."""

    @property
    def revision(self) -> int:
        """The revision that the root watch of the store has reached."""

    @property
    def lagging(self) -> "set[DecryptionBuffer]":
        """The decryption buffers that are not empty, of all collections."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task."""

    async def get_key(self, key: str) -> tuple[bytes, int] | None:
        """Return the value and revision of a key of etcd, None if it does not exist.

        Raise StoreError.
        """


class DecryptionBuffer:
    """The buffered changes of one collection.

    A change waits until a plug-in has decrypted its data key or has failed. ``held_revision`` is the revision of the
    first buffered change, 0 for an empty buffer.
    """

    def __init__(
        self,
        store: OwnerStore,
        arrivals: Arrivals,
        state: CachedState,
        values: StoredValues,
        apply: Callable[[str, int, bytes | None], None],
        fill_again: Callable[[], Awaitable[None]],
    ) -> None:
        """``apply`` applies a change; ``fill_again`` reads the collection again."""
        self._store = store
        self._arrivals = arrivals
        self._state = state
        self._values = values
        self._apply_change = apply
        self._fill_again = fill_again
        # identifies the task that applies the buffered changes; the task ends when this value changes
        self._turn: object = None
        self._done: asyncio.Event | None = None
        self._retrying = False
        self._closed = False
        self.held_revision = 0

    @property
    def revision(self) -> int:
        """The revision up to which the collection has all changes."""
        return self.held_revision - 1 if self.held_revision else self._store.revision

    def buffer(self, change: EarlyChange) -> None:
        """Buffer this change and all later ones until a plug-in has tried to decrypt the data key."""
        self._arrivals.open = False
        self._arrivals.early.append(change)
        self.held_revision = change[1]
        self._done = asyncio.Event()
        self._store.lagging.add(self)
        self._turn = turn = object()
        self._store.spawn(self._catch_up(turn))

    def release(self) -> None:
        """Wake waiting readers.

        Called when the buffered changes are applied, or when a fill replaces them.
        """
        self.held_revision = 0
        self._turn = None
        self._store.lagging.discard(self)
        if self._done is not None:
            self._done.set()

    def close(self) -> None:
        """Wake waiting readers, and end all retries.

        Called when the encryption configuration no longer uses a plug-in for the collection, or when the collection is
        dropped.
        """
        self.release()
        self._closed = True

    async def done(self) -> None:
        """Wait until no change is buffered; raise NotReady after limits.FRESH_WAIT."""
        try:
            async with asyncio.timeout(limits.FRESH_WAIT):
                while self.held_revision and self._done is not None:
                    await self._done.wait()
        except TimeoutError as error:
            raise NotReady(f"{self._state.resource} waits for a key management plug-in") from error

    async def _catch_up(self, turn: object) -> None:
        """Apply the buffered changes when plug-ins have decrypted their data keys or have failed.

        End if ``_turn`` is not ``turn``.
        """
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
            self.held_revision = change[1] + 1
            self._apply_change(*change)
        early = self._arrivals.early
        del early[: len(part)]
        if early:
            self.held_revision = early[0][1]

    # -- values whose data key no plug-in could decrypt

    def retry_later(self, key: str, reason: str) -> None:
        """Start a task that retries to decrypt values whose data key no plug-in could decrypt.

        Do nothing if the task runs already.
        """
        if not self._retrying:
            self._retrying = True
            log.warning(
                "%s %s, and perhaps other objects, cannot be decrypted without their data key: %s",
                self._state.resource,
                key,
                reason,
            )
            self._store.spawn(self._retry())

    async def _retry(self) -> None:
        pause = KMS_AGAIN_FIRST
        try:
            while True:
                await asyncio.sleep(pause)
                if self._closed or not (keys := self._state.lacking()):
                    return
                encryption = self._values.encryption
                if encryption is None or not encryption.is_healthy() or not self._state.ready:
                    pause = KMS_AGAIN_FIRST
                elif await self._try_decrypt(keys):
                    await self._fill_again()
                    pause = KMS_AGAIN_FIRST
                else:
                    pause = min(2 * pause, limits.KMS_AGAIN_LAST)
        finally:
            self._retrying = False

    async def _try_decrypt(self, keys: list[str]) -> bool:
        """Try to decrypt at most limits.KMS_AGAIN_TRIES values; return True after the first success.

        Each call begins with the values that earlier calls have not tried for the longest time.
        """
        broken = self._state.broken
        for key in keys[: limits.KMS_AGAIN_TRIES]:
            broken[key] = broken.pop(key)
            try:
                found = await self._store.get_key(self._state.prefix + key)
                if found is not None:
                    await self._values.prepare([(key, found[0])])
                    self._values.entry_of(key, found[1], found[0], self._state.by_key(key))
                    return True
            except (StoreError, ValueError):
                continue
        return False
