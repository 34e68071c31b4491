"""Limits of commands."""

# Seconds that a command waits for a response. Beyond: the request fails.
TOOL_TIMEOUT = 65.0
# Seconds that a command retries while a server restarts or is busy. Beyond: the command fails.
TOOL_WAIT = 60.0
# Concurrent requests of a migration. Beyond: the command fails.
MIGRATE_MOST_PARALLEL = 64
# Attempts to migrate an object that fails temporarily. Beyond: the object counts as failed.
MIGRATE_TRIES = 5
# Changes of a definition, its status or one object during the migration. Beyond: the migration or the object fails.
MIGRATE_RESTARTS = 16
# Objects that fail in one pass over all objects. Beyond: the pass ends.
MIGRATE_HOPELESS = 1_000
# Seconds that a command waits for the lock of a kubeconfig. Beyond: the command reports the lock and fails.
LOCK_WAIT = 5.0
