"""Limits of servers of tests."""

# Seconds until a reset test server is empty. Beyond: the reset fails.
RESET_WAIT = 20.0
# Seconds until a stopped test server has ended. Beyond: it is killed.
STOP_WITHIN = 10.0
# Bytes of a server's log in an error message. Beyond: the beginning is left out.
LOG_TAIL = 4000
