"""Errors of webhook calls, with the texts of a Go client."""


class CallError(Exception):
    """A webhook was not called, or its answer is invalid; ``code`` is the HTTP status for metrics and callers."""

    def __init__(self, text: str, code: int = 503) -> None:
        super().__init__(text)
        self.code = code


class BadTarget(CallError):
    """A clientConfig without a valid URL or service."""


class Unreachable(CallError):
    """No connection: the name is unknown, the network unreachable, or nothing listens."""


class Untrusted(CallError):
    """The peer's certificate or TLS is invalid."""


class TimedOut(CallError):
    """The timeout of the call has expired."""


class Broken(CallError):
    """The connection ended early, or the answer is not HTTP."""


class TooLarge(CallError):
    """An answer over the limit."""


class Refused(CallError):
    """An HTTP status that is no success; the text is the ``message`` of a Status in the body, else a generic one."""


class CircuitOpen(CallError):
    """The webhook was not called: the last calls failed slowly, and the next trial is not due."""
