"""Times and durations as Kubernetes writes them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.meta import time

LAYOUT = '"2006-01-02T15:04:05Z07:00"'
TIMES = [
    ("2020-01-02T03:04:05Z", "2020-01-02T03:04:05Z"),
    ("2020-01-02T03:04:05.999Z", "2020-01-02T03:04:05Z"),
    ("2020-01-01T00:00:00+02:00", "2019-12-31T22:00:00Z"),
    ("2020-01-01T00:00:00-00:30", "2020-01-01T00:30:00Z"),
    ("2020-02-29T00:00:00Z", "2020-02-29T00:00:00Z"),
    ("0001-01-01T00:00:00Z", ""),
]
FAULTS = [
    ("yesterday", f'as {LAYOUT}: cannot parse "yesterday" as "2006"'),
    ("2020-1-01T00:00:00Z", f'as {LAYOUT}: cannot parse "1-01T00:00:00Z" as "01"'),
    ("2020-01-01", f'as {LAYOUT}: cannot parse "" as "T"'),
    ("2020-01-01T00:00:00", f'as {LAYOUT}: cannot parse "" as "Z07:00"'),
    ("2020-01-01t00:00:00Z", f'as {LAYOUT}: cannot parse "t00:00:00Z" as "T"'),
]
RANGES = [
    ("2020-13-01T00:00:00Z", "month out of range"),
    ("2020-02-30T00:00:00Z", "day out of range"),
    ("2020-01-01T24:00:00Z", "hour out of range"),
    ("2020-01-01T00:60:00Z", "minute out of range"),
    ("2020-01-01T00:00:00Zx", 'extra text: "x"'),
]


@pytest.mark.rows("MET-003")
@pytest.mark.parametrize(("text", "normal"), TIMES)
def test_times_are_utc_and_seconds(text: str, normal: str) -> None:
    assert time.normalize(text) == normal


@pytest.mark.rows("MET-001")
@pytest.mark.parametrize(
    ("text", "error"),
    [(text, f'parsing time "{text}" {error}') for text, error in FAULTS]
    + [(text, f'parsing time "{text}": {error}') for text, error in RANGES],
)
def test_times_that_are_none(text: str, error: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is what counts
        time.normalize(text)
    assert str(refused.value) == error
    assert time.age(text) == "<invalid>"


@given(st.datetimes(timezones=st.just(UTC)))
def test_rendered_times_are_read_back(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, year=max(moment.year, 2))
    text = time.render(moment)
    assert time.parse(text) == moment
    assert time.normalize(text) == text


def test_now_is_a_time() -> None:
    assert abs(time.parse(time.now()) - datetime.now(UTC)) < timedelta(seconds=5)
    assert time.age(time.now()) in ("0s", "1s", "2s")


AGES = [
    (-5, "<invalid>"),
    (-1, "0s"),
    (0, "0s"),
    (119, "119s"),
    (120, "2m"),
    (200, "3m20s"),
    (600, "10m"),
    (3 * 3600 - 1, "179m"),
    (3 * 3600, "3h"),
    (3 * 3600 + 60, "3h1m"),
    (8 * 3600, "8h"),
    (48 * 3600, "2d"),
    (51 * 3600, "2d3h"),
    (8 * 86_400, "8d"),
    (2 * 365 * 86_400, "2y"),
    (2 * 365 * 86_400 + 86_400, "2y1d"),
    (9 * 365 * 86_400, "9y"),
]


@pytest.mark.rows("TAB-003")
@pytest.mark.parametrize(("seconds", "text"), AGES)
def test_ages(seconds: int, text: str) -> None:
    assert time.human_duration(seconds) == text
    at = datetime(2020, 1, 1, tzinfo=UTC)
    assert time.age(time.render(at - timedelta(seconds=seconds)), at) == text


DURATIONS = [
    ("0", 0.0),
    ("30s", 30.0),
    ("1h30m", 5400.0),
    ("1.5s", 1.5),
    (".5m", 30.0),
    ("-1m", -60.0),
    ("100ms", 0.1),
    ("5us", 5e-6),
]


@pytest.mark.rows("WRI-024")
@pytest.mark.parametrize(("text", "seconds"), DURATIONS)
def test_durations(text: str, seconds: float) -> None:
    assert time.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", 'time: invalid duration ""'),
        ("abc", 'time: invalid duration "abc"'),
        ("5", 'time: missing unit in duration "5"'),
        ("1d", 'time: unknown unit "d" in duration "1d"'),
        ("9999999h", 'time: invalid duration "9999999h"'),
    ],
)
def test_durations_that_are_none(text: str, error: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is what counts
        time.parse_duration(text)
    assert str(refused.value) == error
