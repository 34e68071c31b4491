"""The server's own certificate authority, the serving certificate, and client certificates.

The files are in one directory; ``copy_serving`` also copies the serving certificate to another path. Only the owner of
the files can read the keys. The next start uses the files again.
"""

import ipaddress
import logging
import re
import secrets
import socket
import warnings
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from apiext.auth.serving import RENEW_BEFORE, Serving, now
from apiext.system import files
from apiext.system.certificates import read_certificates, read_private_key
from apiext.system.sockets import is_unspecified

log = logging.getLogger(__name__)

_CA_LIFE = timedelta(days=3650)
_LEAF_LIFE = timedelta(days=365)
_BACKDATE = timedelta(hours=1)  # certificates begin earlier by this time, for clients whose clock is slow
_ALWAYS = (
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)

_BLOCK = re.compile(b"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----\n?", re.S)

Key = ec.EllipticCurvePrivateKey


class Authority(Struct, frozen=True):
    """A certificate authority and its key.

    ``former`` are the replaced authorities that have not expired. ``cross`` are certificates for the keys of this
    authority and of former authorities, each signed by the authority before it. With them, a client that trusts a
    former authority can verify certificates of this authority.
    """

    certificate: x509.Certificate
    key: Key
    former: Sequence[x509.Certificate] = ()
    cross: Sequence[x509.Certificate] = ()

    @property
    def pem(self) -> bytes:
        """The certificates (PEM) for a kubeconfig: those of the current and the former authorities."""
        return _pem(self.certificate, *self.former)

    @property
    def is_whole(self) -> bool:
        """Report whether key and certificate belong together.

        After a crash, only one of the files may be new.
        """
        return self.key.public_key() == self.certificate.public_key()


def serving_names(bind_address: str, extra: Sequence[str] = ()) -> list[str]:
    """Return the DNS names and IP addresses for the serving certificate.

    Raise ValueError for an invalid name.
    """
    for name in extra:
        _general_name(name)
    names = [*_ALWAYS, socket.gethostname(), bind_address, *extra]
    return [name for name in dict.fromkeys(names) if name and not is_unspecified(name)]


def load_authority(directory: Path, clock: Callable[[], datetime] = now) -> Authority:
    """Return the authority of a directory.

    Create one if it is missing, unusable, or expires soon. An authority is unusable if its certificate begins in the
    future or does not match its key. The certificate of a replaced authority stays in the file until it expires, so
    that clients and the server still trust it. Raises OSError and ValueError for files that cannot be read.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    certificate_file, key_file, at = directory / "ca.crt", directory / "ca.key", clock()
    found = read_authority(directory, clock) if certificate_file.exists() and key_file.exists() else None
    if found is not None:
        begin, end = found.certificate.not_valid_before_utc, found.certificate.not_valid_after_utc
        if not found.is_whole:
            log.warning("%s and %s do not match: a new authority replaces them", certificate_file, key_file.name)
        elif begin > at:
            log.warning("%s is not valid before %s: a new authority replaces it", certificate_file, begin)
        elif end - at > RENEW_BEFORE:
            return found
        else:
            log.warning("%s expires at %s: a new authority replaces it", certificate_file, end)
    made = _new_authority(at)
    if found is not None:
        former = [old for old in (found.certificate, *found.former) if old.not_valid_after_utc > at]
        crossed = [_crossed(found, made)] if found.is_whole and found.certificate in former else []
        made = Authority(made.certificate, made.key, former, [*crossed, *found.cross])
        files.write(directory / "ca.cross.crt", _pem(*made.cross))
    files.write(key_file, _key_pem(made.key))
    files.write(certificate_file, made.pem)
    return made


def read_authority(directory: Path, clock: Callable[[], datetime] = now) -> Authority:
    """Read the authority from a directory, even if it has expired; raise OSError and ValueError."""
    own, *former = read_certificates((directory / "ca.crt").read_bytes())
    cross_file, at = directory / "ca.cross.crt", clock()
    text = cross_file.read_bytes() if cross_file.exists() else b""
    cross = read_certificates(text) if text else []
    return Authority(
        own,
        _key(directory / "ca.key"),
        [old for old in former if old.not_valid_after_utc > at],
        [old for old in cross if old.not_valid_after_utc > at],
    )


def load_serving(
    directory: Path, authority: Authority, names: Sequence[str], clock: Callable[[], datetime] = now
) -> Serving:
    """Return the serving certificate of a directory.

    Create one if it is missing, unusable, or expires soon.
    """
    certificate_file, key_file = directory / "serving.crt", directory / "serving.key"
    if _is_usable(certificate_file, key_file, authority, names, clock()):
        certificate = _certificate(certificate_file)
    else:
        key = ec.generate_private_key(ec.SECP256R1())
        holder = _Holder("apiext", ExtendedKeyUsageOID.SERVER_AUTH, names=names)
        certificate = _leaf(authority, key, holder, clock(), _LEAF_LIFE)
        files.write(key_file, _key_pem(key))
        files.write(certificate_file, _pem(certificate, *authority.cross))
    ends, authority_ends = certificate.not_valid_after_utc, authority.certificate.not_valid_after_utc
    return Serving(certificate_file, key_file, authority.pem, ends, str(directory / "ca.crt"), authority_ends)


def is_copy(certificate: Path, directory: Path) -> bool:
    """Report whether ``copy_serving`` made a file from the certificate in ``directory``."""
    try:
        return certificate.read_bytes() == _chain(directory / "serving.crt", (directory / "ca.crt").read_bytes())
    except FileNotFoundError:
        return False


def copy_serving(serving: Serving, certificate: Path) -> None:
    """Write the certificate and its authorities to a file, and the key beside it; raise OSError.

    Clients that trust the file trust the server. kube-apiserver writes such files, too.
    """
    chain = _chain(serving.certificate, serving.ca)
    if not certificate.exists() or certificate.read_bytes() != chain:
        certificate.parent.mkdir(parents=True, exist_ok=True)
        files.write(certificate.with_suffix(".key"), serving.key.read_bytes())
        files.write(certificate, chain)


def _chain(certificate: Path, authorities: bytes) -> bytes:
    return certificate.read_bytes() + authorities


def given_serving(certificate: Path, key: Path) -> Serving:
    """Return the serving certificate that flags configure; raise OSError.

    Clients verify it with the authorities in its file, or else with all certificates in the file.
    """
    raw = certificate.read_bytes()
    try:
        chain = read_certificates(raw)
        trusted = [*filter(_is_authority, chain)] or chain  # not the whole file, which may also contain the key
        return Serving(certificate, key, _pem(*trusted), chain[0].not_valid_after_utc)
    # OpenSSL accepts certificates that cryptography rejects
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return Serving(certificate, key, b"\n".join(_BLOCK.findall(raw)), None)


def issue_client(
    authority: Authority, user: str, groups: Sequence[str] = (), life: timedelta = _LEAF_LIFE
) -> tuple[bytes, bytes]:
    """Issue a client certificate; return certificate and key (PEM).

    The user is the CN, each group is an O.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _leaf(authority, key, _Holder(user, ExtendedKeyUsageOID.CLIENT_AUTH, groups), now(), life)
    return certificate.public_bytes(serialization.Encoding.PEM), _key_pem(key)


