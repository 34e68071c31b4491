"""Fixtures of all unit tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from apiext.cel import effort


@pytest.fixture(autouse=True)
def _no_evaluation_under_way() -> Iterator[None]:
    """Remove the work budget after each test, so that it does not limit later tests."""
    yield
    effort.renew()
