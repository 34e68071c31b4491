"""Limits of the client of etcd."""

# Seconds of a call with all its retries. Beyond: the call fails.
CALL_BUDGET = 10.0
# Seconds in which connections close. Beyond: the client aborts them.
CLOSE_BUDGET = 2.0
# Seconds without a response that has the head revision (the newest revision of the store), or without a byte on the
# connection for watches. Beyond: the client requests the head revision, or reads a key on the connection for watches.
PROBE_EVERY = 2.0
# Seconds in which etcd must respond to a request for the head revision. Beyond: etcd counts as unavailable.
PROBE_TIMEOUT = 2.0
# Seconds that a read has left when its request for the head revision fails: then the read fails, too. Beyond: the read
# waits for the next request.
LAST_TRY = 1.0
# Sets of guards (keys whose revisions a write also compares) in each cache of encoded guards. Beyond: the least
# recently used set is evicted.
GUARDS_KEPT = 256
# Pairs of sizes (of a key and of its revision) for which encoded parts of requests are cached. Beyond: the least
# recently used pair is evicted.
SIZES_KEPT = 256
# Integers whose encoded form is cached. Beyond: the least recently used integer is evicted.
NUMBERS_KEPT = 4_096
# Seconds after a warning in which further warnings of its kind are only counted. Beyond: the next warning is logged.
LOG_EVERY = 10.0
# Revisions that a watch has missed. Beyond: the server reads all objects again.
RELIST_GAP = 10_000
# Bytes that etcd may send before the client reads them, for each stream and connection. Beyond: etcd waits.
RECEIVE_WINDOW = 1 << 24
# Seconds that each open call still has after the event loop was blocked. Beyond: the call fails.
GRACE = 2.0
# Seconds of extra time for a call past its deadline whose bytes are still sent or received. Beyond: the call gets extra
# time again if it has progressed, else it fails.
STALL = 5.0
# Seconds without a received byte while calls are open. Beyond: the client sends a PING.
PING_EVERY = 10.0
# Seconds without a received byte after a PING. Beyond: the client closes the connection.
PING_WAIT = 5.0
# Seconds of the first pause: before a retry of a call or watch, or after all endpoints have refused a connection.
# Beyond: each further pause is twice as long.
FIRST_PAUSE = 0.02
# Seconds of the longest pause between two attempts to connect or to open a watch. Beyond: the pause grows no more.
LAST_PAUSE = 2.0
# Seconds of the longest pause before a retry of a call. Beyond: the pause grows no more.
LAST_RETRY = 1.0
# Seconds for which a connection or watch was open. If it was open for a shorter time, it counts as failed. Beyond: the
# next pause is FIRST_PAUSE again.
SHORT_LIFE = 1.0
# Bytes of the payload of a frame. Beyond: the client closes the connection.
MAX_FRAME = 16_384
# Bytes of a header block. Beyond: the client closes the connection.
MAX_HEADERS = 1 << 18
# Bytes of one response of etcd. Beyond: the call fails.
MAX_MESSAGE = 1 << 29
# Seconds of one attempt of a call. Beyond: the client tries again, if possible on another endpoint.
TRY = 3.0
# Seconds of one attempt of a range or a compaction. Beyond: the client tries again, if possible on another endpoint.
LONG_TRY = 10.0
# Seconds of a defragmentation. Beyond: the client tries again, if possible on another endpoint.
MAINTENANCE_TRY = 60.0
# Seconds until the first frame of a new connection. Beyond: the client closes the connection.
CONNECT_TIMEOUT = 3.0
