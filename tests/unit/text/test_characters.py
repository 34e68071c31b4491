"""Printable characters are the same on every version of Python."""

from __future__ import annotations

import pytest

from apiext.cel import quotes as cel_quotes
from apiext.text import characters, quotes

PRINT = ["a", " ", "~", "\u00e9", "\u0377", "\u037a", "\u6f22", "\U0001f600"]
SINCE_15_0 = ["\u0cf3", "\U0001fa77", "\U0001fae8", "\U00011f02", "\U00031350", "\U0001e4d0"]
SINCE_LATER = ["\u2ffc", "\u31ef", "\U0002ebf0", "\u1c89", "\ua7cb", "\U0001fae9", "\U00010d40", "\U0001fbfa"]
NEVER = ["\n", "\x7f", "\u00a0", "\u00ad", "\u0378", "\u2028", "\u3000", "\ue000", "\ufdd0", "\ud800", "\U00013439"]
NEVER += ["\U0001343f", "\U000e0001", "\U00040000", "\U0010fffd", "\U0010ffff"]
ROWS = [(char, True) for char in PRINT + SINCE_15_0] + [(char, False) for char in SINCE_LATER + NEVER]


@pytest.mark.parametrize(("char", "prints"), ROWS, ids=[f"{ord(char):04x}" for char, _ in ROWS])
def test_is_print_equals_unicode_isprint_of_go(char: str, prints: bool) -> None:
    assert characters.is_print(char) is prints
    assert characters.all_print(char) is prints
    assert characters.all_print(f"{char}a") is prints
    for quoted in (quotes.go_quote(f"a{char}"), cel_quotes.go_quote(f"a{char}")):
        assert (char in quoted) is prints


def test_number_of_printable_characters_equals_go() -> None:
    """Go 1.26 has 148,998 printable characters, by unicode.IsPrint."""
    assert sum(map(characters.is_print, map(chr, range(0x110000)))) == 148_998
