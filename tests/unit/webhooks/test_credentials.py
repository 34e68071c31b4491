"""The server's credentials for webhooks: users by host, headers, and invalid files."""

from __future__ import annotations

import base64
import os
import re
import ssl
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from apiext.conformance.support import tls
from apiext.conformance.support.admission_webhook import running_webhook
from apiext.webhooks.client import Authenticated, Client
from apiext.webhooks.credentials import Credentials, CredentialsError, Users, users_of
from apiext.webhooks.errors import Broken, CallError, Unreachable
from apiext.webhooks.resolver import ResolverError, read_map
from apiext.webhooks.target import target_of
from apiext.webhooks.trust import context_of
from tests.support.processes import free_port

pytestmark = pytest.mark.rows("ADM-008")
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a YAML file and returns its path."""

    def file(name: str, document: Any) -> Path:
        path = tmp_path / name
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return path

    return file


def kubeconfig(current: str = "", **users: dict[str, Any]) -> dict[str, Any]:
    """Return a kubeconfig with users; the current context has the user ``current``."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [{"name": "it", "context": {"user": current}}],
        "current-context": "it",
    }


NAMES = ("hook.example.com:8443", "*.example.com:8443", "hook.example.com", "*.com", "svc.ns.svc", "*.ns.svc", "*")


@pytest.mark.rows("VER-010")
@pytest.mark.parametrize(
    ("host", "port", "user"),
    [
        ("hook.example.com", 8443, "hook.example.com:8443"),
        ("other.example.com", 8443, "*.example.com:8443"),
        ("hook.example.com", 443, "hook.example.com"),
        ("deep.other.example.com", 443, "*.com"),
        ("other.example.com", 9443, "*"),
        ("svc.ns.svc", 443, "svc.ns.svc"),
        ("two.ns.svc", 443, "*.ns.svc"),
        ("two.ns.svc", 444, "*"),
        ("::1", 443, "*"),
    ],
)
async def test_kubeconfig_user_is_selected_by_host(write: Write, host: str, port: int, user: str) -> None:
    users = Users(write("k", kubeconfig(**{name: {"token": name} for name in NAMES})))
    assert await users.find(host, port).lines() == (f"Authorization: Bearer {user}",)


async def test_host_without_user_gets_user_of_current_context(write: Write) -> None:
    path = write("k", kubeconfig("me", me={"token": "mine"}))
    assert await Users(path).find("x.io", 443).lines() == ("Authorization: Bearer mine",)
    assert await Users(write("k", kubeconfig())).find("x.io", 443).lines() == ()


@pytest.mark.parametrize(
    ("user", "lines"),
    [
        ({"username": "a", "password": "b"}, (f"Authorization: Basic {base64.b64encode(b'a:b').decode()}",)),
        ({"token": "t"}, ("Authorization: Bearer t",)),
        (
            {"as": "u", "as-uid": "1", "as-groups": ["g", "h"], "as-user-extra": {"x": ["y"]}},
            ("Impersonate-User: u", "Impersonate-Uid: 1", "Impersonate-Group: g", "Impersonate-Group: h",
             "Impersonate-Extra-x: y"),
        ),
        ({}, ()),
    ],
)  # fmt: skip
async def test_kubeconfig_user_sets_headers(write: Write, user: dict[str, Any], lines: tuple[str, ...]) -> None:
    assert await Users(write("k", kubeconfig(**{"*": user}))).find("x.io", 443).lines() == lines


