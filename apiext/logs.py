"""The log: every line on standard error, in one form: text on a terminal, else JSON."""

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
"""The verbosity from which each request has a line, and from which each retry has one."""

_SERVER = logging.getLogger("apiext")
_VERBOSE = logging.getLogger("apiext.verbose")
_COLOURS = {logging.DEBUG: "2", logging.INFO: "32", logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "31"}
_WRITING = threading.Lock()
LOADED = time.monotonic()
"""When this module was loaded, which is near the start of the process."""


def open_log(form: str = "", worker: int = 0) -> None:
    """Send every line of this process to standard error.

    ``form`` is text or json; without one, a terminal gets text. ``worker`` is the number of a worker process. Warnings
    of Python and errors that no code catches become lines of the log, too.
    """
    handler = next((each for each in logging.getLogger().handlers if isinstance(each, Beside)), None)
    if handler is None:
        handler = Beside(write)
        logging.getLogger().addHandler(handler)
        _catch_all()
    handler.setFormatter(formatter(form, worker))
    _SERVER.setLevel(logging.INFO)
    _VERBOSE.setLevel(logging.WARNING)


def formatter(form: str, worker: int = 0) -> "JsonLines | TextLines":
    """Return the formatter of a form."""
    terminal = sys.stderr.isatty()
    if form == JSON or (not form and not terminal):
        return JsonLines({"worker": worker} if worker else {})
    colours = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return TextLines(worker, terminal=terminal, colours=colours)


def set_verbosity(verbosity: int, *, quiet: bool) -> None:
    """Choose which lines are written: by --v, and with --quiet no more than warnings and errors."""
    _SERVER.setLevel(logging.DEBUG if verbosity >= RETRIES else logging.WARNING if quiet else logging.INFO)
    _VERBOSE.setLevel(logging.INFO if verbosity >= REQUESTS else logging.WARNING)


def note(event: str, **values: str) -> None:
    """Log an event that only a higher --v shows: a failure that changes no answer, or only its text."""
    if _VERBOSE.isEnabledFor(logging.INFO):
        _VERBOSE.info(event, extra=fields(**values))


def fields(**values: Any) -> dict[str, Mapping[str, Any]]:
    """Return values for ``extra`` of a logger's call: they stand in the line beside its message."""
    return {"fields": values}


def warn(text: str) -> None:
    """Log a warning about how the server was started."""
    _SERVER.warning("%s", text)


def error(text: str) -> None:
    """Log why the server ends, after all that was logged before, and wait until it is written."""
    _SERVER.error("%s", text)
    flush()


def flush() -> None:
    """Wait until the lines so far are written, LOG_FLUSH seconds at most."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def write(line: str) -> None:
    """Write one line on standard error; a full disk or a closed pipe is no error."""
    with contextlib.suppress(OSError, ValueError), _WRITING:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def write_to(descriptor: int, lines: bytes) -> None:
    """Write whole lines to a descriptor, never between parts of another line; raises OSError."""
    with _WRITING:
        left = memoryview(lines)
        while left:
            left = left[os.write(descriptor, left) :]


class JsonLines(logging.Formatter):
    """Writes a line as a JSON object: time, level, logger, message, then the fields."""

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
        """Return the line of these values; ``at`` is in seconds since 1970."""
        head = {"time": _utc(at), "level": level, "logger": logger, "message": message, **self._common}
        text = json.dumps({**head, **{name: more[name] for name in more if name not in head}}, ensure_ascii=False)
        return _harmless(text)


class TextLines(logging.Formatter):
    """Writes a line for people: time, level, message, then the fields as ``name="value"``."""

    def __init__(self, worker: int, *, terminal: bool, colours: bool) -> None:
        super().__init__()
        self._worker = f"worker {worker}: " if worker else ""
        self._terminal = terminal
        self._colours = colours

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, with its traceback below it."""
        more = {} if hasattr(record, "lines") else getattr(record, "fields", {})
        text = self.line(record.created, record.levelname, record.name, record.getMessage(), more)
        text += "".join(f"\n{line}" for line in getattr(record, "lines", ()))
        if record.exc_info and record.exc_info[0] is not None:
            text += "\n" + self.formatException(record.exc_info)
        return text

    def line(self, at: float, level: str, _: str, message: str, more: Mapping[str, Any]) -> str:
        """Return the line of these values; ``at`` is in seconds since 1970."""
        level = level.upper()
        shown = f"{level:<7}"
        if self._colours:
            shown = f"\x1b[{_COLOURS[logging.getLevelNamesMapping()[level]]}m{shown}\x1b[0m"
        when = (
            time.strftime("%H:%M:%S", time.localtime(at)) + f".{int(at % 1 * 1000):03}" if self._terminal else _utc(at)
        )
        told = "".join(f" {name}={json.dumps(value, ensure_ascii=False)}" for name, value in more.items())
        message = message.replace("\n", "\n  ")
        return f"{when} {shown} {_harmless(f'{self._worker}{message}{told}')}"


