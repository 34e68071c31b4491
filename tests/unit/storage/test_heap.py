"""Freed pages are returned to the system in a thread, without blocking the event loop."""

import threading
from collections.abc import Iterator

import pytest

from apiext.conformance.support.waiting import until
from apiext.storage import heap as heap_module
from apiext.storage.heap import HEAP_FREED, Heap


class _Trims:
    """A trim function that records its threads and waits for ``end``."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.end = threading.Event()

    def __call__(self) -> None:
        self.threads.append(threading.get_ident())
        assert self.end.wait(60)


@pytest.fixture
def trims(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Trims]:
    made = _Trims()
    monkeypatch.setattr(heap_module, "_trim", made)
    yield made
    made.end.set()


def test_the_caller_does_not_wait_for_a_trim(trims: _Trims) -> None:
    heap = Heap()
    heap.freed(HEAP_FREED - 1)
    assert not trims.threads
    heap.freed(1)
    until(lambda: trims.threads, "a trim has begun")
    assert threading.get_ident() not in trims.threads


def test_one_trim_runs_at_a_time(trims: _Trims) -> None:
    heap = Heap()
    for _ in range(5):
        heap.freed(HEAP_FREED)
    until(lambda: trims.threads, "a trim has begun")
    assert len(trims.threads) == 1
    trims.end.set()

    def second() -> bool:
        heap.freed(0)
        return len(trims.threads) == 2

    until(second, "the bytes freed meanwhile start a second trim")
    heap.freed(HEAP_FREED - 1)
    assert len(trims.threads) == 2
