"""The limit of an evaluation: its highest cost, and the most elements that it touches."""

from apiext.cel import effort
from apiext.cel.effort import CANCELLED, INTERRUPTED, Cancelled

PER_CALL_LIMIT = 1_000_000  # units of one evaluation (CEL-011)
INTERPRETED = 20  # times that a step takes longer when it is interpreted
ELEMENT = 3  # units of a brief evaluation that an element counts for


class Limit:
    """The most that an evaluation may cost; another thread may cancel it.

    ``brief`` limits stand for time: a step that is interpreted counts more. ``effort`` are the elements that the
    evaluation may touch; ``time`` are those that would have taken as long as what evaluations did beside, so far, and
    ``longest`` is the most of these, unless the limit is brief.
    """

    __slots__ = ("brief", "cancelled", "effort", "longest", "most", "time")

    def __init__(
        self, most: int, *, brief: bool = False, effort: int = effort.MOST, longest: int = effort.MOST_TIME
    ) -> None:
        self.longest = longest
        self.most = most
        self.brief = brief
        self.effort = effort
        self.cancelled = False
        self.time = 0

    def interpreted(self) -> "Limit":
        """Return the limit of steps that are interpreted; the evaluation began under this one."""
        return Limit(self.most // INTERPRETED) if self.brief else self

    def begin(self) -> None:
        """Start an evaluation under this limit in this thread."""
        effort.begin(self._elements(), self)

    def _elements(self) -> int:
        if not self.brief:
            return self.effort
        quick = self.most // ELEMENT - self.time
        return quick if quick < self.effort else self.effort

    def touched(self) -> int:
        """Return how many elements the evaluation of this thread that began last under this limit has touched."""
        return max(0, min(self.effort, self._elements() - effort.left()))

    def cancel(self) -> None:
        """End evaluations under this limit at their next turn."""
        self.cancelled = True
        self.most = -1

    def reached(self) -> Cancelled:
        """Return what ends an evaluation."""
        return Cancelled(INTERRUPTED if self.cancelled else CANCELLED)
