"""Returns freed pages in the middle of the heap to the operating system.

glibc does not do that by itself.
"""

from concurrent.futures import Future, ThreadPoolExecutor

# Freed bytes after which a thread returns free pages to the operating system. This takes the thread 0.2 milliseconds
# for each free MiB.
HEAP_FREED = 4 * 1024 * 1024


class Heap:
    """Counts freed bytes, and returns the free pages in a thread after each HEAP_FREED bytes.

    While the thread works, glibc locks the heap, so an allocation on the event loop waits. A smaller HEAP_FREED
    shortens this wait.
    """

    __slots__ = ("_freed", "_thread", "_trimming")

    def __init__(self) -> None:
        self._freed = 0
        self._thread = ThreadPoolExecutor(1, "heap")
        self._trimming: Future[object] | None = None

    def freed(self, size: int) -> None:
        """Count freed bytes of small allocations."""
        self._freed += size
        if self._freed >= HEAP_FREED and (self._trimming is None or self._trimming.done()):
            self._freed = 0
            self._trimming = self._thread.submit(_trim)


def _trim() -> None:
    """Return free pages to the operating system.

    Only glibc has the necessary function ``malloc_trim``.
    """
    import ctypes  # imported here, since most servers never free so many bytes (decision 36)

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


HEAP = Heap()
