"""Shell completion of commands, flags, values and files.

The package shtab generates the script from the argparse parsers.
"""

import argparse
from collections.abc import Mapping, Sequence

import shtab

SHELLS = ("bash", "zsh", "fish")
_PATHS = {"FILE": shtab.FILE, "DIR": shtab.DIRECTORY}
_BASH = r"""
# Bash cuts --flag=value into three words; the function above expects two, as in --flag value.
_apiext() {
  local -a words=()
  local at
  for ((at = 0; at <= COMP_CWORD; at++)); do
    if [[ ${COMP_WORDS[at]} != = ]]; then words+=("${COMP_WORDS[at]}"); elif ((at == COMP_CWORD)); then words+=(''); fi
  done
  local -a COMP_WORDS=("${words[@]}")
  local COMP_CWORD=$((${#words[@]} - 1))
  _shtab_apiext
}
complete -o bashdefault -F _apiext apiext
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of ``apiext completion``."""
    found = argparse.ArgumentParser(prog="apiext completion", description="Print a completion script for a shell.")
    found.add_argument("shell", choices=SHELLS)
    return found


def with_commands(
    program: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]
) -> argparse.ArgumentParser:
    """Return ``program`` with the parsers of its commands added."""
    below = program.add_subparsers()
    for name, command in commands.items():
        below.add_parser(name, help=command.description)
        below.choices[name] = command
    return program


def run(arguments: Sequence[str], program: argparse.ArgumentParser, values: Mapping[str, Sequence[str]]) -> int:
    """Print the completion script for the shell that ``arguments`` select.

    ``values`` is flag → its values, such as ``{"--store": ("sqlite", "memory")}``, for flags without ``choices``.
    """
    shell = parser().parse_args(list(arguments)).shell
    _complete(program, values)
    script: str = shtab.complete(program, shell)
    if shell == "bash":
        script += _BASH
    if shell == "zsh":  # so that `source <(…)` works like `eval "$(…)"`
        script = script.replace("$zsh_eval_context[-1] == eval", "$zsh_eval_context[-1] == (eval|file)")
    print(script, end="")
    return 0


def _complete(command: argparse.ArgumentParser, values: Mapping[str, Sequence[str]]) -> None:
    """Add the values of flags, and the types of file arguments, to a parser and its subparsers."""
    for action in command._actions:  # argparse has no public attribute for the actions
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _complete(each, values)
        elif isinstance(action.metavar, str) and action.metavar in _PATHS:
            action.complete = _PATHS[action.metavar]  # type: ignore[attr-defined]
        elif action.option_strings and action.option_strings[0] in values:
            action.choices = values[action.option_strings[0]]
