"""Keeps each tier of tests in one process when pytest-xdist runs several; tells what was left out or run again."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.support import shared


def tier_of(nodeid: str) -> str:
    """Return the name of the directory, or the file, right below tests/; a package of unit tests is one by itself."""
    path = nodeid.partition("::")[0].removeprefix("tests/").removeprefix("apiext/")
    first, _, rest = path.partition("/")
    package = rest.rpartition("/")[0].partition("/")[0]
    return f"{first}/{package}" if first == "unit" and package else first


def why(message: str) -> str:
    """Return the line of a failure that tells why its test is run once more."""
    lines = message.splitlines() or [""]
    return next((line for line in lines if "address already in use" in line.lower()), lines[0])


class Tiers:
    """A pytest plugin: what tests share is made once, and no two of the slow ones run side by side."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Return what gives tests to processes: a whole tier to each."""
        from xdist.scheduler import LoadScopeScheduling  # not there without pytest-xdist, which then does not ask

        class ByTier(LoadScopeScheduling):
            """Begins with the tiers that take long, which come first by name, and fills up with unit tests."""

            def _split_scope(self, nodeid: str) -> str:
                return tier_of(nodeid)

        config.option.loadscopereorder = False
        return ByTier(config, log)

    @pytest.hookimpl
    def pytest_collection_finish(self) -> None:
        """Have the garbage collector leave out the thousands of tests, so that a test is not charged for them."""
        gc.collect()
        gc.freeze()

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand on what one of several processes left out."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["left_out"] = dict(shared.left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take it over: each of them has collected everything."""
        for path, count in getattr(node, "workeroutput", {}).get("left_out", {}).items():
            shared.left_out[path] = max(shared.left_out[path], count)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what was left out for want of the data beside a checkout, and what was run again and why."""
        for path, count in sorted(shared.left_out.items()):
            terminalreporter.write_line(f"left out for want of ../shared/{path}: {count} cases")
        for report in terminalreporter.stats.get("rerun", []):
            terminalreporter.write_line(f"run once more: {report.nodeid}: {why(report.longrepr.reprcrash.message)}")