_HARMFUL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def _harmless(text: str) -> str:
    """Return a text with U+FFFD for bytes of a request that were not UTF-8, and JSON's escapes of control characters.

    These could control a terminal. Line feeds and tabs stay.
    """
    return _HARMFUL.sub(lambda found: "\ufffd" if found[0] >= "\ud800" else f"\\u{ord(found[0]):04x}", text)


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1_000_000):06}Z"


class Beside(logging.Handler):
    """Has lines written by a thread of its own: a terminal or pipe that nobody reads must not block the event loop."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._asked = self._done = self._missing = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line; lines that find no room are counted."""
        if self._lines.qsize() >= limits.LOG_LINES:
            self._missing += 1
            return
        if self._missing:
            text = f"{self._missing} lines are missing here"
            self._put(self.format(logging.LogRecord(_SERVER.name, logging.WARNING, "", 0, text, None, None)))
            self._missing = 0
        self._put(self.format(record))

    def flush(self) -> None:
        """Wait until everything is written, LOG_FLUSH seconds at most."""
        until = time.monotonic() + limits.LOG_FLUSH
        while self._done < self._asked and time.monotonic() < until:
            time.sleep(0.001)

    def _put(self, line: str) -> None:
        self._asked += 1
        self._lines.put(line)

    def _run(self) -> None:
        while True:
            self._write(self._lines.get())
            self._done += 1


def _catch_all() -> None:
    """Log warnings of Python, and errors that no code catches: in the main thread, in another one, in a finalizer."""
    warnings.showwarning = _python_warning
    sys.excepthook = _uncaught
    threading.excepthook = lambda told: _uncaught_in(f"thread {told.thread.name if told.thread else ''}", told)
    sys.unraisablehook = lambda told: _uncaught_in(f"{told.err_msg or 'ignored in'} {told.object!r}", told)


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
        _SERVER.critical("an error that was not caught", exc_info=(kind, error, trace))
    flush()


def _uncaught_in(where: str, told: Any) -> None:
    if told.exc_value is not None:
        _SERVER.error("an error in %s", where, exc_info=(told.exc_type, told.exc_value, told.exc_traceback))


class Seldom:
    """At most one line in an interval; the next line counts those left out as ``leftOut``."""

    def __init__(self, every: float) -> None:
        self._every = every
        self._due = float("-inf")
        self._left_out = 0

    def log(self, level: int, logger: logging.Logger, text: str, **values: Any) -> None:
        """Log a message with fields, unless another one was logged just now."""
        now = time.monotonic()
        if now < self._due:
            self._left_out += 1
            return
        if self._left_out:
            values["leftOut"] = self._left_out
        self._due, self._left_out = now + self._every, 0
        logger.log(level, "%s", text, extra=fields(**values))
