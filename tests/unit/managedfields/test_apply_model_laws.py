"""Random apply sequences have the results of a model without field sets (SSA-008, SSA-009)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.managedfields import path
from apiext.managedfields.updater import Conflicts
from tests.support.laws import examples
from tests.unit.managedfields.naive import Model, places
from tests.unit.managedfields.support import applied, owners_of

pytestmark = pytest.mark.rows("SSA-008", "SSA-009", "SSA-015")

NUMBERS = st.integers(0, 2)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "a": NUMBERS,
        "b": NUMBERS,
        "map": st.dictionaries(st.sampled_from("pqr"), NUMBERS, min_size=1, max_size=3),
        "list": st.lists(NUMBERS, max_size=2),
        "set": st.lists(NUMBERS, min_size=1, max_size=3, unique=True),
        "items": st.lists(
            st.fixed_dictionaries({"k": NUMBERS, "v": NUMBERS}),
            min_size=1,
            max_size=3,
            unique_by=lambda item: item["k"],
        ),
    },
)
STORIES = st.lists(st.tuples(st.sampled_from(("m1", "m2", "m3")), SPECS, st.booleans()), min_size=1, max_size=8)


def format_path(place: tuple[str, ...]) -> str:
    """Return a path of the model as conflicts format it."""
    text = ".spec"
    for name in place:
        text += f"[{name}]" if "=" in name else f".{name}"
    return text


@given(STORIES)
@examples(60)
def test_sequences_of_applies_equal_the_model(story: list[tuple[str, dict[str, Any], bool]]) -> None:
    live: Any = None
    model = Model()
    for manager, spec, force in story:
        expected = model.conflicts(manager, spec)
        try:
            live = applied(live, manager, spec, force=force)
        except Conflicts as conflicts:
            told = {(owner.name, path.printed(way)) for owner, way in conflicts.paths()}
            assert told == {(other, format_path(place)) for other, place in expected}
            assert not model.apply(manager, spec)
            continue
        assert model.apply(manager, spec, force=force), expected
        assert places(live.get("spec") or {}) == model.values
        assert owners_of(live).keys() == model.owners.keys()
        again = applied(live, manager, spec, force=force, now="2027-01-01T00:00:00Z")
        assert again == live
