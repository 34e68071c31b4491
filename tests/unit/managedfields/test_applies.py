"""Results of applies and updates (SSA-006…011)."""

from typing import Any

import pytest

from apiext.conformance.support import cases
from apiext.documents import limits as documents_limits
from apiext.managedfields import path
from apiext.managedfields.manager import ApplyError, BadApply
from apiext.managedfields.merging import merge
from apiext.managedfields.schemas import list_of
from apiext.managedfields.typed import TypeFault, check
from apiext.managedfields.types import NUMERIC, STRING, MapType, Type
from apiext.managedfields.updater import Conflicts
from apiext.meta import limits as meta_limits
from tests.unit.managedfields.support import applied, configuration, owners_of, updated

CASES = cases.load(__file__, "applies")


def run_steps(steps: list[dict[str, Any]]) -> Any:
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
def test_apply_and_update_steps(case: cases.Case) -> None:
    if case.conflict:
        with pytest.raises(Conflicts) as met:
            run_steps(case.steps)
        assert (
            sorted(f"conflict with {owner}: {path.printed(way)}" for owner, way in met.value.paths()) == case.conflict
        )
        return
    if case.error:
        with pytest.raises((ApplyError, BadApply)) as wrong:
            run_steps(case.steps)
        assert str(wrong.value) == case.error
        return
    found = run_steps(case.steps)
    if case.spec is not None:
        assert found["spec"] == case.spec
    if case.owners is not None:
        assert owners_of(found) == case.owners


def test_long_set_with_duplicates_merges_in_one_pass() -> None:
    of = list_of(Type(STRING), is_set=True)
    live = [str(number) for number in range(100_000)]  # would exceed a budget per pair of items
    assert merge(of, [*live, "0"], ["new"]) == [*live, "0", "new"]


def test_type_errors_are_reported_up_to_a_limit() -> None:
    of, value = Type(NUMERIC), {f"a{number}": "x" for number in range(3 * meta_limits.MAX_FIELD_ERRORS)}
    of = map_of(of)
    few = dict(list(value.items())[: meta_limits.MAX_FIELD_ERRORS])
    assert type_errors(of, few) == ["errors:", *(f"  .{name}: {MISFIT}" for name in few)]
    assert type_errors(of, value) == ["errors:", *(f"  .{name}: {MISFIT}" for name in few), f"  {NOT_SHOWN}"]
    deep: Any = value
    for _ in range(100):
        of, deep = map_of(of), {"k" * 1_100: deep}
    way = f".{'k' * documents_limits.MAX_PATH_NAME}…" * 100
    assert type_errors(of, deep) == [
        "errors:",
        *(f"  {way}.a{number}: {MISFIT}" for number in range(10)),
        f"  {NOT_SHOWN}",
    ]
    assert type_errors(of, {"k": 1}) == [".k: expected map, got &{1}"]


MISFIT = "expected numeric (int or float), got string"
NOT_SHOWN = "too many errors: the rest is not shown"


def map_of(of: Type) -> Type:
    return Type(map=MapType({}, of))


def type_errors(of: Type, value: Any) -> list[str]:
    with pytest.raises(TypeFault) as wrong:
        check(of, value)
    return str(wrong.value).split("\n")
