"""Count the stories of each client family, and print a table at the end of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

import pytest

MODULES = {"test_python_client": "kubernetes (official Python client)"}
"""Module → family, for modules whose tests have no mark ``client``."""

_FAMILY = "client family"


def family_of(item: pytest.Item) -> str:
    """Return the client family of a story: from its mark ``client``, its kubectl, or its module."""
    if mark := item.get_closest_marker("client"):
        return str(mark.args[0])
    given = getattr(getattr(item, "callspec", None), "params", {})
    version = given.get("kubectl_of") or given.get("version")
    if "kubectl" in item.nodeid:
        return f"kubectl {version}" if version and version != "none" else "kubectl (the newest here)"
    return MODULES.get(item.module.__name__.rpartition(".")[2], "") if isinstance(item, pytest.Function) else ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the family of a story to its report.

    So the process of pytest-xdist that prints the table receives the family.
    """
    report = yield
    report.user_properties.append((_FAMILY, family_of(item)))
    return report


class Families:
    """A pytest plugin: counts passed, failed and skipped stories, and prints the table."""

    def __init__(self) -> None:
        """Create the plugin without results."""
        self._shown: dict[str, Counter[str]] = {}
        self._why: dict[str, str] = {}

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the result of a story."""
        family = dict(report.user_properties).get(_FAMILY)
        if not family:
            return
        counts = self._shown.setdefault(str(family), Counter())
        if report.passed:
            counts["passed"] += report.when == "call"
        elif report.skipped:
            counts["left out"] += 1
            if isinstance(report.longrepr, tuple):
                self._why[str(family)] = report.longrepr[2].removeprefix("Skipped: ")
        else:
            counts["failed"] += 1

    @pytest.hookimpl
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the table."""
        if not self._shown:
            return
        width = max(map(len, self._shown))
        terminalreporter.write_line("client families:")
        for family, counts in sorted(self._shown.items()):
            told = ", ".join(
                f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "left out") if counts[outcome]
            )
            why = self._why.get(family, "")
            terminalreporter.write_line(f"  {family:{width}}  {told}{f' ({why})' if why else ''}")
