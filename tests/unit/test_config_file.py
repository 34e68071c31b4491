"""The file of --config: its values, and errors of invalid files."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from apiext import cli
from apiext.config import Config, ConfigError


def read(text: str | bytes, directory: Path) -> Config:
    file = directory / "config.yaml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return cli.parse_serve([f"--data-dir={directory}", f"--config={file}"], {}, pytest.fail)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("kubernetes-version: 1.30", {"apis.kubernetes_version": "1.30.0"}),
        ("token: 0123", {"auth.token": "0123"}),
        ("token: 1_000", {"auth.token": "1_000"}),
        ("token: 0x1F", {"auth.token": "0x1F"}),
        ("token: 2024-13-45", {"auth.token": "2024-13-45"}),
        ("token: 2024-01-01", {"auth.token": "2024-01-01"}),
        ("token: yes", {"auth.token": "yes"}),
        ("token: '~'", {"auth.token": "~"}),
        ("token: !!str 12:30", {"auth.token": "12:30"}),
        ("token: &t abc\nstatus-manager: *t", {"auth.token": "abc", "apis.status_manager": "abc"}),
        ("request-timeout: 1m30s", {"requests.timeout": 90.0}),
        ("request-timeout: 90", {"requests.timeout": 90.0}),
        (
            "ready-file:\nport:\ntoken: ~\nstatus-manager: null",
            {"output.ready_file": "", "listening.port": 6443, "auth.token": ""},
        ),
        ("event-ttl:\ncontrollers: Null", {"store.event_ttl": 3600.0, "apis.controllers": ("*",)}),
        ("controllers: ''", {"apis.controllers": ()}),
        ("quiet: yes\ninsecure: on", {"output.quiet": True, "listening.insecure": True}),
        ("quiet: True\ninsecure: Off", {"output.quiet": True, "listening.insecure": False}),
        ("quiet: 'true'\nwatch-cache: n", {"output.quiet": True}),
        ("anonymous-auth:\nwatch-cache:", {"auth.anonymous": False}),
        ("tls-san: [1.10, x, 0123]", {"tls.sans": ("1.10", "x", "0123")}),
        ("api-audiences: [a, ~]\ntls-san: []", {"tokens.audiences": ("a",), "tls.sans": ()}),
        ("---\n# nothing\n", {"listening.port": 6443}),
        ("", {"listening.port": 6443}),
        ("~", {"listening.port": 6443}),
        (
            '{"port": 7001, "quiet": true, "etcd-servers": ["http://a:1", "http://b:2"]}',
            {"listening.port": 7001, "output.quiet": True},
        ),
        ("apiVersion: x/v1\nkind: [any]\nport: 7001", {"listening.port": 7001}),
    ],
)
def test_config_file_values_set_the_configuration(text: str, wanted: dict[str, object], tmp_path: Path) -> None:
    found = read(text, tmp_path)
    assert {path: attrgetter(path)(found) for path in wanted} == wanted


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"\xff", "invalid leading UTF-8 octet"),
        ("port: [", "did not find expected node content"),
        ("- port", "expected a mapping of flag names to values"),
        ("port", "expected a mapping of flag names to values"),
        ("nope: 1", "there is no flag nope"),
        ("? [a]\n: 1", "expected a mapping of flag names to values"),
        ("? {a: 1}\n: 1", "expected a mapping of flag names to values"),
        ("~: 1", "there is no flag ~"),
        ("port: {a: 1}", "port: expected one value, or a list"),
        ("tls-san: [a, [b]]", "tls-san: expected one value, or a list"),
        ("port: &a [*a]", "port: expected one value, or a list"),
        ("port: *a", "undefined alias"),
        ("port: 1\n---\nport: 2", "expected a single document"),
        ("port: " + "[" * 100_000, "exceeded maximum nesting depth"),
        (b"port: \x00", "control characters are not allowed"),
        ('token: "\\UFFFFFFFF"', "found invalid Unicode character escape code"),
    ],
)
def test_invalid_config_file_error_names_the_flag(text: str | bytes, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        read(text, tmp_path)
    assert str(raised.value).startswith(f"--config {tmp_path / 'config.yaml'}: ")
    assert told in str(raised.value)


def test_missing_config_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"--config {tmp_path}: Is a directory"):
        cli.parse_serve([f"--config={tmp_path}"], {}, pytest.fail)
    with pytest.raises(ConfigError, match=rf"--config {tmp_path}/none: No such file"):
        cli.parse_serve([f"--config={tmp_path}/none"], {}, pytest.fail)


def test_invalid_switch_in_config_file_is_quoted_as_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--quiet maybe: expected true or false"):
        read("quiet: maybe", tmp_path)
    with pytest.raises(ConfigError, match=r"--port yes: expected a whole number \(from .*config.yaml\)"):
        read("port: yes", tmp_path)
