"""Reserve stack frames of Python for compiling a schema, nested up to MAX_SCHEMA_NESTING."""

from contextlib import AbstractContextManager

from apiext.cel.effort import SHALLOW, room_for


def deep_recursion(root: bool = True) -> AbstractContextManager[None]:
    """Reserve the frames for compiling below a root; for a node below a root do nothing."""
    return room_for(SHALLOW + 1 if root else 0)
