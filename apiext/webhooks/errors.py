"""Errors of webhook calls, in the words of a Go client."""


class CallError(Exception):
    """A webhook was not called or gave no usable answer; ``code`` is the HTTP status for metrics and callers."""

    def __init__(self, text: str, code: int = 503) -> None:
        super().__init__(text)
        self.code = code


class BadTarget(CallError):
    """A clientConfig that names no place to call."""


class Unreachable(CallError):
    """No connection: name, network, or no listener."""


class Untrusted(CallError):
    """The peer's certificate or TLS is invalid."""


class TimedOut(CallError):
    """The time given to the call is over."""


class Broken(CallError):
    """A connection that ended, or an answer that is no HTTP."""


class TooLarge(CallError):
    """An answer beyond the bound."""


class Refused(CallError):
    """An HTTP status that is no success; ``message`` of a Status in the body wins over the generic text."""


class CircuitOpen(CallError):
    """Not called: the last calls failed slowly, and the next trial is not due."""
