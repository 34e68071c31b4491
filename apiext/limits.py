"""Limits of the process: its event loop, threads, workers and log."""

# Seconds of work in one iteration of the event loop. Beyond: the rest waits for the next iteration.
LOOP_BUDGET = 0.005
# Bytes that a body or object must stay below to be normalized and validated on the event loop. Beyond: a thread does
# this.
WORK_INLINE = 16 * 1024
# Service accounts, and objects to which tokens are bound, in one cache. Beyond: the cache is cleared.
BOUND_OBJECTS = 1024
# Threads that work on large objects. Beyond: work waits.
THREADS = 3
# Threads, of all THREADS, that one user, one definition, or the expressions of policies can use. Beyond: work waits.
THREADS_SHARE = 2
# Log lines that wait for standard error. Beyond: lines are dropped and counted.
LOG_LINES = 1_000
# Seconds between log lines about slow requests, failed TLS handshakes, or denials by one webhook. Beyond: the next line
# has the number of omitted lines.
LOG_EVERY = 1.0
# Seconds in which a stopping server writes the remaining log lines. Beyond: they are dropped.
LOG_FLUSH = 1.0
# Seconds in which the threads of a stopping server must end. Beyond: the process ends.
THREADS_END = 2.0
# Processes behind one port. Beyond: the start fails.
WORKERS = 64
# Names of unix sockets that a supervisor tries to bind, one after the other, while processes of other users have the
# names. Beyond: it binds no name, so two supervisors of one user may not notice each other.
WORKER_NAMES = 16
# Seconds in which workers must end, besides --shutdown-delay-duration. Beyond: they are killed.
WORKER_STOP = 20.0
# Seconds of the longest pause before the restart of a worker that ends repeatedly. Beyond: the pause does not grow.
WORKER_LAST_PAUSE = 10.0
# Seconds in which workers of a killed supervisor must release the port. Beyond: the start of the next supervisor fails.
WORKER_LEAVE = 3.0
# Seconds between heartbeats of a worker. Beyond: the heartbeat counts as missed.
WORKER_BEAT = 1.0
# Consecutive missed heartbeats after which a worker counts as hung. Beyond: it is killed and restarted.
WORKER_BEATS_MISSED = 30
