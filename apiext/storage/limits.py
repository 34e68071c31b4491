"""Limits of caches, watches and etcd."""

# Seconds that a read waits for a resourceVersion or for the cache. Beyond: the server responds with 504, 503 or 429.
# Upstream: blockTimeout.
FRESH_WAIT = 3.0
# Events of one resource in memory, for resumed watches. Beyond: the oldest events are dropped.
EVENT_RING = 4_096
# Bytes of events of one resource in memory, for resumed watches. Beyond: the oldest events are dropped.
EVENT_RING_BYTES = 32 * 1024 * 1024
# Bytes of events of all resources in memory, for resumed watches. Beyond: the server keeps only the last event of the
# resource that has not changed for the longest time.
HISTORIES_BYTES = 64 * 1024 * 1024
# Bytes of events of one resource that stay in memory at any age. Beyond: events older than two bookmark periods are
# dropped.
EVENTS_KEPT_BYTES = 1024 * 1024
# Events of one resource that stay in memory at any age. Beyond: events older than two bookmark periods are dropped.
# Upstream: defaultLowerBoundCapacity.
EVENTS_KEPT = 100
# Bytes of cached converted objects for watches with selectors. Beyond: the least recently used object is evicted.
CONVERTED_CACHE_BYTES = 8 * 1024 * 1024
# Age of the oldest object in the cache of converted objects, in seconds. Beyond: the cache is cleared.
CONVERTED_CACHE_SECONDS = 1.0
# Bytes of cached JSON of single objects, for all resources together. Beyond: the oldest JSON is evicted.
VIEW_BYTES = 12 * 1024 * 1024
# Bytes of stored values decoded in one iteration of the event loop. Beyond: the work continues in the next iteration.
CHECKED_BYTES = 512 * 1024
# Representations other than JSON, such as table rows, that the server caches for one list segment. Beyond: the oldest
# representation is evicted.
FORMS = 2
# Bytes of events read from etcd for one resumed watch. Beyond: the watch request fails with 410, and the client lists
# again.
HISTORY_BYTES = 64 * 1024 * 1024
# Objects of a new list segment. Beyond: another segment begins; a segment is split above twice this number.
SEGMENT = 100
# Bytes of a list segment after a split; the server splits segments of more than twice this size. Beyond: another
# segment begins.
SEGMENT_BYTES = 1024 * 1024
# Bytes of memory that stay free for running requests, but at most an eighth of the control group's memory limit.
# Beyond: the server refuses requests that would need this memory.
MEMORY_RESERVE = 48 * 1024 * 1024
# Bytes of the indexes of all collections. Beyond: unused indexes are dropped, and no new index is built.
INDEXES_BYTES = 64 * 1024 * 1024
# Labels and fields of one collection that the server records as tested by one selector; a second selector that tests
# one of them builds its index. Beyond: the oldest record is dropped.
INDEX_CANDIDATES = 256
# Conditions of one selector for which the server reads an index; it uses the index that finds the fewest objects.
# Beyond: the server reads no index for the remaining conditions, and tests them on each object that it finds.
INDEXES_AT_ONCE = 3
# Bookmark periods without use of an index. Beyond: the index is dropped.
INDEX_IDLE = 10
# Different values of an index that a condition tests one by one, in one iteration of the event loop. Beyond: the index
# is not used for this condition.
INDEX_VALUES = 5_000
# Keys found by an index that the server sorts in one iteration of the event loop. Beyond: it filters all objects in key
# order instead.
INDEX_SORTED = 2_000
# Values of a selector's condition in the routing table of events. Beyond: each event is tested with the selector.
ROUTE_VALUES = 16
# Writes to watchers in one iteration of the event loop. Beyond: the work continues in the next iteration.
PUMP_SLICE = 64
# Bytes of encoded initial events cached for all watches. Beyond: the oldest events are evicted.
INITIAL_BYTES = 32 * 1024 * 1024
# Events that a group of watches encodes as one block. Beyond: another block follows.
BLOCK_EVENTS = 256
# Blocks of encoded events that one group of watches caches. Beyond: the group drops all its cached blocks.
BLOCKS_CACHED = 4
# Bytes of encoded events in one block, that is, in one write to a watch. Beyond: another block follows.
PUMP_BLOCK = 256 * 1024
# Progress requests to etcd, one after the other, while reads wait for a revision. Beyond: the server writes a key whose
# watch event shows the progress.
PROGRESS_REQUESTS = 3
# Collections read into the cache at a time. Beyond: further collections wait.
FILL_PARALLEL = 8
# Bytes encrypted or decrypted on the event loop (3 milliseconds with the slowest cipher). Beyond: a thread does this.
ENCRYPT_INLINE = 32 * 1024
# Bytes encrypted or decrypted without a release of the interpreter lock. Beyond: another block follows.
ENCRYPTED_AT_ONCE = 64 * 1024
# Size of a store in this process, as a fraction of its quota. Beyond: the server logs a warning, and a store that was
# out of space still refuses writes.
ETCD_NEARLY_FULL = 0.9
# Unreadable objects that the error of a list names. Beyond: further objects are left out. Upstream: the same.
ERRORS_LISTED = 100
# Bytes of an unreadable value in its error. Beyond: the value is truncated. Upstream: no limit.
FAULT_BYTES = 1024
# Objects of a page read from etcd. Beyond: another page follows.
ETCD_PAGE = 500
# Objects of the first page of a read without a limit, since the sizes of objects are not known yet. Beyond: another
# page follows.
ETCD_FIRST_PAGE = 16
# Bytes of a page read from etcd, as estimated from the previous page. Beyond: the page has fewer objects.
PART_BYTES = 4 * 1024 * 1024
# Bytes of stored objects of a list that one call converts. Beyond: another call converts the remaining objects.
CONVERTED_AT_ONCE = 16 * 1024 * 1024
# Fraction of the time to live: objects with the same time to live that are written within this time share an etcd
# lease, see also LEASE_SHARED. Beyond: objects get another lease. Upstream: the same.
LEASE_SHARE = 0.05
# Maximal seconds between writes of objects that share an etcd lease, if LEASE_SHARE allows more. Beyond: objects get
# another lease. Upstream: the same.
LEASE_SHARED = 60
# Objects of one etcd lease. Beyond: objects get another lease. Upstream: the same.
LEASE_OBJECTS = 1_000
# Seconds of the longest pause between attempts to decrypt values whose data key no plug-in could decrypt. Beyond: the
# pause grows no more.
KMS_AGAIN_LAST = 10.0
# Values whose data key no plug-in could decrypt, in one attempt to decrypt them. Beyond: the next attempt tries further
# values.
KMS_AGAIN_TRIES = 4
# Watch events that waited for a data key, delivered in one iteration of the event loop. Beyond: the next iteration
# delivers more.
KMS_HELD_SLICE = 64
# Seconds without a response while the server reads old changes from etcd. Beyond: the watch fails with 503.
BACKFILL_STALL = 10.0
