"""Limits of the store in the process of the server."""

# Seconds that a call waits for the disk, or the timeout of the call if this is longer. Beyond: the call fails, and its
# outcome is unknown.
HUNG = 10.0
# Bytes of a transaction without the keys of guards. Beyond: the server responds with 500. Upstream: etcd's
# --max-request-bytes.
MAX_REQUEST = 3 << 19
# Minimum TTL of a lease in seconds. Beyond: a lease with a smaller TTL gets this TTL.
SHORTEST = 1
# Maximum TTL of a lease in seconds. Beyond: the grant fails.
LONGEST = 9_000_000_000
# Seconds that a server waits at its start until another server has closed the file of the store. Beyond: the start
# fails.
LOCK_PATIENCE = 10.0
# Bytes of the reserve file, which the store deletes when the disk is full, so that deletions still fit. Beyond: the
# store refuses puts until the reserve file fits on the disk again.
RESERVE = 8 << 20
# Bytes of the store. Beyond: the store accepts only deletions and compactions. Upstream: etcd's --quota-backend-bytes.
QUOTA = 8 << 30
# Used fraction of the quota below which a full store accepts puts again. Beyond: the store continues to refuse puts.
ROOMY = 0.95
# Seconds between two attempts to free space while the disk is full. Beyond: the next attempt begins.
RELIEF = 10.0
# Seconds that the disk needs for one batch of writes. Beyond: the server is not ready until the batch is written.
STUCK = 5.0
# Entries of each of two caches: the numbers of keys in the ranges of paged lists, and parsed range requests. Beyond: in
# the first cache the oldest, in the second the least recently used entry is evicted.
COUNTS_KEPT = 256
# Seconds without events for a watch. Beyond: the store sends a progress notification if the client requested it.
PROGRESS = 5.0
# Parsed compares that are cached. Beyond: the least recently used compare is evicted.
COMPARES_KEPT = 256
