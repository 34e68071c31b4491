"""Both interfaces to RE2: its extension module and its public API.

The public API is the fallback for releases with another extension.
"""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from apiext.cel import re2_programs

PATTERNS = [b"a|b", b"^(x+)+$", rb"\bword\b", b"", rb"\p{L}{3}", b"(", b"a**", rb"\p{Nope}", b"(?:a{1000}){1000}"]
TEXTS = [b"", b"a", b"xxxxx", b"a word here", "äöü".encode(), b"(("]


def match_results(api: re2_programs.Api, pattern: bytes) -> list[Any]:
    options = api.options()
    options.log_errors, options.max_mem = False, 128 * 1024
    program = api.program(pattern, options)
    if not program.ok():
        return [program.error()]
    spans = [program.Match(api.anywhere, text, start, len(text))[0] for text in TEXTS for start in range(len(text) + 1)]
    return [program.ProgramSize(), *spans]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_extension_and_public_api_match_equally(pattern: bytes) -> None:
    assert match_results(re2_programs.public(), pattern) == match_results(re2_programs.api(), pattern)


def test_public_api_is_used_without_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = builtins.__import__

    def without(name: str, space: Any = None, names: Any = None, wanted: Any = (), level: int = 0) -> Any:
        if name == "re2" and wanted and "_re2" in wanted:
            raise ImportError("cannot import name '_re2'")
        return usual(name, space, names, wanted, level)

    re2_programs.api.cache_clear()
    monkeypatch.setattr(builtins, "__import__", without)
    try:
        assert re2_programs.api().anywhere is None
        assert match_results(re2_programs.api(), b"a|b")[1:3] == [(-1, -1), (0, 1)]
    finally:
        monkeypatch.undo()
        re2_programs.api.cache_clear()
