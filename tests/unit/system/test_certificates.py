"""Every TLS context of the server accepts the certificates that Go accepts.

This is also true with the strict defaults of Python 3.13.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from apiext.auth import certificates
from apiext.conformance.support import tls
from apiext.etcd.transport import TLS
from apiext.http.tls import request_client_certificates, tls_context
from apiext.system.certificates import read_certificate, read_certificates
from apiext.tools import access
from apiext.webhooks.errors import Untrusted
from apiext.webhooks.trust import context_of

Make = Callable[[Path], ssl.SSLContext | None]


def server_context(directory: Path) -> ssl.SSLContext:
    authority = certificates.load_authority(directory)
    certificates.load_serving(directory, authority, certificates.serving_names("127.0.0.1", ()))
    context = tls_context(str(directory / "serving.crt"), str(directory / "serving.key"))
    request_client_certificates(context, str(directory / "ca.crt"))
    return context


def etcd_context(directory: Path) -> ssl.SSLContext:
    (directory / "ca.crt").write_bytes(tls.authority().pem)
    return TLS(ca=str(directory / "ca.crt")).context()


def webhook_context(directory: Path) -> ssl.SSLContext:
    return context_of(tls.authority().pem)


def kubeconfig_context(directory: Path) -> ssl.SSLContext | None:
    cluster = {"server": "https://s", "certificate-authority-data": tls.authority().bundle}
    config = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": {"cluster": "c"}}],
        "current-context": "x",
    }
    (directory / "config").write_text(yaml.safe_dump(config))
    return access.from_kubeconfig(directory / "config").tls


@pytest.mark.rows("AUT-001")
@pytest.mark.parametrize("make", [server_context, etcd_context, webhook_context, kubeconfig_context])
def test_tls_contexts_accept_partial_chains_without_strict_mode(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ssl.create_default_context

    def strict(*given: Any, **named: Any) -> ssl.SSLContext:
        context = plain(*given, **named)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = make(tmp_path)
    assert context is not None
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert context.verify_flags & ssl.VERIFY_X509_PARTIAL_CHAIN


def test_certificate_of_an_unknown_version_is_a_value_error(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path).certificate
    der = authority.public_bytes(serialization.Encoding.DER)
    for version in (1, 3, 9):
        odd = der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a0030201") + bytes([version]), 1)
        pem = ssl.DER_cert_to_PEM_cert(odd).encode()
        for read, raw in ((read_certificate, odd), (read_certificates, pem)):
            with pytest.raises(ValueError, match="is not a valid X509 version"):
                read(raw)
    assert read_certificates(ssl.DER_cert_to_PEM_cert(der).encode()) == [authority]


def test_key_with_passphrase_is_refused_without_prompt(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    phrase = serialization.BestAvailableEncryption(b"secret")
    pem = authority.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, phrase)
    (tmp_path / "sealed.key").write_bytes(pem)
    files = str(tmp_path / "ca.crt"), str(tmp_path / "sealed.key")
    for make in (tls_context, lambda *pair: TLS("", *pair).context()):
        with pytest.raises(ValueError, match="its key is encrypted with a passphrase"):
            make(*files)
    with pytest.raises(Untrusted):
        context_of(b"", ((tmp_path / "ca.crt").read_bytes(), pem))
