"""Limits of calls of webhooks."""

# Bytes of a webhook's response, except that of a conversion webhook (REVIEW_ANSWER). Beyond: the call fails.
WEBHOOK_ANSWER = 8 * 1024 * 1024
# Bytes of the heads of a webhook's response, with the heads of 1xx responses. Beyond: the call fails. Upstream: 10 MiB.
WEBHOOK_HEAD = 64 * 1024
# Chunks of a webhook's response; parsing them takes half a second. Beyond: the call fails. Upstream: no limit.
WEBHOOK_CHUNKS = 250_000
# Chunks parsed in one iteration of the event loop, in 2 milliseconds. Beyond: the rest waits for the next iteration.
WEBHOOK_CHUNKS_AT_ONCE = 1_000
# Bytes of an error response that is decoded as a Status. Beyond: the response counts as one without a Status. Upstream:
# no limit.
WEBHOOK_STATUS = 64 * 1024
# Bytes of a read buffer that a connection reuses. Beyond: the buffer is freed after the response.
WEBHOOK_BUFFER = 256 * 1024
# Bytes of a response that an error quotes. Beyond: the text is truncated. Upstream: maxUnstructuredResponseTextBytes.
WEBHOOK_ERROR_TEXT = 2_048
# Seconds for another TLS handshake, which finds why a certificate is invalid. Beyond: the error has OpenSSL's reason.
WEBHOOK_LOOK = 1.0
# Attempts of a call whose response is 429 or 5xx with Retry-After. Beyond: the call fails. Upstream: maxRetries 10.
WEBHOOK_TRIES = 11
# Idle connections to one webhook with the same credentials. Beyond: a connection is closed after its response.
WEBHOOK_IDLE = 16
# Seconds that a connection to a webhook stays idle. Beyond: it is closed. Upstream: IdleConnTimeout, 90 seconds.
WEBHOOK_IDLE_FOR = 60.0
# Concurrent calls of one owner: a webhook, a definition with a conversion webhook, or the audit log. Beyond: calls
# wait.
WEBHOOK_PARALLEL = 64
# Owners (see WEBHOOK_PARALLEL) with a circuit breaker, and definitions whose conversion webhook is cached. Beyond: the
# least recently used breaker or the oldest cached webhook is evicted.
WEBHOOK_OWNERS = 4_096
# Seconds of a failed call. Beyond: the circuit breaker of its owner counts the call as a slow failure.
WEBHOOK_SLOW_FAILURE = 0.5
# Slow failures, without a response between them, that open the circuit of an owner. Beyond: its calls fail immediately.
WEBHOOK_FAILURES = 5
# TLS contexts in a cache, one for each pair of CA bundle and client certificate. Beyond: the oldest is evicted.
WEBHOOK_CONTEXTS = 256
# Concurrent DNS lookups, each in a thread. Beyond: lookups wait.
WEBHOOK_LOOKUPS = 32
# Bytes of a response in one read. Beyond: the next read has the rest.
WEBHOOK_READ = 256 * 1024
# Entries in each of two caches: heads of requests, and parsed heads of responses. Beyond: the least recently used entry
# is evicted.
WEBHOOK_HEADS_SEEN = 64
