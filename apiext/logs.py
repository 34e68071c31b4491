"""The log: lines go to standard error, by default as text on a terminal, else as JSON."""

import contextlib
import json
import logging
import os
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TextIO

from apiext import limits

TEXT, JSON = "text", "json"
FORMS = (TEXT, JSON)
REQUESTS, RETRIES = 2, 4
"""The verbosity from which requests are logged, and from which retries are logged."""

_SERVER = logging.getLogger("apiext")
_VERBOSE = logging.getLogger("apiext.verbose")
_COLOURS = {logging.DEBUG: "2", logging.INFO: "32", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}
_WRITING = threading.Lock()
LOADED = time.monotonic()
"""The time at which this module was imported, shortly after the start of the process."""


def open_log(form: str = "", worker: int = 0) -> None:
    """Write all log lines of this process to standard error.

    ``form`` is text or json; if it is empty, lines are text on a terminal, else JSON. ``worker`` is the number of a
    worker process, 0 in other processes. Python's warnings and uncaught errors are logged, too.
    """
    handler = next((each for each in logging.getLogger().handlers if isinstance(each, ThreadedHandler)), None)
    if handler is None:
        handler = ThreadedHandler(write)
        logging.getLogger().addHandler(handler)
        _catch_all()
    handler.setFormatter(formatter(form, worker))
    _SERVER.setLevel(logging.INFO)
    _VERBOSE.setLevel(logging.WARNING)


def formatter(form: str, worker: int = 0) -> "JsonLines | TextLines":
    """Return the formatter for ``text`` or ``json``.

    An empty form is text on a terminal, else JSON.
    """
    terminal = sys.stderr.isatty()
    if form == JSON or (not form and not terminal):
        return JsonLines({"worker": worker} if worker else {})
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return TextLines(worker, terminal=terminal, colours=colours)


def set_verbosity(verbosity: int, *, quiet: bool) -> None:
    """Set the logged levels by --quiet and --v.

    Warnings and errors are always logged. --quiet omits all other lines of the server, unless --v is at least RETRIES.
    Requests are logged if --v is at least REQUESTS, also with --quiet.
    """
    _SERVER.setLevel(logging.DEBUG if verbosity >= RETRIES else logging.WARNING if quiet else logging.INFO)
    _VERBOSE.setLevel(logging.INFO if verbosity >= REQUESTS else logging.WARNING)


def note(event: str, **values: str) -> None:
    """Log a failure that changes at most the text of a response, with --v=2 or more."""
    if _VERBOSE.isEnabledFor(logging.INFO):
        _VERBOSE.info(event, extra=fields(**values))


def fields(**values: Any) -> dict[str, Mapping[str, Any]]:
    """Return values for ``extra`` of a logger's call, which are logged as fields."""
    return {"fields": values}


def warn(text: str) -> None:
    """Log a warning about the server's flags, environment or store."""
    _SERVER.warning("%s", text)


def error(text: str) -> None:
    """Log the reason why the server ends, and flush the log."""
    _SERVER.error("%s", text)
    flush()


def flush() -> None:
    """Wait until all lines are written, for at most LOG_FLUSH seconds."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def write(line: str) -> None:
    """Write one line to standard error; ignore a full disk and a closed pipe."""
    with contextlib.suppress(OSError, ValueError), _WRITING:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def write_to(descriptor: int, lines: bytes) -> None:
    """Write lines to a descriptor, without other lines in between; raises OSError."""
    with _WRITING:
        left = memoryview(lines)
        while left:
            left = left[os.write(descriptor, left) :]


class JsonLines(logging.Formatter):
    """Formats a line as a JSON object: time, level, logger, message, then the fields."""

    def __init__(self, common: Mapping[str, Any]) -> None:
        super().__init__()
        self._common = common

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        more = dict(getattr(record, "fields", {}))
        if record.exc_info and record.exc_info[0] is not None:
            more["error"] = f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
            more["traceback"] = self.formatException(record.exc_info)
        return self.line(record.created, record.levelname.lower(), record.name, record.getMessage(), more)

    def line(self, at: float, level: str, logger: str, message: str, more: Mapping[str, Any]) -> str:
        """Format these values as a line; ``at`` is in seconds since the epoch."""
        head = {"time": _utc(at), "level": level, "logger": logger, "message": message, **self._common}
        text = json.dumps({**head, **{name: more[name] for name in more if name not in head}}, ensure_ascii=False)
        return _without_controls(text)


class TextLines(logging.Formatter):
    """Formats a line for readers: time, level, message, then the fields as ``name="value"``."""

    def __init__(self, worker: int, *, terminal: bool, colours: bool) -> None:
        super().__init__()
        self._worker = f"worker {worker}: " if worker else ""
        self._terminal = terminal
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, with its further lines and its traceback below."""
        more = {} if hasattr(record, "lines") else getattr(record, "fields", {})
        text = self.line(record.created, record.levelname, record.name, record.getMessage(), more)
        text += "".join(f"\n{line}" for line in getattr(record, "lines", ()))
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + self.formatException(record.exc_info)
        return text

    def line(self, at: float, level: str, _: str, message: str, more: Mapping[str, Any]) -> str:
        """Format these values as a line; ``at`` is in seconds since the epoch."""
        level = level.upper()
        shown = f"{level:<7}"
        if self._colours:
            shown = f"\x1b[{_COLOURS[logging.getLevelNamesMapping()[level]]}m{shown}\x1b[0m"
        when = (
            time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03}" if self._terminal else _utc(at)
        )
        values = "".join(f" {name}={json.dumps(value, ensure_ascii=False)}" for name, value in more.items())
        message = message.replace("\n", "\n  ")
        return f"{when} {shown} {_without_controls(f'{self._worker}{message}{values}')}"


