"""Path of a value in a document, as a linked list: most values have no error, so few paths become a string."""

from collections.abc import Iterator
from typing import Any

from apiext.documents import limits


class Key(str):
    """A key of a map in a path, where the path must tell it from the field of a type."""

    __slots__ = ()


Path = tuple[Any, str | int] | None
"""The path of the object or array that holds a value, and the value's name or index there; None is the root.

Paths share their beginnings: a string for each value would grow with the square of a body.
"""


def steps(path: Path) -> Iterator[str | int]:
    """Return the names and indexes of a path from the root on."""
    found: list[str | int] = []
    while path is not None:
        path, step = path
        found.append(step)
    return reversed(found)


def written(path: Path, *, keys: bool = True) -> str:
    """Return a path as Go's decoders write it, ``spec.items[0].name``, with or without the keys of maps."""
    parts = (
        f"[{step}]" if isinstance(step, int) else f".{short(step)}"
        for step in steps(path)
        if keys or step.__class__ is not Key
    )
    return "".join(parts).removeprefix(".")


def short(name: str) -> str:
    """Return a name as paths show it, cut to limits.MAX_PATH_NAME."""
    return name if len(name) <= limits.MAX_PATH_NAME else f"{name[: limits.MAX_PATH_NAME]}…"
