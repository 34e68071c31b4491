"""Our own certificate authority, the serving certificate, and client certificates (clients.md §9.2).

Everything lives in one directory, keys readable by the owner only, and is used again at the next start.
"""

import ipaddress
import os
import secrets
import socket
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apiext.sockets import is_unspecified
from apiext.streams import is_stream, write_stream

_CA_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=30)
_BACKDATE = timedelta(hours=1)  # clients whose clock is a little behind
_ALWAYS = (
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)

Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority and its key."""

    certificate: x509.Certificate
    key: Key

    @property
    def pem(self) -> bytes:
        """The certificate as PEM: what a kubeconfig carries."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)


@dataclass(frozen=True, slots=True)
class Serving:
    """The PEM files of a serving certificate, and the authority's certificate that clients verify it with.

    ``authority`` is the file of the latter if it is ours, and signs users, too.
    """

    certificate: Path
    key: Path
    ca: bytes
    authority: str = ""


def now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def serving_names(bind_address: str, extra: Sequence[str] = ()) -> list[str]:
    """Return the names and addresses that the serving certificate is for; ValueError for one that it cannot have."""
    for name in extra:
        _general(name)
    names = [*_ALWAYS, socket.gethostname(), bind_address, *extra]
    return [name for name in dict.fromkeys(names) if name and not is_unspecified(name)]


def load_authority(directory: Path, clock: Callable[[], datetime] = now) -> Authority:
    """Return the authority kept in a directory; it is made at the first call, and again when it ran out."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate_file, key_file = directory / "ca.crt", directory / "ca.key"
    if certificate_file.exists() and key_file.exists():
        found = Authority(_certificate(certificate_file), _key(key_file))
        if found.certificate.not_valid_after_utc - clock() > _RENEW_BEFORE:
            return found
    made = _new_authority(clock())
    write_private(key_file, _key_pem(made.key))
    write_private(certificate_file, made.pem)
    return made


def load_serving(
    directory: Path, authority: Authority, names: Sequence[str], clock: Callable[[], datetime] = now
) -> Serving:
    """Return the serving certificate kept in a directory; made anew when it is missing, old, or lacks a name."""
    certificate_file, key_file = directory / "serving.crt", directory / "serving.key"
    if not _still_good(certificate_file, key_file, authority, names, clock()):
        key = ec.generate_private_key(ec.SECP256R1())
        holder = _Holder("apiext", ExtendedKeyUsageOID.SERVER_AUTH, names=names)
        certificate = _leaf(authority, key, holder, clock(), _LEAF_LIFE)
        write_private(key_file, _key_pem(key))
        write_private(certificate_file, certificate.public_bytes(serialization.Encoding.PEM))
    return Serving(certificate_file, key_file, authority.pem, str(directory / "ca.crt"))


def issue_client(
    authority: Authority, user: str, groups: Sequence[str] = (), life: timedelta = _LEAF_LIFE
) -> tuple[bytes, bytes]:
    """Return certificate and key (PEM) of a client: the user is the CN, each group an O."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _leaf(authority, key, _Holder(user, ExtendedKeyUsageOID.CLIENT_AUTH, groups), now(), life)
    return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def load_token(file: Path) -> str:
    """Return the admin token kept in a file, made at the first call."""
    if file.exists():
        found = file.read_text(encoding="ascii").strip()
        if found:
            return found
    token = secrets.token_urlsafe(32)
    write_private(file, token.encode() + b"\n")
    return token


def write_private(file: Path, content: bytes) -> None:
    """Write a file that only its owner may read, so that nobody ever sees half of it."""
    if is_stream(file):  # /dev/null is not to be replaced
        write_stream(file, content)
        return
    file = file.resolve() if file.is_symlink() else file  # /proc/1/root/x is not /x
    scratch = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
        os.replace(scratch, file)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def _certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def _key(file: Path) -> Key:
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{file.name}: only EC keys are taken here")  # noqa: TRY004 - it is the file's fault
    return key


def _key_pem(key: Key) -> bytes:
    sec1 = serialization.PrivateFormat.TraditionalOpenSSL  # its header names the kind, which fabric8's client goes by
    return key.private_bytes(serialization.Encoding.PEM, sec1, serialization.NoEncryption())


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _new_authority(at: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"apiext-ca@{int(at.timestamp())}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _BACKDATE)
        .not_valid_after(at + _CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(certificate, key)


@dataclass(frozen=True, slots=True)
class _Holder:
    """Who a leaf certificate is for: CN, O, subject alternative names, and what it may be used for."""

    common_name: str
    purpose: x509.ObjectIdentifier
    organizations: Sequence[str] = ()
    names: Sequence[str] = ()

    @property
    def subject(self) -> x509.Name:
        named = [*((NameOID.ORGANIZATION_NAME, group) for group in self.organizations)]
        named.append((NameOID.COMMON_NAME, self.common_name))
        with warnings.catch_warnings(category=UserWarning, action="ignore"):
            # names of users may be longer than the 64 characters of X.520: neither Go nor OpenSSL counts them
            return x509.Name([x509.NameAttribute(kind, name, _validate=False) for kind, name in named])


def _leaf(authority: Authority, key: Key, holder: _Holder, at: datetime, life: timedelta) -> x509.Certificate:
    issuer = authority.certificate
    issuer_key = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        x509.CertificateBuilder()
        .subject_name(holder.subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - _BACKDATE)
        .not_valid_after(min(at + life, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([holder.purpose]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key), critical=False)
    )
    if holder.names:
        alternatives = x509.SubjectAlternativeName([_general(name) for name in holder.names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _still_good(
    certificate_file: Path, key_file: Path, authority: Authority, names: Sequence[str], at: datetime
) -> bool:
    if not certificate_file.exists() or not key_file.exists():
        return False
    certificate = _certificate(certificate_file)
    if certificate.issuer != authority.certificate.subject or certificate.not_valid_after_utc - at < _RENEW_BEFORE:
        return False
    covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(_general(name) in covered for name in names)
