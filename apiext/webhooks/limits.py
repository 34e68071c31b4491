"""Limits of calls of webhooks."""

# Bytes of a webhook's answer about one object. Beyond: the call fails.
WEBHOOK_ANSWER = 8 * 1024 * 1024
# Bytes of the heads of a webhook's answer, with those of 1xx answers. Beyond: the call fails. Upstream: 10 MiB.
WEBHOOK_HEAD = 64 * 1024
# Chunks of a webhook's answer, half a second of work. Beyond: the call fails. Upstream: no limit.
WEBHOOK_CHUNKS = 250_000
# Chunks parsed in one turn of the event loop, 2 milliseconds. Beyond: the next turn.
WEBHOOK_CHUNKS_AT_ONCE = 1_000
# Bytes of an error answer that is decoded as a Status. Beyond: it is quoted as text. Upstream: no limit.
WEBHOOK_STATUS = 64 * 1024
# Bytes of a connection's read buffer that is kept. Beyond: it is freed after the answer.
WEBHOOK_BUFFER = 256 * 1024
# Bytes of an answer that an error quotes. Beyond: they are cut. Upstream: maxUnstructuredResponseTextBytes.
WEBHOOK_ERROR_TEXT = 2_048
# Seconds of the second handshake that finds why a certificate was refused. Beyond: the reason is left out.
WEBHOOK_LOOK = 1.0
# Tries of a call answered by 429 or 5xx with Retry-After. Beyond: the call fails. Upstream: maxRetries 10.
WEBHOOK_TRIES = 11
# Idle connections of one webhook. Beyond: they are closed.
WEBHOOK_IDLE = 16
# Seconds that a connection to a webhook stays idle. Beyond: it is closed. Upstream: IdleConnTimeout, 90 seconds.
WEBHOOK_IDLE_FOR = 60.0
# Calls at a time of one owner. Beyond: calls wait.
WEBHOOK_PARALLEL = 64
# Owners with a circuit breaker. Beyond: the least recently used is evicted.
WEBHOOK_OWNERS = 4_096
# Seconds of a failed call. Beyond: it counts against its owner's circuit.
WEBHOOK_SLOW_FAILURE = 0.5
# Slow failures in a row. Beyond: the owner's circuit opens and calls fail at once.
WEBHOOK_FAILURES = 5
# TLS contexts in a cache, one for each CA bundle. Beyond: the oldest is evicted.
WEBHOOK_CONTEXTS = 256
# DNS lookups at a time, each in a thread. Beyond: lookups wait.
WEBHOOK_LOOKUPS = 32
# Bytes of an answer read at a time. Beyond: the next read.
WEBHOOK_READ = 256 * 1024
# Heads of requests and answers in a cache. Beyond: the oldest is evicted.
WEBHOOK_HEADS_SEEN = 64
