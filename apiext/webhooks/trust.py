"""TLS contexts for webhooks, by CA bundle and client certificate.

The module also has Go's texts for failed connections.
"""

import asyncio
import ssl
from collections import OrderedDict

from apiext.system.certificates import load_client_certificate, relax_verification
from apiext.webhooks import limits
from apiext.webhooks.errors import Unreachable, Untrusted

UNVERIFIED = "tls: failed to verify certificate: "
SELF_SIGNED = 18
"""OpenSSL's verify code for a self-signed certificate that is not in the CA bundle."""
_VERIFY_TEXTS = {  # OpenSSL's verify code → text
    9: "x509: certificate has expired or is not yet valid: its time has not come",
    10: "x509: certificate has expired or is not yet valid: its time is over",
    SELF_SIGNED: "x509: certificate signed by unknown authority",
    19: "x509: certificate signed by unknown authority",
    20: "x509: certificate signed by unknown authority",
    21: "x509: certificate signed by unknown authority",
    26: "x509: certificate specifies an incompatible key usage",
    62: "x509: certificate is not valid for {name}",
    64: "x509: certificate is not valid for {name}",
}


Certificate = tuple[bytes, bytes]
"""A client certificate and its key as PEM."""
_Key = tuple[bytes, Certificate | None]  # (CA bundle, client certificate)


class Contexts:
    """A cache of TLS client contexts; an empty CA bundle stands for the system's roots."""

    __slots__ = ("_made", "_making")

    def __init__(self) -> None:
        self._made: OrderedDict[_Key, ssl.SSLContext] = OrderedDict()
        self._making: dict[_Key, asyncio.Future[ssl.SSLContext]] = {}

    async def context_for(self, ca: bytes, certificate: Certificate | None = None) -> ssl.SSLContext:
        """Return the context for a bundle.

        Raises OSError, and Untrusted for invalid bundles or client certificates.
        """
        key = ca, certificate
        found = self._made.get(key)
        if found is not None:
            return found
        if ca and certificate is None:
            return self._keep(key, context_of(ca))
        making = self._making.get(key)
        # A thread makes the context: system roots take milliseconds, and a client certificate needs a temporary file.
        if making is None:
            making = asyncio.get_running_loop().run_in_executor(None, context_of, ca, certificate)
            self._making[key] = making
            making.add_done_callback(lambda done: self._finish(key, done))
        return await asyncio.shield(making)

    def _finish(self, key: "_Key", done: asyncio.Future[ssl.SSLContext]) -> None:
        del self._making[key]
        if not done.cancelled() and done.exception() is None:
            self._keep(key, done.result())

    def _keep(self, key: "_Key", made: ssl.SSLContext) -> ssl.SSLContext:
        self._made[key] = made
        if len(self._made) > limits.WEBHOOK_CONTEXTS:
            self._made.popitem(last=False)
        return made


def context_of(ca: bytes, certificate: Certificate | None = None) -> ssl.SSLContext:
    """Return a new TLS context that trusts only the PEM bundle.

    An empty bundle stands for the system's roots. Raises Untrusted and OSError.
    """
    context = relax_verification(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    if certificate is not None:
        _load_client_certificate(context, certificate)
    if not ca:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(cadata=ca.decode("ascii", "replace").replace("\ufffd", "?"))
    except (ssl.SSLError, ValueError) as error:
        raise Untrusted("unable to load root certificates: unable to parse bytes as PEM block", 500) from error
    return context


def _load_client_certificate(context: ssl.SSLContext, certificate: Certificate) -> None:
    """Load a client certificate into a context; raises Untrusted and OSError."""
    try:
        load_client_certificate(context, *certificate)
    except (ssl.SSLError, ValueError) as error:
        raise Untrusted("tls: failed to find any PEM data in certificate input", 500) from error


def failure_of(error: Exception, name: str, address: str) -> Unreachable | Untrusted:
    """Return the error of a failed connection or handshake, with Go's text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        text = _VERIFY_TEXTS.get(error.verify_code, f"x509: {error.verify_message}").format(name=name)
        return Untrusted(f"{UNVERIFIED}{text}")
    if isinstance(error, ssl.SSLError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"):
            return Untrusted("tls: first record does not look like a TLS handshake")
        return Untrusted(f"tls: {(error.reason or str(error)).lower().replace('_', ' ')}")
    if isinstance(error, ConnectionRefusedError):
        return Unreachable(f"dial tcp {address}: connect: connection refused")
    if isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError):
        return Unreachable("EOF" if not error.errno else f"read tcp {address}: read: connection reset by peer")
    reason = getattr(error, "strerror", None) or str(error)
    return Unreachable(f"dial tcp {address}: connect: {reason.lower()}")
