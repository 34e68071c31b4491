"""The time of a format check is proportional to the length of the text, for any text."""

from __future__ import annotations

import contextlib
import time

import pytest

from apiext.cel import regexes, times
from apiext.cel.library import named_formats, network, quantities, semver, urls
from apiext.conformance.support.waiting import prompt
from apiext.schema.formats import CHECKS

pytestmark = pytest.mark.rows("VAL-006")
PARTS = [
    "9",
    "a",
    "-",
    "a.",
    "1:",
    "::",
    "a@",
    "%",
    "0 ",
    "1h",
    "é",
    "=",
    "+",
    "\\",
    '"',
    "(",
    ".",
    "a-",
    "1 h ",
    "\t",
    ",",
]
TEXTS = [
    before + part * (60_000 // len(part)) + after
    for part in PARTS
    for before, after in (
        ("", ""),
        ("", "!"),
        ("a@", ""),
        ('"', ""),
        ("1", "h"),
        ("rgb(", ")"),
        ("2024-01-01T00:00:00.", "Z"),
        ("<", "@a>"),
    )
]
READERS = {
    **CHECKS,
    "cel duration": times.parse_go_or_word_duration,
    "cel time": times.parse_date_time,
    "cel RFC 3339": times.parse_rfc3339,
    "cel quantity": quantities.parse,
    "cel semver": semver.parse,
    "cel URL": urls.refusal,
    "cel ip": network._read_ip,
    "cel cidr": network._read_network,
    "cel UUID": named_formats._uuid,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_formats_are_checked_in_linear_time(name: str) -> None:
    read, slowest = READERS[name], (0.0, "")
    for text in TEXTS:
        began = time.process_time()
        read(text)
        slowest = max(slowest, (time.process_time() - began, f"{text[:20]}…{text[-5:]}"))
    prompt(slowest[0], 0.25, f"{slowest[1]}: {slowest[0]:.2f} s for 60 KB")


@pytest.mark.parametrize("start", ["[", "[a-", r"[\p{L}", r"\p{L}"])
@pytest.mark.parametrize("part", [r"\x{", r"\p{", "a-", "[:a"])
def test_patterns_compile_in_linear_time(start: str, part: str) -> None:
    pattern = start + part * (9_900 // len(part))
    began = time.process_time()
    with contextlib.suppress(regexes.PatternError):
        regexes.compiled(pattern)
    prompt(time.process_time() - began, 0.4, f"{start}{part}… of 10 KB")  # RE2 itself needs 20 ms for [:a
