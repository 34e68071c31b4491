"""Limits of caches, watches and etcd."""

# Seconds that a read waits for a resourceVersion. Beyond: 504. Upstream: blockTimeout.
FRESH_WAIT = 3.0
# Events of one resource that resumed watches can read from memory. Beyond: the oldest are dropped.
EVENT_RING = 4_096
# Bytes of events of one resource for resumed watches. Beyond: the oldest are dropped.
EVENT_RING_BYTES = 32 * 1024 * 1024
# Bytes of events of all resources for resumed watches. Beyond: the resource that is idle longest drops its own.
HISTORIES_BYTES = 64 * 1024 * 1024
# Bytes of events that are kept at any age. Beyond: events older than two bookmark periods are dropped.
EVENTS_KEPT_BYTES = 1024 * 1024
# Events that are kept at any age. Beyond: events older than two bookmark periods are dropped. Upstream:
# defaultLowerBoundCapacity.
EVENTS_KEPT = 100
# Bytes of cached converted objects for watches with selectors. Beyond: the oldest is evicted.
SHOWN_BYTES = 8 * 1024 * 1024
# Seconds that a converted object is cached for watches with selectors. Beyond: it is evicted.
SHOWN_KEPT = 1.0
# Bytes of cached JSON of single objects. Beyond: the oldest is evicted.
VIEW_BYTES = 12 * 1024 * 1024
# Bytes of stored values checked in one turn of the event loop. Beyond: the next turn.
CHECKED_BYTES = 512 * 1024
# Cached representations of a list segment besides the plain one. Beyond: the oldest is evicted.
FORMS = 2
# Bytes of events read from etcd for one resumed watch. Beyond: 410, and the client lists again.
HISTORY_BYTES = 64 * 1024 * 1024
# Objects of a list segment. Beyond: another segment.
SEGMENT = 100
# Bytes of a list segment of several objects. Beyond: another segment.
SEGMENT_BYTES = 1024 * 1024
# Bytes of a control group's memory, or an eighth, that stay free for requests under way. Beyond: requests are
# refused.
MEMORY_RESERVE = 48 * 1024 * 1024
# Bytes of the indexes of all collections. Beyond: the least used is dropped.
INDEXES_BYTES = 64 * 1024 * 1024
# Labels and fields of a collection recorded as selected once. Beyond: the oldest is evicted.
INDEX_CANDIDATES = 256
# Indexes read for one selector. Beyond: the remaining terms are tested for each object.
INDEXES_AT_ONCE = 3
# Bookmark periods without use of an index. Beyond: it is dropped.
INDEX_IDLE = 10
# Values of an index tested in one turn of the event loop. Beyond: the index is not used.
INDEX_VALUES = 5_000
# Keys sorted in one turn of the event loop. Beyond: the objects are filtered in key order.
INDEX_SORTED = 2_000
# Values of a selector's term in the routing table of events. Beyond: each event is tested.
ROUTE_VALUES = 16
# Watchers written to in one turn of the event loop. Beyond: the next turn.
PUMP_SLICE = 64
# Bytes of first events kept for the other watches of a group. Beyond: each watch encodes its own.
INITIAL_BYTES = 32 * 1024 * 1024
# Events of one block of a watch. Beyond: another block.
BLOCK_EVENTS = 256
# Blocks kept while watches of a group catch up. Beyond: the oldest is dropped.
BLOCKS_KEPT = 4
# Bytes of frames joined to one write of a watch. Beyond: another write.
PUMP_BLOCK = 256 * 1024
# Progress requests without a response. Beyond: a key is written, whose event reports progress.
PROGRESS_REQUESTS = 3
# Caches filled at a time. Beyond: they wait.
FILL_PARALLEL = 8
# Bytes encrypted on the event loop, 3 milliseconds with the slowest cipher. Beyond: a thread.
ENCRYPT_INLINE = 32 * 1024
# Bytes encrypted without release of the interpreter lock. Beyond: the next block.
ENCRYPTED_AT_ONCE = 64 * 1024
# Used share of the quota of a store in this process. Beyond: a warning is logged, and a full store is not defragmented.
ETCD_NEARLY_FULL = 0.9
# Unreadable objects that the error of a list names. Beyond: the rest is left out. Upstream: the same.
ERRORS_LISTED = 100
# Bytes of an unreadable value in its error. Beyond: they are cut. Upstream: no limit.
FAULT_BYTES = 1024
# Objects of a page read from etcd. Beyond: another page.
ETCD_PAGE = 500
# Objects of a first page, whose sizes are unknown. Beyond: another page.
ETCD_FIRST_PAGE = 16
# Bytes of a page, as estimated from the pages before. Beyond: the next page is smaller.
PART_BYTES = 4 * 1024 * 1024
# Bytes of stored objects of a list converted before they are joined. Beyond: another part.
CONVERTED_AT_ONCE = 16 * 1024 * 1024
# Share of its time to live within which objects share an etcd lease. Beyond: another lease. Upstream: the same.
LEASE_SHARE = 0.05
# Seconds within which objects share an etcd lease. Beyond: another lease. Upstream: the same.
LEASE_SHARED = 60
# Objects of one etcd lease. Beyond: another lease. Upstream: the same.
LEASE_OBJECTS = 1_000
# Seconds of the longest pause before values without a data key are decrypted again. Beyond: it stays.
KMS_AGAIN_LAST = 10.0
# Values without a data key tried after each pause. Beyond: the rest waits until one of these can be decrypted.
KMS_AGAIN_TRIES = 4
# Delayed watch events delivered in one turn of the event loop. Beyond: the next turn.
KMS_HELD_SLICE = 64
# Seconds without a response of etcd while its history is read. Beyond: 410, and the client lists again.
BACKFILL_STALL = 10.0
