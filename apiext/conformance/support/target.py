"""The server under test: its URL and credentials."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from apiext.conformance.support.http_client import Client

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Target:
    """A running server; ``headers`` may contain a token, ``tls`` is the context for https."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None

    def client(self) -> Client:
        """Return a client of the server."""
        return Client(self.url, self.headers, self.tls)

    @property
    def is_local(self) -> bool:
        """True if the server runs on this machine.

        Such a server can call a webhook on a loopback address.
        """
        return urlsplit(self.url).hostname in LOOPBACK

    @cached_property
    def version(self) -> Mapping[str, Any]:
        """The answer of /version, empty if the server has none."""
        answer = self.client().get("/version")
        return answer.json if answer.status == 200 else {}

    def serves(self, path: str) -> bool:
        """Return whether the server answers a GET of this path with 200."""
        return self.client().get(path).status == 200