_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def _without_controls(text: str) -> str:
    """Replace bytes that were not UTF-8 by U+FFFD, and control characters by JSON's escapes.

    Control characters could control a terminal. Line feeds and tabs stay.
    """
    return _CONTROLS.sub(lambda found: "\ufffd" if found[0] >= "\ud800" else f"\\u{ord(found[0]):04x}", text)


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1_000_000):06}Z"


class ThreadedHandler(logging.Handler):
    """Writes log lines in a thread.

    Thus a blocked terminal or pipe does not block the event loop.
    """

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._queued = self._written = self._missing = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a line; count it as missing if the queue is full."""
        if self._lines.qsize() >= limits.LOG_LINES:
            self._missing += 1
            return
        if self._missing:
            text = f"{self._missing} log lines were dropped here"
            self._put(self.format(logging.LogRecord(_SERVER.name, logging.WARNING, "", 0, text, None, None)))
            self._missing = 0
        self._put(self.format(record))

    def flush(self) -> None:
        """Wait until all queued lines are written, for at most LOG_FLUSH seconds."""
        until = time.monotonic() + limits.LOG_FLUSH
        while self._written < self._queued and time.monotonic() < until:
            time.sleep(0.001)

    def _put(self, line: str) -> None:
        self._queued += 1
        self._lines.put(line)

    def _run(self) -> None:
        while True:
            self._write(self._lines.get())
            self._written += 1


def _catch_all() -> None:
    """Log Python's warnings and uncaught errors.

    The errors are those of the main thread, other threads and finalizers.
    """
    warnings.showwarning = _python_warning
    sys.excepthook = _uncaught
    threading.excepthook = lambda hook: _uncaught_in(f"thread {hook.thread.name if hook.thread else ''}", hook)
    sys.unraisablehook = lambda hook: _uncaught_in(f"{hook.err_msg or 'ignored in'} {hook.object!r}", hook)


def _python_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
    line: str | None = None,
) -> None:  # fmt: skip
    logging.getLogger("py.warnings").warning(
        "%s: %s", category.__name__, message, extra=fields(file=filename, line=lineno)
    )


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        _SERVER.error("interrupted")
    else:
        _SERVER.critical("uncaught error", exc_info=(kind, error, trace))
    flush()


def _uncaught_in(where: str, hook: Any) -> None:
    if hook.exc_value is not None:
        _SERVER.error("uncaught error in %s", where, exc_info=(hook.exc_type, hook.exc_value, hook.exc_traceback))


class RateLimited:
    """A log with at most one line in an interval.

    The next line has the number of omitted lines as ``leftOut``.
    """

    def __init__(self, every: float) -> None:
        self._every = every
        self._due = float("-inf")
        self._left_out = 0

    def log(self, level: int, logger: logging.Logger, text: str, **values: Any) -> None:
        """Log a message with fields; in the interval after the last line, only count it."""
        now = time.monotonic()
        if now < self._due:
            self._left_out += 1
            return
        if self._left_out:
            values["leftOut"] = self._left_out
        self._due, self._left_out = now + self._every, 0
        logger.log(level, "%s", text, extra=fields(**values))
