"""Which certificates are good enough: those that Go takes, whatever this version of Python refuses by itself."""

import contextlib
import os
import ssl
import tempfile
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

_OPEN_FILES = "/proc/self/fd"


def as_go(context: ssl.SSLContext) -> ssl.SSLContext:
    """Return the context; it takes certificates that lack extensions of RFC 5280, and an intermediate as a root.

    From 3.13 on Python's default contexts refuse the former, which many an authority made by hand has.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Keep Python's library for certificates from warning of what Go takes: a serial number of 0, a name too long."""
    with warnings.catch_warnings(category=UserWarning, action="ignore"):
        yield


def read_certificate(der: bytes) -> "x509.Certificate":
    """Return a certificate that TLS has verified (DER); raise ValueError for one that Python's library cannot read."""
    from cryptography import x509

    with unwarned():
        return x509.load_der_x509_certificate(der)


def subject_of(certificate: "x509.Certificate") -> "x509.Name":
    """Return whom a certificate names, which may take more than 64 characters."""
    with unwarned():
        return certificate.subject


def load_pair(context: ssl.SSLContext, certificate: str, key: str | None = None) -> None:
    """Have the context show a certificate (PEM files; without a key it is in the same one).

    Raises OSError, and ValueError for a key that wants a pass phrase.
    """
    context.load_cert_chain(certificate, key, password=_nobody)


def show(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Have the context show a certificate (both PEM); Python reads it from a file only. Raises as ``load_pair``."""
    with _lent(certificate + b"\n" + key) as name:
        load_pair(context, name)


@contextlib.contextmanager
def _lent(content: bytes) -> Iterator[str]:
    """Lend a file by its name: one in memory where the system has such, as there may be no place to write to."""
    in_memory = hasattr(os, "memfd_create") and os.path.isdir(_OPEN_FILES)
    with os.fdopen(os.memfd_create("certificate"), "wb") if in_memory else tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        yield f"{_OPEN_FILES}/{file.fileno()}" if in_memory else file.name


def _nobody() -> str:
    raise ValueError("its key wants a pass phrase, which nobody is there to type")  # OpenSSL would wait for one
