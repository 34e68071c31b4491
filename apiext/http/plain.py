"""What a client reads that speaks plain HTTP where TLS is spoken, as Go's server tells it."""

import ssl
from typing import Any, Self

_BODY = b"Client sent an HTTP request to an HTTPS server.\n"
_ANSWER = b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)


class Telling(ssl.SSLObject):
    """A TLS connection that tells so before it fails (``ssl.SSLContext.sslobject_class``).

    The loop writes what a handshake leaves to be sent if that wants more, never if it failed. So this one wants more:
    the client hangs up when it has read the answer, else the time for handshakes ends it.
    """

    _plain: ssl.MemoryBIO | None

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **named: Any) -> Self:
        made: Self = super()._create(incoming, outgoing, *args, **named)  # type: ignore[misc]
        made._plain = outgoing
        return made

    def do_handshake(self) -> None:
        """Go on with the handshake; raises SSLWantReadError once for a plain request, which is answered then."""
        try:
            super().do_handshake()
        except ssl.SSLError as error:
            plain = self._plain
            if plain is None or error.reason != "HTTP_REQUEST":
                raise
            self._plain = None
            plain.write(_ANSWER)
            raise ssl.SSLWantReadError from error
