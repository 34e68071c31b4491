"""The way to a value: a chain, since most values are passed without a word; only of what is wrong it becomes a path."""

from collections.abc import Iterator
from typing import Any

from apiext.meta.fields import child, item

Way = tuple[Any, str | int, bool] | None
"""The way to what holds a value, a name or an index there, and whether paths show that in brackets.

None is where the way begins.
"""


def steps(way: Way) -> Iterator[tuple[str | int, bool]]:
    """Return the steps of a way from its beginning on."""
    found: list[tuple[str | int, bool]] = []
    while way is not None:
        way, step, bracketed = way
        found.append((step, bracketed))
    return reversed(found)


def told(way: Way, path: str = "") -> str:
    """Return the path of a way that begins at a path."""
    for step, bracketed in steps(way):
        path = item(path, step) if bracketed else child(path, str(step))
    return path
