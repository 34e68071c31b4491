"""The configmap extension-apiserver-authentication: stored data of other servers is kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apiext.config import ProxyConfig
from apiext.controllers.authentication_trust import CLIENT_CA, PROXY_CA, merged, trust_of

PROXY = ProxyConfig(allowed_names=("front",), user_headers=("X-Remote-User",))


def authority(name: str, days: float = 1) -> str:
    """Return the certificate (PEM) of a CA that expires after some days."""
    key, at = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(at - timedelta(days=9)).not_valid_after(at + timedelta(days=days))
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


ONE, TWO, EXPIRED = authority("one"), authority("two"), authority("expired", days=-1)


def test_requestheader_lists_require_proxy_ca() -> None:
    assert trust_of("", "", PROXY) == {}
    assert trust_of(ONE, "", PROXY) == {CLIENT_CA: ONE}
    assert trust_of(ONE, TWO, PROXY) == {
        CLIENT_CA: ONE,
        PROXY_CA: TWO,
        "requestheader-allowed-names": '["front"]',
        "requestheader-extra-headers-prefix": "[]",
        "requestheader-group-headers": "[]",
        "requestheader-uid-headers": "[]",
        "requestheader-username-headers": '["X-Remote-User"]',
    }


def test_own_data_is_added_to_stored_data() -> None:
    unknown = {"other": "x", "requestheader-other": '["x"]'}
    stored = {CLIENT_CA: ONE, PROXY_CA: ONE, "requestheader-allowed-names": '["a","front"]', **unknown}
    found = merged(stored, trust_of(TWO, TWO, PROXY))
    assert found[CLIENT_CA] == found[PROXY_CA] == ONE + TWO
    assert json.loads(found["requestheader-allowed-names"]) == ["a", "front"]
    assert json.loads(found["requestheader-username-headers"]) == ["X-Remote-User"]
    assert not unknown.keys() & found
    assert merged(found, trust_of(TWO, TWO, PROXY)) == found


def test_expired_certificates_are_dropped() -> None:
    assert merged({CLIENT_CA: EXPIRED + ONE}, {CLIENT_CA: TWO}) == {CLIENT_CA: ONE + TWO}
    without_proxies = {CLIENT_CA: ONE, PROXY_CA: EXPIRED, "requestheader-allowed-names": '["a"]'}
    assert merged(without_proxies, {CLIENT_CA: ONE}) == {CLIENT_CA: ONE}


@pytest.mark.parametrize("key", [CLIENT_CA, "requestheader-allowed-names"])
def test_invalid_stored_data_is_an_error(key: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        merged({key: "not valid"}, {CLIENT_CA: ONE, PROXY_CA: ONE})
