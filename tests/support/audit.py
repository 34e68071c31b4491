"""Write audit policies for servers under test, and read the events of a request."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any

import yaml

from apiext.conformance.support.http_client import Answer, Client
from tests.support.processes import Server

Event = dict[str, Any]


def write_policy(directory: Path, *rules: dict[str, Any], **policy: Any) -> Path:
    """Write a policy file ``policy.yaml`` with these rules; return its path."""
    path = directory / "policy.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **policy, "rules": list(rules)}))
    return path


class Audited:
    """A server with an audit log, and a client that sends an ``Audit-Id`` with each request."""

    def __init__(self, server: Server, log: Path, *, trusting: bool = False) -> None:
        """``trusting``: the client accepts any certificate of the server."""
        self.server = server
        self.log = log
        self.api = Client(server.url, tls=ssl._create_unverified_context() if trusting else None)
        self._number = 0

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[Answer, dict[str, Event]]:
        """Send a request; return the response and stage → event.

        The mode ``blocking`` writes all events before the response.
        """
        self._number += 1
        name = f"{method}-{self._number}"
        named = {"Audit-Id": name, **{key.replace("_", "-"): value for key, value in headers.items()}}
        answer = self.api.request(method, path, body, named)
        assert answer.headers["audit-id"] == name
        return answer, self.events(name)

    def last(self, method: str, path: str, body: Any = None, **headers: str) -> Event:
        """Send a request and return its event of the stage ResponseComplete."""
        return self.ask(method, path, body, **headers)[1]["ResponseComplete"]

    def events(self, name: str) -> dict[str, Event]:
        """Return stage → event of a request, in the order in which the server wrote the events."""
        whole = self.log.read_bytes().split(b"\n")[:-1]  # the last line may be incomplete
        found = [json.loads(line) for line in whole]
        stages = [event for event in found if event["auditID"] == name]
        assert len({event["stage"] for event in stages}) == len(stages)
        return {event["stage"]: event for event in stages}
