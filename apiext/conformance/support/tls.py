"""Create certificates for tests: valid, expired, from another authority, for other names."""

from __future__ import annotations

import base64
import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class TestAuthority:
    """A certificate authority for tests."""

    __test__ = False

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate as PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def bundle(self) -> str:
        """The certificate as the value of a caBundle field."""
        return base64.b64encode(self.pem).decode()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def authority(common: str = "webhook-test-ca") -> TestAuthority:
    """Return a new authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name(common))
        .issuer_name(_name(common))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(now + timedelta(days=10))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return TestAuthority(certificate, key)


def numbered(serial: int) -> bytes:
    """Return a certificate (DER) with a serial number from -128 to 127.

    The certificate's signature is invalid.
    """
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name, day = _name("numbered"), timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - day, now + day)
    der = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)
    one = bytes.fromhex("a003020102" + "020101")  # the version, and after it the serial number 1
    assert der.count(one) == 1
    return der.replace(one, one[:-1] + serial.to_bytes(signed=True))


def server_file(
    ca: TestAuthority, directory: Path, names: tuple[str, ...] = ("localhost", "127.0.0.1"), *, expired: bool = False
) -> Path:
    """Return a file with key and certificate of a server with these names.

    An expired certificate ended yesterday.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    end = now - timedelta(days=1) if expired else now + timedelta(days=5)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_name("webhook"))
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=2))
        .not_valid_after(end)
        .add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    pem = directory / f"webhook-{certificate.serial_number:x}.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return pem


def server_context(
    ca: TestAuthority, directory: Path, names: tuple[str, ...] = ("localhost", "127.0.0.1"), *, expired: bool = False
) -> ssl.SSLContext:
    """Return the TLS context of a server with a certificate of ``server_file``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server_file(ca, directory, names, expired=expired))
    return context


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
