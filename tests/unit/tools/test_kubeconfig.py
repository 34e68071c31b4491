"""Kubeconfigs that the commands create, and changes of kubectl's kubeconfig."""

from __future__ import annotations

import base64
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from apiext.auth import certificates
from apiext.auth import kubeconfig as own
from apiext.auth.authentication import user_of_certificate
from apiext.documents.encoding import decode_yaml
from apiext.tools import kubeconfig, limits

SERVER = "https://127.0.0.1:6443"
MINE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "preferences": {"colors": True},
    "clusters": [{"name": "work", "cluster": {"server": "https://work", "extensions": []}}],
    "users": [{"name": "me", "user": {"token": "t"}}],
    "contexts": [{"name": "work", "context": {"cluster": "work", "user": "me"}}],
    "current-context": "work",
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return the data directory of a server with its own certificates."""
    directory = tmp_path / "data"
    authority = certificates.load_authority(directory / "pki")
    own.write(directory / kubeconfig.ADMIN, own.Access(SERVER, authority.pem, "secret"))
    return directory


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def test_print_issues_client_certificate_for_user(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["print", "--data-dir", str(data), "--user", "alice", "--groups", "devs,ops", "--ttl", "90m"]
    assert kubeconfig.run(asked) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert found["clusters"] == read(data / kubeconfig.ADMIN)["clusters"]
    [user] = found["users"]
    pem = base64.b64decode(user["user"]["client-certificate-data"])
    certificate = x509.load_pem_x509_certificate(pem)
    life = certificate.not_valid_after_utc - certificates.now()
    assert timedelta(minutes=89) < life <= timedelta(minutes=90)
    named = user_of_certificate(certificate.public_bytes(Encoding.DER))
    assert named is not None
    assert (named.name, named.groups[:2]) == ("alice", ("devs", "ops"))
    assert kubeconfig.run(["print", "--data-dir", str(data)]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == read(data / kubeconfig.ADMIN)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: (data / kubeconfig.ADMIN).unlink(), "start the server once"),
        (lambda data: (data / kubeconfig.ADMIN).write_text("- a"), "is not a kubeconfig"),
        (
            lambda data: own.write(data / kubeconfig.ADMIN, own.Access("http://127.0.0.1:8080")),
            "does not authenticate users",
        ),
        (lambda data: (data / "pki" / "ca.key").unlink(), "has no authority"),
    ],
)
def test_print_reports_why_certificate_cannot_be_issued(
    data: Path, change: Any, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    change(data)
    assert kubeconfig.run(["print", "--data-dir", str(data), "--user", "alice"]) == 1
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["print", "--user", ""], "--user is empty"),
        (["print", "--user=", "--groups=devs"], "--user is empty"),
        (["print", "--groups", "devs"], "--groups and --ttl are for a --user"),
        (["print", "--groups="], "--groups and --ttl are for a --user"),
        (["print", "--ttl", "1h"], "--groups and --ttl are for a --user"),
        (["merge", "--name", ""], "--name is empty"),
        (["remove", "--name="], "--name is empty"),
    ],
)
def test_empty_user_group_or_name_flags_are_refused(
    data: Path, asked: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data-dir", str(data)] + ([] if asked[0] == "print" else ["--kubeconfig", str(tmp_path / "config")])
    with pytest.raises(SystemExit) as ended:
        kubeconfig.run([*asked, *where])
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.endswith(f"error: {told}\n")
    assert not (tmp_path / "config").exists()


@pytest.mark.rows("AUT-001")
@pytest.mark.filterwarnings("ignore:Attribute's length")  # of the reading user
def test_certificate_holds_long_user_and_group_names(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    user, group = "u" * 300, "system:serviceaccounts:" + "g" * 100
    assert kubeconfig.run(["print", f"--data-dir={data}", f"--user={user}", f"--groups={group}"]) == 0
    [found] = yaml.safe_load(capsys.readouterr().out)["users"]
    pem = base64.b64decode(found["user"]["client-certificate-data"])
    named = user_of_certificate(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))
    assert named is not None
    assert (named.name, named.groups[0]) == (user, group)


def test_user_name_invalid_in_certificate_is_refused(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert kubeconfig.run(["print", f"--data-dir={data}", "--user=\udcff"]) == 1
    assert "the certificate cannot be created: " in capsys.readouterr().err


@pytest.mark.parametrize("ttl", ["soon", "0s", "-1h", ""])
def test_invalid_certificate_ttl_is_refused(data: Path, ttl: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert kubeconfig.run(["print", "--data-dir", str(data), "--user", "alice", f"--ttl={ttl}"]) == 1
    assert "--ttl" in capsys.readouterr().err


def test_merge_keeps_foreign_entries_and_remove_reverts_it(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(MINE))
    for _ in range(2):  # the second call replaces it
        assert kubeconfig.run(["merge", "--data-dir", str(data), "--kubeconfig", str(file), "--name", "dev"]) == 0
    found = read(file)
    assert found["preferences"] == MINE["preferences"]
    for many in ("clusters", "users", "contexts"):
        assert found[many][:-1] == MINE[many]
        assert found[many][-1]["name"] == "dev"
    assert found["contexts"][-1]["context"] == {"cluster": "dev", "user": "dev", "namespace": "default"}
    assert found["clusters"][-1]["cluster"]["server"] == SERVER
    assert found["current-context"] == "dev"
    assert file.stat().st_mode & 0o777 == 0o600
    assert kubeconfig.run(["remove", "--kubeconfig", str(file), "--name", "dev"]) == 0
    assert read(file) == {**MINE, "current-context": ""}
    assert [path.name for path in tmp_path.iterdir() if "lock" in path.name] == []


def test_merge_with_no_switch_keeps_current_context(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(yaml.safe_dump(MINE))
    asked = ["merge", "--data-dir", str(data), "--kubeconfig", str(file), "--no-switch"]
    assert kubeconfig.run(asked) == 0
    assert read(file)["current-context"] == "work"
    kubeconfig.run(["remove", "--kubeconfig", str(file)])
    assert read(file) == MINE
    file.write_text("")  # an empty file has no context to keep
    assert kubeconfig.run(asked) == 0
    assert read(file)["current-context"] == "apiext"


OTHERS = """\
users:
- name: them
  user: {auth-provider: {name: oidc, config: {expiry: 2019-01-01T00:00:00Z, day: 2019-01-01, at: 12:30}}}
