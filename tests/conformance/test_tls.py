"""TLS and authentication, which are the default."""

from __future__ import annotations

import base64
import http.client
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.support.processes import Etcd, Server, running_server

DAY = timedelta(days=1)


class Authority:
    """A certificate authority for client certificates."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "clients")])
        self.certificate = self._builder(self.name, self.key).add_extension(x509.BasicConstraints(True, None), True)
        self.file = directory / "client-ca.crt"
        self.file.write_bytes(self._signed(self.certificate))

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - DAY)
            .not_valid_after(now + DAY)
        )

    def _signed(self, builder: x509.CertificateBuilder) -> bytes:
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(self, user: str, *groups: str) -> tuple[Path, Path]:
        """Return certificate and key files of a user: CN is the name, O the groups."""
        key = ec.generate_private_key(ec.SECP256R1())
        parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        name = x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])
        certificate, key_file = self.directory / f"{user}.crt", self.directory / f"{user}.key"
        certificate.write_bytes(self._signed(self._builder(name, key)))
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return certificate, key_file


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority of --client-ca-file."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd, authority: Authority) -> Iterator[Server]:
    """A server without --insecure."""
    directory = tmp_path_factory.mktemp("secure")
    tokens = directory / "tokens.csv"
    tokens.write_text('sesame,alice,1001,"devs,testers"\n')
    flags = [
        "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/secure",
        f"--token-auth-file={tokens}", f"--client-ca-file={authority.file}",
    ]  # fmt: skip
    with running_server(flags, directory) as server:
        yield server


@pytest.fixture(scope="module")
def kubeconfig(secure: Server) -> dict[str, Any]:
    """The kubeconfig that the server wrote."""
    written: dict[str, Any] = yaml.safe_load(Path(secure.ready["kubeconfig"]).read_text())
    return written


@pytest.fixture
def trust(kubeconfig: dict[str, Any]) -> ssl.SSLContext:
    """The TLS context of a strict client that trusts the CA of the kubeconfig.

    It verifies by RFC 5280.
    """
    authority = base64.b64decode(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    return context


@pytest.mark.rows("AUT-001")
def test_kubeconfig_authenticates_the_admin(secure: Server, kubeconfig: dict[str, Any], trust: ssl.SSLContext) -> None:
    assert (kubeconfig["apiVersion"], kubeconfig["kind"]) == ("v1", "Config")
    assert kubeconfig["clusters"][0]["cluster"]["server"] == secure.url
    assert secure.url.startswith("https://127.0.0.1:")
    user = kubeconfig["users"][0]["user"]
    headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
    assert headers or "client-certificate-data" in user
    if headers:
        Client(secure.url, headers, trust).get("/api/v1/namespaces").expect(200)


@pytest.mark.rows("AUT-002", "ERR-19")
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YTpi"}])
def test_request_without_valid_credentials_gets_401(
    secure: Server, trust: ssl.SSLContext, headers: dict[str, str]
) -> None:
    answer = Client(secure.url, headers, trust).get("/api/v1/namespaces")
    assert answer.status == 401
    assert (answer.json["reason"], answer.json["message"]) == ("Unauthorized", "Unauthorized")


@pytest.mark.rows("AUT-001", "AUT-002")
@pytest.mark.parametrize(
    ("sent", "code", "warned"),
    [
        ("Bearer sesame", 200, False),
        ("bEARER sesame", 200, False),
        ("Bearer sesame and more", 200, False),
        ("Bearer  sesame", 401, True),
        ("Bearer   sesame", 401, False),
        ("Bearer", 401, False),
        ("sesame", 401, False),
    ],
)
def test_bearer_token_is_parsed_from_the_header(
    secure: Server, trust: ssl.SSLContext, sent: str, code: int, warned: bool
) -> None:
    answer = Client(secure.url, {"Authorization": sent}, trust).get("/api/v1/namespaces/default")
    extra = "the provided Authorization header contains extra space before the bearer token, and is ignored"
    assert (answer.status, answer.warnings) == (code, [f'299 - "{extra}"'] if warned else [])


@pytest.mark.rows("AUT-006")
@pytest.mark.parametrize(
    ("sent", "query", "code"),
    [
        ("Bearer wrong", "", 401),
        ("Bearer wrong", "?timeout=soon", 400),
        ("", "?timeout=5", 400),
        ("Bearer wrong", "?timeout=5s", 401),
        ("Bearer wrong", "?timeout=", 401),
        ("Bearer wrong", "?watch=1&timeout=soon", 401),
        ("Bearer sesame", "?timeout=soon", 400),
    ],
)
def test_timeout_parameter_is_validated_before_authentication(
    secure: Server, trust: ssl.SSLContext, sent: str, query: str, code: int
) -> None:
    headers = {"Authorization": sent} if sent else {}
    answer = Client(secure.url, headers, trust).get(f"/api/v1/namespaces{query}")
    assert (answer.status, "invalid timeout specified" in answer.text) == (code, code == 400)


@pytest.mark.rows("AUT-002")
def test_metrics_count_authentication_attempts(secure: Server, trust: ssl.SSLContext) -> None:
    def attempts() -> dict[str, int]:
        text = Client(secure.url, {"Authorization": "Bearer sesame"}, trust).get("/metrics").text
        return {
            kind: int(count)
            for kind, count in re.findall(r'^authentication_attempts{result="(\w+)"} (\d+)$', text, re.M)
        }

    for sent, kind in (("Bearer wrong", "error"), ("", "failure"), ("Bearer sesame", "success")):
        before = attempts().get(kind, 0)
        Client(secure.url, {"Authorization": sent} if sent else {}, trust).get("/api/v1/namespaces/default")
        after = attempts()[kind]
        assert after - before == (2 if kind == "success" else 1)  # the request for the metrics counts, too


@pytest.mark.rows("AUT-003")
@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
def test_health_and_version_need_no_credentials(secure: Server, trust: ssl.SSLContext, path: str) -> None:
    assert Client(secure.url, {}, trust).get(path).status == 200


@pytest.mark.rows("AUT-002")
@pytest.mark.parametrize("path", ["/healthz/", "/healthz/nope", "/livez//", "/readyz/nope", "/version/nope"])
def test_unauthenticated_404_lists_no_paths(secure: Server, trust: ssl.SSLContext, path: str) -> None:
    answer = Client(secure.url, {}, trust).get(path)
    assert answer.status in {401, 403, 404}
    assert "/apis" not in answer.text


@pytest.mark.rows("AUT-001")
def test_token_of_token_auth_file_authenticates(secure: Server, trust: ssl.SSLContext) -> None:
    Client(secure.url, {"Authorization": "Bearer sesame"}, trust).get("/apis").expect(200)


@pytest.mark.rows("AUT-001")
def test_client_certificate_authenticates(secure: Server, trust: ssl.SSLContext, authority: Authority) -> None:
    certificate, key = authority.issue("admin", "system:masters")
    trust.load_cert_chain(certificate, key)
    Client(secure.url, {}, trust).get("/api/v1/namespaces/default").expect(200)


@pytest.mark.differs("a page of any origin may use what its browser lends it")
@pytest.mark.parametrize(("sent", "code"), [("", 403), ("Bearer anything", 401), ("Bearer sesame", 101)])
def test_cross_origin_websocket_needs_a_token(
    secure: Server, trust: ssl.SSLContext, authority: Authority, sent: str, code: int
) -> None:
    trust.load_cert_chain(*authority.issue("admin", "system:masters"))
    headers = {"Origin": "https://elsewhere.example.com", **({"Authorization": sent} if sent else {})}
    assert handshake(secure, trust, headers) == code
    assert handshake(secure, trust, {"Origin": secure.url}) == 101


def handshake(server: Server, trust: ssl.SSLContext, headers: dict[str, str]) -> int:
    asked = {
        "Host": urlsplit(server.url).netloc,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
        **headers,
    }
    line = http.client.HTTPSConnection(asked["Host"], context=trust, timeout=10)
    try:
        line.request("GET", "/api/v1/namespaces?watch=true&timeoutSeconds=1", headers=asked)
        return line.getresponse().status
    finally:
        line.close()


def test_client_certificate_of_another_ca_is_refused(secure: Server, trust: ssl.SSLContext, tmp_path: Path) -> None:
    certificate, key = Authority(tmp_path).issue("admin", "system:masters")
    trust.load_cert_chain(certificate, key)
    try:
        status = Client(secure.url, {}, trust).get("/api/v1/namespaces/default").status
    except (ssl.SSLError, ConnectionError):
        status = 401  # a refused handshake is also correct
    assert status == 401


def test_a_restart_keeps_the_certificates(tmp_path: Path, own_etcd: Etcd) -> None:
    flags = ["--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/secure-again"]
    seen = []
    for _ in range(2):
        with running_server(flags, tmp_path) as server:
            written = yaml.safe_load(Path(server.ready["kubeconfig"]).read_text())
            seen.append((written["clusters"][0]["cluster"]["certificate-authority-data"], written["users"][0]["user"]))
    assert seen[0] == seen[1]


def test_cert_dir_gets_the_generated_certificate(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "certificates"
    certificate, key = directory / "apiserver.crt", directory / "apiserver.key"
    flags = ["--port=0", "--store=memory", f"--cert-dir={directory}"]
    seen = []
    for more in ([], [], ["--tls-san=server.example.com"]):  # the last one needs another certificate
        with running_server([*flags, *more], tmp_path / "server") as server:
            trust = ssl.create_default_context(cafile=str(certificate))
            assert Client(server.url, {}, trust).get("/livez").status == 200
            assert key.stat().st_mode & 0o777 == 0o600
            seen.append((certificate.read_bytes(), key.read_bytes()))
    assert seen[0] == seen[1] != seen[2]


def test_existing_pair_in_cert_dir_is_used_and_kept(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for number, pair in enumerate((authority.issue("first"), authority.issue("second"))):
        for file, name in zip(pair, ("apiserver.crt", "apiserver.key"), strict=True):
            (tmp_path / name).write_bytes(file.read_bytes())
        flags = ["--port=0", "--store=memory", f"--cert-dir={tmp_path}"]
        with running_server(flags, tmp_path / f"server{number}") as server:
            place = ("127.0.0.1", int(server.url.rpartition(":")[2]))
            assert ssl.get_server_certificate(place) == pair[0].read_text()
        assert (tmp_path / "apiserver.key").read_bytes() == pair[1].read_bytes()


def test_a_changed_certificate_is_shown_without_a_restart(tmp_path: Path, own_etcd: Etcd) -> None:
    (tmp_path / "issued").mkdir()
    issuer, shown = Authority(tmp_path / "issued"), tmp_path / "tls.crt"
    files = [issuer.issue(name) for name in ("first", "second")]

    def take(certificate: Path, key: Path) -> None:
        (tmp_path / "tls.key").write_bytes(key.read_bytes())
        shown.write_bytes(certificate.read_bytes())

    take(*files[0])
    flags = ["--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/certificates", f"--tls-cert-file={shown}",
             f"--tls-private-key-file={tmp_path / 'tls.key'}"]  # fmt: skip
    with running_server(flags, tmp_path / "server") as server:
        place = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        assert ssl.get_server_certificate(place) == files[0][0].read_text()
        shown.write_text("no certificate")
        until(lambda: "no usable certificate" in server.log_tail(), "it is told")
        assert ssl.get_server_certificate(place) == files[0][0].read_text()
        take(*files[1])
        until(lambda: ssl.get_server_certificate(place) == files[1][0].read_text(), "the new one is shown")
