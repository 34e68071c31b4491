"""TLS certificates that Go accepts, even if this version of Python refuses them or warns about them."""

import contextlib
import os
import ssl
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tempfile

    from cryptography import x509

_OPEN_FILES = "/proc/self/fd"


def relax_verification(context: ssl.SSLContext) -> ssl.SSLContext:
    """Let a context accept certificates as Go does: without extensions of RFC 5280, and an intermediate as a root.

    Since 3.13 Python's default contexts refuse certificates without these extensions, which are frequent among
    self-made authorities. Returns the context.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Suppress warnings of ``cryptography`` about certificates that Go accepts: serial number 0, a long name."""
    with warnings.catch_warnings(category=UserWarning, action="ignore"):
        yield


def read_certificate(der: bytes) -> "x509.Certificate":
    """Parse a certificate that TLS has verified (DER); raise ValueError if ``cryptography`` cannot."""
    from cryptography import x509

    with unwarned():
        return x509.load_der_x509_certificate(der)


def subject_of(certificate: "x509.Certificate") -> "x509.Name":
    """Return the subject of a certificate, whose parts may exceed 64 characters."""
    with unwarned():
        return certificate.subject


def load_pair(context: ssl.SSLContext, certificate: str, key: str | None = None) -> None:
    """Load a certificate and its key (PEM files; without ``key``, one file has both) into a context.

    Raises OSError, and ValueError for a key with a passphrase.
    """
    context.load_cert_chain(certificate, key, password=_no_passphrase)


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key (PEM) into a context by a temporary file. Raises as ``load_pair``."""
    with _lent(certificate + b"\n" + key) as name:
        load_pair(context, name)


@contextlib.contextmanager
def _lent(content: bytes) -> Iterator[str]:
    """Yield the name of a temporary file; it is in memory if possible, since no directory may be writable."""
    in_memory = hasattr(os, "memfd_create") and os.path.isdir(_OPEN_FILES)
    with os.fdopen(os.memfd_create("certificate"), "wb") if in_memory else _file_on_disk() as file:
        file.write(content)
        file.flush()
        yield f"{_OPEN_FILES}/{file.fileno()}" if in_memory else file.name


def _file_on_disk() -> "tempfile._TemporaryFileWrapper[bytes]":
    import tempfile  # a start on Linux does not use it (decision 36)

    return tempfile.NamedTemporaryFile()


def _no_passphrase() -> str:
    raise ValueError(
        "its key is encrypted with a passphrase, which the server cannot ask for"
    )  # OpenSSL would wait for input
