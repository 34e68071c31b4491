"""Completion of commands and flags in shells, from the parsers of the commands themselves."""

import argparse
from collections.abc import Mapping, Sequence
from typing import NamedTuple

SHELLS = ("bash", "zsh", "fish")
SWITCH = ("true", "false")
"""The values of a flag that takes one after ``=`` only."""
_ONLY_AFTER_EQUALS = '[ -n "$after_equals" ] && '

_BASH = """_apiext() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} place=${{COMP_WORDS[1]}} flag=${{COMP_WORDS[COMP_CWORD-1]}} words after_equals=
  case $word in
    --*=*) flag=${{word%%=*}} word=${{word#*=}} after_equals=1 ;;
    =) word= after_equals=1 ;;
    *) [ "$flag" = = ] && flag=${{COMP_WORDS[COMP_CWORD-2]}} after_equals=1 ;;
  esac
  case $flag in
{values}
    *) [ "$word" = "${{COMP_WORDS[COMP_CWORD]}}" ] || {{ COMPREPLY=($(compgen -f -- "$word")); return; }} ;;
  esac
  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$word")); return; fi
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

    ``commands`` are its subcommands by name, ``values`` its arguments, ``flags`` have their dashes,
    ``choices`` are the values of a flag.
    """

    commands: Mapping[str, "Words"]
    values: Sequence[str]
    flags: Sequence[str]
    choices: Mapping[str, Sequence[str]]


def words_of(parser: argparse.ArgumentParser, known: Mapping[str, Sequence[str]] | None = None) -> Words:
    """Return what may follow the command of a parser; ``known`` are values of flags that the parser does not list."""
    commands: dict[str, Words] = {}
    choices: dict[str, Sequence[str]] = dict(known or {})
    values: list[str] = []
    flags: list[str] = []
    for action in parser._actions:  # argparse has no public access to them
        if isinstance(action.choices, Mapping):
            commands = {name: words_of(below) for name, below in action.choices.items()}
        elif action.option_strings:
            flags += action.option_strings
            choices |= {flag: tuple(map(str, action.choices)) for flag in action.option_strings if action.choices}
        else:
            values += map(str, action.choices or ())
    return Words(commands, values, flags, choices)


def _choices_of(commands: Mapping[str, Words]) -> dict[str, Sequence[str]]:
    """Return the values of all flags: a flag that several commands have means the same in each."""
    found: dict[str, Sequence[str]] = {}
    for words in commands.values():
        found |= _choices_of(words.commands)
        found |= words.choices
    return found


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
    values = "\n".join(
        f'    {flag}) {_ONLY_AFTER_EQUALS if each == SWITCH else ""}words="{" ".join(each)}" ;;'
        for flag, each in _choices_of(commands).items()
    )
    bash = _BASH.format(
        commands=" ".join(commands), flags=" ".join(commands["serve"].flags), cases=cases, values=values
    )
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
        + (f" -x -a '{' '.join(words.choices[flag])}'" if words.choices.get(flag, SWITCH) != SWITCH else "")
        for flag in words.flags
    ]
    return lines
