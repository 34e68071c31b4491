"""Preparation of entries for a watch, and the buffer for prepared entries.

For example, a conversion webhook prepares entries. A group is the set of watchers with equal resource, version,
namespace, selectors and media type. The watchers of a group share frames: the encoded events.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from apiext.storage import limits
from apiext.storage.history import Change
from apiext.storage.store import Entry


class Stage(Protocol):
    """Prepares entries for the frames of a group, for example by conversion."""

    def may_select(self, entry: Entry) -> bool:
        """Report whether the selectors of the group may match an object.

        Only the immutable fields of the object are compared.
        """

    def now(self, entry: Entry) -> Entry | None:
        """Return the prepared entry; None if the caller must call ``prepare`` and wait."""

    def prepare(self, entries: Sequence[Entry], then: Callable[[Sequence[Entry] | bytes], None]) -> None:
        """Prepare entries, and call ``then`` with the prepared entries in the same order.

        If this fails, call ``then`` with the bytes of the event that ends the watches.
        """

    def on_idle(self) -> None:
        """Evict the frames that the stage keeps, since the ages in frames of Tables become wrong.

        Called when the group is idle.
        """


class Staging:
    """Buffer for the prepared entries of a group.

    It calls ``wake()`` when requested entries are ready, and ``fail(data)`` if the watches must end.
    """

    __slots__ = ("_fail", "_ready", "_stage", "_wake", "waiting")

    def __init__(self, stage: Stage, wake: Callable[[], None], fail: Callable[[bytes], None]) -> None:
        self._stage = stage
        self._wake = wake
        self._fail = fail
        self._ready: dict[Entry, Entry] = {}
        self.waiting = False

    def may_select(self, entry: Entry) -> bool:
        """Report whether the selectors of the group may match an object (see Stage)."""
        return self._stage.may_select(entry)

    def prepared(self, entries: Iterable[Entry]) -> list[Entry | None] | None:
        """Return the prepared entries, with None for an entry that the group cannot select.

        Return None instead of a list while the entries are being prepared.
        """
        selectable = [entry if self._stage.may_select(entry) else None for entry in entries]
        wanted = [entry for entry in selectable if entry is not None]
        found = self._found(wanted)
        if found is None:
            self._request(wanted)
            return None
        rest = iter(found)
        return [next(rest) if entry is not None else None for entry in selectable]

    def keep(self, entries: Iterable[Entry], prepared: Iterable[Entry | None]) -> None:
        """Put prepared entries back, for a later iteration of the event loop."""
        self._ready.update((entry, ready) for entry, ready in zip(entries, prepared, strict=True) if ready is not None)

    def change(self, change: Change, selective: bool, following: Iterable[Change]) -> Change | None:
        """Return a change whose entry is prepared.

        Return None while this and the following changes are being prepared. If ``selective`` is true, the group has a
        selector, so the previous entry is prepared, too.
        """
        found = self._found(_states(change, selective))
        if found is None:
            later = (one for one in following if self.may_select(one.entry))
            self._request([state for one in later for state in _states(one, selective)])
            return None
        return change._replace(entry=found[0], previous=found[1] if len(found) > 1 else change.previous)

    def on_idle(self) -> None:
        """Drop the prepared entries, unless other entries are being prepared."""
        if not self.waiting:
            self._ready.clear()
            self._stage.on_idle()

    def _found(self, entries: Sequence[Entry]) -> list[Entry] | None:
        found: list[Entry] = []
        for entry in entries:
            prepared = self._ready.get(entry) or self._stage.now(entry)
            if prepared is None:
                return None
            found.append(prepared)
        for entry in entries:
            self._ready.pop(entry, None)
        return found

    def _request(self, entries: list[Entry]) -> None:
        self.waiting = True
        del entries[2 * limits.SEGMENT :]

        def then(found: Sequence[Entry] | bytes) -> None:
            self.waiting = False
            if isinstance(found, bytes):
                self._fail(found)
                return
            self._ready.update(zip(entries, found, strict=True))
            self._wake()

        self._stage.prepare(entries, then)


def _states(change: Change, selective: bool) -> tuple[Entry, ...]:
    if selective and change.previous is not None:
        return change.entry, change.previous
    return (change.entry,)
