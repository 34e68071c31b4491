"""Times and durations as Kubernetes writes them."""

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.meta import limits, time

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
def test_times_are_normalized_to_utc_seconds(text: str, normal: str) -> None:
    assert time.normalize(text) == normal


@pytest.mark.rows("MET-001")
@pytest.mark.parametrize(
    ("text", "error"),
    [(text, f'parsing time "{text}" {error}') for text, error in FAULTS]
    + [(text, f'parsing time "{text}": {error}') for text, error in RANGES],
)
def test_invalid_times_are_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is checked below
        time.normalize(text)
    assert str(refused.value) == error
    assert time.Ages(0).of(text) == "<invalid>"


@given(st.datetimes(timezones=st.just(UTC)))
def test_rendered_times_are_read_back(moment: datetime) -> None:
    moment = moment.replace(microsecond=0, year=max(moment.year, 2))
    text = time.render(moment)
    assert time.parse(text) == moment
    assert time.normalize(text) == text


def test_now_is_the_current_time() -> None:
    assert abs(time.parse(time.now()) - datetime.now(UTC)) < timedelta(seconds=5)
    assert time.Ages(datetime.now(UTC).timestamp()).of(time.now()) in ("0s", "1s", "2s")


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
def test_ages_are_formatted_like_upstream(seconds: int, text: str) -> None:
    assert time.human_duration(seconds) == text
    at = datetime(2020, 1, 1, tzinfo=UTC)
    assert time.Ages(at.timestamp()).of(time.render(at - timedelta(seconds=seconds))) == text


CREATED = datetime(2020, 1, 1, tzinfo=UTC)
STAMPS = ("2020-01-01T00:00:00Z", "2019-12-31T23:59:30.25Z", "2019-12-31T20:59:59+00:00", "2010-05-05T05:05:05Z")


@pytest.mark.rows("TAB-003")
@given(
    st.sets(st.sampled_from((*STAMPS, time.ZERO_TIME, "", "no time")), min_size=1),
    st.floats(-5.0, 12 * 365 * 86_400.0) | st.floats(-5.0, 700.0) | st.integers(-5, 700),
    st.floats(0, 1),
)
def test_ages_are_constant_within_their_period(stamps: set[str], seconds: float, part: float) -> None:
    """Ages are constant within their period, and one of them changes right after it."""
    ages = time.Ages(CREATED.timestamp() + seconds)
    shown = {stamp: ages.of(stamp) for stamp in stamps}
    since, until = max(ages.since, ages.at - 1e9), min(ages.until, ages.at + 1e9)
    moments = [since, since + (until - since) * part, math.nextafter(until, 0)]
    for at in moments:
        if since <= at < until:
            other = time.Ages(at)
            assert {stamp: other.of(stamp) for stamp in stamps} == shown
    if ages.until < math.inf and shown.keys() - {""} and "<invalid>" not in shown.values():
        after = time.Ages(ages.until)
        assert {stamp: after.of(stamp) for stamp in stamps} != shown


@pytest.mark.rows("TAB-003")
@pytest.mark.parametrize(("seconds", "period"), [
    (0.5, (-1, 1)), (119.9, (119, 120)), (130, (130, 131)), (700, (660, 720)), (4 * 3600 + 90, (14_460, 14_520)),
    (9 * 3600 + 90, (32_400, 36_000)), (100 * 3600, (360_000, 363_600)), (20 * 86_400 + 5, (1_728_000, 1_814_400)),
])  # fmt: skip
def test_period_of_an_age_grows_with_the_age(seconds: float, period: tuple[int, int]) -> None:
    created = CREATED.timestamp()
    ages = time.Ages(created + seconds)
    assert ages.of(STAMPS[0]) == time.human_duration(seconds)
    assert (ages.since - created, ages.until - created) == period


def test_long_time_text_is_not_cached() -> None:
    text = f"2020-01-01T00:00:00.{'0' * limits.TIME_TEXT}Z"
    known = time._timestamp.cache_info().currsize
    assert time.Ages(CREATED.timestamp() + 5).of(text) == "5s"
    assert time._timestamp.cache_info().currsize == known


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
def test_durations_are_parsed(text: str, seconds: float) -> None:
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
def test_invalid_durations_are_refused(text: str, error: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the text is checked below
        time.parse_duration(text)
    assert str(refused.value) == error
