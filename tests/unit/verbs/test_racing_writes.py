"""The outcomes of each write with each concurrent change and each fault of etcd, as a table.

The changes are those of the object, its definition or its namespace.

`python -m tests.unit.verbs.test_racing_writes` rewrites the table.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from apiext.conformance.support.cases import read as read_yaml
from tests.unit.verbs.racing import VERBS, races, racing

TABLE = Path(__file__).with_name("cases") / "racing_writes.yaml"
"""The events by verb, state of the object and outcome; ``World.race`` describes outcomes."""

Outcomes = Mapping[tuple[str, str, str], str]


async def outcomes(monkeypatch: pytest.MonkeyPatch, *, admitted: bool) -> Outcomes:
    """Return the outcomes by verb, state and event.

    They are of all races if ``admitted``, otherwise of those without late watches.
    """
    async with racing(monkeypatch, admitted=admitted) as world:
        return {
            (verb, state, " ".join(filter(None, event)) or "alone"): await world.race(VERBS[verb], state, *event)
            for verb, state, event in races()
            if admitted or "late" not in event
        }


def expected() -> Outcomes:
    """Return the outcomes of the table by verb, state and event."""
    table = read_yaml(TABLE)
    return {
        (verb, state, event): outcome
        for verb, states in table.items()
        for state, found in states.items()
        for outcome, events in found.items()
        for event in events.split(", ")
    }


@pytest.mark.slow
@pytest.mark.rows("WRI-005", "WRI-019", "RV-017", "NSP-004", "ETC-010")
async def test_race_outcomes_match_table(monkeypatch: pytest.MonkeyPatch) -> None:
    found, wanted = await outcomes(monkeypatch, admitted=True), expected()
    assert found.keys() == wanted.keys()
    assert {race: found[race] for race in wanted if found[race] != wanted[race]} == {}


@pytest.mark.slow
@pytest.mark.rows("ADM-001")
async def test_race_outcomes_match_table_without_plug_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    found, wanted = await outcomes(monkeypatch, admitted=False), expected()
    others = [
        (race, found[race], outcome)
        for race, outcome in wanted.items()
        if race in found and "denied" not in race[0] and _uncounted(found[race]) != _uncounted(outcome)
    ]
    assert others == []


def _uncounted(outcome: str) -> str:
    """Return an outcome without its number of admission calls."""
    return outcome.rpartition(" ")[0]


def _write() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = asyncio.run(outcomes(monkeypatch, admitted=True))
    table: dict[str, dict[str, dict[str, str]]] = {}
    for (verb, state, event), outcome in found.items():
        events = table.setdefault(verb, {}).setdefault(state, {})
        events[outcome] = f"{events[outcome]}, {event}" if outcome in events else event
    TABLE.write_text(yaml.safe_dump(table, sort_keys=False, width=10_000, allow_unicode=True), encoding="utf-8")


if __name__ == "__main__":
    _write()
