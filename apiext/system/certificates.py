"""Accept the same TLS certificates as Go, without warnings.

By default, some versions of Python refuse some of them, and the package ``cryptography`` warns about some.
"""

import contextlib
import os
import ssl
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tempfile

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

_OPEN_FILES = "/proc/self/fd"
_PASSPHRASE = "its key is encrypted with a passphrase, which the server cannot ask for"


def relax_verification(context: ssl.SSLContext) -> ssl.SSLContext:
    """Change a context to accept the same certificates as Go, and return the context.

    With the change, certificates need not have the extensions of RFC 5280, and an intermediate certificate can be
    trusted as a root. Before Python 3.13, default contexts trust only roots. Since Python 3.13, they refuse
    certificates without these extensions, which many private authorities issue.
    """
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """Suppress warnings of ``cryptography`` about serial number 0 or a long name.

    Go accepts such certificates.
    """
    with warnings.catch_warnings(category=UserWarning, action="ignore"):
        yield


def read_certificate(der: bytes) -> "x509.Certificate":
    """Parse a certificate (DER); raise ValueError for an invalid one."""
    from cryptography import x509

    with unwarned():
        try:
            return x509.load_der_x509_certificate(der)
        except x509.InvalidVersion as error:
            raise ValueError(str(error)) from error


def read_certificates(pem: bytes) -> "list[x509.Certificate]":
    """Parse the certificates in a PEM text.

    Raise ValueError for an invalid certificate, and for a text without certificates.
    """
    from cryptography import x509

    with unwarned():
        try:
            return x509.load_pem_x509_certificates(pem)
        except x509.InvalidVersion as error:
            raise ValueError(str(error)) from error


def subject_of(certificate: "x509.Certificate") -> "x509.Name":
    """Return the subject of a certificate.

    Parts of the subject may be longer than 64 characters.
    """
    with unwarned():
        return certificate.subject


def load_pair(context: ssl.SSLContext, certificate: str, key: str | None = None) -> None:
    """Load a certificate and its key from PEM files into a context; raise OSError.

    If ``key`` is None, the file ``certificate`` contains both. Raise ValueError for a key with a passphrase.
    """
    context.load_cert_chain(certificate, key, password=_no_passphrase)


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate and its key (PEM) into a context, with a temporary file.

    Raises the errors of ``load_pair``.
    """
    with _lent(certificate + b"\n" + key) as name:
        load_pair(context, name)


@contextlib.contextmanager
def _lent(content: bytes) -> Iterator[str]:
    """Yield the path of a temporary file.

    It is in memory if possible, since perhaps no directory is writable.
    """
    in_memory = hasattr(os, "memfd_create") and os.path.isdir(_OPEN_FILES)
    with os.fdopen(os.memfd_create("certificate"), "wb") if in_memory else _file_on_disk() as file:
        file.write(content)
        file.flush()
        yield f"{_OPEN_FILES}/{file.fileno()}" if in_memory else file.name


def _file_on_disk() -> "tempfile._TemporaryFileWrapper[bytes]":
    import tempfile  # imported here, since it is not used on Linux (decision 36)

    return tempfile.NamedTemporaryFile()


def read_private_key(pem: bytes) -> "PrivateKeyTypes":
    """Parse a private key (PEM).

    Raise ValueError for an invalid key, and for a key with a passphrase.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        return load_pem_private_key(pem, None)
    except TypeError as error:
        raise ValueError(_PASSPHRASE) from error
    except UnsupportedAlgorithm as error:
        raise ValueError(str(error)) from error


def _no_passphrase() -> str:
    raise ValueError(_PASSPHRASE)  # without this error, OpenSSL would wait for input
