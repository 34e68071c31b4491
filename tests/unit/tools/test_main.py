"""The commands by name, each with a help of its own."""

from __future__ import annotations

import pytest

from apiext import __main__ as program


def test_the_usage_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert program.main(["help"]) == 0
    usage = capsys.readouterr().out
    named = {line.split()[0] for line in usage.splitlines() if line.startswith("  ") and line.split()[0] != "write"}
    assert named == program.COMMANDS.keys()
    assert program.main(["frobnicate"]) == 2
    assert "there is no command frobnicate" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["serve", "migrate", "crd", "envtest-assets", "check"])
def test_each_command_has_a_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main([command, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: apiext {command} [-h]")
