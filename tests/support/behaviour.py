"""Knows the numbered behaviour rows, and counts those that passing tests show."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

_LISTED = Path(__file__).with_name("rows.yaml")
_shown, _broken = pytest.StashKey[set[str]](), pytest.StashKey[set[str]]()


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

    @pytest.hookimpl
    def pytest_configure(self, config: pytest.Config) -> None:
        """Start with nothing shown."""
        config.stash[_shown], config.stash[_broken] = set(), set()

    @pytest.hookimpl
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Refuse marks that name no row."""
        for item in items:
            if unknown := set(rows_of(item)) - all_rows():
                raise pytest.UsageError(f"{item.nodeid} is marked with rows that do not exist: {sorted(unknown)}")

    @pytest.hookimpl
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Note the rows of a test that ran: shown when it passed, broken when anything of it failed."""
        rows = set(rows_of(item))
        if call.excinfo is None:
            if call.when == "call":
                item.config.stash[_shown].update(rows)
        elif not call.excinfo.errisinstance(pytest.skip.Exception):
            item.config.stash[_broken].update(rows)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        """Print how many rows passing tests show."""
        holding = config.stash[_shown] - config.stash[_broken]
        terminalreporter.write_line(f"behaviour: {len(holding)} of {len(all_rows())}")
        if terminalreporter.verbosity > 0:
            terminalreporter.write_line("not shown: " + " ".join(sorted(all_rows() - holding)))
