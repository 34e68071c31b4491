"""Quote strings as Go does, and count the work against the limit of the evaluation."""

from apiext.cel.effort import spend_text, spend_work
from apiext.text import quotes


def go_quote(text: str) -> str:
    """Return a quoted string with Go's escapes, and count the work.

    Raise Cancelled if the work exceeds the limit.
    """
    _count(text)
    return quotes.go_quote(text)


def time_quote(text: str) -> str:
    """Quote a text as Go's time package does in errors, and count the work.

    Raise Cancelled if it exceeds the limit.
    """
    _count(text)
    return quotes.time_quote(text)


def _count(text: str) -> None:
    spend_text(len(text))
    spend_work(len(text) * 2)
