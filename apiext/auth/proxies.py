"""Authenticating proxies, which name the user of a request in headers (AUT-001)."""

import ssl
from collections.abc import Iterable, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from apiext.auth.authentication import Holder, user_of_certificate, verified_chain
from apiext.auth.user import REFUSED, User, proven, readable, unescaped
from apiext.config import ProxyConfig
from apiext.system.certificates import read_certificate, read_certificates, subject_of

OVERLAP = (
    "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; "
    "--requestheader-allowed-names must be specified to ensure regular client certificates cannot set authenticating "
    "proxy headers for arbitrary users"
)


class ProxyError(ValueError):
    """The error of flags with which every client could choose its user."""


class Proxies:
    """Trusted proxies: clients with a certificate of the configured CA.

    If names are configured, the common name of the certificate must be one of them.
    """

    def __init__(self, config: ProxyConfig, client_ca: str) -> None:
        """Read the certificates of the CAs.

        Raise OSError for unreadable files, and ValueError for invalid files. Raise ProxyError if proxies and clients
        have a CA in common, and no names are configured.
        """
        self._config = config
        self._own = _certificates(config.ca_file)
        self._clients = _certificates(client_ca) if client_ca else frozenset[bytes]()
        if self._own & self._clients and not config.allowed_names:
            raise ProxyError(OVERLAP)

    def trust(self, client_ca: str) -> None:
        """Reload the CAs of clients from their file; raises OSError and ValueError."""
        self._clients = _certificates(client_ca)

    def holder(self, connection: ssl.SSLObject) -> Holder:
        """Return the Holder (authentication.py) of the client certificate of a connection.

        The TLS handshake has verified the certificate with one of the CAs. Raises ValueError for a malformed
        certificate.
        """
        chain = verified_chain(connection)
        if not chain:
            return Holder(None, False)
        signers = frozenset(chain) if len(chain) > 1 else self._issuers(chain[0])
        user = user_of_certificate(chain[0]) if signers & self._clients else REFUSED
        return Holder(user, bool(signers & self._own) and self._allowed(chain[0]))

    def _issuers(self, certificate: bytes) -> frozenset[bytes]:
        """Return the configured CAs that issued a certificate.

        Called only if the TLS session has a chain of one certificate: the session is resumed, or the certificate is
        itself a configured CA.
        """
        leaf = read_certificate(certificate)
        return frozenset(ca for ca in self._own | self._clients if ca == certificate or _issued(ca, leaf))

    def _allowed(self, certificate: bytes) -> bool:
        names = self._config.allowed_names
        if not names:
            return True
        found = subject_of(read_certificate(certificate)).get_attributes_for_oid(NameOID.COMMON_NAME)
        return bool(found) and found[-1].value in names

    def user(self, headers: Iterable[tuple[str, str]]) -> User | None:
        """Return the user in the headers of a proxy, None if they have no user name."""
        config, given = self._config, [(name.lower(), readable(value)) for name, value in headers]
        name = _first(given, config.user_headers)
        if not name:
            return None
        groups = [value for header in config.group_headers for value in _values(given, header) if value]
        extra: dict[str, list[str]] = {}
        for prefix in config.extra_prefixes:
            for header, value in given:
                if header.startswith(prefix.lower()):
                    extra.setdefault(unescaped(header[len(prefix) :]), []).append(value)
        extra_values = tuple((key, tuple(values)) for key, values in sorted(extra.items()))
        return proven(User(name, tuple(groups), _first(given, config.uid_headers), extra_values))


def _values(headers: Sequence[tuple[str, str]], wanted: str) -> list[str]:
    return [value for name, value in headers if name == wanted.lower()]


def _first(headers: Sequence[tuple[str, str]], wanted: Sequence[str]) -> str:
    """Return the first value of the first wanted header whose first value is not empty.

    Return an empty string if there is none.
    """
    for header in wanted:
        found = _values(headers, header)
        if found and found[0]:
            return found[0]
    return ""


def _certificates(path: str) -> frozenset[bytes]:
    found = read_certificates(Path(path).read_bytes())
    return frozenset(certificate.public_bytes(Encoding.DER) for certificate in found)


def _issued(authority: bytes, leaf: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(read_certificate(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
