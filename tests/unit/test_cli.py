"""The command line: flags of the real server, environment twins, the order of sources (command-line.md)."""

from pathlib import Path

import pytest

from apiext import cli
from apiext.config import ConfigError

UPSTREAM = [
    "etcd-servers",
    "etcd-prefix",
    "etcd-cafile",
    "etcd-certfile",
    "etcd-keyfile",
    "storage-backend",
    "watch-cache",
    "secure-port",
    "bind-address",
    "tls-cert-file",
    "tls-private-key-file",
    "cert-dir",
    "client-ca-file",
    "authentication-kubeconfig",
    "authorization-kubeconfig",
    "authentication-skip-lookup",
    "audit-policy-file",
    "audit-log-path",
    "admission-control-config-file",
    "disable-admission-plugins",
    "enable-admission-plugins",
    "max-requests-inflight",
    "request-timeout",
    "min-request-timeout",
    "runtime-config",
    "feature-gates",
    "emulated-version",
    "encryption-provider-config",
    "profiling",
    "contention-profiling",
    "enable-priority-and-fairness",
    "v",
]

SAMPLES = {
    "etcd-servers": "http://127.0.0.1:2379",
    "secure-port": "7443",
    "max-requests-inflight": "10",
    "request-timeout": "30s",
    "min-request-timeout": "600",
    "watch-cache": "true",
    "bind-address": "127.0.0.1",
    "v": "1",
}


def parse(*arguments: str, **environment: str) -> tuple[object, list[str]]:
    """Return the configuration of a command line, and what was warned about."""
    warnings: list[str] = []
    return cli.parse_serve(arguments, environment, warnings.append), warnings


@pytest.mark.rows("OPS-001")
@pytest.mark.parametrize("flag", UPSTREAM)
def test_a_flag_of_the_real_server_is_taken_or_ignored_with_one_warning(flag: str, tmp_path: Path) -> None:
    value = SAMPLES.get(flag, "")
    if not value:
        given = tmp_path / "file"
        given.write_text("")
        value = str(given)
    pair = ("--tls-private-key-file=x",) if flag == "tls-cert-file" else ()
    pair = ("--tls-cert-file=x",) if flag == "tls-private-key-file" else pair
    known = {name for row in cli.FLAGS for name in (row.name, *row.aliases)}
    _, warnings = parse(f"--data-dir={tmp_path}", f"--{flag}={value}", *pair)
    named = [text for text in warnings if f"--{flag} " in text]
    assert len(named) == (0 if flag in known else 1), warnings


@pytest.mark.rows("OPS-001")
def test_the_order_is_flag_then_environment_then_file_then_default(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("etcd-prefix: /file\nkubernetes-version: 1.30.0\nport: 7001\n")
    found = cli.parse_serve(
        [f"--data-dir={tmp_path}", f"--config={file}", "--port=7003"],
        {"APIEXT_PORT": "7002", "APIEXT_KUBERNETES_VERSION": "1.31.0"},
        pytest.fail,
    )
    assert (found.port, found.kubernetes_version, found.etcd.prefix) == (7003, "1.31.0", "/file")
    assert found.bind_address == "127.0.0.1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-flag"],
        ["--workers=2"],
        ["--port=x"],
        ["--insecure", "--bind-address=0.0.0.0"],
        ["stray"],
        ["--etcd-wait=nan"],
        ["--etcd-wait=inf"],
        ["--request-timeout=-1"],
        ["--etcd-servers=http://:1"],
        ["--etcd-servers=http://a:b"],
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises((ConfigError, SystemExit)):
        parse(f"--data-dir={tmp_path}", *arguments)


@pytest.mark.rows("AUT-003")
@pytest.mark.parametrize(
    ("text", "modes", "warned"),
    [
        ("AlwaysAllow", ("AlwaysAllow",), ""),
        ("AlwaysDeny", ("AlwaysDeny",), ""),
        ("RBAC", ("RBAC",), ""),
        ("RBAC,AlwaysDeny", ("RBAC", "AlwaysDeny"), ""),
        ("Node,RBAC", ("RBAC",), "there is no Node here, requests are judged by RBAC"),
        ("Node,RBAC,Webhook", ("RBAC",), "there is no Node, Webhook here, requests are judged by RBAC"),
        ("Node", ("AlwaysAllow",), "is not enforced: every authenticated user may do everything"),
        ("ABAC,Webhook", ("AlwaysAllow",), "is not enforced: every authenticated user may do everything"),
        ("Always", None, ""),
        ("RBAC,RBAC", None, ""),
    ],
)
def test_authorization_modes(text: str, modes: tuple[str, ...] | None, warned: str, tmp_path: Path) -> None:
    arguments = (f"--data-dir={tmp_path}", f"--authorization-mode={text}")
    if modes is None:
        with pytest.raises(ConfigError, match="authorization-mode"):
            parse(*arguments)
        return
    told: list[str] = []
    assert cli.parse_serve(arguments, {}, told.append).authorization_modes == modes
    assert [warned in one for one in told] == ([True] if warned else [])
