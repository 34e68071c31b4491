"""A plain HTTP client: one request and one answer at a time; watches are read line by line."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import ssl
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from apiext.conformance.support.waiting import pause

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


exchanges: deque[str] = deque(maxlen=3)
"""The last requests of this process and their answers, for the report of a failure."""
answers: deque[Answer] = deque(maxlen=1)
"""The last answer of this process."""
absent: set[str] = set()
"""Paths that the server answered with 404 since this set was cleared."""
made: dict[str, None] = {}
"""Paths of the definitions and namespaces that this process has created, in order."""
_CREATED = re.compile(r"(/apis/apiextensions\.k8s\.io/[a-z0-9]+/customresourcedefinitions|/api/v1/namespaces)(\?|$)")
attempts = 1
"""Maximum number of tries of a request while a server answers 429 because it fills its cache."""
_SHOWN = 2_000  # maximum number of characters of a body in a report


@dataclass(frozen=True)
class Answer:
    """An answer: status, body and headers.

    The names of headers are in lower case; newlines separate repeated headers.
    """

    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.raw.decode("utf-8")

    @property
    def json(self) -> Any:
        """The body as a JSON value."""
        return json.loads(self.raw)

    @property
    def warnings(self) -> list[str]:
        """The values of the Warning headers."""
        return self.headers.get("warning", "").split("\n") if "warning" in self.headers else []

    def expect(self, status: int) -> Any:
        """Return the JSON body; raise AssertionError if the answer has another status."""
        assert self.status == status, f"{self.status} instead of {status}: {self.raw[:1000]!r}"
        return self.json


class Watch:
    """An open watch; iteration yields its events, and ``close`` closes the connection."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection, self._response = connection, response
        self.status = response.status
        self.headers = _headers(response)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while line := self._response.readline():
            yield json.loads(line)

    def lines(self) -> Iterator[bytes]:
        """Yield the raw lines, for example of server-sent events."""
        yield from self._response

    def next(self, *kinds: str) -> dict[str, Any]:
        """Return the next event of one of these types, or any event.

        Raise AssertionError at the end of the watch.
        """
        for event in self:
            if not kinds or event["type"] in kinds:
                return event
        raise AssertionError("the watch ended")

    def read(self) -> bytes:
        """Return the remaining bytes of the watch."""
        return self._response.read()

    def close(self) -> None:
        """Close the connection."""
        self._response.close()
        self._connection.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Client:
    """A client of one server.

    Each call uses its own connection, so threads may share a client.
    """

    def __init__(self, url: str, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/")
        self._parts = urlsplit(self.url)
        self.headers = dict(headers or {})
        self.tls = tls

    @property
    def fields(self) -> bytes:
        """The header lines of each request, for a request that a test writes itself."""
        return "".join(f"{name}: {value}\r\n" for name, value in self.headers.items()).encode()

    def dial(self, timeout: float = 10.0) -> socket.socket:
        """Return a connection for raw bytes; it uses TLS if the server does."""
        port = self._parts.port or (443 if self.tls else 80)
        line = socket.create_connection((self._parts.hostname or "", port), timeout)
        return self.tls.wrap_socket(line, server_hostname=self._parts.hostname) if self.tls else line

    def connect(self, timeout: float) -> http.client.HTTPConnection:
        """Return a connection for several requests."""
        host, port = self._parts.hostname or "127.0.0.1", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self.tls)
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _send(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], timeout: float, query: Mapping[str, object]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        asked, path = path, self._parts.path + path
        if query:
            path += ("&" if "?" in path else "?") + urlencode({name: str(value) for name, value in query.items()})
        sent = {**self.headers, **headers}
        if body is not None and not isinstance(body, bytes):
            body = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            if not any(name.lower() == "content-type" for name in sent):
                sent["Content-Type"] = "application/json"
        connection = self.connect(timeout)
        try:
            connection.putrequest(method, path, skip_host="Host" in sent, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            if body is not None and "Transfer-Encoding" not in sent:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders(body)
            response = connection.getresponse()
            if response.status == 404:
                absent.add(asked)
            return connection, response
        except BaseException:
            connection.close()
            raise

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
        **query: Any,
    ) -> Answer:
        """Send a request; a body that is neither bytes nor str is encoded as JSON.

        While the server fills its cache, repeat the request up to ``attempts`` times in total.
        """
        for _ in range(attempts):
            answer = self._once(method, path, body, headers or {}, timeout, query)
            if answer.status != 429 or b"storage is (re)initializing" not in answer.raw:
                break
            pause(1)  # the value of Retry-After
        return answer

    def _once(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], timeout: float, query: Mapping[str, object]
    ) -> Answer:
        connection, response = self._send(method, path, body, headers, timeout, query)
        try:
            answer = Answer(response.status, _headers(response), response.read())
            answers.append(answer)
            _note_created(method, path, query, answer)
            exchanges.append(_shown(method, path, body, headers, query, answer))
            return answer
        finally:
            response.close()
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        """Send a GET."""
        return self.request("GET", path, headers=headers, **query)

    def post(self, path: str, body: Any, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        """Send a POST."""
        return self.request("POST", path, body, headers, **query)

    def put(self, path: str, body: Any, headers: Mapping[str, str] | None = None, **query: Any) -> Answer:
        """Send a PUT."""
        return self.request("PUT", path, body, headers, **query)

    def patch(self, path: str, body: Any, kind: str = MERGE, **query: Any) -> Answer:
        """Send a PATCH with this media type."""
        return self.request("PATCH", path, body, {"Content-Type": kind}, **query)

    def delete(self, path: str, body: Any = None, **query: Any) -> Answer:
        """Send a DELETE."""
        return self.request("DELETE", path, body, **query)

    def watch(self, path: str, timeout: float = 30.0, headers: Mapping[str, str] | None = None, **query: Any) -> Watch:
        """Open a watch; reading fails after ``timeout`` seconds without data."""
        return Watch(*self._send("GET", path, None, headers or {}, timeout, {"watch": "true", **query}))


def _note_created(method: str, path: str, query: Mapping[str, object], answer: Answer) -> None:
    """Record the path of a definition or namespace that this request created."""
    found = _CREATED.match(path) if method == "POST" and answer.status == 201 else None
    if not found or "dryRun" in query or "dryRun" in path:
        return
    with contextlib.suppress(ValueError, KeyError, TypeError):
        made[f"{found[1]}/{answer.json['metadata']['name']}"] = None


def _shown(
    method: str, path: str, body: Any, headers: Mapping[str, str], query: Mapping[str, object], answer: Answer
) -> str:
    """Return a request and its answer as text for a report."""
    sent = body if isinstance(body, bytes | str | None) else json.dumps(body)
    asked = f"{path}{'?' if query else ''}{urlencode({name: str(value) for name, value in query.items()})}"
    lines = [f"{method} {asked}", *(f"{name}: {value}" for name, value in headers.items() if name != "Authorization")]
    lines += [str(sent)[:_SHOWN]] if sent is not None else []
    return "\n".join([*lines, f"-> {answer.status}", answer.raw[:_SHOWN].decode("utf-8", "replace")])


def _headers(response: http.client.HTTPResponse) -> dict[str, str]:
    found: dict[str, str] = {}
    for given, value in response.getheaders():
        name = given.lower()
        found[name] = f"{found[name]}\n{value}" if name in found else value
    return found
