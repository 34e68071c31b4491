"""End a test that takes too long, and report where its tasks wait.

Before, faulthandler prints the stacks of its threads.
"""

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

GRACE = 5.0  # seconds after pytest's faulthandler_timeout, which prints the stacks of all threads
BUILDS = 1200.0  # seconds for a test of a client, which may build a program first
AGAIN = 30.0  # seconds until the next step of an ended test is ended, too
EXIT = 60.0  # seconds for running threads after the last line of pytest
_CLIENTS = Path(__file__).resolve().parents[1] / "clients"


class TookTooLong(BaseException):
    """The end of an overdue test.

    It is no Exception, so that a test that expects an exception does not catch it.
    """


@contextmanager
def bounded(what: str, seconds: float) -> Iterator[None]:
    """Raise TookTooLong in the main thread if the block takes longer than ``seconds``.

    Raise it again each AGAIN seconds until the block ends.
    """

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
    """Return a line for each task of the running event loop: its waiting calls, innermost last."""
    try:
        return [f"{task.get_name()}: {' > '.join(_calls(task.get_coro()))}" for task in asyncio.all_tasks()]
    except RuntimeError:  # no event loop runs
        return []


def _calls(coroutine: Any) -> Iterator[str]:
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        yield f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
        coroutine = coroutine.cr_await


class Overdue:
    """A pytest plugin that limits the time of each test and of the end of the process.

    The time of a test includes its fixtures. Tests with the mark ``long`` have no limit.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Limit the time of a test."""
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
        """Limit the time after the last line of pytest.

        Python then waits for all threads that are not daemons.
        """
        if not hasattr(config, "workerinput"):  # the main process of pytest-xdist ends the other processes
            faulthandler.dump_traceback_later(EXIT, exit=True, file=sys.__stderr__)


def _allowed(item: pytest.Item) -> float:
    if item.path.is_relative_to(_CLIENTS):
        return BUILDS
    return float(item.config.getini("faulthandler_timeout")) + GRACE
