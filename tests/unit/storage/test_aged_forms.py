"""Cached Tables with inserted ages equal Tables that are written with the current ages."""

from __future__ import annotations

from datetime import UTC, datetime

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.meta.time import ZERO_TIME, Ages
from apiext.storage.aged_forms import AgedForm, Placeholders

CREATED = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
STAMPS = (
    "2026-01-01T00:00:00Z",
    "2025-12-31T20:00:01Z",
    "2025-12-31T23:59:59.5Z",
    "2020-01-01T00:00:00Z",
    ZERO_TIME,
    "?",
)
ROWS = st.lists(st.tuples(st.text(max_size=3), st.lists(st.sampled_from(STAMPS), max_size=3)), min_size=1, max_size=6)
MOMENTS = st.lists(st.floats(-4 * 3600.0, 4 * 3600.0).map(lambda seconds: CREATED + seconds), min_size=1, max_size=5)


def render_rows(rows: list[tuple[str, list[str]]], ages: Ages) -> list[bytes]:
    return [orjson.dumps([text, *map(ages.of, stamps)]) for text, stamps in rows]


@pytest.mark.rows("TAB-003", "SRV-018")
@given(ROWS, MOMENTS, st.integers(0, 5), st.integers(1, 6))
def test_aged_form_inserts_the_ages_of_a_time(
    rows: list[tuple[str, list[str]]], moments: list[float], start: int, count: int
) -> None:
    placeholders = Placeholders()
    items, counts = list[bytes](), list[int]()
    for row in rows:
        items += render_rows([row], placeholders)
        counts.append(len(placeholders.stamps))
    formed = AgedForm(items, counts, placeholders.stamps)
    start = min(start, len(rows) - 1)
    stop = min(start + count, len(rows))
    for now in (*moments, *reversed(moments)):
        right = render_rows(rows, Ages(now))
        assert formed.at(now).joined == b",".join(right)
        assert formed.at(now).part(start, stop) == b",".join(right[start:stop])


def test_form_without_ages_is_cached_for_all_times() -> None:
    formed = AgedForm([b"a", b"b"], [0, 0], [])
    assert formed.at(0.0) is formed.at(1e9)


def test_aged_form_reuses_bytes_while_ages_are_equal() -> None:
    placeholders = Placeholders()
    formed = AgedForm(render_rows([("a", [STAMPS[0]])], placeholders), [1], placeholders.stamps)
    shown = formed.at(CREATED + 4 * 3600)
    assert formed.at(CREATED + 4 * 3600 + 59.9) is shown
    assert formed.at(CREATED + 4 * 3600 - 0.1) is not shown
