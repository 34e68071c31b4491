"""Limits of the audit log."""

# Bytes of audit events, with their objects, that wait for a file. Beyond: requests are refused.
AUDIT_HELD_BYTES = 256 * 1024 * 1024
# Bytes of audit events that wait in batch mode. Beyond: events are dropped and counted.
AUDIT_BUFFER_BYTES = 64 * 1024 * 1024
# Seconds that an answer waits for an audit log that hangs. Beyond: the answer is sent.
AUDIT_WAIT = 10.0
# Audit events written to a file at a time. Beyond: another write.
AUDIT_WRITE_EVENTS = 256
# Bytes of the events written to a file at a time, unless it is one event. Beyond: another write.
AUDIT_WRITE_BYTES = 4 * 1024 * 1024
# Calls of an audit webhook at a time. Beyond: batches wait. Upstream: no limit.
AUDIT_POSTS = 16
# Seconds of one call of an audit webhook. Beyond: the call is retried. Upstream: defaultRequestTimeout.
AUDIT_POST_TIMEOUT = 30.0
# Calls for one batch, with retries. Beyond: its events are dropped and counted. Upstream:
# DefaultRetryBackoffWithInitialDelay.
AUDIT_TRIES = 5
# Seconds in which a stopping server writes the remaining events. Beyond: they are dropped.
AUDIT_FLUSH = 3.0
