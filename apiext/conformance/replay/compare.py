"""Knows how a run is held against the recording, and runs many scenarios side by side."""

from __future__ import annotations

import asyncio
import difflib
import json
import threading
from collections.abc import Collection, Iterable
from concurrent.futures import Future
from typing import Any

from apiext.conformance.replay.normalise import normalise
from apiext.conformance.replay.play import play, session
from apiext.conformance.replay.recorded import Scenario, decided

SIDE_BY_SIDE = 6


def _lines(answer: Any) -> str:
    return json.dumps(answer, indent=1, sort_keys=True, ensure_ascii=False)


def difference(wanted: Any, got: Any) -> str:
    """Return a unified diff of two answers, empty when they are the same down to the type of numbers."""
    wanted, got = _lines(wanted), _lines(got)
    if wanted == got:
        return ""
    diff = difflib.unified_diff(wanted.splitlines(), got.splitlines(), "recorded", "got", lineterm="", n=3)
    return "\n".join(line[:400] for line in diff)


def without(value: Any, names: Collection[str]) -> Any:
    """Return a value less the entries of these names, at any depth."""
    if isinstance(value, dict):
        return {name: without(item, names) for name, item in value.items() if name not in names}
    return [without(item, names) for item in value] if isinstance(value, list) else value


def differences(
    scenario: Scenario, answers: list[dict[str, Any] | None], left_out: Collection[str] = ()
) -> dict[int, str]:
    """Return the diff of every step whose answer differs without the recording allowing it."""
    found = {}
    for index, step in enumerate(scenario.steps):
        wanted, got = step.get("answer"), answers[index]
        if wanted is None or scenario.excuse(index):
            continue
        if diff := difference(without(decided(wanted), left_out), without(got, left_out)):
            found[index] = f"step {index} {step['name']!r} {step.get('method', '')} {step.get('path', '')}\n{diff}"
    return found


class Player:
    """Plays scenarios side by side on a thread of its own, so that each test finds its answers ready."""

    def __init__(self, url: str, scenarios: Iterable[Scenario], left_out: Collection[str] = ()) -> None:
        self._url = url
        self._left_out = left_out
        self.spared = 0  # steps that pass only because of what is left out
        self._results: dict[str, Future[dict[int, str]]] = {}
        self._scenarios = list(scenarios)
        for scenario in self._scenarios:
            self._results[scenario.id] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._play_all()), daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """How many scenarios are played."""
        return len(self._scenarios)

    def differences(self, scenario: Scenario) -> dict[int, str]:
        """Return step index → diff for a scenario, waiting for its turn."""
        return self._results[scenario.id].result(timeout=600)

    async def _play_all(self) -> None:
        turns = asyncio.Semaphore(SIDE_BY_SIDE)
        async with session() as http, asyncio.TaskGroup() as tasks:

            async def one(scenario: Scenario) -> None:
                result = self._results[scenario.id]
                async with turns:
                    try:
                        answers = normalise(await play(http, self._url, scenario))
                        found = differences(scenario, answers, self._left_out)
                        self.spared += len(differences(scenario, answers)) - len(found)
                        result.set_result(found)
                    except Exception as failure:
                        result.set_exception(failure)

            for scenario in self._scenarios:
                tasks.create_task(one(scenario))
