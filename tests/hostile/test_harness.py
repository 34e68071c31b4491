"""The harness detects a killed server, a blocked server, and a refusal without a reason."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from apiext.conformance.support import waiting
from apiext.conformance.support.waiting import TooLate, pause
from tests.hostile.harness import Victim, refusal, running_victim

POOR = (sys.executable, "-m", "tests.hostile.poor_server")


@pytest.fixture
def poor(tmp_path: Path) -> Iterator[Victim]:
    with running_victim(tmp_path, (), command=POOR) as running:
        yield running


def grow(poor: Victim) -> None:
    """Kill the server."""
    with pytest.raises(OSError, match=r"closed|reset"):
        poor.api.get("/grow")
    assert poor.server.process is not None
    poor.server.process.wait(10)


def test_harness_detects_a_killed_server(poor: Victim) -> None:
    poor.needs_bound()
    with pytest.raises(pytest.fail.Exception, match="killed"), poor.attacked():
        grow(poor)


def test_harness_detects_a_blocked_server(poor: Victim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "busy", lambda: 1.0)  # without this, the limit grows with the load of the machine
    monkeypatch.setattr(waiting, "slow", lambda: 1.0)
    with pytest.raises(TooLate, match="seconds of CPU"), poor.attacked():
        poor.api.get("/spin").expect(200)


def test_harness_detects_a_refusal_without_a_reason(poor: Victim) -> None:
    with pytest.raises(KeyError):
        refusal(poor.api.get("/refuse"))


def test_harness_restarts_the_server(victim: Victim) -> None:
    with victim.attacked() as bystander:
        while bystander.count < 5:
            pause(0.01)
    victim.restart()
