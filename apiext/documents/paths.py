"""Path of a value in a document, as a linked list; it becomes a string only if an error needs it."""

from collections.abc import Iterator
from typing import Any

from apiext.documents import limits


class Key(str):
    """A key of a map in a path, where it must differ from a field of a struct."""

    __slots__ = ()


Path = tuple[Any, str | int] | None
"""(path of the container, name or index of the value in it), or None for the root.

Paths share their prefixes: strings for all values could grow with the square of a body.
"""


def steps(path: Path) -> Iterator[str | int]:
    """Yield the names and indexes of a path, from the root on."""
    found: list[str | int] = []
    while path is not None:
        path, step = path
        found.append(step)
    return reversed(found)


def written(path: Path, *, keys: bool = True) -> str:
    """Return a path as Go's decoders print it: ``spec.items[0].name``; ``keys`` false leaves out keys of maps."""
    parts = (
        f"[{step}]" if isinstance(step, int) else f".{short(step)}"
        for step in steps(path)
        if keys or step.__class__ is not Key
    )
    return "".join(parts).removeprefix(".")


def short(name: str) -> str:
    """Return a name as paths show it, cut to limits.MAX_PATH_NAME."""
    return name if len(name) <= limits.MAX_PATH_NAME else f"{name[: limits.MAX_PATH_NAME]}…"
