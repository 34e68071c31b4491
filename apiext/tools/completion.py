"""Completion of commands and flags in shells, from the parsers of the commands themselves."""

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

SHELLS = ("bash", "zsh", "fish")

_BASH = """_apiext() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} place=${{COMP_WORDS[1]}} words
  case $word in
    --*=*) COMPREPLY=($(compgen -f -- "${{word#*=}}")); return ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands} {flags}"
  else
    [ "$COMP_CWORD" -gt 2 ] && place="$place ${{COMP_WORDS[2]}}"
    case $place in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _apiext apiext
"""


class Words(NamedTuple):
    """Completions of a command, besides files, which the shell completes itself.

    ``commands`` are its subcommands by name, ``values`` its arguments, ``flags`` have their dashes.
    """

    commands: Mapping[str, "Words"]
    values: Sequence[str]
    flags: Sequence[str]


def words_of(parser: argparse.ArgumentParser) -> Words:
    """Return what may follow the command of a parser."""
    commands: dict[str, Words] = {}
    values: list[str] = []
    flags: list[str] = []
    for action in parser._actions:  # argparse has no public access to them
        if isinstance(action.choices, Mapping):
            commands = {name: words_of(below) for name, below in action.choices.items()}
        elif action.option_strings:
            flags += action.option_strings
        else:
            values += map(str, action.choices or ())
    return Words(commands, values, flags)


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``apiext completion``."""
    found = argparse.ArgumentParser(prog="apiext completion", description="Print a script that completes for a shell.")
    found.add_argument("shell", choices=SHELLS)
    return found


def run(arguments: Sequence[str], commands: Mapping[str, Words]) -> int:
    """Print the script of the shell that is named."""
    print(script_of(parser().parse_args(list(arguments)).shell, commands), end="")
    return 0


def script_of(shell: str, commands: Mapping[str, Words]) -> str:
    """Return the script of a shell: bash, zsh or fish. What follows no command are flags of ``serve``."""
    if shell == "fish":
        return _fish(commands)
    cases = "\n".join(line for name, words in commands.items() for line in _cases(name, words))
    bash = _BASH.format(commands=" ".join(commands), flags=" ".join(commands["serve"].flags), cases=cases)
    # zsh completes by bash's own functions
    return bash if shell == "bash" else "autoload -U +X bashcompinit && bashcompinit\n" + bash


def _cases(name: str, words: Words) -> list[str]:
    if words.commands:
        below = [line for one, more in words.commands.items() for line in _cases(f"{name} {one}", more)]
        return [f'      {name}) words="{" ".join((*words.commands, *words.flags))}" ;;', *below]
    patterns = [f'"{name}"'] if " " in name else [name, f'"{name} "*', *(["-*"] if name == "serve" else [])]
    return [f'      {"|".join(patterns)}) words="{" ".join((*words.values, *words.flags))}" ;;']


def _fish(commands: Mapping[str, Words]) -> str:
    lines = [f"complete -c apiext -n __fish_use_subcommand -f -a '{' '.join(commands)}'"]
    for name, words in commands.items():
        here = f"__fish_seen_subcommand_from {name}"
        lines += _fish_of(f"__fish_use_subcommand; or {here}" if name == "serve" else here, words)
    return "\n".join(lines) + "\n"


def _fish_of(here: str, words: Words) -> list[str]:
    lines: list[str] = []
    if words.commands:
        names = " ".join(words.commands)
        here_only = f"{here}; and not __fish_seen_subcommand_from {names}"
        lines += [f"complete -c apiext -n '{here_only}' -f -a '{names}'"]
        for name, below in words.commands.items():
            lines += _fish_of(f"{here}; and __fish_seen_subcommand_from {name}", below)
        here = here_only
    if words.values:
        lines.append(f"complete -c apiext -n '{here}' -f -a '{' '.join(words.values)}'")
    lines += [
        f"complete -c apiext -n '{here}' {f'-l {flag[2:]}' if flag.startswith('--') else f'-s {flag[1:]}'}"
        for flag in words.flags
    ]
    return lines
