"""Errors about fields are in the order of the text, for paths of any length."""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from apiext.conformance.support.waiting import prompt
from apiext.documents.member_order import in_order_of_members
from apiext.documents.paths import short
from apiext.text.quotes import go_quote

Members = list[tuple[str, Any]]
"""The members of an object in order, as pairs of name and value; names may repeat."""

_NAMES = st.sampled_from(["a", "b", "a.b", "b[0]", "", '"', "\\", "é", "\x01", "l" * 1025, "l" * 1026])
_MEMBERS: Any = st.deferred(lambda: st.lists(st.tuples(_NAMES, _VALUES), max_size=5))
_VALUES: Any = st.deferred(lambda: st.just(0) | _MEMBERS.map(tuple) | st.lists(_VALUES, max_size=3))


def _text(value: Any) -> str:
    """Return the JSON of a value; a tuple of members is an object."""
    if isinstance(value, tuple):
        return "{" + ",".join(f"{json.dumps(name)}:{_text(item)}" for name, item in value) + "}"
    return f"[{','.join(map(_text, value))}]" if isinstance(value, list) else str(value)


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, tuple):
        for name, item in value:
            below = f"{path}.{short(name)}" if path else short(name)
            yield below
            yield from _paths(item, below)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _paths(item, f"{path}[{index}]")


@given(_MEMBERS, st.randoms(use_true_random=False))
def test_field_errors_follow_order_of_fields(members: Members, random: Any) -> None:
    wanted: list[str] = []
    seen: set[str] = set()
    for path in _paths(tuple(members), ""):
        note = f"{'duplicate' if path in seen else 'unknown'} field {go_quote(path)}"
        seen.add(path)
        if note not in wanted:
            wanted.append(note)
    others = ["something else", 'unknown field "nowhere"', "unknown field ", 'unknown field "']
    notes = [note for note in wanted if random.random() < 0.7]
    shuffled = notes + others
    random.shuffle(shuffled)
    rest = [note for note in shuffled if note in others]
    assert in_order_of_members(_text(tuple(members)).encode(), shuffled) == [*notes, *rest]


def test_long_field_paths_use_bounded_memory() -> None:
    levels, count = 200, 4_000
    inner = ",".join(f'"a{index}":0' for index in range(count))
    text = '{"x":' + f'{{"{"p" * 1_000}":' * levels + f"{{{inner}}}" + "}" * levels + ',"x":0}'
    path = f"x{'.' + 'p' * 1_000}" + f".{'p' * 1_000}" * (levels - 1)
    notes = ['duplicate field "x"', *(f'unknown field "{path}.a{index}"' for index in (7, 3, count - 1))]
    began = time.process_time()
    wanted = [notes[2], notes[1], notes[3], notes[0]]
    assert in_order_of_members(text.encode(), notes) == wanted
    prompt(time.process_time() - began, 0.2)
    tracemalloc.start()
    in_order_of_members(text.encode(), notes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 1024 * 1024
