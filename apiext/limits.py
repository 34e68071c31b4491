"""Limits of the process: its event loop, threads, workers and log."""

# Seconds of work in one turn of the event loop. Beyond: the next turn.
LOOP_BUDGET = 0.005
# Bytes of a body or object normalised and validated on the event loop. Beyond: a thread.
WORK_INLINE = 16 * 1024
# Service accounts and secrets of bound tokens in a cache. Beyond: the oldest is evicted.
BOUND_OBJECTS = 1024
# Threads that work on large objects. Beyond: work waits.
THREADS = 3
# Such threads of one user, one definition, or the expressions of policies. Beyond: work waits.
THREADS_SHARE = 2
# Log lines that wait for standard error. Beyond: lines are dropped and counted.
LOG_LINES = 1_000
# Seconds between log lines about slow requests, or denials by one webhook. Beyond: the next line counts them.
LOG_EVERY = 1.0
# Seconds that a stopping server writes the remaining lines. Beyond: they are dropped.
LOG_FLUSH = 1.0
# Seconds that a stopping server waits for its threads. Beyond: the process ends.
THREADS_END = 2.0
# Processes behind one port. Beyond: the start fails.
WORKERS = 64
# Names that a supervisor tries if other users hold the first ones. Beyond: the start fails.
WORKER_NAMES = 16
# Seconds that workers take to end, besides --shutdown-delay-duration. Beyond: they are killed.
WORKER_STOP = 20.0
# Seconds of the longest pause before a worker is started again. Beyond: the pause grows no more.
WORKER_LAST_PAUSE = 10.0
# Seconds that workers of a killed supervisor take to release the port. Beyond: the start fails.
WORKER_LEAVE = 3.0
# Seconds between heartbeats of a worker. Beyond: it counts as missed.
WORKER_BEAT = 1.0
# Missed heartbeats in a row. Beyond: the worker is killed, and another one started.
WORKER_BEATS_MISSED = 30
