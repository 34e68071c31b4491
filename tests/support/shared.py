"""Knows the optional data beside a checkout, and counts the cases left out where it is missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
KEPT = ("data/reference/", ROOT / "apiext" / "conformance" / "reference")  # the project has a copy of these

left_out: Counter[str] = Counter()


def shared(path: str, cases: int = 1) -> Path | None:
    """Return a path below the shared data, or None after noting how many cases are left out for want of it."""
    start, copy = KEPT
    if path.startswith(start):
        return copy / path.removeprefix(start)
    if (found := SHARED / path).exists():
        return found
    left_out[path] += cases
    return None
