"""A server of one's own for tests: ``with Server() as api: …``, and the same as pytest's fixtures."""

from apiext.testing.server import ApiError, Server, ServerNotReady

__all__ = ["ApiError", "Server", "ServerNotReady"]
