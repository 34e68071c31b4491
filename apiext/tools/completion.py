"""Completion of commands and flags in shells, from the one list of each."""

import argparse
from collections.abc import Mapping, Sequence

_WORDS: Mapping[str, tuple[str, ...]] = {
    "crd": ("lint",),
    "kubeconfig": ("print", "merge", "remove"),
    "config": ("print",),
    "completion": ("bash", "zsh", "fish"),
}
"""What may follow a command besides flags; files are completed by the shell itself."""

_BASH = """_apiext() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} words
  case $word in
    --*=*) COMPREPLY=($(compgen -f -- "${{word#*=}}")); return ;;
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands} {flags}"
  else
    case $command in
{cases}
      serve|-*) words="{flags}" ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _apiext apiext
"""


def run(arguments: Sequence[str], commands: Sequence[str], flags: Sequence[str]) -> int:
    """Print the script of the shell that is named."""
    parser = argparse.ArgumentParser(prog="apiext completion", description="Print a script that completes for a shell.")
    parser.add_argument("shell", choices=_WORDS["completion"])
    print(script_of(parser.parse_args(list(arguments)).shell, commands, flags), end="")
    return 0


def script_of(shell: str, commands: Sequence[str], flags: Sequence[str]) -> str:
    """Return the script of a shell: bash, zsh or fish."""
    if shell == "fish":
        return _fish(commands, flags)
    cases = "\n".join(f'      {name}) words="{" ".join(words)}" ;;' for name, words in _WORDS.items())
    bash = _BASH.format(commands=" ".join(commands), flags=" ".join(flags), cases=cases)
    # zsh completes by bash's own functions
    return bash if shell == "bash" else "autoload -U +X bashcompinit && bashcompinit\n" + bash


def _fish(commands: Sequence[str], flags: Sequence[str]) -> str:
    lines = [f"complete -c apiext -n __fish_use_subcommand -f -a '{' '.join(commands)}'"]
    lines += [
        f"complete -c apiext -n '__fish_seen_subcommand_from {name}' -f -a '{' '.join(words)}'"
        for name, words in _WORDS.items()
    ]
    serving = "__fish_use_subcommand; or __fish_seen_subcommand_from serve"
    lines += [f"complete -c apiext -n '{serving}' -l {flag[2:]}" for flag in flags if flag.startswith("--")]
    return "\n".join(lines) + "\n"
