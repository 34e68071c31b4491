"""CEL functions for JSON patches.

Only environments with the extension for JSON patches have these functions.
"""

from apiext.cel.costs import COPY
from apiext.cel.overloads import Library, row
from apiext.cel.values import Value, no_overload


def _escape_key(text: Value) -> Value:
    """Escape a string for use as one key in a JSON pointer."""
    return text.replace("~", "~0").replace("/", "~1") if type(text) is str else no_overload()


LIBRARY = Library(
    "kubernetes.jsonpatch",
    (row("jsonpatch.escapeKey", "string_jsonpatch_escapeKey_string", "string -> string", _escape_key, cost=COPY),),
)
