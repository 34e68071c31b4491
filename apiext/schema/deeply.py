"""Room on Python's stack for what compiles a schema, which may be nested as deep as MAX_SCHEMA_NESTING."""

from contextlib import AbstractContextManager

from apiext.cel.effort import SHALLOW, room_for


def deeply(root: bool = True) -> AbstractContextManager[None]:
    """Give the frames that compiling takes below a root; what is below goes without."""
    return room_for(SHALLOW + 1 if root else 0)
