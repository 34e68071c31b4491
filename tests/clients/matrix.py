"""Counts the stories of each client family, and prints them as a table at the end of a run."""

from __future__ import annotations

from collections import Counter

import pytest

MODULES = {"test_python_client": "kubernetes (official Python client)"}
"""Families of modules whose tests have no mark of their own."""

_shown = pytest.StashKey[dict[str, Counter[str]]]()
_why = pytest.StashKey[dict[str, str]]()


def family_of(item: pytest.Item) -> str:
    """Return the client family of a story: its mark, the kubectl that it is given, or its module's."""
    if mark := item.get_closest_marker("client"):
        return str(mark.args[0])
    given = getattr(getattr(item, "callspec", None), "params", {})
    version = given.get("kubectl_of") or given.get("version")
    if "kubectl" in item.nodeid:
        return f"kubectl {version}" if version and version != "none" else "kubectl (the newest here)"
    return MODULES.get(item.module.__name__.rpartition(".")[2], "") if isinstance(item, pytest.Function) else ""


@pytest.hookimpl
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note how a story ended."""
    family = family_of(item)
    if not family:
        return
    counts = item.config.stash.setdefault(_shown, {}).setdefault(family, Counter())
    if call.excinfo is None:
        counts["passed"] += call.when == "call"
    elif call.excinfo.errisinstance(pytest.skip.Exception):
        counts["left out"] += 1
        item.config.stash.setdefault(_why, {})[family] = str(call.excinfo.value)
    else:
        counts["failed"] += 1


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table."""
    shown = config.stash.get(_shown, {})
    if not shown:
        return
    width = max(map(len, shown))
    terminalreporter.write_line("client families:")
    for family, counts in sorted(shown.items()):
        told = ", ".join(
            f"{counts[outcome]} {outcome}" for outcome in ("passed", "failed", "left out") if counts[outcome]
        )
        why = config.stash.get(_why, {}).get(family, "")
        terminalreporter.write_line(f"  {family:{width}}  {told}{f' ({why})' if why else ''}")
