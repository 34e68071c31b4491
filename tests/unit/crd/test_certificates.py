"""Certificates are read without the library, and without warnings if Go accepts them."""

from __future__ import annotations

import base64
import ssl
import sys

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from apiext.auth.authentication import user_of_certificate
from apiext.conformance.support import tls
from apiext.crd.bundles import bundle_fault
from apiext.crd.certificates import Malformed, check_certificate
from apiext.system.certificates import read_certificate

GOOD = tls.numbered(1)
VERSION, SERIAL = bytes.fromhex("a003020102"), bytes.fromhex("a003020102020101")


@pytest.mark.rows("CRD-037")
@pytest.mark.parametrize(
    ("found", "told"),
    [
        (GOOD, ""),
        (tls.numbered(0), ""),
        (tls.numbered(-5), "negative serial number"),
        (GOOD.replace(SERIAL, SERIAL[:-3] + b"\x03\x01\x01"), "malformed serial number"),
        (GOOD.replace(SERIAL, SERIAL[:4] + b"\x03" + SERIAL[5:]), "invalid version"),
        (GOOD.replace(SERIAL, SERIAL[:4] + b"\x80" + SERIAL[5:]), "malformed version"),
        (GOOD + b"\x00", "trailing data"),
        (GOOD[:-1], "malformed certificate"),
        (b"", "malformed certificate"),
        (b"\x30\x00", "malformed tbs certificate"),
        (b"\x30\x80\x00\x00", "malformed certificate"),
        (GOOD.replace(b"Z\x17", b"z\x17", 1), "malformed UTCTime"),
    ],
)
def test_certificate_errors_are_those_of_go(found: bytes, told: str) -> None:
    if not told:
        check_certificate(found)
    else:
        with pytest.raises(Malformed) as refused:
            check_certificate(found)
        assert str(refused.value) == told


@pytest.mark.rows("CRD-037")
def test_truncated_certificate_is_malformed() -> None:
    for size in range(len(GOOD)):
        with pytest.raises(Malformed):
            check_certificate(GOOD[:size])


@pytest.mark.rows("CRD-037")
def test_ca_bundle_is_checked_without_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = base64.b64encode(ssl.DER_cert_to_PEM_cert(tls.numbered(0)).encode()).decode()
    for name in [name for name in sys.modules if name.split(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert bundle_fault(bundle) == ""


@pytest.mark.rows("AUT-001")
@pytest.mark.filterwarnings("error")
def test_client_certificate_may_have_serial_zero() -> None:
    found = tls.numbered(0)
    with pytest.warns(UserWarning, match="serial number"):
        x509.load_der_x509_certificate(found)  # the library warns here
    assert read_certificate(found).public_bytes(Encoding.DER) == found
    user = user_of_certificate(found)
    assert user is not None