async def test_token_file_is_reloaded(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    token = write("token", "one\n")
    user = Users(write("k", kubeconfig(**{"*": {"tokenFile": "token", "token": "zero"}}))).find("x.io", 443)
    assert await user.lines() == ("Authorization: Bearer one",)
    token.write_text("two")
    assert await user.lines() == ("Authorization: Bearer one",)
    monkeypatch.setattr("apiext.webhooks.credentials.TOKEN_FILE_EVERY", -1.0)
    assert await user.lines() == ("Authorization: Bearer two",)
    token.write_text("three\nHost: y.io")
    assert await user.lines() == ("Authorization: Bearer two",)
    token.unlink()
    assert await user.lines() == ("Authorization: Bearer two",)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, 'failed to read token file "{0}": open {0}: no such file or directory'),
        ("\n", 'read empty token from file "{0}"'),
        ("one\nHost: y.io", 'net/http: invalid header field value for "Authorization"'),
        ("Umläut", 'net/http: invalid header field value for "Authorization"'),
    ],
)
async def test_a_token_file_without_a_token_fails_the_call(write: Write, content: str | None, error: str) -> None:
    token = write("token", content or "")
    if content is None:
        token.unlink()
    user = Users(write("k", kubeconfig(**{"*": {"tokenFile": "token"}}))).find("x.io", 443)
    with pytest.raises(Broken, match=f"^{re.escape(error.format(token))}$"):
        await user.lines()


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ("{", "while parsing"),
        ("- a", "expected a mapping"),
        ({"users": {}}, None),
        ({"users": {"a": 1}}, "users: expected a list of mappings"),
        (
            kubeconfig(a={"exec": {"command": "x"}}),
            "user a: exec is not supported: use a token or a client certificate",
        ),
        (kubeconfig(a={"token": "t", "username": "u"}), "username/password or bearer token may be set, but not both"),
        (kubeconfig(a={"token": "t\nX: y"}), "user a: Authorization has characters that no header can hold"),
        (kubeconfig(a="token"), "users: expected a mapping for user of a"),
        ({**kubeconfig(), "contexts": [{"name": ["c"], "context": 5}]}, "contexts: expected a mapping for context of "),
        (kubeconfig(a={"as": "b", "as-groups": 5}), "user a: as-groups: expected a list"),
        (kubeconfig(a={"as": "b", "as-user-extra": {"k": "v"}}), "user a: as-user-extra: expected a mapping of lists"),
        (kubeconfig(a={"client-key-data": "QQ=="}), "client-certificate and client-key go together"),
        (kubeconfig(a={"client-certificate-data": "?", "client-key-data": "QQ=="}), "user a: client-certificate: "),
        (kubeconfig(a={"client-certificate": "nope.pem"}), "client-certificate: .*No such file"),
    ],
)
def test_invalid_kubeconfig_is_a_credentials_error(write: Write, document: Any, error: str | None) -> None:
    path = write("k", document)
    if error is None:
        Users(path)
        return
    with pytest.raises(CredentialsError, match=error):
        Users(path)


BROKEN = [
    'users: [{name: a, user: {token: hush, password: "hush ',
    "token: `hush",
    "token: hush: x",
    "token: *hush",
    "token: !hush x",
    "token: !!int hush",
    "token: !!bool hush",
    "token: !!timestamp hush",
    "token: !!binary hüsh",
    "? {hush: x}\n: y",
    "<<: hush",
    "%hush x\n---\n",
    "token: hush\0",
    "token: hush\n" + "[" * 5000,
    "token: hush\ndate: 2001-99-99",
]


@pytest.mark.parametrize("text", BROKEN, ids=range(len(BROKEN)))
def test_file_errors_contain_no_secrets(write: Write, text: str) -> None:
    path = write("k", text)
    for read in (Users, lambda file: users_of(str(file)), read_map):
        with pytest.raises(ValueError, match=rf"^{path}: ") as caught:
            read(path)
        assert isinstance(caught.value, CredentialsError | ResolverError)
        assert not any(part in str(caught.value) for part in ("hush", "\n"))
        assert "h\\xfcsh" not in str(caught.value)


def configuration(**plugin: Any) -> dict[str, Any]:
    """Return an AdmissionConfiguration with a configuration of the webhook plug-in."""
    plugins = [{"name": "ValidatingAdmissionWebhook", **plugin}, {"name": "Other", "configuration": {"kind": "Other"}}]
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration", "plugins": plugins}


def settings(kubeconfig_file: str, **more: Any) -> dict[str, Any]:
    """Return the configuration of a webhook plug-in."""
    about = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "WebhookAdmissionConfiguration", **more}
    return {**about, "kubeConfigFile": kubeconfig_file}


