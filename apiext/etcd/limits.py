"""Limits of the client of etcd."""

# Seconds of a call with all its retries. Beyond: the call fails.
CALL_BUDGET = 10.0
# Seconds in which connections close. Beyond: they are aborted.
CLOSE_BUDGET = 2.0
# Seconds without a request for the head revision. Beyond: the client sends one.
PROBE_EVERY = 2.0
# Seconds in which etcd must respond to that request. Beyond: etcd counts as unavailable.
PROBE_TIMEOUT = 2.0
# Seconds without a new request for the head revision while etcd is unavailable. Beyond: the client sends one.
LAST_TRY = 1.0
# Pairs of guards whose encoded part of a transaction is cached. Beyond: the least recently used is dropped.
GUARDS_KEPT = 256
# Sizes of keys and revisions with a cached part of a transaction. Beyond: the least recently used is dropped.
SIZES_KEPT = 256
# Encoded numbers that are cached. Beyond: the least recently used is dropped.
NUMBERS_KEPT = 4_096
# Seconds between two log lines of one kind. Beyond: the next line counts the omitted ones.
LOG_EVERY = 10.0
# Revisions that a watch is behind. Beyond: the cache is filled again.
RELIST_GAP = 10_000
# Bytes in flight from etcd, for each stream and connection. Beyond: etcd waits.
RECEIVE_WINDOW = 1 << 24
# Seconds that open calls get after the event loop was blocked. Beyond: the call fails.
GRACE = 2.0
# Seconds without progress of a large call past its deadline. Beyond: the call fails.
STALL = 5.0
# Seconds without a byte while calls are open. Beyond: the client sends a PING.
PING_EVERY = 10.0
# Seconds without a byte after a PING. Beyond: the connection is closed.
PING_WAIT = 5.0
# Seconds of pause after all endpoints have failed once. Beyond: each further pause is twice as long.
FIRST_PAUSE = 0.02
# Seconds of the longest pause between two rounds of endpoints. Beyond: the pause grows no more.
LAST_PAUSE = 2.0
# Seconds that a connection lasts and still counts as failed. Beyond: the pause starts again at FIRST_PAUSE.
SHORT_LIFE = 1.0
# Bytes of the payload of a frame. Beyond: the connection is closed.
MAX_FRAME = 16_384
# Bytes of a header block. Beyond: the connection is closed.
MAX_HEADERS = 1 << 18
# Bytes of one response of etcd. Beyond: the call fails.
MAX_MESSAGE = 1 << 29
# Seconds of one try of a call. Beyond: the client tries another endpoint.
TRY = 3.0
# Seconds of one try of a range or a compaction. Beyond: the client tries another endpoint.
LONG_TRY = 10.0
# Seconds of a defragmentation. Beyond: the client tries another endpoint.
MAINTENANCE_TRY = 60.0
# Seconds until the first frame of a new connection. Beyond: the connection is closed.
CONNECT_TIMEOUT = 3.0
