"""Limits of commands."""

# Seconds that a command waits for one answer. Beyond: the request fails.
TOOL_TIMEOUT = 65.0
# Seconds that a command retries while a server restarts or is busy. Beyond: it fails.
TOOL_WAIT = 60.0
# Requests at a time that a flag may ask for. Beyond: the command fails.
MIGRATE_MOST_PARALLEL = 64
# Tries for an object whose failure may pass. Beyond: it counts as failed.
MIGRATE_TRIES = 5
# Changes of a definition during its migration. Beyond: the migration fails.
MIGRATE_RESTARTS = 16
# Failed objects of one pass. Beyond: the pass is given up.
MIGRATE_HOPELESS = 1_000
# Seconds that a command waits for the lock of a kubeconfig. Beyond: it reports the lock.
LOCK_WAIT = 5.0
