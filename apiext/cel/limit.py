"""The limits of evaluations: maximal cost, number of elements, and work without allocation."""

from apiext.cel import effort, limits
from apiext.cel.effort import CANCELLED, INTERRUPTED, Cancelled

PER_CALL_LIMIT = 1_000_000  # cost units of one evaluation (CEL-011)
INTERPRETED = 20  # factor by which the interpreter is slower than generated code
ELEMENT = 3  # cost units of one element under a ``brief`` limit (see Limit)


class Limit:
    """The limits of one evaluation, or of several evaluations one after the other.

    Another thread may cancel the evaluations.

    ``max_cost`` is the maximal cost of one evaluation in CEL cost units. A ``brief`` limit bounds the time, so the cost
    of interpreted steps counts INTERPRETED times, and an element costs ELEMENT. ``effort`` is the number of elements
    that one evaluation may read or create; a brief limit may allow fewer. ``work`` is the work without allocation (see
    effort.py) of all evaluations so far, in elements. ``max_work`` is its maximum; a brief limit ignores it.
    """

    __slots__ = ("brief", "cancelled", "effort", "max_cost", "max_work", "work")

    def __init__(
        self, max_cost: int, *, brief: bool = False, effort: int = limits.MAX_ELEMENTS, max_work: int = limits.MAX_WORK
    ) -> None:
        self.max_work = max_work
        self.max_cost = max_cost
        self.brief = brief
        self.effort = effort
        self.cancelled = False
        self.work = 0

    def interpreted(self) -> "Limit":
        """Return the limit for interpreted steps of an evaluation under this limit."""
        return Limit(self.max_cost // INTERPRETED) if self.brief else self

    def begin(self) -> None:
        """Start an evaluation under this limit in this thread."""
        effort.begin(self._elements(), self)

    def _elements(self) -> int:
        if not self.brief:
            return self.effort
        quick = self.max_cost // ELEMENT - self.work
        return quick if quick < self.effort else self.effort

    def touched(self) -> int:
        """Return the number of elements that the last evaluation of this thread read or created.

        This evaluation must have been under this limit.
        """
        return max(0, min(self.effort, self._elements() - effort.left()))

    def cancel(self) -> None:
        """Stop evaluations under this limit at their next check."""
        self.cancelled = True
        self.max_cost = -1

    def reached(self) -> Cancelled:
        """Return the exception that ends an evaluation at its maximal cost, or after ``cancel``."""
        return Cancelled(INTERRUPTED if self.cancelled else CANCELLED)
