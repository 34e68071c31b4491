"""Each recorded scenario of the reference server is one test.

The server under test must give the recorded answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from apiext.conformance.replay import recorded
from apiext.conformance.replay.compare import Player
from apiext.conformance.replay.look import look, namespaces, namespaces_of
from apiext.conformance.replay.recorded import LEFT_OUT, Scenario
from apiext.conformance.support.target import Target

SCENARIOS = list(recorded.load())
NOT_YET = recorded.not_yet()


@pytest.fixture(scope="session")
def player(request: pytest.FixtureRequest, reference_server: Target) -> Iterator[Player]:
    """Create missing namespaces for the selected scenarios; play several scenarios at a time."""
    chosen = {
        item.callspec.params["scenario"].id: item.callspec.params["scenario"]
        for item in request.session.items
        if getattr(item, "originalname", "") == "test_scenario" and hasattr(item, "callspec")
    }
    api = reference_server.client()
    access = (getattr(reference_server, "headers", {}), getattr(reference_server, "tls", None))
    with namespaces(api, namespaces_of(chosen.values())):
        yield Player(reference_server.url, chosen.values(), recorded.left_out(NOT_YET), access, look(api))


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(it, id=it.id.replace(" ", "-"), marks=pytest.mark.rows(*it.rows(NOT_YET))) for it in SCENARIOS],
)
def test_scenario(player: Player, scenario: Scenario, record_property: Callable[[str, object], None]) -> None:
    found = player.differences(scenario)
    for index, why in player.without_steps(scenario).items():
        record_property(LEFT_OUT, f"{scenario.id}, step {scenario.steps[index]['name']!r}: {why}")
    listed = {int(key.rpartition("/")[2]) for key in NOT_YET if key.startswith(f"{scenario.id}/")}
    unexpected = [diff for index, diff in found.items() if index not in listed]
    passing = sorted(listed - found.keys())
    assert not unexpected, f"{len(unexpected)} of {len(scenario.steps)} steps differ:\n" + "\n".join(unexpected[:5])
    assert not passing, (
        f"steps {passing} are in not_yet.yaml and pass: remove them with python -m tests.conformance.shrink"
    )


def test_fields_in_not_yet_still_differ(player: Player) -> None:
    if player.count < len(SCENARIOS):
        pytest.skip("only some of the scenarios were chosen")
    assert bool(player.spared) == bool(recorded.left_out(NOT_YET)), "remove `without …` from not_yet.yaml"


def test_list_names_recorded_steps() -> None:
    steps = {f"{scenario.id}/{index}" for scenario in SCENARIOS for index in range(len(scenario.steps))}
    assert not {key for key in NOT_YET if not key.startswith(recorded.WITHOUT)} - steps
    assert all(set(entry) == {"row", "piece"} for entry in NOT_YET.values())


def test_circumstances_name_recorded_steps() -> None:
    steps = {f"{scenario.id}/{step['name']}" for scenario in SCENARIOS for step in scenario.steps}
    assert not [row.steps.pattern for row in recorded.circumstances() if not any(map(row.steps.search, steps))]


def test_compatibility_is_shown_by_recorded_steps() -> None:
    steps = {f"{scenario.id}/{step['name']}" for scenario in SCENARIOS for step in scenario.steps}
    shown = recorded.compatibility()
    assert not {tag for tag, step in shown.items() if step not in steps}


def test_every_step_shows_a_row() -> None:
    rowless = [
        f"{scenario.id}/{index}"
        for scenario in SCENARIOS
        for index, step in enumerate(scenario.steps)
        if step.get("answer") is not None and not scenario.rows_of(index)
    ]
    assert not rowless
