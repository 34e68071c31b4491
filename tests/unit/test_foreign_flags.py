"""kube-apiserver's flags: each is supported, harmless to ignore, or refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from apiext import cli, foreign_flags
from apiext.config import (
    ALWAYS_ALLOW,
    ALWAYS_DENY,
    FOREIGN_PLUGINS,
    GARBAGE_COLLECTOR,
    PLUGINS,
    RBAC,
    RESTRICTING_PLUGINS,
    Config,
    ConfigError,
)

UPSTREAM = Path(__file__).with_name("kube-apiserver-1.37-flags.txt").read_text(encoding="utf-8").split()
DONE = {name for flag in cli.FLAGS for name in (flag.name, *flag.aliases)} | {"help", "version"}
TABLE = foreign_flags.table()
SAMPLES = {"switch": "true", "number": "7", "duration": "3s", "text": "x", "list": "x,y"}


def parse(*arguments: str, **environment: str) -> tuple[Config, list[str]]:
    """Return the configuration of a command line, and the warnings."""
    warnings: list[str] = []
    return cli.parse_serve(arguments, environment, warnings.append), warnings


def refusal(*arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("name", UPSTREAM)
def test_each_flag_of_kube_apiserver_has_one_verdict(name: str) -> None:
    assert (name in DONE) + (name in TABLE) == 1


def test_flag_table_has_known_verdicts_and_kinds() -> None:
    verdicts = Counter(TABLE[name].verdict if name in TABLE else "done" for name in UPSTREAM)
    assert set(verdicts) == {"done", foreign_flags.HARMLESS, foreign_flags.REFUSED}
    assert {row.verdict for row in TABLE.values()} == {foreign_flags.HARMLESS, foreign_flags.REFUSED}
    assert {row.kind for row in TABLE.values()} == set(SAMPLES)
    print(dict(verdicts))


@pytest.mark.parametrize("name", sorted(TABLE))
@pytest.mark.parametrize("insecure", [True, False], ids=["insecure", "secure"])
def test_each_row_does_what_its_verdict_says(name: str, insecure: bool) -> None:
    row, base = TABLE[name], ["--insecure"] if insecure else []
    given = f"--{name}={SAMPLES[row.kind]}"
    if row.verdict == foreign_flags.REFUSED:
        text = refusal(*base, given)
        assert text.startswith(f"--{name} has no effect here: {row.why}")
        _, warnings = parse(*base, given, "--ignore-unsupported-flags")
    else:
        _, warnings = parse(*base, given, given)
    assert warnings == [f"--{name} is accepted and has no effect here"]
    if row.harmless_value:
        parse(*base, f"--{name}={row.harmless_value}")


@pytest.mark.parametrize(
    "name", sorted(name for name, row in TABLE.items() if row.kind in ("number", "duration", "switch"))
)
def test_values_are_parsed_even_where_they_have_no_effect(name: str) -> None:
    assert f"--{name} maybe: expected" in refusal(f"--{name}=maybe", "--ignore-unsupported-flags")


@pytest.mark.parametrize("text", ["1.37", "1.34", "kube=1.36", "9.9", "no version"])
def test_emulated_version_flag_has_no_effect(text: str) -> None:
    """upstream accepts 1.34 to 1.37; here only --kubernetes-version sets the reported version."""
    config, warnings = parse("--insecure", f"--emulated-version={text}")
    assert config.apis.kubernetes_version == parse("--insecure")[0].apis.kubernetes_version
    assert warnings == ["--emulated-version is accepted and has no effect here"]


def test_switch_does_not_consume_the_next_argument() -> None:
    with pytest.raises(ConfigError):
        parse("--profiling", "false")
    parse("--profiling=false")
    parse("--external-hostname", "host", "--insecure")


def test_ignore_unsupported_flags_works_from_environment() -> None:
    _, warnings = parse("--oidc-issuer-url=https://issuer", APIEXT_IGNORE_UNSUPPORTED_FLAGS="true")
    assert warnings == ["--oidc-issuer-url is accepted and has no effect here"]


@pytest.mark.parametrize(
    ("text", "modes"),
    [("RBAC", (RBAC,)), ("Node,RBAC", (RBAC,)), ("Node", (ALWAYS_DENY,)), ("AlwaysAllow", (ALWAYS_ALLOW,))],
)
def test_authorization_mode_sets_the_modes(text: str, modes: tuple[str, ...]) -> None:
    config, warnings = parse(f"--authorization-mode={text}")
    assert config.auth.modes == modes
    assert len(warnings) == ("Node" in text)


@pytest.mark.parametrize("text", ["", ",", " "])
def test_empty_authorization_mode_is_refused(text: str) -> None:
    assert refusal(f"--authorization-mode={text}") == (
        "--authorization-mode: at least one authorization-mode must be passed"
    )


@pytest.mark.parametrize("text", ["ABAC", "Webhook", "RBAC,Webhook", "Node,ABAC,RBAC"])
def test_modes_that_apiext_does_not_have_are_refused(text: str) -> None:
    assert "--ignore-unsupported-flags" in refusal(f"--authorization-mode={text}")
    config, _ = parse(f"--authorization-mode={text}", "--ignore-unsupported-flags")
    assert config.auth.modes == ((RBAC,) if "RBAC" in text else (ALWAYS_DENY,))


AUTHORIZERS = """
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
"""


def authorizers(tmp_path: Path, rows: str, head: str = AUTHORIZERS) -> str:
    file = tmp_path / "authorizers.yaml"
    file.write_text(head + rows, encoding="utf-8")
    return f"--authorization-config={file}"


def test_an_authorization_file_names_the_modes(tmp_path: Path) -> None:
    flag = authorizers(tmp_path, "- {type: Node, name: n}\n- {type: RBAC, name: r}\n")
    assert parse(flag)[0].auth.modes == (RBAC,)
    assert parse(flag, "--insecure")[0].auth.modes == (RBAC,)
    assert "can not be specified when --authorization-mode" in refusal(flag, "--authorization-mode=RBAC")


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("", "authorizers: Required value: at least one authorization mode must be defined"),
        ("- {name: r}", "authorizers[0].type: Required value"),
        ("- {type: RBAC}", "authorizers[0].name: Required value"),
        ("- {type: Odd, name: r}", 'authorizers[0].type: Unsupported value: "Odd"'),
        ("- {type: RBAC, name: r}\n- {type: RBAC, name: s}", 'authorizers[1].type: Duplicate value: "RBAC"'),
        ("- {type: RBAC, name: r}\n- {type: Node, name: r}", 'authorizers[1].name: Duplicate value: "r"'),
        ("- {type: RBAC, name: r, webhook: {}}", "may only be specified when type=Webhook"),
        ("- {type: RBAC, name: r, odd: 1}", 'unknown field "authorizers[0].odd"'),
        ("- RBAC", "authorizers[0]: expected an object"),
        ("- {type: Webhook, name: w, webhook: {}}", "does not have the mode Webhook"),
        ("- [", "it is not valid YAML"),
    ],
)
def test_invalid_authorization_file_is_refused(tmp_path: Path, rows: str, fault: str) -> None:
    assert fault in refusal(authorizers(tmp_path, rows))


def test_missing_or_foreign_authorization_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(f"--authorization-config={tmp_path / 'absent'}")
    assert "expected kind AuthorizationConfiguration" in refusal(authorizers(tmp_path, "", "kind: Odd\n"))
    assert "expected an object" in refusal(authorizers(tmp_path, "", "- 1\n"))


def test_the_garbage_collector_is_turned_off_by_its_flag() -> None:
    assert not parse("--enable-garbage-collector=false")[0].apis.runs(GARBAGE_COLLECTOR)
    assert not parse("--enable-garbage-collector=false", f"--controllers={GARBAGE_COLLECTOR}")[0].apis.runs(
        GARBAGE_COLLECTOR
    )
    assert parse("--enable-garbage-collector")[0].apis.runs(GARBAGE_COLLECTOR)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("0s", 0), ("1h", 3600), ("48h", 172_800)])
def test_max_token_expiration_is_parsed(text: str, seconds: float) -> None:
    assert parse(f"--service-account-max-token-expiration={text}")[0].tokens.longest == seconds


@pytest.mark.parametrize("text", ["59m", "1s", "1200000h"])
def test_max_token_expiration_out_of_range_is_refused(text: str) -> None:
    assert refusal(f"--service-account-max-token-expiration={text}") == (
        "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds"
    )


def test_tls_min_version_is_parsed() -> None:
    assert parse("--tls-min-version=VersionTLS13")[0].tls.minor == 3
    assert parse("--tls-min-version=VersionTLS11")[0].tls.minor == 2
    assert 'unknown tls version "TLS13"' in refusal("--tls-min-version=TLS13")


@pytest.mark.parametrize("verb", ["enable", "disable"])
def test_admission_plugin_flags_warn_or_refuse_foreign_plugins(verb: str) -> None:
    for name in PLUGINS:
        assert not parse(f"--{verb}-admission-plugins={name}")[1]
    for name in FOREIGN_PLUGINS:
        flags = [f"--{verb}-admission-plugins={name}"]
        if verb == "enable" and name in RESTRICTING_PLUGINS:
            assert refusal(*flags) == (
                f"--enable-admission-plugins: apiext does not have {name}, which would restrict clients; "
                "omit it, or add --ignore-unsupported-flags to start without it"
            )
            flags.append("--ignore-unsupported-flags")
        assert parse(*flags)[1] == [f"--{verb}-admission-plugins: apiext does not have {name}"]
    assert RESTRICTING_PLUGINS < FOREIGN_PLUGINS
    assert refusal(f"--{verb}-admission-plugins=Odd") == f'{verb}-admission-plugins plugin "Odd" is unknown'


def test_plugin_off_by_default_is_enabled_by_flag() -> None:
    name = "OwnerReferencesPermissionEnforcement"
    assert not parse()[0].admission.admits(name)
    assert parse(f"--enable-admission-plugins={name}")[0].admission.admits(name)
    assert parse()[0].admission.admits("PodSecurity")
    assert not parse("--disable-admission-plugins=PodSecurity")[0].admission.admits("PodSecurity")
