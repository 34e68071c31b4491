"""Find optional data beside a checkout, and count the cases skipped if it is missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
KEPT = ("data/reference/", ROOT / "apiext" / "conformance" / "reference")  # the project contains a copy of this part

left_out: Counter[str] = Counter()


def shared(path: str, cases: int = 1) -> Path | None:
    """Return a path below the shared data.

    If it is missing, count ``cases`` skipped cases and return None.
    """
    start, copy = KEPT
    if path.startswith(start):
        return copy / path.removeprefix(start)
    if (found := SHARED / path).exists():
        return found
    left_out[path] += cases
    return None
