"""Laws of the dict that grows without a pause."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.scheduling import growing_dict
from apiext.scheduling.growing_dict import PART, GrowingDict

KEYS = st.integers(0, 40)
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "set", "set", "delete", "pop", "get"]), KEYS, st.integers()), max_size=120
)


def outcome(mapping: Any, step: str, key: int, value: int) -> Any:
    """Apply a step to a dict or a GrowingDict; return the result or the exception."""
    try:
        if step == "set":
            mapping[key] = value
        elif step == "delete":
            del mapping[key]
        elif step == "pop":
            return mapping.pop(key, value)
        else:
            return mapping.get(key), mapping.get(key, value), key in mapping, mapping[key]
    except KeyError as error:
        return repr(error)
    return None


@given(STEPS, st.integers(1, 3))
def test_growing_dict_equals_dict(steps: list[tuple[str, int, int]], part: int) -> None:
    growing, model = GrowingDict[int, int](), dict[int, int]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing_dict, "PART", part)
        for step in steps:
            assert outcome(growing, *step) == outcome(model, *step)
            assert len(growing) == len(model)
            assert dict(growing.items()) == model
            assert sorted(growing) == sorted(model)
            assert sorted(growing.values()) == sorted(model.values())


def test_growing_dict_bounds_the_size_of_its_parts() -> None:
    growing = GrowingDict[str, None]()
    for number in range(100_000):
        growing[f"default/w{number:06}"] = None
    assert max(len(part) for part in growing._parts) < 4 * PART
    assert len(growing._parts) == 100_000 // PART + 1
