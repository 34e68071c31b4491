"""Events in their two API groups: the core group and events.k8s.io."""

from __future__ import annotations

import secrets
from typing import Any

EVENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "": (
        "/api/v1/namespaces/default/events",
        {"apiVersion": "v1", "involvedObject": {"namespace": "default"}, "message": "hi", "reportingComponent": "x"},
    ),
    "events.k8s.io": (
        "/apis/events.k8s.io/v1/namespaces/default/events",
        {"apiVersion": "events.k8s.io/v1", "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "x",
         "reportingInstance": "y", "action": "a", "reason": "r", "type": "Normal", "note": "hi"},
    ),
}  # fmt: skip
"""API group → (path, content) of an event."""


def event(group: str) -> tuple[str, dict[str, Any]]:
    """Return the path of events in a group, and an event with a unique name."""
    path, content = EVENTS[group]
    return path, {**content, "kind": "Event", "metadata": {"name": f"e-{secrets.token_hex(4)}"}}
