"""Tells JSON values apart that Python's == takes for one: 1, 1.0 and true."""

from __future__ import annotations

import json
from typing import Any


def text(value: Any) -> str:
    """Return the JSON text of a value, its members sorted: two that are the same have one text."""
    return json.dumps(value, sort_keys=True)
