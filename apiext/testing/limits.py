"""Limits of test servers."""

# Seconds until the reset of a test server has deleted all objects. Beyond: the reset fails.
RESET_WAIT = 20.0
# Seconds until the process of a stopped test server has ended. Beyond: it is killed.
STOP_WITHIN = 10.0
# Bytes of a server's log in an error message. Beyond: the message omits the beginning of the log.
LOG_TAIL = 4000
