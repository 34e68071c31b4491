"""Run the server with a wrong wall clock: `python -m … FILE serve …`.

The clock differs by the seconds in FILE. Only time.time and time.time_ns are wrong, and functions that call them. The
monotonic clock, and with it every timer of the event loop, is right.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
from pathlib import Path


def shift(file: Path) -> None:
    """Make the wall clock obey a file."""
    right, right_ns, last = time.time, time.time_ns, [0, 0.0]

    def wrong_by() -> float:
        changed = os.stat(file).st_mtime_ns
        if changed != last[0]:
            last[:] = [changed, float(file.read_text() or last[1])]
        return last[1]

    time.time = lambda: right() + wrong_by()  # type: ignore[assignment]
    time.time_ns = lambda: right_ns() + int(wrong_by() * 1e9)  # type: ignore[assignment]


if __name__ == "__main__":
    shift(Path(sys.argv[1]))
    sys.argv = ["apiext", *sys.argv[2:]]
    runpy.run_module("apiext", run_name="__main__")
