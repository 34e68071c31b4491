"""Heads, dates, warnings and gzip of responses."""

import gzip

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apiext.http import limits, responses
from apiext.http.exchange import Reply
from apiext.http.representations import is_small
from apiext.meta import status


@pytest.mark.rows("AUT-008")
def test_head_of_a_plain_response() -> None:
    head = responses.head(Reply(200), b"Date: now\r\n", "id-1", close=False, length=5)
    assert head.split(b"\r\n") == [
        b"HTTP/1.1 200 OK",
        b"Cache-Control: no-cache, private",
        b"Content-Type: application/json",
        b"Date: now",
        b"Audit-Id: id-1",
        b"Content-Length: 5",
        b"",
        b"",
    ]


def test_head_with_extra_headers_and_close() -> None:
    reply = Reply(429, headers=[("Retry-After", "1"), ("Cache-Control", "no-store")])
    head = responses.head(reply, b"Date: now\r\n", "x", close=True, length=0).decode()
    assert head.startswith("HTTP/1.1 429 Too Many Requests\r\n")
    assert "Retry-After: 1\r\n" in head
    assert head.count("Cache-Control") == 1
    assert "Connection: close\r\n" in head
    assert head.endswith("Content-Length: 0\r\n\r\n")


def test_http_1_0_head_announces_keep_alive() -> None:
    head = responses.head(Reply(200), b"", "x", close=False, length=0, version=(1, 0))
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"Connection: keep-alive\r\n" in head
    head = responses.head(Reply(404), b"", "x", close=True, length=0, version=(1, 0))
    assert head.startswith(b"HTTP/1.0 404 Not Found\r\n")
    assert b"Connection" not in head


def test_not_modified_has_no_length() -> None:
    assert b"Content-Length" not in responses.head(Reply(304, ""), b"", "x", close=False, length=0)


def test_date_is_formatted_once_per_second() -> None:
    times = iter([1_000_000.2, 1_000_000.9, 1_000_001.1])
    clock = responses.SecondClock(lambda: next(times))
    first, second, third = clock.line(), clock.line(), clock.line()
    assert first == b"Date: Mon, 12 Jan 1970 13:46:40 GMT\r\n"
    assert second is first
    assert third != first


@pytest.mark.rows("WRI-014", "WRI-013")
def test_warning_values_are_quoted_and_deduplicated() -> None:
    assert responses.warning_values(['unknown field "spec.foo"']) == [r'299 - "unknown field \"spec.foo\""']
    assert responses.warning_values(["a", "b", "a", ""]) == ['299 - "a"', '299 - "b"']
    # upstream: texts with control characters are left out
    assert responses.warning_values(["a\r\nX-Evil: 1\x00", "\x85", "\u2028"]) == ['299 - "\u2028"']
    assert responses.warning_values(["a\\b"]) == [r'299 - "a\\b"']


@pytest.mark.rows("WRI-014")
def test_warnings_over_the_total_limit_are_truncated() -> None:
    texts = [f"{number:04}" + "x" * 400 for number in range(40)]
    values = responses.warning_values(texts)
    assert len(values) == limits.MAX_WARNINGS // limits.MAX_WARNING
    assert all(len(value) == len('299 - ""') + limits.MAX_WARNING for value in values)
    assert len(responses.warning_values(["x" * limits.MAX_WARNINGS])[0]) > limits.MAX_WARNING
    short = [f"{number:03}" + "x" * 97 for number in range(60)]
    assert len(responses.warning_values(short[:40])) == 40
    assert len(responses.warning_values(short)) == 41  # the warning that exceeds the limit is the last
    assert len(responses.warning_values(["x" * 4095, "y", *short])) == 41


@pytest.mark.rows("WRI-014")
def test_last_warning_counts_the_omitted_warnings() -> None:
    texts = [f"w{number}" for number in range(300)]
    assert responses.warning_values(texts[:64]) == [f'299 - "{text}"' for text in texts[:64]]
    wanted = [*texts[:63], "237 more warnings are not shown"]
    assert responses.warning_values(texts) == [f'299 - "{text}"' for text in wanted]
    several = [f"{number:03}{'x' * 60}" for number in range(200)]  # together too long, too
    assert responses.warning_values(several)[-1] == '299 - "137 more warnings are not shown"'


@given(st.lists(st.text(), max_size=30) | st.lists(st.text(min_size=20, max_size=60), min_size=60, max_size=300))
@example(["\U00010000" * 4_000 + str(number) for number in range(200)])
@example(['"' * 30 + str(number) for number in range(500)])
def test_no_warning_breaks_the_head(texts: list[str]) -> None:
    values = responses.warning_values(texts)
    assert len(values) <= 64
    assert sum(len(f"Warning: {value}\r\n".encode("utf-8", "replace")) for value in values) < 24 * 1024
    for value in values:
        assert "\r" not in value
        assert "\n" not in value
        assert value.startswith('299 - "')


@pytest.mark.rows("RV-021")
@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("", False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("br, gzip;q=0", False),
        ("identity", False),
        ("gzipped", False),
    ],
)
def test_accept_encoding_selects_gzip(header: str, taken: bool) -> None:
    assert responses.accepts_gzip(header) is taken


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_gzip_output_decompresses_to_the_input(parts: list[bytes]) -> None:
    assert gzip.decompress(b"".join(responses.gzip(parts))) == b"".join(parts)


def test_only_a_v1_status_is_small_without_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MEMBERS_INLINE", 3)
    told = status.success({"name": "a", "group": "example.com", "kind": "widgets"})
    assert is_small(told)
    assert not is_small(told | {"apiVersion": "example.com/v1"})
    assert not is_small(told | {"kind": "Widget"})
