"""Change the wall clock of processes with Debian's faketime.

Their monotonic clock stays correct.
"""

from __future__ import annotations

from pathlib import Path

_LIBRARY = "faketime/libfaketime.so.1"


class MovedClock:
    """The wall clock of processes that run with the environment ``env``.

    It is wrong by the seconds of the last ``move``.
    """

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.wrong_by = 0
        self.env = {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # an older name of the variable
            "NO_FAKE_STAT": "1",
        }
        self.move(0)

    def move(self, seconds: int) -> None:
        """Make the clock wrong by this number of seconds, at once."""
        made = self._file.with_suffix(".new")
        made.write_text(f"{seconds:+d}\n")
        made.replace(self._file)  # atomic: no process reads a part of the file
        self.wrong_by = seconds


def library() -> Path | None:
    """Return the path of libfaketime; None if Debian's package faketime is not installed."""
    return next((path for top in ("/usr/lib", "/usr/lib64") for path in Path(top).glob(f"**/{_LIBRARY}")), None)