- name: others
  user: {exec: {command: get, args: [yes, 0123, 1_000, "0123", 'yes', "2019-01-01", 1.0, "=", ~], env: [{name: y}]}}
"""


def test_merge_keeps_yaml_values_of_foreign_entries(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(OTHERS)
    before = decode_yaml(OTHERS.encode())[0]["users"]
    assert kubeconfig.run(["merge", "--data-dir", str(data), "--kubeconfig", str(file)]) == 0
    written = file.read_text()
    assert decode_yaml(written.encode())[0]["users"][:-1] == before
    assert before[0]["user"]["auth-provider"]["config"]["expiry"] == "2019-01-01T00:00:00Z"
    for quoted in ("2019-01-01T00:00:00Z", "2019-01-01", "12:30"):  # for parsers that convert times
        assert f'"{quoted}"' in written


@pytest.mark.parametrize("text", [None, "", OTHERS, "kind: Config\nusers: # none\n"])
def test_remove_without_entries_changes_nothing(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "there" / "config"
    if text is not None:
        file.parent.mkdir()
        file.write_text(text)
    assert kubeconfig.run(["remove", "--kubeconfig", str(file)]) == 0
    assert (file.read_text() if file.exists() else None) == text
    assert file.parent.exists() == (text is not None)


def test_merge_keeps_symbolic_link(data: Path, tmp_path: Path) -> None:
    (tmp_path / "real").write_text(yaml.safe_dump(MINE))
    (tmp_path / "config").symlink_to("real")
    assert kubeconfig.run(["merge", "--data-dir", str(data), "--kubeconfig", str(tmp_path / "config")]) == 0
    assert (tmp_path / "config").is_symlink()
    assert len(read(tmp_path / "real")["contexts"]) == 2


def test_target_follows_flag_then_environment_then_home(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    listed = {"KUBECONFIG": f"{one}{os.pathsep}{two}", "HOME": str(tmp_path)}
    assert kubeconfig.target("", listed) == two
    one.touch()
    assert kubeconfig.target("", listed) == one
    assert kubeconfig.target("named", listed) == Path("named")
    assert kubeconfig.target("", {"HOME": str(tmp_path)}) == tmp_path / ".kube" / "config"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a", "is not a kubeconfig"),
        ("a: [", "did not find expected node content"),
        ("clusters: [1]", "its clusters cannot"),
        ("users: []\n---\nusers: []\n", "has several documents"),
        ("a: &a {b: *a}", "value contains itself"),
        ("a: " + "[" * 20_000, "yaml: "),
    ],
)
def test_merge_does_not_change_malformed_file(
    data: Path, tmp_path: Path, text: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config"
    file.write_text(text)
    assert kubeconfig.run(["merge", "--data-dir", str(data), "--kubeconfig", str(file)]) == 1
    assert told in capsys.readouterr().err
    assert file.read_text() == text
    assert not file.with_name("config.lock").exists()


def test_merge_fails_while_another_program_holds_the_lock(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(limits, "LOCK_WAIT", 0.1)
    lock = tmp_path / "config.lock"
    lock.touch()
    assert kubeconfig.run(["merge", "--data-dir", str(data), "--kubeconfig", str(tmp_path / "config")]) == 1
    assert "another program is writing" in capsys.readouterr().err
    assert lock.exists()
