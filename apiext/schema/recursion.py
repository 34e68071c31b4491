"""Reserve Python stack frames for compiling a schema with up to MAX_SCHEMA_NESTING levels."""

from contextlib import AbstractContextManager

from apiext.cel.effort import SHALLOW, room_for


def deep_recursion(root: bool = True) -> AbstractContextManager[None]:
    """Reserve the frames for compiling a root schema. Without ``root`` do nothing: its root has reserved them."""
    return room_for(SHALLOW + 1 if root else 0)
