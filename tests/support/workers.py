"""Find the workers behind one port, and send requests to one of them."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from apiext.conformance.support.http_client import Answer, Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Server

_NUMBER = re.compile(r'^apiext_worker_info\{worker="([0-9]+)",of="([0-9]+)"\} 1$', re.MULTILINE)


class Pinned:
    """A client of one worker; it sends all requests over one connection."""

    def __init__(self, url: str, number: int) -> None:
        self._place = urlsplit(url).netloc
        self.connection = until(lambda: self._found(number), f"worker {number} answers", every=0.001)

    def _found(self, number: int) -> http.client.HTTPConnection | None:
        connection = http.client.HTTPConnection(self._place, timeout=30)
        with contextlib.suppress(OSError):
            connection.request("GET", "/metrics")
            seen = _NUMBER.search(connection.getresponse().read().decode())
            if seen is not None and int(seen[1]) == number:
                return connection
        connection.close()
        return None

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def request(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request with a JSON body, and return the answer."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        self.connection.request(method, path, json.dumps(body) if body is not None else None, sent)
        response = self.connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())


def pids(server: Server) -> dict[int, int]:
    """Return number of the worker → process id."""
    told = subprocess.run(
        ["ps", "--ppid", str(server.pid), "-o", "pid=,args="], capture_output=True, text=True, check=False
    )
    found = (re.match(r"\s*([0-9]+) .* apiext\.worker ([0-9]+) of", line) for line in told.stdout.splitlines())
    return {int(match[2]): int(match[1]) for match in found if match is not None}


def number_of(api: Client) -> int:
    """Return the number of the worker that accepts a new connection."""
    seen = _NUMBER.search(api.get("/metrics").text)
    assert seen is not None, "a worker reports its number in its metrics"
    return int(seen[1])
