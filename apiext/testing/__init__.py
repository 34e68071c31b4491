"""A server of one's own for tests: ``with Server() as api: …``, and the same as pytest's fixtures.

It is loaded when it is first used, since every run of pytest loads the plug-in in this package.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from apiext.testing.server import ApiError, Server, ServerNotReady

__all__ = ["ApiError", "Server", "ServerNotReady"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from apiext.testing import server

    return getattr(server, name)
