"""Shared memory in which the workers behind one port publish their revisions and heartbeats.

See decisions/0024.
"""

import mmap
import os

GONE = 2**63 - 1
"""The revision of a worker that serves no clients. It is higher than all revisions, so no worker waits for it."""
_WIDTH = 8  # bytes of an integer, which the processor writes in one step, so readers never see a part of it


class WorkerProgress:
    """The revision up to which each worker serves stored objects, and its heartbeats.

    Workers have numbers from 1 on.
    """

    def __init__(self, descriptor: int, workers: int) -> None:
        """Map the shared memory of the file descriptor that ``make`` has opened.

        This process has inherited the descriptor.
        """
        self.descriptor = descriptor
        numbers = memoryview(mmap.mmap(descriptor, _size(workers))).cast("q")
        self._revisions, self._beats, self._opened = numbers[:workers], numbers[workers:-1], numbers[-1:]

    @classmethod
    def make(cls, workers: int) -> "WorkerProgress":
        """Create the shared memory. At first, no worker serves."""
        descriptor = os.memfd_create("apiext workers")
        os.ftruncate(descriptor, _size(workers))
        progress = cls(descriptor, workers)
        for number in range(1, workers + 1):
            progress.leave(number)
        return progress

    def put(self, number: int, revision: int) -> None:
        """Publish the revision of a worker."""
        self._revisions[number - 1] = revision

    def leave(self, number: int) -> None:
        """Publish that a worker serves no clients and sends no heartbeats."""
        self.put(number, GONE)
        self.stop_beats(number)

    def beat(self, number: int) -> None:
        """Publish a heartbeat of a worker."""
        self._beats[number - 1] += 1

    def stop_beats(self, number: int) -> None:
        """Publish that a worker sends no more heartbeats."""
        self._beats[number - 1] = 0

    def beats(self, number: int) -> int:
        """Return the number of heartbeats of a worker, 0 if the worker sends no heartbeats."""
        return self._beats[number - 1]

    def set_all_serve(self) -> None:
        """Publish that all workers serve. The supervisor calls this once."""
        self._opened[0] = 1

    @property
    def all_serve(self) -> bool:
        """True after ``set_all_serve``, even if a worker has ended since then."""
        return bool(self._opened[0])

    def behind(self, revision: int) -> dict[int, int]:
        """Return number → revision of each worker whose revision is lower than ``revision``."""
        return {number: own for number, own in enumerate(self._revisions, 1) if own < revision}


def _size(workers: int) -> int:
    """Return the size of the shared memory in bytes.

    It has two integers for each worker, and one integer for all workers.
    """
    return (2 * workers + 1) * _WIDTH
