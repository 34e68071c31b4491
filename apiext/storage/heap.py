"""Return freed pages in the middle of the heap to the system: glibc keeps them for the process otherwise."""

from concurrent.futures import Future, ThreadPoolExecutor

# Bytes that must be freed before pages are returned: 0.2 milliseconds of a thread for each MiB that is free then.
HEAP_FREED = 4 * 1024 * 1024


class Heap:
    """Count freed bytes, and return the free pages in a thread after each HEAP_FREED of them.

    glibc keeps the heap locked meanwhile, so the event loop waits only if it needs memory from the heap: smaller
    trims make that wait shorter.
    """

    __slots__ = ("_freed", "_thread", "_trimming")

    def __init__(self) -> None:
        self._freed = 0
        self._thread = ThreadPoolExecutor(1, "heap")
        self._trimming: Future[object] | None = None

    def freed(self, size: int) -> None:
        """Count bytes of small pieces that were freed."""
        self._freed += size
        if self._freed >= HEAP_FREED and (self._trimming is None or self._trimming.done()):
            self._freed = 0
            self._trimming = self._thread.submit(_trim)


def _trim() -> None:
    """Return free pages to the system, if the C library is glibc, which alone has ``malloc_trim``."""
    import ctypes  # most servers never free so much (decision 36)

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


HEAP = Heap()
