"""A tier of tests is what one of several processes runs as a whole."""

from __future__ import annotations

import pytest

from tests.support.tiers import tier_of


@pytest.mark.parametrize(
    ("nodeid", "tier"),
    [
        ("tests/unit/storage/test_parts.py::test_one[a/b::c]", "unit"),
        ("tests/faults/test_clock.py::test_one", "faults"),
        ("tests/test_house.py::test_modules[tests/unit/x.py]", "test_house.py"),
    ],
)
def test_a_tier_is_a_directory_below_the_tests(nodeid: str, tier: str) -> None:
    assert tier_of(nodeid) == tier
