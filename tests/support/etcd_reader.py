"""Read etcd through its JSON gateway, without code of the server under test."""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.support.processes import Etcd


@dataclass(frozen=True)
class Event:
    """A change of a key; the value of a deletion is None."""

    key: str
    revision: int
    value: dict[str, Any] | None
    created: bool

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def kind(self) -> str:
        """The type of the watch event for this change."""
        return "DELETED" if self.value is None else "ADDED" if self.created else "MODIFIED"


def _text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


def _bounds(prefix: str) -> dict[str, str]:
    raw = prefix.encode()
    end = raw[:-1] + bytes([raw[-1] + 1])
    return {"key": base64.b64encode(raw).decode(), "range_end": base64.b64encode(end).decode()}


def head(etcd: Etcd) -> int:
    """Return etcd's newest revision, by a linearizable read."""
    return int(etcd.call("kv/range", {"key": "AA=="})["header"]["revision"])


def state(etcd: Etcd, prefix: str) -> dict[str, int]:
    """Return the last part of each key below a prefix → its mod_revision."""
    found = etcd.call("kv/range", {**_bounds(prefix), "keys_only": True}).get("kvs", [])
    return {_text(kv["key"]).rpartition("/")[2]: int(kv["mod_revision"]) for kv in found}


def history(etcd: Etcd, prefix: str, since: int) -> list[Event]:
    """Return all changes below a prefix from a revision on, in order.

    etcd must not have compacted this revision, and the newest change must be a put.
    """
    until, events = head(etcd), []
    address = urlsplit(etcd.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=20)
    try:
        # the watch has no end: read until the newest put
        request = {"create_request": {**_bounds(prefix), "start_revision": since, "prev_kv": False}}
        connection.request("POST", "/v3/watch", json.dumps(request))
        response = connection.getresponse()
        newest = max(state(etcd, prefix).values(), default=0)
        while not events or events[-1].revision < newest:
            answer = json.loads(response.readline())["result"]
            if "compact_revision" in answer:
                raise AssertionError(f"etcd has compacted up to {answer['compact_revision']}")
            events += [_event(raw) for raw in answer.get("events", [])]
    finally:
        connection.close()
    return [event for event in events if event.revision <= until]


def _event(raw: dict[str, Any]) -> Event:
    kv = raw["kv"]
    deleted = raw.get("type") == "DELETE"
    value = None if deleted else json.loads(base64.b64decode(kv["value"]))
    return Event(_text(kv["key"]), int(kv["mod_revision"]), value, kv.get("version") == "1")
