"""The command line: kube-apiserver's flags, environment variables, precedence of sources."""

import os
import pwd
import re
from operator import attrgetter
from pathlib import Path

import pytest

from apiext import cli
from apiext.config import Config, ConfigError, default_data_dir

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

PAIRS = (("tls-cert-file", "tls-private-key-file"), ("etcd-certfile", "etcd-keyfile"))

SAMPLES = {
    "etcd-servers": "http://127.0.0.1:2379",
    "secure-port": "7443",
    "max-requests-inflight": "10",
    "request-timeout": "30s",
    "min-request-timeout": "600",
    "watch-cache": "true",
    "bind-address": "127.0.0.1",
    "v": "1",
    "authentication-skip-lookup": "true",
    "disable-admission-plugins": "NamespaceLifecycle",
    "enable-admission-plugins": "NamespaceLifecycle",
    "profiling": "false",
    "contention-profiling": "true",
    "enable-priority-and-fairness": "false",
}


def parse(*arguments: str, **environment: str) -> tuple[Config, list[str]]:
    """Return the configuration of a command line, and its warnings."""
    warnings: list[str] = []
    return cli.parse_serve(arguments, environment, warnings.append), warnings


@pytest.mark.rows("OPS-001")
@pytest.mark.parametrize("flag", UPSTREAM)
def test_kube_apiserver_flag_works_or_warns_once(flag: str, tmp_path: Path) -> None:
    value = SAMPLES.get(flag, "")
    if not value:
        given = tmp_path / "file"
        given.write_text("")
        value = str(given)
    pair = [f"--{twin}=x" for twins in PAIRS for twin in twins if flag in twins and twin != flag]
    known = {name for row in cli.FLAGS for name in (row.name, *row.aliases)}
    _, warnings = parse(f"--data-dir={tmp_path}", f"--{flag}={value}", *pair)
    named = [text for text in warnings if f"--{flag} " in text]
    assert len(named) == (0 if flag in known else 1), warnings


@pytest.mark.rows("OPS-001")
def test_flag_precedes_environment_then_file_then_default(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("etcd-prefix: /file\nkubernetes-version: 1.30.0\nport: 7001\n")
    found = cli.parse_serve(
        [f"--data-dir={tmp_path}", f"--config={file}", "--port=7003"],
        {"APIEXT_PORT": "7002", "APIEXT_KUBERNETES_VERSION": "1.31.0"},
        pytest.fail,
    )
    assert (found.listening.port, found.apis.kubernetes_version, found.store.etcd.prefix) == (7003, "1.31.0", "/file")
    assert found.listening.bind_address == "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "prefix"),
    [("/registry/", "/registry"), ("a//b", "/a/b"), ("/a/./b", "/a/b"), ("//../a", "/a"), ("", "/")],
)
def test_etcd_prefix_is_normalized_to_a_path(text: str, prefix: str, tmp_path: Path) -> None:
    assert parse(f"--data-dir={tmp_path}", f"--etcd-prefix={text}")[0].store.etcd.prefix == prefix


