"""TLS handshakes that fail: their line in the log, their metric, and what the client reads (as with Go's server)."""

import logging
import ssl
from typing import Any, Self

from apiext import limits, logs
from apiext.telemetry import Family

HANDSHAKE_ERRORS = Family(
    "apiserver_tls_handshake_errors_total",
    "counter",
    "Number of requests dropped with 'TLS handshake error from' error",
)
_ERRORS = HANDSHAKE_ERRORS.slot()
_BODY = b"Client sent an HTTP request to an HTTPS server.\n"
_ANSWER = b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)

log = logging.getLogger(__name__)
_LINES = logs.Seldom(limits.LOG_EVERY)


class Telling(ssl.SSLObject):
    """A TLS connection that logs and counts a failed handshake (``ssl.SSLContext.sslobject_class``).

    The client gets the alert of TLS, or an answer if it speaks plain HTTP. The event loop writes pending bytes if a
    handshake wants more bytes, never if it failed. So this handshake wants more: the client closes the connection when
    it has read the alert, else the time limit of handshakes closes it.
    """

    _out: ssl.MemoryBIO | None

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **named: Any) -> Self:
        made: Self = super()._create(incoming, outgoing, *args, **named)  # type: ignore[misc]
        made._out = outgoing
        return made

    def do_handshake(self) -> None:
        """Continue the handshake; raise SSLWantReadError once for a failed one that leaves bytes for the client."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            out, self._out = self._out, None
            if out is None:  # this failure is logged already
                raise
            _ERRORS.value += 1
            reason = _reason(error)
            _LINES.log(logging.WARNING, log, f"TLS handshake failed: {reason}", event="TLS handshake", reason=reason)
            if error.reason == "HTTP_REQUEST":
                out.write(_ANSWER)
            if out.pending:
                raise ssl.SSLWantReadError from error
            raise


def _reason(error: ssl.SSLError) -> str:
    """Return why a handshake failed: ``tlsv1 alert unknown ca`` is the alert of a client that distrusts the server."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate: {error.verify_message}"
    if error.reason == "HTTP_REQUEST":
        return "the client speaks plain HTTP"
    return (error.reason or str(error)).replace("_", " ").lower()
