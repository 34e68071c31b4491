"""Limits of the store in the process."""

# Seconds of a call on a disk that does not answer. Beyond: the call fails, and its outcome is unknown.
HUNG = 10.0
# Bytes of a request. Beyond: 413. Upstream: etcd's --max-request-bytes.
MAX_REQUEST = 3 << 19
# Seconds of the shortest time to live of a lease. Beyond: a shorter one is this long.
SHORTEST = 1
# Seconds of the longest time to live of a lease. Beyond: the grant fails.
LONGEST = 9_000_000_000
# Seconds in which another server closes the file. Beyond: the start fails.
LOCK_PATIENCE = 10.0
# Bytes of a file that is deleted when the disk is full. Beyond: writes are refused until there is room.
RESERVE = 8 << 20
# Bytes of the store. Beyond: writes are refused, deletes and compactions are not. Upstream: etcd's
# --quota-backend-bytes.
QUOTA = 8 << 30
# Share of the quota below which a full store accepts writes again. Beyond: it stays full.
ROOMY = 0.95
# Seconds between two tries of a full store to make room. Beyond: another try.
RELIEF = 10.0
# Seconds of one batch of writes. Beyond: the disk counts as hung, and the server is not ready.
STUCK = 5.0
# Counts of paged lists that are cached. Beyond: the oldest is dropped.
COUNTS_KEPT = 256
# Seconds that a watch is idle. Beyond: it gets a progress notification if it asked for them.
PROGRESS = 5.0
# Parsed compares that are cached. Beyond: the least recently used is dropped.
COMPARES_KEPT = 256
