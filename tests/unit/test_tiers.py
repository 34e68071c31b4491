"""A tier of tests, or a package of unit tests, is what one of several processes runs as a whole."""

from __future__ import annotations

import pytest

from tests.support.tiers import tier_of, why


@pytest.mark.parametrize(
    ("nodeid", "tier"),
    [
        ("tests/unit/storage/test_parts.py::test_one[a/b::c]", "unit/storage"),
        ("tests/unit/test_cli.py::test_one[a/b]", "unit"),
        ("tests/faults/test_clock.py::test_one", "faults"),
        ("tests/test_house.py::test_modules[tests/unit/x.py]", "test_house.py"),
    ],
)
def test_a_tier_is_a_directory_below_the_tests(nodeid: str, tier: str) -> None:
    assert tier_of(nodeid) == tier


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("TooLate: 3 s\nassert 3 < 2", "TooLate: 3 s"),
        (
            "suite ended with 1:\nstarting\ncannot listen on :1: Address already in use\n",
            "cannot listen on :1: Address already in use",
        ),
        ("", ""),
    ],
)
def test_a_run_tells_why_it_ran_a_test_again(message: str, told: str) -> None:
    assert why(message) == told
