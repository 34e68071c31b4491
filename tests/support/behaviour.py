"""Knows the numbered behaviour rows, and counts those that passing tests show."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

_LISTED = Path(__file__).with_name("rows.yaml")
_ROWS = "behaviour rows"


@cache
def all_rows() -> frozenset[str]:
    """Return the ids of all rows."""
    listed: dict[str, list[str]] = yaml.safe_load(_LISTED.read_text(encoding="utf-8"))
    return frozenset(
        f"{prefix}-{number:0{len(first)}d}"
        for prefix, ranges in listed.items()
        for first, _, last in (part.partition("…") for part in ranges)
        for number in range(int(first), int(last or first) + 1)
    )


def rows_of(item: pytest.Item) -> Iterator[str]:
    """Yield the rows that a test is marked with."""
    for mark in item.iter_markers("rows"):
        yield from mark.args


class BehaviourRows:
    """A pytest plugin: notes the rows of each test, prints how many hold."""

    def __init__(self) -> None:
        """Start with nothing shown."""
        self._shown: set[str] = set()
        self._broken: set[str] = set()

    @pytest.hookimpl
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse marks that name no row."""
        for item in items:
            if unknown := set(rows_of(item)) - all_rows():
                raise pytest.UsageError(f"{item.nodeid} is marked with rows that do not exist: {sorted(unknown)}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let a report carry the rows of its test, to the process that sums up."""
        report = yield
        report.user_properties.append((_ROWS, list(rows_of(item))))
        return report

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the rows of a test that ran: shown when it passed, broken when anything of it failed."""
        rows = dict(report.user_properties).get(_ROWS, [])
        if report.failed or hasattr(report, "wasxfail"):
            self._broken.update(rows)
        elif report.passed and report.when == "call":
            self._shown.update(rows)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print how many rows passing tests show."""
        holding = self._shown - self._broken
        terminalreporter.write_line(f"behaviour: {len(holding)} of {len(all_rows())}")
        if terminalreporter.verbosity > 0:
            terminalreporter.write_line("not shown: " + " ".join(sorted(all_rows() - holding)))
