"""Waiting in tests: late results and missing results.

A test with a late result runs once more; a test with a missing result fails.
"""

from __future__ import annotations

import errno
import os

import pytest

from apiext.conformance.support import waiting
from apiext.conformance.support.waiting import TooLate, prompt, until

runs: list[str] = []


@pytest.mark.parametrize("quick", [True, False])
def test_prompt_scales_the_limit_by_machine_load(monkeypatch: pytest.MonkeyPatch, *, quick: bool) -> None:
    monkeypatch.setattr(waiting, "busy", lambda: 2.0)
    monkeypatch.setattr(waiting, "slow", lambda: 1.5)
    if quick:
        prompt(2.9, 1.0)
    else:
        with pytest.raises(TooLate, match=r"^the end: 3\.100 s, the limit is 1 s x 3.0 for the busy machine"):
            prompt(3.1, 1.0, "the end")


def test_until_raises_too_late_for_a_late_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "busy", lambda: 1.0)
    monkeypatch.setattr(waiting, "slow", lambda: 1.0)
    looks = iter([False, False, True, True])
    with pytest.raises(TooLate, match=r"^it comes: 0\.0"):
        until(lambda: next(looks), "it comes", within=0.001, every=0.01)
    assert until(lambda: next(looks), "it comes", within=0)


@pytest.mark.parametrize("within", [0, 0.01])
def test_until_raises_assertion_error_without_result(monkeypatch: pytest.MonkeyPatch, within: float) -> None:
    monkeypatch.setattr(waiting, "PATIENCE", 0.05)
    with pytest.raises(AssertionError, match=r"it comes: not within 0 s \(last seen: \[\]\)") as found:
        until(lambda: [], "it comes", within=within)
    assert found.type is AssertionError


def test_late_run_is_repeated() -> None:
    runs.append("late")
    prompt(1e9 if len(runs) == 1 else 0.0, 1.0, "the first of two runs, on purpose")
    assert len(runs) == 2


def test_run_with_port_in_use_is_repeated() -> None:
    runs.append("taken")
    if runs.count("taken") == 1:
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE), "by the first of two runs, on purpose")
