"""Groups of tests; one process of pytest-xdist runs all tests of a group."""

from __future__ import annotations

import pytest

from tests.support.tiers import group_of, why


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/unit/storage/test_parts.py::test_one[a/b::c]", "unit/storage"),
        ("tests/unit/test_cli.py::test_one[a/b]", "unit"),
        ("tests/faults/test_clock.py::test_one", "faults/test_clock.py"),
        ("tests/conformance/test_tls.py::test_one", "conformance/test_tls.py"),
        ("tests/clients/stories/test_kopf.py::test_one", "clients"),
        ("apiext/conformance/test_tables.py::test_one[a/b::c]", "apiext/test_tables.py"),
        ("tests/test_house.py::test_modules[tests/unit/x.py]", "test_house.py"),
    ],
)
def test_group_of_gives_the_group_of_a_test(nodeid: str, group: str) -> None:
    assert group_of(nodeid) == group


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
def test_retry_reason_is_reported(message: str, told: str) -> None:
    assert why(message) == told
