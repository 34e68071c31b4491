"""Fixtures of all unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apiext.cel import effort


@pytest.fixture(autouse=True)
def _no_evaluation_under_way() -> Iterator[None]:
    """The work budget that a test leaves behind must not limit a later test without a budget."""
    yield
    effort.rest()
