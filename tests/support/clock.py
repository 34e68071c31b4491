"""Knows how the wall clock of whole processes is moved, with Debian's faketime; the monotonic clock stays right."""

from __future__ import annotations

from pathlib import Path

_LIBRARY = "faketime/libfaketime.so.1"


class MovedClock:
    """The wall clock of the processes that ``env`` is given to: wrong by as many seconds as ``move`` said last."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.wrong_by = 0
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # its older name
            "NO_FAKE_STAT": "1",
        }
        self.move(0)

    def move(self, seconds: int) -> None:
        """Make the clock wrong by so many seconds, at once."""
        made = self._file.with_suffix(".new")
        made.write_text(f"{seconds:+d}\n")
        made.replace(self._file)  # no process reads half of it
        self.wrong_by = seconds


def library() -> Path | None:
    """Return the library that moves clocks, None where Debian's package faketime is not installed."""
    return next((path for top in ("/usr/lib", "/usr/lib64") for path in Path(top).glob(f"**/{_LIBRARY}")), None)
