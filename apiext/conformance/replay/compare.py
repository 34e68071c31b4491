"""Compare a run with its recording; run many scenarios concurrently."""

from __future__ import annotations

import asyncio
import difflib
import json
import ssl
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from apiext.conformance.replay.look import FOREIGN, Look
from apiext.conformance.replay.normalise import normalise
from apiext.conformance.replay.play import play, session
from apiext.conformance.replay.recorded import Scenario, circumstances, decided

SIDE_BY_SIDE = 6
_WHOLE = 80  # up to this number of lines, the diff shows both answers completely
_SHOWN = 2_000  # maximum number of characters of a line of a request in a report


def _lines(answer: Any) -> str:
    return json.dumps(answer, indent=1, sort_keys=True, ensure_ascii=False)


def difference(wanted: Any, got: Any) -> str:
    """Return a unified diff of two answers, empty if they are equal; 1 and 1.0 are not equal."""
    wanted, got = _lines(wanted), _lines(got)
    if wanted == got:
        return ""
    before, after = wanted.splitlines(), got.splitlines()
    context = _WHOLE if max(len(before), len(after)) <= _WHOLE else 3
    diff = difflib.unified_diff(before, after, "recorded", "got", lineterm="", n=context)
    return "\n".join(line[:400] for line in diff)


def without(value: Any, names: Collection[str]) -> Any:
    """Return a value without the fields that have these names, at any depth."""
    if isinstance(value, dict):
        return {name: without(item, names) for name, item in value.items() if name not in names}
    return [without(item, names) for item in value] if isinstance(value, list) else value


def differences(
    scenario: Scenario,
    answers: list[dict[str, Any] | None],
    left_out: Collection[str] = (),
    spared: Collection[int] = (),
    undecided: bool = False,
) -> dict[int, str]:
    """Return step index → diff, for steps whose answers differ.

    Steps with a difference that the recording allows are omitted. Fields with a name in ``left_out`` and steps with an
    index in ``spared`` are not compared. If decided.yaml has another answer to a step, this answer is compared. If
    ``undecided`` is true, the server may give either the recorded answer or that of decided.yaml.
    """
    found = {}
    for index, step in enumerate(scenario.steps):
        wanted, got = step.get("answer"), answers[index]
        if wanted is None or index in spared or scenario.excuse(index):
            continue
        diff = difference(without(decided(wanted), left_out), without(got, left_out))
        if diff and not (undecided and not difference(without(wanted, left_out), without(got, left_out))):
            found[index] = f"step {index} {step['name']!r} {_request(step)}\n{diff}"
    return found


def _request(step: Mapping[str, Any]) -> str:
    """Return the request of a step for a report."""
    lines = [f"{step.get('method', '')} {step.get('path', '')}"]
    lines += [f"{name}: {value}" for name, value in (step.get("headers") or {}).items()]
    body = step.get("raw", step.get("body"))
    lines += [] if body is None else [body if isinstance(body, str) else json.dumps(body)]
    return "\n".join(line[:_SHOWN] for line in lines)


class Player:
    """Plays scenarios concurrently in a thread, before the tests need the answers."""

    def __init__(
        self,
        url: str,
        scenarios: Iterable[Scenario],
        left_out: Collection[str] = (),
        access: tuple[Mapping[str, str], ssl.SSLContext | None] = ({}, None),
        seen: Look | None = None,
    ) -> None:
        self._url, self._access = url, access
        self._left_out = left_out
        self._look = seen or Look()
        self.spared = 0  # number of steps that pass only because not_yet.yaml excludes fields
        self._results: dict[str, Future[dict[int, str]]] = {}
        self._scenarios = list(scenarios)
        for scenario in self._scenarios:
            self._results[scenario.id] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._play_all()), daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """The number of scenarios."""
        return len(self._scenarios)

    def differences(self, scenario: Scenario) -> dict[int, str]:
        """Return step index → diff for a scenario; wait until the scenario has been played."""
        return self._results[scenario.id].result(timeout=600)

    def without_steps(self, scenario: Scenario) -> dict[int, str]:
        """Return step index → the reason why the server under test cannot pass the step."""
        return {
            index: row.why
            for index, step in enumerate(scenario.steps)
            for row in circumstances()
            if row.where in self._look.facts and row.steps.search(f"{scenario.id}/{step['name']}")
        }

    async def _play_all(self) -> None:
        turns = asyncio.Semaphore(SIDE_BY_SIDE)
        foreign = FOREIGN in self._look.facts
        async with session(*self._access) as http, asyncio.TaskGroup() as tasks:

            async def one(scenario: Scenario) -> None:
                result = self._results[scenario.id]
                async with turns:
                    try:
                        played = await play(http, self._url, scenario, manager=self._look.manager)
                        for index in (spared := self.without_steps(scenario)):
                            played.replies[index] = None
                        answers = normalise(played)
                        found = differences(scenario, answers, self._left_out, spared, foreign)
                        self.spared += len(differences(scenario, answers, (), spared, foreign)) - len(found)
                        result.set_result(found)
                    except Exception as failure:
                        result.set_exception(failure)

            for scenario in self._scenarios:
                tasks.create_task(one(scenario))
