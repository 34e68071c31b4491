"""Rounds of the mutating plug-ins on one write: a second one when an object has changed after some saw it (ADM-015)."""

from collections.abc import Hashable

from apiext.documents.document import View
from apiext.documents.equality import same


class Reinvocation:
    """The second round of one plug-in: hooks that want it, were called, and saw the object before a change.

    ``wanted`` are the hooks to call in the second round.
    """

    __slots__ = ("_called", "_left", "hooks_to_call")

    def __init__(self) -> None:
        self.hooks_to_call: set[Hashable] = set()
        self._called: set[Hashable] = set()
        self._left: View | None = None

    def note_call(self, one: Hashable) -> None:
        """Note one that wants to be called again if the object changes from here on."""
        self._called.add(one)

    def note_change(self) -> None:
        """Note that the object has changed."""
        self.hooks_to_call |= self._called
        self._called.clear()

    def enter(self, new: View | None) -> None:
        """Begin a second round with an object that later plug-ins may have changed."""
        if new is not self._left and not same(new, self._left):
            self.note_change()

    def leave(self, new: View | None) -> None:
        """End a round with this object."""
        self._left = new


class Rounds:
    """The current round, whether a second one is needed, and the state of each plug-in for it."""

    __slots__ = ("_kept", "second", "second_needed")

    def __init__(self) -> None:
        self.second = False
        self.second_needed = False
        self._kept: dict[str, Reinvocation] = {}

    def enter(self, plugin: str, new: View | None) -> Reinvocation:
        """Return the kept state of a plug-in; in the second round, compare this object with its last one."""
        found = self._kept.setdefault(plugin, Reinvocation())
        if self.second:
            found.enter(new)
        return found

    def next(self) -> bool:
        """Begin the second round if it is needed; there is no third."""
        if self.second or not self.second_needed:
            return False
        self.second = True
        return True
