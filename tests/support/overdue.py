"""Ends a test that takes too long and says where its tasks wait; where its threads are, faulthandler says before."""

from __future__ import annotations

import asyncio
import faulthandler
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

GRACE = 5.0  # seconds after pytest's faulthandler_timeout, which tells the stacks of all threads
BUILDS = 1200.0  # of a client's test, which may build a program first
AGAIN = 30.0  # until the next step of an ended test is ended, too
EXIT = 60.0  # after the last line of pytest, for running threads
_CLIENTS = Path(__file__).resolve().parents[1] / "clients"


class TookTooLong(BaseException):
    """Not an Exception, so that a test which expects an exception does not catch it."""


@contextmanager
def bounded(what: str, seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the main thread when the block takes longer, and again while it does not end."""

    def over(_: int, __: FrameType | None) -> None:
        raise TookTooLong("\n  ".join([f"{what}: not within {seconds:g} s", *waiting()]))

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def waiting() -> list[str]:
    """Return for each task of the loop that runs here the calls in which it waits, the innermost last."""
    try:
        return [f"{task.get_name()}: {' > '.join(_calls(task.get_coro()))}" for task in asyncio.all_tasks()]
    except RuntimeError:  # none runs
        return []


def _calls(coroutine: Any) -> Iterator[str]:
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        coroutine = coroutine.cr_await


class Overdue:
    """A pytest plugin: bounds each test with its fixtures, and the end of the process; the long profile has its own."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Bound a test."""
        if item.get_closest_marker("long"):
            return (yield)
        with bounded(item.nodeid, _allowed(item)):
            return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Print no stacks for a test with a longer time limit."""
        if item.get_closest_marker("long") or _allowed(item) == BUILDS:
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl
    def pytest_enter_pdb(self) -> None:
        """Remove the time limit in a debugger."""
        signal.setitimer(signal.ITIMER_REAL, 0)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Limit the time after the last line of pytest, when Python waits for each thread that is no daemon."""
        if not hasattr(config, "workerinput"):  # the main process waits for those of pytest-xdist, and ends them
            faulthandler.dump_traceback_later(EXIT, exit=True, file=sys.__stderr__)


def _allowed(item: pytest.Item) -> float:
    if item.path.is_relative_to(_CLIENTS):
        return BUILDS
    return float(item.config.getini("faulthandler_timeout")) + GRACE
