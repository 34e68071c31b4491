"""Errors of refused certificates have the texts of a Go client; a real server checks them."""

from __future__ import annotations

import ipaddress
import socket
import warnings
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apiext.webhooks import certificates, limits
from tests.support.processes import free_port

NOW = datetime(2026, 11, 27, 6, 9, 18, tzinfo=UTC)
DAY = timedelta(days=1)
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(
    *names: str, common: str = "webhook", begins: datetime = NOW - DAY, ends: datetime = NOW + DAY, bare: bool = False
) -> bytes:
    """Return a certificate for names and addresses; ``bare``: without extensions."""
    with warnings.catch_warnings(category=UserWarning, action="ignore"):  # about names of more than 64 characters
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common, _validate=False)])
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(KEY.public_key())
    made = made.serial_number(7).not_valid_before(begins).not_valid_after(ends)
    if not bare:
        made = made.add_extension(x509.SubjectAlternativeName([general_name(name) for name in names]), critical=False)
    return made.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def general_name(name: str) -> Any:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


TIMES = "x509: certificate has expired or is not yet valid: current time 2026-11-27T06:09:18Z is "
LEGACY = "x509: certificate relies on legacy Common Name field, use SANs instead"
NO_ADDRESS = "x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"
NOBODY = "x509: certificate is not valid for any names, but wanted to match localhost"
CASES: list[tuple[str, bytes, str, str | None]] = [
    ("good", certificate("localhost", "127.0.0.1"), "localhost", None),
    ("good address", certificate("localhost", "127.0.0.1"), "127.0.0.1", None),
    ("expired", certificate("other", ends=NOW - DAY / 2), "localhost", f"{TIMES}after 2026-11-26T18:09:18Z"),
    ("not yet valid", certificate("localhost", begins=NOW + DAY / 2), "localhost",
     f"{TIMES}before 2026-11-27T18:09:18Z"),
    ("other names", certificate("foo.svc", "bar.svc", "10.0.0.1"), "localhost",
     "x509: certificate is valid for foo.svc, bar.svc, not localhost"),
    ("other addresses", certificate("a", "10.0.0.1", "::1"), "127.0.0.1",
     "x509: certificate is valid for 10.0.0.1, ::1, not 127.0.0.1"),
    ("no address", certificate("localhost"), "127.0.0.1", NO_ADDRESS),
    ("legacy", certificate(common="localhost", bare=True), "localhost", LEGACY),
    ("legacy address", certificate(common="127.0.0.1", bare=True), "127.0.0.1", LEGACY),
    ("a long legacy name", certificate(common="a" * 65, bare=True), "localhost", NOBODY),
    ("another legacy name", certificate(common="webhook", bare=True), "localhost", NOBODY),
    ("another legacy name and an address", certificate(common="webhook", bare=True), "127.0.0.1", NO_ADDRESS),
    ("addresses only", certificate("10.0.0.1", common="localhost"), "localhost", NOBODY),
    ("wildcard", certificate("*.e.test"), "a.e.test", None),
    ("wildcard does not match its parent", certificate("*.e.test"), "e.test",
     "x509: certificate is valid for *.e.test, not e.test"),
    ("wildcard does not match deeper names", certificate("*.e.test"), "a.b.e.test",
     "x509: certificate is valid for *.e.test, not a.b.e.test"),
    ("wildcard within a label", certificate("loc*"), "localhost", "x509: certificate is valid for loc*, not localhost"),
    ("capitals", certificate("Foo.SVC"), "foo.svc", None),
    ("too many names to list", certificate(*(f"n{number}" for number in range(100))), "localhost",
     "x509: certificate is valid for 100 names, but none matched localhost"),
    ("no certificate", b"x", "localhost", None),
]  # fmt: skip


@pytest.mark.rows("VER-009")
@pytest.mark.parametrize(("der", "name", "told"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_certificate_faults_have_texts_of_go(der: bytes, name: str, told: str | None) -> None:
    assert certificates.fault(der, name, NOW) == told


async def test_fetch_without_tls_server_returns_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await certificates.fetch("127.0.0.1", free_port(), "localhost") is None
    monkeypatch.setattr(limits, "WEBHOOK_LOOK", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert await certificates.fetch("127.0.0.1", silent.getsockname()[1], "localhost") is None
