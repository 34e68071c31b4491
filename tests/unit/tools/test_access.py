"""The server and the credentials of a command."""

from __future__ import annotations

import argparse
import base64
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.auth import certificates
from apiext.tools import access


def options(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    access.add_flags(parser)
    return parser.parse_args(list(given))


def kubeconfig(path: Path, cluster: dict[str, Any], user: dict[str, Any] | None = None) -> Path:
    context = {"cluster": "c"} | ({"user": "u"} if user is not None else {})
    document = {
        "clusters": [{"name": "c", "cluster": cluster}],
        "contexts": [{"name": "x", "context": context}, {"name": "empty", "context": {"cluster": "missing"}}],
        "users": [{"name": "u", "user": user}] if user is not None else [],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_access_flags_precede_the_kubeconfig(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", {"server": "http://from-file:1"})
    environment = {"KUBECONFIG": f"{tmp_path}/missing:{file}", "HOME": str(tmp_path)}
    assert access.resolve(options(), environment).url == "http://from-file:1"
    given = access.resolve(options("--server", "http://named:2/", "--token", "secret"), environment)
    assert (given.url, given.headers) == ("http://named:2", {"Authorization": "Bearer secret"})
    assert "secret" not in repr(given)


def test_insecure_server_is_default_without_kubeconfig(tmp_path: Path) -> None:
    assert access.resolve(options(), {"HOME": str(tmp_path)}).url == "http://127.0.0.1:8080"
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", {"server": "http://at-home:3"})
    assert access.resolve(options(), {"HOME": str(tmp_path)}).url == "http://at-home:3"


@pytest.mark.parametrize("text", ["", "\n", "apiVersion: v1\nkind: Config\ncurrent-context: ''\ncontexts: []\n"])
def test_a_kubeconfig_without_a_current_context_names_the_insecure_server(tmp_path: Path, text: str) -> None:
    (tmp_path / "config").write_text(text)
    for given in (options(), options("--kubeconfig", str(tmp_path / "config"))):
        assert access.resolve(given, {"KUBECONFIG": str(tmp_path / "config")}).url == "http://127.0.0.1:8080"
    with pytest.raises(access.AccessError, match="there is no context named 'other'"):
        access.from_kubeconfig(tmp_path / "config", context="other")


def test_credentials_are_read_from_kubeconfig(tmp_path: Path) -> None:
    authority = certificates.load_authority(tmp_path / "pki")
    serving = certificates.load_serving(tmp_path / "pki", authority, certificates.serving_names("127.0.0.1", ()))
    ca = base64.b64encode(serving.ca).decode()
    (tmp_path / "token").write_text("from-file\n")
    file = kubeconfig(
        tmp_path / "config", {"server": "https://s", "certificate-authority-data": ca}, {"tokenFile": "token"}
    )
    found = access.from_kubeconfig(file)
    assert found.headers == {"Authorization": "Bearer from-file"}
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_REQUIRED
    pair = {"client-certificate": str(serving.certificate), "client-key": str(serving.key)}
    file = kubeconfig(file, {"server": "https://s", "insecure-skip-tls-verify": True}, pair)
    found = access.from_kubeconfig(file)
    assert found.headers == {}
    assert found.tls is not None
    assert found.tls.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("cluster", "user", "words"),
    [
        ({"server": "ftp://x"}, None, "has no http or https server"),
        ({"server": "https://s"}, {"exec": {"command": "x"}}, "uses a login plug-in"),
        ({"server": "https://s"}, {"tokenFile": "missing"}, "No such file"),
        ({"server": "https://s", "certificate-authority-data": "!"}, None, "cannot be used"),
        ({"server": "https://s", "certificate-authority": "missing.pem"}, None, "cannot be used"),
    ],
)
def test_invalid_kubeconfigs_are_refused(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any] | None, words: str
) -> None:
    file = kubeconfig(tmp_path / "config", cluster, user)
    with pytest.raises(access.AccessError, match=words):
        access.from_kubeconfig(file)


@pytest.mark.parametrize("token", ["hush\n", "hush\r\nX: y", "hüsh", "hush\0"])
def test_token_invalid_in_header_is_refused_and_not_printed(token: str, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", {"server": "http://s"}, {"token": token})
    for given in (("--server", "http://s", "--token", token), ("--kubeconfig", str(file))):
        with pytest.raises(access.AccessError, match=r"has characters that an HTTP header cannot contain$") as caught:
            access.resolve(options(*given), {})
        assert token[:4] not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "token"), [("2024-01-01", "2024-01-01"), ("12:30", "12:30"), ("0123", None), ("yes", None), ("1e3", None)]
)
def test_kubeconfig_token_is_read_like_kubectl(text: str, token: str | None, tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", {"server": "http://s"}, {"token": "TOKEN"})
    file.write_text(file.read_text().replace("TOKEN", text))
    if token is None:
        with pytest.raises(access.AccessError, match="the token of context x is not a string: put it into quotes"):
            access.from_kubeconfig(file)
    else:
        assert access.from_kubeconfig(file).headers == {"Authorization": f"Bearer {token}"}


def test_several_kubeconfigs_count_as_one(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "deeper" / "two"
    two.parent.mkdir()
    (two.parent / "token").write_text("from-two")
    one.write_text(yaml.safe_dump({"clusters": [{"name": "c", "cluster": {"server": "http://first:1"}}], "users": []}))
    kubeconfig(two, {"server": "http://second:2"}, {"tokenFile": "token"})
    environment = {"KUBECONFIG": f"{tmp_path}/missing:{one}:{two}"}
    found = access.resolve(options(), environment)
    assert (found.url, found.headers) == ("http://first:1", {"Authorization": "Bearer from-two"})
    with pytest.raises(access.AccessError, match=f"^{one}:{two}: there is no cluster named 'missing'"):
        access.resolve(options("--context", "empty"), environment)
    one.write_text("a: [")
    with pytest.raises(access.AccessError, match=f"^{one}: "):
        access.resolve(options(), environment)


def test_missing_or_malformed_kubeconfig_is_refused(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", {"server": "http://s"})
    for context, words in (("other", "there is no context named 'other'"), ("empty", "there is no cluster named")):
        with pytest.raises(access.AccessError, match=words):
            access.from_kubeconfig(file, context=context)
    for text in (b"a: [", b"5", b"\xff", b"current-context: x\ncontexts: 5"):
        file.write_bytes(text)
        with pytest.raises(access.AccessError):
            access.from_kubeconfig(file)
    with pytest.raises(access.AccessError, match="No such file"):
        access.resolve(options("--kubeconfig", str(tmp_path / "none")), {})
    with pytest.raises(access.AccessError, match="use http://host:port"):
        access.resolve(options("--server", "localhost:8080"), {})


def test_client_certificate_works_without_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = certificates.load_authority(tmp_path)
    certificate, key = certificates.issue_client(authority, "jane")
    user = {"client-certificate-data": base64.b64encode(certificate), "client-key-data": base64.b64encode(key)}
    file = kubeconfig(tmp_path / "config", {"server": "https://s"}, {name: it.decode() for name, it in user.items()})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    assert access.from_kubeconfig(file).tls is not None
