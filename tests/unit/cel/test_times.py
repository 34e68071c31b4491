"""Durations whose numbers have many digits, as Go's time.ParseDuration reads them."""

from __future__ import annotations

import pytest

from apiext.cel import times


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0" * 31 + "1s", 1),
        ("0" * 5000 + "1s", 1),
        ("-0." + "0" * 31 + "1s", 0),
        ("1" * 31 + "s", None),
        ("0" * 31 + "2 days", 172_800),
        ("1" * 31 + " days", None),
    ],
    ids=lambda value: str(value)[:8],
)
def test_leading_zeros_do_not_overflow(text: str, seconds: int | None) -> None:
    assert times.parse_go_or_word_duration(text) == (None if seconds is None else seconds * 10**9)
