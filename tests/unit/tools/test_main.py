"""The commands by name, each with a help of its own."""

from __future__ import annotations

import re
import subprocess

import pytest

from apiext import __main__ as program
from apiext import cli


def test_the_usage_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["help"]) == 0
    usage = capsys.readouterr().out
    named = {line.split()[0] for line in usage.splitlines() if line.startswith("  ") and line[2] != " "}
    assert named == program.COMMANDS.keys()
    assert program.main(["frobnicate"]) == 2
    assert "there is no command frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "migrate", "crd", "envtest-assets", "config", "completion", "check"])
def test_each_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: apiext {command} [-h]")


def test_a_shell_completes_commands_and_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["completion", "bash"]) == 0
    script = capsys.readouterr().out
    for words, expected in (
        (("ku",), "kubeconfig"),
        (("kubeconfig", "m"), "merge"),
        (("serve", "--etcd-ca"), "--etcd-cafile"),
        (("--ready-f",), "--ready-file"),
        (("crd", ""), "lint"),
    ):
        line = " ".join(f"'{word}'" for word in ("apiext", *words))
        asked = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _apiext; echo "${{COMPREPLY[@]}}"'
        done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=20, check=True)
        assert done.stdout.split() == [expected], words


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_told_every_command_and_flag(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["completion", shell]) == 0
    words = set(re.split(r"[^a-z0-9-]+", capsys.readouterr().out.replace("-l ", "--")))
    assert program.COMMANDS.keys() <= words
    assert {option for flag in cli.FLAGS for option in flag.options if option.startswith("--")} <= words


def test_the_configuration_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["config", "print", "--insecure"]) == 0
    assert 'insecure: "true"  # flag' in capsys.readouterr().out.splitlines()
    assert program.main(["config", "print", "--workers=none"]) == 2
    assert "--workers none: expected a whole number" in capsys.readouterr().err
