"""Limits of the audit log."""

# Bytes of audit events, with their objects, that wait for a file. Beyond: events are dropped and counted.
AUDIT_HELD_BYTES = 256 * 1024 * 1024
# Bytes of audit events that wait in batch mode. Beyond: events are dropped and counted.
AUDIT_BUFFER_BYTES = 64 * 1024 * 1024
# Seconds that a request waits for an audit log that hangs. Beyond: the event counts as lost, and the request continues.
# In mode blocking-strict, the server rejects the request if this was its first event.
AUDIT_WAIT = 10.0
# Audit events in one write to a file. Beyond: the next write has the rest.
AUDIT_WRITE_EVENTS = 256
# Bytes of audit events in one write to a file, not counting the last event. Beyond: the next write has the rest.
AUDIT_WRITE_BYTES = 4 * 1024 * 1024
# Concurrent calls of an audit webhook in batch mode. Beyond: batches wait. Upstream: no limit.
AUDIT_POSTS = 16
# Seconds of one call of an audit webhook. Beyond: the call fails (see AUDIT_TRIES). Upstream: defaultRequestTimeout.
AUDIT_POST_TIMEOUT = 30.0
# Calls of an audit webhook with the same events, including retries. Beyond: the events are dropped and counted.
# Upstream: DefaultRetryBackoffWithInitialDelay.
AUDIT_TRIES = 5
# Seconds in which a stopping server writes the remaining events. Beyond: they are dropped.
AUDIT_FLUSH = 3.0
