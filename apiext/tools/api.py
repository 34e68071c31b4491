"""Send requests to a server; retry while it restarts or is busy.

A busy server responds with a 429 or 503. If its response has a Retry-After, the client waits at least so long.
"""

import http.client
import json
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from apiext.tools import limits
from apiext.tools.access import Access, AccessError

MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
_BROKEN = (OSError, http.client.HTTPException, UnicodeError)  # UnicodeError: a host or path cannot be encoded
_BUSY = (429, 503)


class Unreachable(Exception):
    """The server has never responded, or has not responded for limits.TOOL_WAIT seconds."""


class Answer(Struct, frozen=True):
    """A status code and the decoded body.

    A body that is not a JSON object becomes the value of ``message``.
    """

    code: int
    document: Mapping[str, Any]

    @property
    def message(self) -> str:
        """The message of a Status, else its reason, else the HTTP status."""
        return str(self.document.get("message") or self.document.get("reason") or f"HTTP {self.code}")


class Api:
    """A client of a server, for several threads.

    Requests must be idempotent, since the client repeats a request that got no response. The client does not retry if
    the server has never responded: then the address or the certificate is probably wrong.
    """

    def __init__(self, access: Access, agent: str) -> None:
        """Raise AccessError for an invalid URL."""
        self.url = access.url
        try:
            parts = urlsplit(access.url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise AccessError(f"{access.url} is not the URL of a server: {error}") from error
        if not self._host:
            raise AccessError(f"{access.url} is not the URL of a server: it has no host")
        self._secure, self._base = parts.scheme == "https", parts.path.rstrip("/")
        self._tls = access.tls
        self._headers = {"User-Agent": agent, "Accept": "application/json", **access.headers}
        self._local = threading.local()
        self._answered = False

    def get(self, path: str, accept: str = "application/json", **query: object) -> Answer:
        """Send a GET."""
        return self._request("GET", path, None, {"Accept": accept}, query)

    def patch(self, path: str, body: Mapping[str, Any], accept: str = "application/json", **query: object) -> Answer:
        """Send a merge patch."""
        return self._request("PATCH", path, body, {"Accept": accept, "Content-Type": MERGE}, query)

    def apply(self, path: str, body: Mapping[str, Any], manager: str) -> Answer:
        """Send a server-side apply with force."""
        kind = {"Content-Type": APPLY}
        return self._request("PATCH", path, body, kind, {"fieldManager": manager, "force": "true"})

    def delete(self, path: str, **query: object) -> Answer:
        """Send a DELETE; a repeated DELETE returns a 404."""
        return self._request("DELETE", path, None, {}, query)

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        query: Mapping[str, object],
    ) -> Answer:
        target = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        deadline, wait = time.monotonic() + limits.TOOL_WAIT, 0.05
        while True:
            try:
                answer, retry_after = self._once(method, target, data, {**self._headers, **headers})
            except _BROKEN as error:
                self.close()
                if time.monotonic() > deadline or not self._answered:
                    raise Unreachable(f"{self.url} does not respond: {error}") from error
                retry_after = 0.0
            else:
                self._answered = True
                if answer.code not in _BUSY or time.monotonic() > deadline:
                    return answer
            time.sleep(max(wait, retry_after))
            wait = min(2 * wait, 2.0)

    def _once(self, method: str, target: str, data: bytes | None, headers: Mapping[str, str]) -> tuple[Answer, float]:
        connection = self._connection()
        connection.request(method, target, data, dict(headers))
        response = connection.getresponse()
        raw = response.read()
        after = response.headers.get("Retry-After", "")
        return Answer(response.status, _document(raw)), float(after) if after.isdecimal() else 0.0

    def _connection(self) -> http.client.HTTPConnection:
        known: _Connection | None = getattr(self._local, "connection", None)
        if known is None:
            timeout = limits.TOOL_TIMEOUT
            known = self._local.connection = _Connection(
                http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=self._tls)
                if self._secure
                else http.client.HTTPConnection(self._host, self._port, timeout=timeout)
            )
        return known.connection

    def close(self) -> None:
        """Close the connection of this thread."""
        self._local.connection = None


class _Connection:
    """A connection that is closed when its thread ends."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self.connection = connection

    def __del__(self) -> None:
        self.connection.close()


def _document(raw: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": raw.decode("utf-8", "replace").strip()}
