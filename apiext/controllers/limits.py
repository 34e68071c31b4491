"""Limits of controllers."""

# Observations that one long delay of the event loop adds to its histogram, one for each interval that it lasted.
# Beyond: the histogram misses the rest of the delay.
LAG_MISSED = 120
# Seconds that the growing pause between retries of a failed run can reach. Beyond: the pause does not grow.
RETRY_LAST = 30.0
# Conflicts of one write of a guard key. Beyond: the run fails, and the loop retries.
GUARD_ATTEMPTS = 8
# Changes of a definition while it is compiled. Beyond: other definitions are compiled first.
COMPILE_ATTEMPTS = 16
# Consecutive failures of one key that are logged. Beyond: only every 20th failure is logged.
RETRIES_LOGGED = 20
# Seconds to wait for the deletionTimestamp of a definition whose guard key already says terminating. Beyond: the
# server serves the definition again.
DELETION_ABANDONED = 3.0
# Seconds of the deletion of all objects of a definition. Beyond: its condition says that objects remain. Upstream: one
# minute.
CLEANUP_WAIT = 60.0
# Seconds by which a change in a terminating namespace delays its conditions. Beyond: the conditions are updated.
REMAINING_AFTER = 1.0
# Concurrent deletions of objects of one definition or namespace, or concurrent edits of the dependents of an owner that
# orphans them. Beyond: further deletions or edits wait.
DELETES_IN_FLIGHT = 32
# Bytes of a definition that is compiled on the event loop after the start. Beyond: a thread compiles the definition.
COMPILE_INLINE = 64 * 1024
# Bytes of a definition that is compiled while its change is dispatched. Beyond: the loop compiles the definition later.
COMPILE_AT_ONCE = 16 * 1024
# Queued Events of controllers. Beyond: new Events are dropped.
EVENTS_WAITING = 1_000
# Sent Events of a controller that are cached, so that they are not sent twice. Beyond: the oldest Event is evicted.
EVENTS_SENT = 10_000
# Owners of the same kind that are read from etcd for one dependent. Beyond: all are read from the cache, after it
# has all changes.
OWNERS_READ = 16
# Unserved kinds whose dependents are queued as soon as the kind is served. Beyond: the next resync queues dependents.
AWAITED_KINDS = 4_096
# Seconds in which watches of a deleted definition get their last events. Beyond: the watches are closed.
LAST_EVENTS = 2.0
# Seconds that the last decoded definition is cached without use. Beyond: the definition is evicted.
DECODED_KEPT = 1.0
# Fraction of the time that full collections of Python's garbage collector may take. Beyond: the next full collection
# is delayed.
GC_SHARE = 0.002
# Seconds in which the KMS plug-ins of a new configuration must become healthy, or twice the sum of their timeouts if
# this is longer. Beyond: the server refuses the new configuration. Upstream: minKMSPluginCloseGracePeriod.
KMS_RELOAD = 10.0
# Objects of a page of a storage migration. Beyond: another page follows.
MIGRATE_PAGE = 500
# Objects that storage migrations rewrite per second. Beyond: the migrations pause.
MIGRATE_RATE = 500.0
# Concurrent requests of a storage migration. Beyond: further requests wait.
MIGRATE_PARALLEL = 8
# Failed objects whose names a storage migration reports. Beyond: `apiext migrate` only counts failures, and the
# controller ends its pass over the objects.
MIGRATE_FAILURES = 20
# Seconds that a StorageVersionMigration waits for its resource. Beyond: the migration fails. Upstream: one minute.
MIGRATE_WAIT = 60.0
# Bytes of the message in the condition of a migration. Beyond: the message is truncated. Upstream: maxMessageLen.
MIGRATE_MESSAGE = 32 * 1024
# Seconds that the create of a namespace waits for its default service account. Beyond: the create succeeds without it.
ACCOUNT_WAIT = 2.0
