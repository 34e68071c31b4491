"""Reserve Python stack frames for compiling a schema with up to MAX_SCHEMA_NESTING levels."""

from contextlib import AbstractContextManager

from apiext.cel.effort import SHALLOW, room_for


def deep_recursion(root: bool = True) -> AbstractContextManager[None]:
    """Reserve the frames for compiling a root schema; for an inner schema do nothing, since they are reserved."""
    return room_for(SHALLOW + 1 if root else 0)
