"""Read the numbered rows of docs/BEHAVIOUR.md, and count the rows whose tests pass."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from functools import cache

import pytest

from tests.support.shared import ROOT

PAGE = ROOT / "docs" / "BEHAVIOUR.md"
_ROW = re.compile(r"^\| ([A-Z][A-Z0-9]*-\d+) \| .+ \| (`.+`) \|$", re.M)
_ROWS = "behaviour rows"


@cache
def shown_in() -> dict[str, list[str]]:
    """Return row → the files of tests that the page names for it."""
    found = _ROW.findall(PAGE.read_text(encoding="utf-8"))
    assert len(found) == len(dict(found)), "a number stands twice in docs/BEHAVIOUR.md"
    return {row: re.findall("`([^`]+)`", tests) for row, tests in found}


@cache
def all_rows() -> frozenset[str]:
    """Return the ids of all rows."""
    return frozenset(shown_in())


def rows_of(item: pytest.Item) -> Iterator[str]:
    """Yield the rows in the marks of a test."""
    for mark in item.iter_markers("rows"):
        yield from mark.args


class BehaviourRows:
    """A pytest plugin that prints the number of behaviour rows whose tests pass.

    It records the rows of each test.
    """

    def __init__(self) -> None:
        """Create the plugin without results."""
        self._shown: set[str] = set()
        self._broken: set[str] = set()

    @pytest.hookimpl
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Raise UsageError for a mark with a row that does not exist."""
        for item in items:
            if unknown := set(rows_of(item)) - all_rows():
                raise pytest.UsageError(f"{item.nodeid} is marked with rows that do not exist: {sorted(unknown)}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the rows of a test to its report.

        The process of pytest-xdist that prints the summary reads them there.
        """
        report = yield
        report.user_properties.append((_ROWS, list(rows_of(item))))
        return report

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the rows of a test: as shown if it passed, as broken if it failed.

        They are broken, too, if the setup or the teardown failed. A test that is expected to fail counts as failed.
        """
        rows = dict(report.user_properties).get(_ROWS, [])
        if report.failed or hasattr(report, "wasxfail"):
            self._broken.update(rows)
        elif report.passed and report.when == "call":
            self._shown.update(rows)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the number of rows whose tests all passed; with ``-v`` also the other rows."""
        holding = self._shown - self._broken
        terminalreporter.write_line(f"behaviour: {len(holding)} of {len(all_rows())}")
        if terminalreporter.verbosity > 0:
            terminalreporter.write_line("not shown: " + " ".join(sorted(all_rows() - holding)))
