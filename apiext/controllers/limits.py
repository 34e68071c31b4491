"""Limits of controllers."""

# Observations of one delay of the event loop. Beyond: the rest of the delay is not observed.
LAG_MISSED = 120
# Seconds between retries of a failed run. Beyond: the pause grows no more.
RETRY_LAST = 30.0
# Conflicts of one write of a guard key. Beyond: the run fails and is retried.
GUARD_ATTEMPTS = 8
# Changes of a definition while it is compiled. Beyond: other definitions are compiled first.
COMPILE_ATTEMPTS = 16
# Failures in a row of one key that are logged. Beyond: one log line for each 20.
RETRIES_LOGGED = 20
# Seconds without a deletionTimestamp after the guard of a definition was set to terminating. Beyond: the definition
# is served again.
DELETION_ABANDONED = 3.0
# Seconds that the objects of a definition take to be deleted. Beyond: the condition reports it. Upstream: one minute.
CLEANUP_WAIT = 60.0
# Seconds that the objects of a namespace take to be deleted. Beyond: its conditions name the remaining ones.
REMAINING_AFTER = 1.0
# Concurrent deletions of objects of one definition or namespace. Beyond: deletions wait.
DELETES_IN_FLIGHT = 32
# Bytes of a definition compiled on the event loop. Beyond: it is compiled in a thread.
COMPILE_INLINE = 64 * 1024
# Bytes of a definition compiled while its change is dispatched. Beyond: it is compiled afterwards.
COMPILE_AT_ONCE = 16 * 1024
# Queued Events of controllers. Beyond: new Events are dropped.
EVENTS_WAITING = 1_000
# Sent Events of controllers that are cached, to send none twice. Beyond: the oldest is evicted.
EVENTS_SENT = 10_000
# Owners of an object and kind read from etcd. Beyond: they are looked up in a fresh cache.
OWNERS_READ = 16
# Unserved kinds of owners whose dependents are queued when the kind is served. Beyond: the next resync queues them.
AWAITED_KINDS = 4_096
# Seconds that watches of a deleted definition have for their last events. Beyond: they are closed.
LAST_EVENTS = 2.0
# Seconds that the last decoded definition is cached. Beyond: it is evicted.
DECODED_KEPT = 1.0
# Share of the time spent in full collections. Beyond: the next one is delayed.
GC_SHARE = 0.002
# Seconds that new KMS plug-ins have to become healthy. Beyond: the new configuration is refused. Upstream:
# minKMSPluginCloseGracePeriod.
KMS_RELOAD = 10.0
# Objects of a page of a storage migration. Beyond: another page.
MIGRATE_PAGE = 500
# Objects per second that a storage migration rewrites, unless a flag says otherwise. Beyond: it pauses.
MIGRATE_RATE = 500.0
# Concurrent requests of a storage migration. Beyond: they wait.
MIGRATE_PARALLEL = 8
# Failed objects that a storage migration names. Beyond: the rest is counted.
MIGRATE_FAILURES = 20
# Seconds that a StorageVersionMigration waits for its resource. Beyond: it fails. Upstream: one minute.
MIGRATE_WAIT = 60.0
# Bytes of the message of a migration's condition. Beyond: it is cut. Upstream: maxMessageLen.
MIGRATE_MESSAGE = 32 * 1024
# Seconds that the create of a namespace waits for its default service account. Beyond: it does not wait longer.
ACCOUNT_WAIT = 2.0
