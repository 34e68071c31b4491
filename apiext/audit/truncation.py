"""Truncation of large audit events.

Truncation removes their request and response objects, or the whole event. The flags are --audit-…-truncate-….
"""

from collections.abc import Callable

from apiext.audit.events import Event
from apiext.audit.policy import REQUEST
from apiext.config import AuditDelivery

PLUGIN = "truncate"
TOO_LARGE = "event is too large even after truncating"


def fitting(event: Event, delivery: AuditDelivery, render: Callable[[Event], bytes] = Event.line) -> bytes | None:
    """Return the rendered event, truncated if necessary.

    Return None if the event is too large even without its objects. The limit applies to ``Event.line``, also if
    ``render`` is another function.
    """
    if not delivery.truncated:
        return render(event)
    # `>=`: upstream counts the newline at the end, which line() does not have
    if len(event.line()) >= delivery.max_event_bytes and event.verdict.level >= REQUEST:
        event = event.truncated()
    return render(event) if len(event.line()) < delivery.max_event_bytes else None
