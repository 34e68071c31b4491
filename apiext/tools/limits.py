"""Limits of commands."""

# Seconds that a command waits for a response. Beyond: the request fails.
TOOL_TIMEOUT = 65.0
# Seconds that a command retries while a server restarts or is busy. Beyond: the command fails.
TOOL_WAIT = 60.0
# Requests at a time in a migration (--parallel). Beyond: the command reports a usage error.
MIGRATE_MOST_PARALLEL = 64
# Attempts to migrate an object that fails temporarily. Beyond: the object counts as failed.
MIGRATE_TRIES = 5
# Attempts to migrate a definition, update its status or migrate one object, while other clients change it. Beyond: the
# migration fails, or the object counts as failed.
MIGRATE_RESTARTS = 16
# Failed objects of one definition. Beyond: the migration of this definition ends and counts as failed.
MIGRATE_HOPELESS = 1_000
# Seconds that a command waits for the lock of a kubeconfig. Beyond: the command reports the lock and fails.
LOCK_WAIT = 5.0
