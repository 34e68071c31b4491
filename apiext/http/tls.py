"""TLS of the listener: its context, failed handshakes, and the reload of its certificate.

Failed handshakes are handled as by Go's server.
"""

import asyncio
import logging
import os
import ssl
from typing import Any, Self

from apiext import limits, logs
from apiext.auth.serving import ServingCertificate
from apiext.system.certificates import load_pair, relax_verification
from apiext.telemetry import Family

# Seconds between checks of the files of the serving certificate.
CERTIFICATE_CHECK_EVERY = 2.0

HANDSHAKE_ERRORS = Family(
    "apiserver_tls_handshake_errors_total",
    "counter",
    "Number of requests dropped with 'TLS handshake error from' error",
)
_ERRORS = HANDSHAKE_ERRORS.slot()

log = logging.getLogger(__name__)
_LINES = logs.RateLimited(limits.LOG_EVERY)

_BODY = b"Client sent an HTTP request to an HTTPS server.\n"  # upstream: Go's server sends this response
_ANSWER = b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)


def tls_context(certificate: str, key: str, minor: int = 2) -> ssl.SSLContext:
    """Return a server context with a certificate and its key, from PEM files.

    The context accepts HTTP/1.1, and requests no client certificates. The oldest TLS version is 1.3 if ``minor`` is 3,
    else 1.2. Raise the errors of ``load_pair``.
    """
    context = relax_verification(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if minor > 2 else ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_pair(context, certificate, key)
    context.sslobject_class = LoggedHandshake
    return context


def request_client_certificates(context: ssl.SSLContext, client_ca: str) -> None:
    """Request client certificates that a CA in this PEM file has signed.

    Raise OSError for an unusable file.
    """
    context.load_verify_locations(client_ca)
    context.verify_mode = ssl.CERT_OPTIONAL  # an invalid certificate ends the handshake


class LoggedHandshake(ssl.SSLObject):
    """A TLS connection that logs and counts a failed handshake.

    The class is used as ``ssl.SSLContext.sslobject_class``. The client gets the TLS alert, or a response if it uses
    plain HTTP. asyncio writes such bytes if the handshake needs more input, but not after a failure. So a failed
    handshake first reports that it needs more input. The client closes the connection after it has read the alert, or
    the timeout of handshakes closes it.
    """

    _out: ssl.MemoryBIO | None

    @classmethod
    def _create(cls, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **named: Any) -> Self:
        made: Self = super()._create(incoming, outgoing, *args, **named)  # type: ignore[misc]
        made._out = outgoing
        return made

    def do_handshake(self) -> None:
        """Continue the handshake.

        If it fails and there are bytes for the client, first raise SSLWantReadError once, so that asyncio writes them.
        """
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            out, self._out = self._out, None
            if out is None:  # this failure has been logged
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
    """Return the reason of a failed handshake, such as ``tlsv1 alert unknown ca``."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate: {error.verify_message}"
    if error.reason == "HTTP_REQUEST":
        return "the client speaks plain HTTP"
    return (error.reason or str(error)).replace("_", " ").lower()


class CertificateReload:
    """Renews the serving certificate before it expires, and reloads changed files.

    Open connections continue with their certificate.
    """

    def __init__(self, context: ssl.SSLContext, certificate: ServingCertificate) -> None:
        self._context = context
        self._certificate = certificate
        self._files = certificate.files
        self._loaded = self._stamps()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check now, and every CERTIFICATE_CHECK_EVERY seconds."""
        self._check()

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _check(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CERTIFICATE_CHECK_EVERY, self._check)
        self._certificate.renew()
        found = self._stamps()
        if found == self._loaded:
            return
        self._loaded = found
        try:
            # A certificate that does not match its key would break the context in use. So a temporary context loads
            # the two files first.
            load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), *self._files)
            load_pair(self._context, *self._files)
            self._certificate.reload()
        except (OSError, ValueError) as error:
            log.warning(
                "no usable certificate in %s: %s; the server continues with the last one",
                " and ".join(self._files),
                error,
            )

    def _stamps(self) -> list[tuple[int, int, int]]:
        """Return modification time, size and inode of each file that exists."""
        found = []
        for file in self._files:
            try:
                status = os.stat(file)
            except OSError:
                continue
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
        return found
