"""A revision for each of the workers behind one port, in memory that they and their supervisor share."""

import mmap
import os

GONE = 2**63 - 1
"""Stands for a worker that serves nobody: no revision is too high for it."""
_WIDTH = 8  # bytes of a number, which is written at once


class Board:
    """Where workers say up to which revision they go by what is stored; each writes its own number only."""

    def __init__(self, descriptor: int, workers: int) -> None:
        """``descriptor`` is that of ``make``, in a process that inherited it."""
        self.descriptor = descriptor
        self._numbers = memoryview(mmap.mmap(descriptor, workers * _WIDTH)).cast("q")

    @classmethod
    def make(cls, workers: int) -> "Board":
        """Return a board on which nobody serves."""
        descriptor = os.memfd_create("apiext workers")
        os.ftruncate(descriptor, workers * _WIDTH)
        board = cls(descriptor, workers)
        for number in range(1, workers + 1):
            board.put(number, GONE)
        return board

    def put(self, number: int, revision: int) -> None:
        """Say where a worker (from 1) has come to."""
        self._numbers[number - 1] = revision

    def least(self) -> int:
        """Return the revision that all have come to."""
        return min(self._numbers)
