"""What the workers behind one port say of themselves, in memory that they and their supervisor share."""

import mmap
import os

GONE = 2**63 - 1
"""Stands for a worker that serves nobody: no revision is too high for it."""
_WIDTH = 8  # bytes of a number, which is written at once


class Board:
    """Where workers say up to which revision they go by what is stored, and that they live; each writes for itself."""

    def __init__(self, descriptor: int, workers: int) -> None:
        """``descriptor`` is that of ``make``, in a process that inherited it."""
        self.descriptor = descriptor
        numbers = memoryview(mmap.mmap(descriptor, _size(workers))).cast("q")
        self._numbers, self._beats, self._opened = numbers[:workers], numbers[workers:-1], numbers[-1:]

    @classmethod
    def make(cls, workers: int) -> "Board":
        """Return a board on which nobody serves."""
        descriptor = os.memfd_create("apiext workers")
        os.ftruncate(descriptor, _size(workers))
        board = cls(descriptor, workers)
        for number in range(1, workers + 1):
            board.leave(number)
        return board

    def put(self, number: int, revision: int) -> None:
        """Say where a worker (from 1) has come to."""
        self._numbers[number - 1] = revision

    def leave(self, number: int) -> None:
        """Say that a worker serves nobody, nor gives signs of life."""
        self.put(number, GONE)
        self.rest(number)

    def beat(self, number: int) -> None:
        """Give a sign of life."""
        self._beats[number - 1] += 1

    def rest(self, number: int) -> None:
        """Say that no sign of life is to be expected."""
        self._beats[number - 1] = 0

    def beats(self, number: int) -> int:
        """Return how many signs of life a worker has given, 0 if none is expected."""
        return self._beats[number - 1]

    def open(self) -> None:
        """Say that all workers serve; the supervisor does so once."""
        self._opened[0] = 1

    @property
    def is_open(self) -> bool:
        """Whether all workers have served."""
        return bool(self._opened[0])

    def behind(self, revision: int) -> dict[int, int]:
        """Return the workers that have not come to a revision, and where each is."""
        return {number: come for number, come in enumerate(self._numbers, 1) if come < revision}


def _size(workers: int) -> int:
    """Return the bytes of a board: two numbers for each worker, and one for all."""
    return (2 * workers + 1) * _WIDTH
