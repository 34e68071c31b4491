"""Issue client certificates with any subject, for servers under test."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CN, ORG = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME
UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
_DAY = timedelta(days=1)

Subject = tuple[tuple[x509.ObjectIdentifier, str], ...]


class ClientAuthority:
    """A certificate authority for client certificates; ``file`` is its own certificate."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(((CN, name),))
        builder = self._builder(self._name, self._key).add_extension(x509.BasicConstraints(True, None), True)
        self.file = directory / f"{name}.crt"
        self.file.write_bytes(self._signed(builder))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + _DAY)
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, subject: Subject) -> Path:
        """Return a file with the certificate of a subject and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = self._signed(self._builder(_name(subject), key).add_extension(usage, False))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        file = self._directory / f"{key.private_numbers().private_value:x}.pem"
        file.write_bytes(certificate + private)
        return file


def _name(subject: Subject) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in subject])


def dialling(certificate: Path | None = None) -> ssl.SSLContext:
    """Return the TLS context of a client that accepts any server certificate.

    The client sends a client certificate if one is given.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate)
    return context
