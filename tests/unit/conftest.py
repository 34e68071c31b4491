"""Fixtures of all unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apiext.cel import effort


@pytest.fixture(autouse=True)
def _no_evaluation_under_way() -> Iterator[None]:
    """What a test evaluated last bounds nothing that others do without an evaluation."""
    yield
    effort.rest()
