"""Distribute groups of tests to the processes of pytest-xdist.

Report tests that were skipped or run again.
"""

from __future__ import annotations

import gc
from typing import Any

import pytest

from tests.support import shared

FIRST = ("clients", "conformance", "apiext", "hostile", "etcd", "faults", "unit/cel", "unit/schema")
"""The long groups. They start first, so that short groups use the remaining time at the end of a run."""


def group_of(nodeid: str) -> str:
    """Return the group of a test, which one process runs.

    A group is a file, a package of unit tests, or a tier. All files in the same process share its servers.
    """
    directory, name = nodeid.partition("::")[0].rsplit("/", 1)
    tier, _, package = directory.removeprefix("tests").removeprefix("/").partition("/")
    if tier in ("conformance", "apiext", "faults", "etcd"):
        return f"{tier}/{name}"
    if tier == "unit":
        return "/".join(filter(None, (tier, package.partition("/")[0])))
    return tier or name


def _rank(item: pytest.Item) -> int:
    group = group_of(item.nodeid)
    return next((rank for rank, begin in enumerate(FIRST) if f"{group}/".startswith(f"{begin}/")), len(FIRST))


def why(message: str) -> str:
    """Return the line of a failure that is the reason for running the test again."""
    lines = message.splitlines() or [""]
    return next((line for line in lines if "address already in use" in line.lower()), lines[0])


class Tiers:
    """A pytest plugin: one process runs all tests of a group, and long groups start first."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Return the scheduler for pytest-xdist; it assigns complete groups to processes."""
        from xdist.scheduler import LoadScopeScheduling  # absent without pytest-xdist, which then never calls this

        class ByGroup(LoadScopeScheduling):
            """Schedules groups in the order of the collection."""

            def _split_scope(self, nodeid: str) -> str:
                return group_of(nodeid)

        config.option.loadscopereorder = False
        return ByGroup(config, log)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Put the long groups first in each process of pytest-xdist."""
        if hasattr(config, "workerinput"):
            items.sort(key=_rank)

    @pytest.hookimpl
    def pytest_collection_finish(self) -> None:
        """Exclude the thousands of test objects from garbage collection.

        Collections during tests are then short.
        """
        gc.collect()
        gc.freeze()

    @pytest.hookimpl
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Pass the skipped cases of this process to the main process."""
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["left_out"] = dict(shared.left_out)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the skipped cases of a process.

        Each process counts all cases, so the maximum is correct.
        """
        for path, count in getattr(node, "workeroutput", {}).get("left_out", {}).items():
            shared.left_out[path] = max(shared.left_out[path], count)

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print skipped cases and the tests that ran twice.

        Cases are skipped if the data beside the checkout is missing.
        """
        for path, count in sorted(shared.left_out.items()):
            terminalreporter.write_line(f"skipped, since ../shared/{path} is missing: {count} cases")
        for report in terminalreporter.stats.get("rerun", []):
            terminalreporter.write_line(f"run once more: {report.nodeid}: {why(report.longrepr.reprcrash.message)}")
