"""Distinguish JSON values that are equal in Python: 1, 1.0 and true."""

from __future__ import annotations

import json
from typing import Any


def text(value: Any) -> str:
    """Return a value as JSON with sorted fields; 1, 1.0 and true have different texts."""
    return json.dumps(value, sort_keys=True)