def load_token(file: Path) -> str:
    """Read the admin token from a file; write a new token if the file is missing or empty."""
    if file.exists():
        found = file.read_text(encoding="ascii").strip()
        if found:
            return found
    token = secrets.token_urlsafe(32)
    files.write(file, token.encode() + b"\n")
    return token


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates)


def _is_authority(certificate: x509.Certificate) -> bool:
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _certificate(file: Path) -> x509.Certificate:
    return read_certificates(file.read_bytes())[0]


def _key(file: Path) -> Key:
    key = read_private_key(file.read_bytes())
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"{file.name}: the key must be an EC key")  # noqa: TRY004 - the file is invalid, not an argument
    return key


def _key_pem(key: Key) -> bytes:
    # this PEM format names the kind of key (BEGIN EC PRIVATE KEY), as fabric8's client requires
    sec1 = serialization.PrivateFormat.TraditionalOpenSSL
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
    builder = _authority_builder(name, key.public_key(), at - _BACKDATE, at + _CA_LIFE).issuer_name(name)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def _crossed(old: Authority, new: Authority) -> x509.Certificate:
    """Return a certificate for the new authority's key, signed by the old authority.

    The new certificate is valid for the same time as the certificate of the old authority.
    """
    issuer = old.certificate
    issuer_key = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    begin, end = issuer.not_valid_before_utc, issuer.not_valid_after_utc
    builder = _authority_builder(new.certificate.subject, new.key.public_key(), begin, end).issuer_name(issuer.subject)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key)
    return builder.add_extension(identifier, critical=False).sign(old.key, hashes.SHA256())


def _authority_builder(
    name: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


class _Holder(Struct, frozen=True):
    """The subject of a leaf certificate, and its extended key usage, ``purpose``.

    The subject consists of CN, O and subject alternative names.
    """

    common_name: str
    purpose: x509.ObjectIdentifier
    organizations: Sequence[str] = ()
    names: Sequence[str] = ()

    @property
    def subject(self) -> x509.Name:
        named = [*((NameOID.ORGANIZATION_NAME, group) for group in self.organizations)]
        named.append((NameOID.COMMON_NAME, self.common_name))
        with warnings.catch_warnings(category=UserWarning, action="ignore"):
            # names of users may exceed the 64 characters of X.520; neither Go nor OpenSSL enforces this limit
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
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in holder.names])
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(authority.key, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _is_usable(
    certificate_file: Path, key_file: Path, authority: Authority, names: Sequence[str], at: datetime
) -> bool:
    if not certificate_file.exists() or not key_file.exists():
        return False
    certificate = _certificate(certificate_file)
    try:
        certificate.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        return False
    if certificate.not_valid_before_utc > at:
        begin = certificate.not_valid_before_utc
        log.warning("%s is not valid before %s: a new certificate replaces it", certificate_file, begin)
        return False
    if certificate.not_valid_after_utc - at < RENEW_BEFORE:
        return False
    covered = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return all(_general_name(name) in covered for name in names)
