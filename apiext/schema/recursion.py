"""Raise Python's recursion limit while a schema is compiled.

A schema has up to MAX_SCHEMA_NESTING levels.
"""

from contextlib import AbstractContextManager

from apiext.cel.effort import SHALLOW, room_for


def deep_recursion(root: bool = True) -> AbstractContextManager[None]:
    """Return a context that raises the recursion limit for a root schema.

    For an inner schema it does nothing, since an inner schema is compiled within the context of its root.
    """
    return room_for(SHALLOW + 1 if root else 0)
