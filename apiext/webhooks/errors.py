"""Errors of webhook calls, with the texts of a Go client."""


class CallError(Exception):
    """A failed call of a webhook; ``code`` is the HTTP status for metrics and callers."""

    def __init__(self, text: str, code: int = 503) -> None:
        super().__init__(text)
        self.code = code


class BadTarget(CallError):
    """A clientConfig without a valid URL or service."""


class Unreachable(CallError):
    """A failed connection to a webhook.

    The name is unknown, the network is unreachable, or no server listens.
    """


class Untrusted(CallError):
    """An invalid certificate of the server, or a failed TLS handshake."""


class TimedOut(CallError):
    """A call that exceeded its timeout."""


class Broken(CallError):
    """A connection that closed before the response was complete, or an invalid response.

    Also a token file without a usable token (credentials.py).
    """


class TooLarge(CallError):
    """A response over the size limit."""


class Refused(CallError):
    """A response with an error status.

    The text is the ``message`` of the Status in the body. Without a Status, the text depends on the status code.
    """


class CircuitOpen(CallError):
    """A call that was not sent, since the circuit breaker of its webhook is open.

    The breaker opens after several slow failures in a row (see breaker.py), until the next trial call.
    """
