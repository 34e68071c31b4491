"""The error for an invalid certificate of a webhook, with Go's text.

As in Go, the error is about the times, else about the names, else about the issuer. OpenSSL reports an error number
without the certificate, so a second TLS handshake fetches the certificate.
"""

import asyncio
import ipaddress
import re
import ssl
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from apiext.system.certificates import read_certificate, read_certificates, subject_of
from apiext.webhooks import limits

_MANY = 100  # with this number of names or more, the error contains only the number (upstream: maxNamesIncluded)
_LABEL = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*").fullmatch
_UNREADABLE = (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)


async def fetch(address: str, port: int, name: str) -> bytes | None:
    """Return the unverified certificate of a server (DER).

    Return None if the handshake fails or takes too long.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(limits.WEBHOOK_LOOK):
            transport, _ = await loop.create_connection(
                asyncio.Protocol, address, port, ssl=context, server_hostname=name
            )
    except OSError:  # includes TimeoutError and SSLError
        return None
    try:
        found: bytes | None = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found
    finally:
        transport.abort()


def namesake(der: bytes, bundle: bytes, now: datetime) -> bytes | None:
    """Return a certificate as PEM, after a newline, if its issuer is in the CA bundle (PEM).

    The caller uses this for a certificate whose subject equals its issuer. Return None if the issuer is not in the
    bundle, has not signed the certificate, is no CA, or is not valid now.
    """
    try:
        certificate = read_certificate(der)
        issuers = [one for one in read_certificates(bundle) if _signs(one, certificate, now)]
    except _UNREADABLE:
        return None
    return b"\n" + certificate.public_bytes(Encoding.PEM) if issuers else None


def _signs(issuer: x509.Certificate, certificate: x509.Certificate, now: datetime) -> bool:
    """Report whether a valid authority has signed a certificate."""
    try:
        if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        certificate.verify_directly_issued_by(issuer)
    except (x509.ExtensionNotFound, InvalidSignature, ValueError, TypeError):
        return False
    return issuer.not_valid_before_utc <= now <= issuer.not_valid_after_utc


def fault(der: bytes, name: str, now: datetime) -> str | None:
    """Return the error in the times or names of a certificate.

    Return None if both are valid, or if the certificate cannot be parsed.
    """
    try:
        certificate = read_certificate(der)
        return _of_times(certificate, now) or _of_names(certificate, name)
    except _UNREADABLE:
        return None


def _of_times(certificate: x509.Certificate, now: datetime) -> str | None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if begins <= now <= ends:
        return None
    side = f"before {_written(begins)}" if now < begins else f"after {_written(ends)}"
    return f"x509: certificate has expired or is not yet valid: current time {_written(now)} is {side}"


def _written(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _of_names(certificate: x509.Certificate, name: str) -> str | None:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        common = [str(one.value) for one in subject_of(certificate).get_attributes_for_oid(NameOID.COMMON_NAME)]
        if common and _fits(common[-1], name):
            return "x509: certificate relies on legacy Common Name field, use SANs instead"
        names = x509.SubjectAlternativeName([])
    hosts = names.get_values_for_type(x509.DNSName)
    addresses = names.get_values_for_type(x509.IPAddress)
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return None if any(_fits(host, name) for host in hosts) else _not_among(hosts, "names", name)
    if not addresses:
        return f"x509: cannot validate certificate for {name} because it doesn't contain any IP SANs"
    return None if address in addresses else _not_among([str(one) for one in addresses], "IP SANs", name)


def _not_among(names: list[str], noun: str, name: str) -> str:
    if len(names) >= _MANY:
        return f"x509: certificate is valid for {len(names)} {noun}, but none matched {name}"
    if not names:
        return f"x509: certificate is not valid for any names, but wanted to match {name}"
    return f"x509: certificate is valid for {', '.join(names)}, not {name}"


def _fits(pattern: str, name: str) -> bool:
    """Report whether a host matches a name of a certificate, whose first label may be ``*``."""
    wanted = name.lower().removesuffix(".").split(".")
    given = pattern.lower().split(".")
    if given[0] == "*" and len(given) > 1:
        given, wanted = given[1:], wanted[1:]
    return given == wanted and all(map(_LABEL, wanted))
