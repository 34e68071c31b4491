"""Shared memory in which the workers behind one port publish their revision and heartbeat (decisions/0024)."""

import mmap
import os

GONE = 2**63 - 1
"""The revision of a worker that serves no client: it is behind no revision."""
_WIDTH = 8  # bytes of a number, which is written at once


class WorkerProgress:
    """The revision up to which each worker serves stored objects, and its heartbeats; a worker writes its own only."""

    def __init__(self, descriptor: int, workers: int) -> None:
        """``descriptor`` is that of ``make``, in a process that inherited it."""
        self.descriptor = descriptor
        numbers = memoryview(mmap.mmap(descriptor, _size(workers))).cast("q")
        self._revisions, self._beats, self._opened = numbers[:workers], numbers[workers:-1], numbers[-1:]

    @classmethod
    def make(cls, workers: int) -> "WorkerProgress":
        """Make the shared memory; no worker serves yet."""
        descriptor = os.memfd_create("apiext workers")
        os.ftruncate(descriptor, _size(workers))
        progress = cls(descriptor, workers)
        for number in range(1, workers + 1):
            progress.leave(number)
        return progress

    def put(self, number: int, revision: int) -> None:
        """Publish the revision of a worker; numbers begin with 1."""
        self._revisions[number - 1] = revision

    def leave(self, number: int) -> None:
        """Publish that a worker serves no client, and has no heartbeat."""
        self.put(number, GONE)
        self.stop_beats(number)

    def beat(self, number: int) -> None:
        """Publish a heartbeat."""
        self._beats[number - 1] += 1

    def stop_beats(self, number: int) -> None:
        """Publish that no heartbeat is expected of a worker."""
        self._beats[number - 1] = 0

    def beats(self, number: int) -> int:
        """Return the number of heartbeats of a worker, 0 if none is expected."""
        return self._beats[number - 1]

    def set_all_serve(self) -> None:
        """Publish that all workers serve; the supervisor does so once."""
        self._opened[0] = 1

    @property
    def all_serve(self) -> bool:
        """True once all workers have served."""
        return bool(self._opened[0])

    def behind(self, revision: int) -> dict[int, int]:
        """Return the workers below a revision, each with its own revision."""
        return {number: own for number, own in enumerate(self._revisions, 1) if own < revision}


def _size(workers: int) -> int:
    """Return the bytes of the shared memory: two numbers for each worker, and one for all."""
    return (2 * workers + 1) * _WIDTH
