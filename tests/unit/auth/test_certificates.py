"""Our own authority, what it signs, and the kubeconfig."""

import ssl
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from apiext.auth import certificates, kubeconfig
from apiext.auth.authentication import user_of_certificate
from apiext.auth.proxies import Proxies
from apiext.config import ProxyConfig

NAMES = certificates.serving_names("127.0.0.1", ["api.example.com"])


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def load(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_names() -> None:
    assert {"localhost", "127.0.0.1", "::1", "kubernetes.default.svc", "api.example.com"} <= set(NAMES)
    assert "0.0.0.0" not in certificates.serving_names("0.0.0.0")


def test_everything_is_kept_and_private(tmp_path: Path) -> None:
    pki = tmp_path / "pki"
    authority = certificates.load_authority(pki)
    serving = certificates.load_serving(pki, authority, NAMES)
    assert mode(pki) == 0o700
    assert {mode(file) for file in pki.iterdir()} == {0o600}
    again = certificates.load_authority(pki)
    assert again.pem == authority.pem
    first = serving.certificate.read_bytes()
    assert certificates.load_serving(pki, again, NAMES).certificate.read_bytes() == first
    assert certificates.load_serving(pki, again, [*NAMES, "new.example.com"]).certificate.read_bytes() != first


def test_the_leaf_is_renewed_and_the_authority_stays(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    before = certificates.load_serving(tmp_path, authority, NAMES).certificate.read_bytes()

    def later(days: int) -> bytes:
        moment = certificates.now() + timedelta(days=days)
        known = certificates.load_authority(tmp_path, lambda: moment)
        assert known.pem == authority.pem
        return certificates.load_serving(tmp_path, known, NAMES, lambda: moment).certificate.read_bytes()

    assert later(300) == before
    assert later(340) != before


def test_an_authority_that_ran_out_is_replaced(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    before = certificates.load_serving(tmp_path, authority, NAMES).certificate.read_bytes()
    moment = certificates.now() + timedelta(days=3640)
    fresh = certificates.load_authority(tmp_path, lambda: moment)
    assert fresh.pem != authority.pem
    assert certificates.load_serving(tmp_path, fresh, NAMES, lambda: moment).certificate.read_bytes() != before


def test_certificates_say_what_strict_clients_want(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    serving = certificates.load_serving(tmp_path, authority, NAMES)
    ca, leaf = authority.certificate.extensions, load(serving.certificate).extensions
    constraints = ca.get_extension_for_class(x509.BasicConstraints)
    usage = ca.get_extension_for_class(x509.KeyUsage)
    assert (constraints.critical, constraints.value.ca) == (True, True)
    assert (usage.critical, usage.value.key_cert_sign, usage.value.crl_sign) == (True, True, True)
    identifier = ca.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    assert leaf.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier == identifier
    assert list(leaf.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.SERVER_AUTH]
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the handshake itself is in unit/http
    assert context.cert_store_stats()["x509_ca"] == 1


@pytest.mark.rows("AUT-001")
@pytest.mark.filterwarnings("error")
def test_names_of_users_may_be_longer_than_those_of_x520(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    pem, _ = certificates.issue_client(authority, "a" * 65, ["g" * 65], timedelta(hours=1))
    user = user_of_certificate(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))
    assert user is not None
    assert (user.name, user.groups) == ("a" * 65, ("g" * 65, "system:authenticated"))
    own = tmp_path / "own.crt"
    own.write_bytes(pem)
    for name in ("a" * 65, "a"):
        proxies = Proxies(ProxyConfig(str(own), allowed_names=(name,)), "")
        assert proxies._allowed(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)) is (len(name) == 65)


@pytest.mark.rows("AUT-001")
def test_client_certificates_name_their_user(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path)
    pem, key = certificates.issue_client(authority, "alice", ["devs", "ops"], timedelta(hours=1))
    der = x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER)
    user = user_of_certificate(der)
    assert user is not None
    assert (user.name, user.groups) == ("alice", ("devs", "ops", "system:authenticated"))
    assert key.startswith(b"-----BEGIN EC PRIVATE KEY-----\n"), "fabric8 takes keys without a kind for RSA"


def test_token(tmp_path: Path) -> None:
    file = tmp_path / "token"
    token = certificates.load_token(file)
    assert len(token) >= 32
    assert certificates.load_token(file) == token
    assert mode(file) == 0o600


def test_kubeconfig(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    kubeconfig.write(file, kubeconfig.Access("https://127.0.0.1:6443", b"CA", "secret"))
    assert mode(file) == 0o600
    document = yaml.safe_load(file.read_text())
    assert (document["apiVersion"], document["kind"], document["current-context"]) == ("v1", "Config", "apiext")
    assert document["clusters"][0]["cluster"]["certificate-authority-data"] == "Q0E="
    assert document["users"] == [{"name": "apiext", "user": {"token": "secret"}}]
    assert document["contexts"][0]["context"] == {"cluster": "apiext", "namespace": "default", "user": "apiext"}


def test_kubeconfig_without_a_user(tmp_path: Path) -> None:
    document = kubeconfig.document(kubeconfig.Access("http://127.0.0.1:8080"))
    assert document["users"] == []
    assert "user" not in document["contexts"][0]["context"]
    certificate = kubeconfig.document(kubeconfig.Access("https://x", b"", "", b"C", b"K"))
    assert certificate["users"][0]["user"] == {"client-certificate-data": "Qw==", "client-key-data": "Sw=="}


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.mkdir()
    with pytest.raises(IsADirectoryError):
        certificates.write_private(target, b"x")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
