"""Limits of the store in the process of the server."""

# Seconds that a call waits for the disk. Beyond: the call fails, and its outcome is unknown.
HUNG = 10.0
# Bytes of a request. Beyond: the server responds with 500. Upstream: etcd's --max-request-bytes.
MAX_REQUEST = 3 << 19
# Minimum TTL of a lease in seconds. Beyond: a lease with a smaller TTL gets this TTL.
SHORTEST = 1
# Maximum TTL of a lease in seconds. Beyond: the grant fails.
LONGEST = 9_000_000_000
# Seconds that a server waits until another server has closed the file. Beyond: the start fails.
LOCK_PATIENCE = 10.0
# Bytes of a reserve file that the store deletes when the disk is full. Beyond: the store refuses writes until there is
# free space.
RESERVE = 8 << 20
# Bytes of the store. Beyond: the store accepts only deletions and compactions. Upstream: etcd's --quota-backend-bytes.
QUOTA = 8 << 30
# Used fraction of the quota below which a full store accepts puts again. Beyond: the store continues to refuse puts.
ROOMY = 0.95
# Seconds between two attempts of a full store to free space. Beyond: the next attempt begins.
RELIEF = 10.0
# Seconds that one batch of writes may take. Beyond: the server treats the disk as hung, and is not ready.
STUCK = 5.0
# Entries of each of two caches: numbers of keys of paged lists, and parsed range requests. Beyond: the oldest entry is
# evicted.
COUNTS_KEPT = 256
# Seconds without events for a watch. Beyond: the store sends a progress notification if the client has requested it.
PROGRESS = 5.0
# Parsed compares that are cached. Beyond: the least recently used compare is evicted.
COMPARES_KEPT = 256
