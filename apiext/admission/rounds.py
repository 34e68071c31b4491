"""Rounds of the mutating plug-ins for one write.

A change of the object can cause a second round (ADM-015).
"""

from collections.abc import Hashable

from apiext.documents.document import View
from apiext.documents.equality import same


class Reinvocation:
    """The webhooks or policies (hooks) of one plug-in that the second round must call.

    ``hooks_to_call`` are the hooks with the reinvocationPolicy IfNeeded after whose call the object changed.
    """

    __slots__ = ("_called", "_last_result", "hooks_to_call")

    def __init__(self) -> None:
        self.hooks_to_call: set[Hashable] = set()
        self._called: set[Hashable] = set()
        self._last_result: View | None = None

    def note_call(self, hook: Hashable) -> None:
        """Record the call of a hook that must be called again if the object changes later."""
        self._called.add(hook)

    def note_change(self) -> None:
        """Record that the object has changed."""
        self.hooks_to_call |= self._called
        self._called.clear()

    def enter(self, new: View | None) -> None:
        """Begin the second round.

        Record a change if ``new`` differs from the plug-in's result of the first round.
        """
        if new is not self._last_result and not same(new, self._last_result):
            self.note_change()

    def leave(self, new: View | None) -> None:
        """End a round of the plug-in, whose result is ``new``."""
        self._last_result = new


class Rounds:
    """The current round of a write, and the state of each plug-in.

    ``second`` is true in the second round. ``second_needed`` is true if a hook has changed the object.
    """

    __slots__ = ("_reinvocations", "second", "second_needed")

    def __init__(self) -> None:
        self.second = False
        self.second_needed = False
        self._reinvocations: dict[str, Reinvocation] = {}

    def enter(self, plugin: str, new: View | None) -> Reinvocation:
        """Return the state of a plug-in.

        At the start of the second round, detect changes by other plug-ins.
        """
        found = self._reinvocations.setdefault(plugin, Reinvocation())
        if self.second:
            found.enter(new)
        return found

    def next(self) -> bool:
        """Begin the second round if a plug-in needs it; report whether it begins.

        There is no third round.
        """
        if self.second or not self.second_needed:
            return False
        self.second = True
        return True
