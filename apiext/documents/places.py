"""Where a value stands in a document, as faults tell of it: names may be as long as a body."""

from typing import Any

from apiext.documents import limits


class Key(str):
    """A key of a map on the way to a value, where it is told from the fields of types."""

    __slots__ = ()


Place = tuple[Any, str | int] | None
"""The place of what holds a value, and a name or an index there; None is the root.

A chain, since most places are passed without a word: texts for all of them would grow with the square of a body.
"""


def written(place: Place, *, keys: bool = True) -> str:
    """Return a place as it is told, with or without keys of maps."""
    steps: list[str] = []
    while place is not None:
        place, step = place
        if keys or step.__class__ is not Key:
            steps.append(f"[{step}]" if isinstance(step, int) else f".{short(step)}")
    return "".join(reversed(steps)).removeprefix(".")


def short(name: str) -> str:
    """Return a name as paths show it; what is wrong below it repeats it."""
    return name if len(name) <= limits.MAX_PATH_NAME else f"{name[: limits.MAX_PATH_NAME]}…"
