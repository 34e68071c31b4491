"""The path of a value in a document, as a linked list.

The path is converted to a string only if an error needs it.
"""

from collections.abc import Iterator
from typing import Any

from apiext.documents import limits


class Key(str):
    """A map key in a path; a struct field is a plain str."""

    __slots__ = ()


Path = tuple[Any, str | int] | None
"""(path of the container, name or index of the value in the container), or None for the root.

Paths share their prefixes. Strings for the paths of all values could need memory in proportion to the square of the
body's size.
"""


def steps(path: Path) -> Iterator[str | int]:
    """Return the names and indexes of a path, beginning at the root."""
    found: list[str | int] = []
    while path is not None:
        path, step = path
        found.append(step)
    return reversed(found)


def written(path: Path, *, keys: bool = True) -> str:
    """Return a path as Go's decoders print it, such as ``spec.items[0].name``.

    Omit map keys if ``keys`` is false.
    """
    parts = (
        f"[{step}]" if isinstance(step, int) else f".{short(step)}"
        for step in steps(path)
        if keys or step.__class__ is not Key
    )
    return "".join(parts).removeprefix(".")


def short(name: str) -> str:
    """Return a name for a printed path, cut to limits.MAX_PATH_NAME characters.

    A cut name ends with ``…``.
    """
    return name if len(name) <= limits.MAX_PATH_NAME else f"{name[: limits.MAX_PATH_NAME]}…"