async def test_admission_configuration_sets_users_of_plug_in(write: Write) -> None:
    file = str(write("k", kubeconfig(**{"*": {"token": "t"}})))
    old = {"apiVersion": "apiserver.config.k8s.io/v1alpha1", "kind": "WebhookAdmission"}
    write("settings", settings(file, **old))
    for plugin in ({"configuration": settings(file)}, {"path": "settings"}):
        found = users_of(str(write("c", configuration(**plugin))))
        assert list(found) == ["ValidatingAdmissionWebhook"]
        assert await found["ValidatingAdmissionWebhook"].find("x", 1).lines() == ("Authorization: Bearer t",)
    assert users_of(str(write("c", configuration()))) == {}


@pytest.mark.parametrize(
    ("document", "error"),
    [
        ({"kind": "Config", "apiVersion": "v1"}, "expected AdmissionConfiguration, not v1, Kind=Config"),
        (
            configuration(configuration=settings("k")),
            'kubeConfigFile: Invalid value: "k": must be an absolute file path',
        ),
        (configuration(configuration=settings("/k", apiVersion="v1")), "expected WebhookAdmissionConfiguration or "),
        (configuration(configuration=settings("/no/such/file")), "No such file"),
        (configuration(path="nope"), "No such file"),
    ],
)
def test_invalid_admission_configuration_is_an_error(write: Write, document: Any, error: str) -> None:
    with pytest.raises(CredentialsError, match=error):
        users_of(str(write("c", document)))


def client_certificate(ca: tls.TestAuthority) -> dict[str, str]:
    """Return a client certificate and its key as fields of a kubeconfig."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "apiserver")]))
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    return {
        "client-certificate-data": base64.b64encode(pem).decode(),
        "client-key-data": base64.b64encode(private).decode(),
    }


@pytest.mark.rows("VER-010")
async def test_client_certificate_is_sent_to_webhook(write: Write, tmp_path: Path) -> None:
    with running_webhook(tmp_path / "hook") as hook:
        context = hook.server.socket.context  # type: ignore[attr-defined]  # it is a TLS socket
        context.load_verify_locations(cadata=hook.authority.pem.decode())
        context.verify_mode = ssl.CERT_REQUIRED
        users = Users(write("k", kubeconfig(**{"*": client_certificate(hook.authority)})))
        target, client = target_of(hook.client_config("/v")), Client()
        with pytest.raises(CallError):
            await client.post(target, b"{}", 5.0)
        assert b"allowed" in await Authenticated(client, users).post(target, b"{}", 5.0, owner="o")
        broken = Credentials(certificate=(b"no", b"pem"))
        with pytest.raises(CallError, match="tls: failed to find any PEM data in certificate input"):
            await client.post(target, b"{}", 5.0, owner="p", user=broken)
        await client.close()


@pytest.mark.rows("VER-010")
@pytest.mark.parametrize("memory", [True, False], ids=["in memory", "in a file"])
async def test_client_certificate_without_temp_dir_needs_memfd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: bool
) -> None:
    shown = client_certificate(tls.authority())
    pair = [base64.b64decode(shown[f"client-{what}-data"]) for what in ("certificate", "key")]
    user, port = Credentials(certificate=(pair[0], pair[1])), free_port()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    text = "connect: connection refused$"
    if not memory:
        monkeypatch.delattr(os, "memfd_create")
        text = r'^Post "https://127\.0\.0\.1:\d+/\?timeout=5s": tls: '
    client = Client()
    with pytest.raises(Unreachable, match=text):
        await client.post(target_of({"url": f"https://127.0.0.1:{port}/"}), b"{}", 5.0, user=user)
    await client.close()


def test_client_certificate_is_loaded_without_memfd(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = client_certificate(tls.authority())
    monkeypatch.delattr(os, "memfd_create")
    context_of(b"", (base64.b64decode(shown["client-certificate-data"]), base64.b64decode(shown["client-key-data"])))
