"""Entries that a watch cannot show at once: the stage that prepares them, and the buffer of a group."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from apiext.storage import limits
from apiext.storage.history import Change
from apiext.storage.store import Entry


class Stage(Protocol):
    """Makes entries ready for the frames of a group."""

    def concerns(self, entry: Entry) -> bool:
        """Report whether an object may be selected, by its immutable fields."""

    def now(self, entry: Entry) -> Entry | None:
        """Return the entry as it is shown if that takes no waiting."""

    def prepare(self, entries: Sequence[Entry], then: Callable[[Sequence[Entry] | bytes], None]) -> None:
        """Make entries ready and hand them over in their order; or the bytes that end the watches."""

    def rest(self) -> None:
        """Drop the frames that were made ready: the group has nothing to do for now, and its frames may show ages."""


class Staging:
    """The entries that a group waits for. ``wake()`` is called when it can go on, ``fail(data)`` when it has to end."""

    __slots__ = ("_fail", "_ready", "_stage", "_wake", "waiting")

    def __init__(self, stage: Stage, wake: Callable[[], None], fail: Callable[[bytes], None]) -> None:
        self._stage = stage
        self._wake = wake
        self._fail = fail
        self._ready: dict[Entry, Entry] = {}
        self.waiting = False

    def concerns(self, entry: Entry) -> bool:
        """Report whether an object may be selected."""
        return self._stage.concerns(entry)

    def shown(self, entries: Iterable[Entry]) -> list[Entry | None] | None:
        """Return the entries as shown, None for each that cannot be selected; None alone: wait, they were asked for."""
        concerned = [entry if self._stage.concerns(entry) else None for entry in entries]
        wanted = [entry for entry in concerned if entry is not None]
        found = self._found(wanted)
        if found is None:
            self._ask(wanted)
            return None
        rest = iter(found)
        return [next(rest) if entry is not None else None for entry in concerned]

    def keep(self, entries: Iterable[Entry], shown: Iterable[Entry | None]) -> None:
        """Take back a change that was shown as ready and has to wait for another turn."""
        self._ready.update((entry, ready) for entry, ready in zip(entries, shown, strict=True) if ready is not None)

    def change(self, change: Change, selective: bool, following: Iterable[Change]) -> Change | None:
        """Return a change with its states as they are shown; None: wait, it and those following were asked for.

        ``selective`` groups need the state before as well.
        """
        found = self._found(_states(change, selective))
        if found is None:
            self._ask([state for one in following if self.concerns(one.entry) for state in _states(one, selective)])
            return None
        return change._replace(entry=found[0], previous=found[1] if len(found) > 1 else change.previous)

    def rest(self) -> None:
        """Nothing is left to do for now: hold nothing."""
        if not self.waiting:
            self._ready.clear()
            self._stage.rest()

    def _found(self, entries: Sequence[Entry]) -> list[Entry] | None:
        found: list[Entry] = []
        for entry in entries:
            shown = self._ready.get(entry) or self._stage.now(entry)
            if shown is None:
                return None
            found.append(shown)
        for entry in entries:
            self._ready.pop(entry, None)
        return found

    def _ask(self, entries: list[Entry]) -> None:
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