@pytest.mark.parametrize("flags", [[], ["--insecure"]])
def test_empty_bind_address_is_refused(flags: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--bind-address is empty: use an address of this machine"):
        parse(f"--data-dir={tmp_path}", "--bind-address=", *flags)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-flag"],
        ["--port=x"],
        ["--insecure", "--bind-address=0.0.0.0"],
        ["stray"],
        ["--etcd-wait=nan"],
        ["--etcd-wait=inf"],
        ["--request-timeout=-1"],
        ["--etcd-servers=http://:1"],
        ["--etcd-servers=http://a:b"],
        ["--request-timeout=1.2.3s"],
        ["--request-timeout=.s"],
        ["--port=1_000"],
        ["--port=\u0663"],
        ["--port=65536"],
        ["--workers=0"],
        ["--watch-cache=maybe"],
        ["--runtime-config=apiextensions.k8s.io/v1beta1=maybe"],
        ["--max-requests-inflight=-1"],
        ["--max-mutating-requests-inflight=-1"],
        ["--min-request-timeout=-1"],
        ["--v=-1"],
        ["--kubernetes-version=1.x"],
        ["--kubernetes-version=next"],
        ["--bind-address="],
        ["--etcd-certfile=x"],
        ["--etcd-keyfile=x"],
        ["--tls-cert-file=x"],
        ["--status-manager="],
        ["--status-manager=" + "x" * 129],
        ["--webhook-deny-cidrs=127.0.0.1/8"],
        ["--webhook-deny-cidrs=localhost"],
        ["--token=a b"],
        ["--token=a\r"],
        ["--enable-admission-plugins=A,B", "--disable-admission-plugins=C,B"],
    ],
)
def test_invalid_flag_values_are_refused(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises((ConfigError, SystemExit)):
        parse(f"--data-dir={tmp_path}", *arguments)


def test_password_in_etcd_url_is_refused_and_not_printed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use --etcd-user") as told:
        parse(f"--data-dir={tmp_path}", "--etcd-servers=http://root:sesame@etcd:2379")
    assert "sesame" not in str(told.value)


@pytest.mark.rows("OPS-001")
@pytest.mark.parametrize("typed", [("-v", "4"), ("-v=4",), ("--v=4",), ("--v", "4")])
def test_verbosity_flag_accepts_one_dash(typed: tuple[str, ...], tmp_path: Path) -> None:
    config, warnings = parse(f"--data-dir={tmp_path}", *typed)
    assert (config.output.verbosity, warnings) == (4, [])


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (["--watch-cache", "--anonymous-auth", "--authorization-mode=RBAC"], {"auth.anonymous": True}),
        (["--anonymous-auth=false"], {"auth.anonymous": False}),
        (["--insecure", "--bind-address=127.0.0.9"], {"listening.bind_address": "127.0.0.9", "listening.port": 8080}),
        (["--insecure", "--bind-address=::1", "--port=0"], {"listening.bind_address": "::1", "listening.port": 0}),
        (["--insecure", "--insecure=false"], {"listening.insecure": False, "listening.port": 6443}),
        (["--request-timeout=1h2m3.5s"], {"requests.timeout": 3723.5}),
        (["--request-timeout=250us"], {"requests.timeout": 0.00025}),
        (["--request-timeout=90"], {"requests.timeout": 90.0}),
        (["--kubernetes-version=v1.33"], {"apis.kubernetes_version": "1.33.0"}),
        (["--kubernetes-version=1.34.2+k3s1"], {"apis.kubernetes_version": "1.34.2+k3s1"}),
        (["--max-requests-inflight=1", "--max-requests-inflight=2"], {"requests.max_inflight": 2}),
        (["--token", "-abc"], {"auth.token": "-abc"}),  # as Go's flags, whose value is the next word
        (
            ["--token", "--insecure", "--port=7"],
            {"auth.token": "--insecure", "listening.insecure": False, "listening.port": 7},
        ),
        (["--token", "a", "--insecure"], {"auth.token": "a", "listening.insecure": True}),
    ],
)
def test_flag_values_set_the_configuration(typed: list[str], wanted: dict[str, object], tmp_path: Path) -> None:
    config, warnings = parse(f"--data-dir={tmp_path}", *typed)
    assert ({path: attrgetter(path)(config) for path in wanted}, warnings) == (wanted, [])


@pytest.mark.rows("AUT-001")
@pytest.mark.parametrize("mode", [[], ["--authorization-mode=AlwaysAllow"], ["--authorization-mode=RBAC,AlwaysAllow"]])
def test_anonymous_access_without_rbac_warns(mode: list[str], tmp_path: Path) -> None:
    config, warnings = parse(f"--data-dir={tmp_path}", "--anonymous-auth=true", *mode)
    assert config.auth.anonymous
    assert [text.endswith("anonymous users may do all (see --authorization-mode=RBAC)") for text in warnings] == [True]


