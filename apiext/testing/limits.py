"""Limits of test servers."""

# Seconds until a reset has deleted all objects, or an applied definition is established. Beyond: an error.
RESET_WAIT = 20.0
# Seconds until the process of a stopped test server has ended. Beyond: it is killed.
STOP_WITHIN = 10.0
# Bytes of a server's log in an error message. Beyond: the message omits the beginning of the log.
LOG_TAIL = 4000
