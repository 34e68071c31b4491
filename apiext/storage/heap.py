"""Gives the system back what was freed in the middle of the heap: glibc keeps it for the process else."""

import ctypes

# Bytes freed by lists after which free pages are given back, 2 milliseconds.
HEAP_FREED = 16 * 1024 * 1024


_TRIM = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it


class Heap:
    """Counts what is freed, and looks through the heap whenever that was HEAP_FREED."""

    __slots__ = ("_freed",)

    def __init__(self) -> None:
        self._freed = 0

    def freed(self, size: int) -> None:
        """Take note that so many bytes of small pieces were freed."""
        self._freed += size
        if self._freed >= HEAP_FREED:
            self._freed = 0
            if _TRIM is not None:
                _TRIM(0)


HEAP = Heap()