def test_invalid_value_from_environment_or_file_names_source(tmp_path: Path) -> None:
    def fault(*typed: str, **environment: str) -> str:
        with pytest.raises(ConfigError) as raised:
            cli.parse_serve([f"--data-dir={tmp_path}", *typed], environment, print)
        return str(raised.value)

    injected = "tcp://10.0.0.1:6443"
    why = f"--port {injected}: expected a whole number"
    assert fault(APIEXT_PORT=injected) == f"{why} (from APIEXT_PORT in the environment)"
    assert fault(APIEXT_SECURE_PORT=injected) == f"{why} (from APIEXT_SECURE_PORT in the environment)"
    assert fault(f"--port={injected}", APIEXT_PORT="1") == why
    file = tmp_path / "config.yaml"
    file.write_text("port: 70000")
    assert fault(f"--config={file}").endswith(f"use 0 for a free one, or 1 to 65535 (from {file})")


def test_relative_data_dir_in_deleted_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match="--data-dir here: the current directory is deleted: use an absolute path"):
        cli.parse_serve(["--data-dir=here"], {}, print)


def test_default_data_dir_follows_xdg_and_home(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_data_dir({"XDG_DATA_HOME": "/x", "HOME": "/h"}) == "/x/apiext"
    assert default_data_dir({"XDG_DATA_HOME": "", "HOME": "/h"}) == "/h/.local/share/apiext"
    monkeypatch.setattr(os, "getuid", lambda: 0)
    home = pwd.getpwuid(0).pw_dir
    assert default_data_dir({}) == default_data_dir({"HOME": ""}) == f"{home}/.local/share/apiext"
    monkeypatch.setattr(os, "getuid", lambda: 2_000_000_001)  # the id of no user
    assert default_data_dir({}) == "/var/lib/.local/share/apiext"


def test_flag_without_effect_warns_once(tmp_path: Path) -> None:
    given = ("--feature-gates", "A=true", "--feature-gates=B=false", "--profiling", "--allow-privileged=true")
    _, warnings = parse(f"--data-dir={tmp_path}", *given)
    names = ("--feature-gates", "--profiling", "--allow-privileged")
    assert warnings == [f"{name} is accepted and has no effect here" for name in names]


def test_unknown_flag_is_one_line_error() -> None:
    with pytest.raises(ConfigError) as raised:
        parse("--no-such-flag")
    assert str(raised.value) == "unrecognized argument: --no-such-flag"


@pytest.mark.parametrize(
    ("typed", "meant"), [("--secure-prot=1", "secure-port"), ("-port", "port"), ("--datadir", "data-dir")]
)
def test_misspelled_flag_suggests_the_nearest_flag(typed: str, meant: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(typed)
    assert str(raised.value) == f"unrecognized argument: {typed}; did you mean --{meant}?"


@pytest.mark.parametrize(
    ("arguments", "environment", "form"),
    [
        ([], {}, ""),
        (["--logging-format=json"], {}, "json"),
        (["--v", "2", "--logging-format", "text"], {"APIEXT_LOGGING_FORMAT": "json"}, "text"),
        (["--insecure"], {"APIEXT_LOGGING_FORMAT": "json"}, "json"),
        (["--logging-format"], {}, ""),
        (["--logging-format=xml"], {}, ""),
    ],
)
def test_logging_format_is_read_before_flags_are_parsed(
    arguments: list[str], environment: dict[str, str], form: str
) -> None:
    assert cli.logging_format(arguments, environment) == form


def test_help_shows_daily_flags_and_help_all_shows_all_flags(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for asked in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as ended:
            cli.serve_parser().parse_args([asked])
        assert not ended.value.code
        shown[asked] = capsys.readouterr().out
    for flag in cli.FLAGS:
        there = f"  --{flag.name} " in shown["--help"] or f", --{flag.name} " in shown["--help"]
        assert there == flag.daily, flag.name
        assert f"--{flag.name} " in shown["--help-all"]
    for title in cli.GROUPS:
        assert f"\n{title}:\n" in shown["--help-all"]
    assert not any(line.strip().startswith("--insecure-port") for line in shown["--help"].splitlines())


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        (["--etcd-transport=grpc"], "there is no --etcd-transport any more; apiext has one etcd client: omit the"),
        (["--etcd-transport", "native"], "there is no --etcd-transport any more; apiext has one etcd client"),
        (
            ["--etcd-binary=/bin/etcd"],
            "there is no --etcd-binary any more; apiext does not start etcd: use the",
        ),
        (["--etcd-binary", "/bin/etcd"], "there is no --etcd-binary any more; apiext does not start etcd"),
    ],
)
def test_a_removed_flag_is_refused_with_a_remedy(typed: list[str], remedy: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse(*typed)
    assert str(raised.value).startswith(remedy)


def test_the_variable_of_a_removed_flag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="APIEXT_ETCD_TRANSPORT: there is no --etcd-transport any more"):
        cli.parse_serve([f"--data-dir={tmp_path}"], {"APIEXT_ETCD_TRANSPORT": "grpc"}, print)
    with pytest.raises(ConfigError, match="APIEXT_ETCD_BINARY: there is no --etcd-binary any more"):
        cli.parse_serve([f"--data-dir={tmp_path}"], {"APIEXT_ETCD_BINARY": "/bin/etcd"}, print)


def test_repeated_list_flags_are_concatenated(tmp_path: Path) -> None:
    # upstream: flags that are lists may be given several times
    config = cli.parse_serve(
        [
            f"--data-dir={tmp_path}", "--etcd-servers=http://a:1", "--etcd-servers=http://b:2,http://c:3",
            "--disable-admission-plugins=NamespaceLifecycle", "--disable-admission-plugins=MutatingAdmissionWebhook",
            "--runtime-config=apiextensions.k8s.io/v1beta1=false", "--runtime-config=events.k8s.io/v1=false",
            "--authorization-mode=RBAC", "--authorization-mode=AlwaysDeny", "--controllers=*",
            "--controllers=-garbage-collector-controller", "--api-audiences=a", "--api-audiences=b", "--tls-san=x",
            "--tls-san=y", "--service-account-issuer=https://one", "--service-account-issuer=https://two",
            "--service-account-key-file=one.pub", "--service-account-key-file=two.pub",
            "--cors-allowed-origins=^https://a$", "--cors-allowed-origins=^https://b$",
        ],
        {},
        pytest.fail,
    )  # fmt: skip
    assert config.store.etcd.servers == ("http://a:1", "http://b:2", "http://c:3")
    assert config.admission.disabled == {"NamespaceLifecycle", "MutatingAdmissionWebhook"}
    assert dict(config.apis.runtime_config) == {"apiextensions.k8s.io/v1beta1": False, "events.k8s.io/v1": False}
    assert config.auth.modes == ("RBAC", "AlwaysDeny")
    assert config.apis.controllers == ("*", "-garbage-collector-controller")
    assert (config.tokens.audiences, config.tls.sans) == (("a", "b"), ("x", "y"))
    assert config.tokens.issuers == ("https://one", "https://two")
    assert config.tokens.key_files == ("one.pub", "two.pub")
    assert config.listening.headers.cors_origins == ("^https://a$", "^https://b$")


def test_flag_alias_works_in_environment_and_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("secure-port: 7001\n")
    found, _ = parse(f"--data-dir={tmp_path}", f"--config={file}")
    assert found.listening.port == 7001
    found, _ = parse(f"--data-dir={tmp_path}", f"--config={file}", APIEXT_SECURE_PORT="7002")
    assert found.listening.port == 7002


def outcome(*arguments: str, **environment: str) -> object:
    """Return the configuration of a server with an audit log, or the error."""
    audited = {f"APIEXT_AUDIT_{name}": "/given" for name in ("LOG_PATH", "WEBHOOK_CONFIG_FILE")}
    try:
        return parse(*arguments, **{"APIEXT_DATA_DIR": "/given", **audited, **environment})
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("flag", [name for flag in cli.FLAGS for name in (flag.name, *flag.aliases)])
def test_each_flag_has_an_environment_variable(flag: str) -> None:
    given, twin = outcome(f"--{flag}=7"), "APIEXT_" + flag.upper().replace("-", "_")
    assert outcome(**{twin: "7"}) in (given, f"{given} (from {twin} in the environment)")
    assert given != outcome()


@pytest.mark.rows("AUT-003")
@pytest.mark.parametrize(
    ("text", "modes", "warned"),
    [
        ("AlwaysAllow", ("AlwaysAllow",), ""),
        ("AlwaysDeny", ("AlwaysDeny",), ""),
        ("RBAC", ("RBAC",), ""),
        ("RBAC,AlwaysDeny", ("RBAC", "AlwaysDeny"), ""),
        ("Node,RBAC", ("RBAC",), "apiext does not have Node, requests are authorized by RBAC"),
        ("Node", ("AlwaysDeny",), "apiext does not have Node, requests are authorized by AlwaysDeny"),
        ("Node,RBAC,Webhook", None, ""),
        ("ABAC,Webhook", None, ""),
        ("", None, ""),
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
    assert cli.parse_serve(arguments, {}, told.append).auth.modes == modes
    assert [warned in one for one in told] == ([True] if warned else [])


def test_version_flag_prints_version_like_kube_apiserver(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.serve_parser().parse_args(["--version"])
    assert not ended.value.code
    assert re.fullmatch(r"Kubernetes v1\.[0-9]+\.[0-9]+\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--insecure", "--port=0", "--v=2", "--disable-admission-plugins=NamespaceLifecycle"],
        ["--authorization-mode=RBAC", "--runtime-config=apiextensions.k8s.io/v1beta1=false", "--tls-san=x,y"],
        ["--controllers=*,-garbage-collector-controller", "--request-timeout=1m30s", "--audit-log-maxsize=7"],
    ],
)
def test_printed_configuration_parses_to_the_same_values(arguments: list[str], tmp_path: Path) -> None:
    printed = tmp_path / "config.yaml"
    given = [f"--data-dir={tmp_path}/a #b: 'c'", *arguments]
    printed.write_text(cli.shown(given, {}, pytest.fail))
    assert cli.parse_serve([f"--config={printed}"], {}, pytest.fail) == cli.parse_serve(given, {}, pytest.fail)
    assert cli.shown([f"--config={printed}"], {}, pytest.fail).count(f"  # {printed}") == len(cli.FLAGS)


def test_the_printed_configuration_says_where_values_come_from(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("port: 1234\nbind-address: 127.0.0.2\netcd-prefix: /mine\n")
    environment = {"APIEXT_TOKEN": "a-secret", "APIEXT_BIND_ADDRESS": "127.0.0.3", "APIEXT_ETCD_USER": "me:my-secret"}
    given = ["--insecure", "--bind-address=127.0.0.4", f"--config={file}", f"--data-dir={tmp_path}"]
    text = cli.shown(given, environment, pytest.fail)
    lines = text.splitlines()
    assert {
        'bind-address: "127.0.0.4"  # flag',
        f'port: "1234"  # {file}',
        f'etcd-prefix: "/mine"  # {file}',
        'event-ttl: "1h"  # default',
        "# token: not shown  # environment",
        "# etcd-user: not shown  # environment",
    } <= set(lines)
    assert "secret" not in text.replace("secret_", "")
