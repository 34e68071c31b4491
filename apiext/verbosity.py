"""Log lines that a higher --v shows: failures that change no answer, or only its text."""

import json
import logging

_LINES = logging.getLogger("apiext.verbose")
_FROM = 2


def set_verbosity(verbosity: int) -> None:
    """Show these lines from --v=2 on."""
    _LINES.setLevel(logging.INFO if verbosity >= _FROM else logging.WARNING)


def note(event: str, **values: str) -> None:
    """Log an event with its values in one line: ``event: rule="self > 1" error="no such key: a"``."""
    if _LINES.isEnabledFor(logging.INFO):
        told = " ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
        _LINES.info("%s: %s", event, told)
