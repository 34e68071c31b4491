"""Run processes, with their C libraries, under a wall clock that a file sets (libfaketime)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib64/faketime/libfaketimeMT.so.1",
)
LIBRARY = next((name for name in _LIBRARIES if Path(name).exists()), "")
needs_faketime = pytest.mark.skipif(not LIBRARY, reason="no libfaketime here: install the package faketime")


class WallClock:
    """The wall clock of processes that run with ``environment``.

    Their monotonic clock is that of the machine.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self.ahead = timedelta()
        self.set(timedelta())

    def set(self, ahead: timedelta) -> None:
        """Set how far the clock is ahead of the machine's clock."""
        self.ahead = ahead
        scratch = self._file.with_suffix(".new")
        scratch.write_text(f"{ahead.total_seconds():+.0f}\n")
        scratch.replace(self._file)

    @property
    def now(self) -> datetime:
        """The current time on this clock."""
        return datetime.now(UTC) + self.ahead

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the process."""
        return {
            "LD_PRELOAD": LIBRARY,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }
