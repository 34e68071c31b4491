"""The frozen mapping of a catalog reads like a dict.

Its copies are independent, and a change copies a small part of it.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.catalog import frozen_map
from apiext.catalog.frozen_map import FrozenMap

keys = st.tuples(st.sampled_from(["", "a.io", "b.io"]), st.integers(0, 9).map(str))


@pytest.mark.parametrize("parts", [1, 4, 256])
@given(changes=st.lists(st.tuples(keys, st.none() | st.integers()), max_size=40))
def test_reads_like_a_dict_and_copies_are_independent(
    parts: int, changes: list[tuple[tuple[str, str], int | None]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frozen_map, "PARTS", parts)
        made, expected = FrozenMap[tuple[str, str], int](), dict[tuple[str, str], int]()
        states = [(made, expected)]
        for key, value in changes:
            expected = {**expected}
            if value is None:
                made = made.without(key)
                expected.pop(key, None)
            else:
                made = made.put(key, value)
                expected[key] = value
            states.append((made, expected))
        for state, items in states:
            assert list(state.items()) == list(items.items())
            assert list(state) == list(items)
            assert list(state.values()) == list(items.values())
            assert len(state) == len(items)
            assert all(state[key] == state.get(key) == value for key, value in items.items())
            assert state.get(("c.io", "0"), 7) == 7
            assert ("c.io", "0") not in state


@pytest.mark.parametrize("count", [100, 1_000, 5_000])
def test_a_change_copies_one_part_of_many(count: int) -> None:
    made = FrozenMap[tuple[str, str], int]()
    for number in range(count):
        made = made.put(("many.example.com", str(number)), number)
    for after in (made.put(("many.example.com", "7"), -1), made.without(("many.example.com", "7"))):
        other = [part for before, part in zip(made._parts, after._parts, strict=True) if part is not before]
        assert len(other) == 1
        assert len(other[0]) <= 10 + 3 * count // frozen_map.PARTS
