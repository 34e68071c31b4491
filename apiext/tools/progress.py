"""Progress of a long command: a bar on a terminal, JSON lines otherwise."""

import json
import shutil
import threading
import time
from typing import Any, Protocol, TextIO

_BAR_EVERY, _LINE_EVERY = 0.1, 1.0  # seconds
_WIDTH = 30  # characters of the bar


class Report(Protocol):
    """The output for events and progress of a command."""

    def event(self, name: str, **facts: Any) -> None:
        """Write an event."""

    def progress(self, subject: str, done: int, total: int) -> None:
        """Write the progress; implementations limit how often they write."""


class Lines:
    """Output of one JSON object per line, with progress at most once a second."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._next = 0.0

    def event(self, name: str, **facts: Any) -> None:
        """Write a line."""
        with self._lock:
            print(json.dumps({"event": name, **facts}), file=self._out, flush=True)

    def progress(self, subject: str, done: int, total: int) -> None:
        """Write a line, unless the last progress line is less than a second old."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _LINE_EVERY
            self.event("progress", resource=subject, done=done, total=total)


class Bar:
    """Output of a progress bar, and of plain lines for events."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._lock = threading.Lock()
        self._next = 0.0
        self._began = time.monotonic()
        self._drawn = False

    def event(self, name: str, **facts: Any) -> None:
        """Write a line of plain text."""
        with self._lock:
            self._clear()
            told = ", ".join(f"{key} {_words(value)}" for key, value in facts.items() if key != "resource")
            print(f"{facts.get('resource', '')}: {name}{': ' if told else ''}{told}", file=self._out, flush=True)
            if name == "started":
                self._began = time.monotonic()

    def progress(self, subject: str, done: int, total: int) -> None:
        """Draw the bar: at most ten times a second, and at the end."""
        now = time.monotonic()
        if now < self._next and done < total:
            return
        self._next = now + _BAR_EVERY
        share = min(1.0, done / total) if total else 1.0
        filled = round(share * _WIDTH)
        took = max(now - self._began, 0.001)
        text = f"{subject} [{'#' * filled}{'.' * (_WIDTH - filled)}] {done}/{total} {done / took:.0f}/s"
        with self._lock:
            self._clear()
            self._out.write(text[: shutil.get_terminal_size().columns - 1])
            self._out.flush()
            self._drawn = True

    def _clear(self) -> None:
        if self._drawn:
            self._out.write("\r\x1b[K")
            self._drawn = False


def report_on(out: TextIO) -> Report:
    """Return a progress bar for a terminal, else JSON lines."""
    return Bar(out) if out.isatty() else Lines(out)


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
