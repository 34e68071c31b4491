"""A server for tests: ``with Server() as api: …``, or fixtures of pytest.

The modules are imported at first use, since every run of pytest loads the plug-in of this package.
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
