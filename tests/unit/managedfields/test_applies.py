"""Applies, updates and what they answer, case by case (SSA-006…011)."""

from typing import Any

import pytest

from apiext.managedfields import path
from apiext.managedfields.manager import ApplyError
from apiext.managedfields.merging import merge
from apiext.managedfields.schemas import list_of
from apiext.managedfields.types import STRING, Type
from apiext.managedfields.updater import Conflicts
from tests.support import cases
from tests.unit.managedfields.support import applied, configuration, owners_of, updated

CASES = cases.load(__file__, "applies")


def play(steps: list[dict[str, Any]]) -> Any:
    live: Any = None
    for step in steps:
        if "put" in step:
            live = configuration(step["put"])
        elif "update" in step:
            live = updated(live, step["update"], step["spec"])
        else:
            live = applied(live, step["apply"], step["spec"], force=step.get("force", False))
    return live


@pytest.mark.rows("SSA-006", "SSA-008", "SSA-009", "SSA-010", "SSA-011", "SSA-012")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case(case: cases.Case) -> None:
    if case.conflict:
        with pytest.raises(Conflicts) as met:
            play(case.steps)
        assert sorted(f"conflict with {owner}: {path.shown(way)}" for owner, way in met.value.paths()) == case.conflict
        return
    if case.error:
        with pytest.raises(ApplyError) as wrong:
            play(case.steps)
        assert str(wrong.value) == case.error
        return
    found = play(case.steps)
    if case.spec is not None:
        assert found["spec"] == case.spec
    if case.owners is not None:
        assert owners_of(found) == case.owners


def test_long_lists_in_which_items_are_repeated_merge_in_one_pass() -> None:
    of = list_of(Type(STRING), is_set=True)
    live = [str(number) for number in range(100_000)]  # what no work for each pair would end with
    assert merge(of, [*live, "0"], ["new"]) == [*live, "0", "new"]
