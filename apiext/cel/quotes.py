"""Quote strings as Go does, and count the work against the limit of the evaluation."""

from apiext.cel.effort import spend_text, take_time
from apiext.text.quotes import go_quote as quoted


def go_quote(text: str) -> str:
    """Return a quoted string with Go's escapes, and count the work.

    Raise Cancelled if the work exceeds the limit.
    """
    spend_text(len(text))
    take_time(len(text) * 2)
    return quoted(text)
