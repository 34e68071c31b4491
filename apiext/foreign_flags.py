"""Flags of kube-apiserver that apiext does not have.

A harmless flag causes a warning; a refused flag ends the start.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from apiext.config import ConfigError
from apiext.flag_values import boolean, duration, integer

TABLE = Path(__file__).with_name("kube-apiserver-flags.yaml")
HARMLESS, REFUSED = "harmless", "refused"

Warn = Callable[[str], None]


class Foreign(NamedTuple):
    """A flag of kube-apiserver that apiext does not have.

    ``verdict`` is HARMLESS or REFUSED, and ``why`` is the reason for it. ``kind`` is the kind of the value, such as
    ``switch``. With the value ``harmless_value``, a refused flag only causes a warning.
    """

    verdict: str
    kind: str
    harmless_value: str
    why: str


@cache
def table() -> Mapping[str, Foreign]:
    """Return name of a flag → its row."""
    import yaml  # imported only if the command line has such a flag

    groups = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    rows = {}
    for group in groups:
        for name, described in group["flags"].items():
            kind, _, harmless = described.partition(" ")
            rows[name] = Foreign(group["verdict"], kind, harmless, group["why"])
    return rows


def accept(extra: Sequence[str], unknown: Callable[[str], None], warn: Warn, *, ignore_unsupported: bool) -> None:
    """Warn once for each flag without effect; raise ConfigError for a refused flag.

    Raise ConfigError also for an invalid value. If the value of a refused flag is empty or harmless, or if
    ``ignore_unsupported`` is true, warn instead. ``extra`` are the arguments that apiext does not know. For an argument
    that is no flag of kube-apiserver, call ``unknown``, which must raise an exception.
    """
    rows = table() if extra else {}
    position, named = 0, set[str]()
    while position < len(extra):
        word = extra[position]
        name, equals, value = word.removeprefix("--").partition("=")
        position += 1
        if not word.startswith("--") or name not in rows:
            unknown(word)
        row = rows[name]
        if not equals:
            value = "true" if row.kind == "switch" else ""
            if row.kind != "switch" and position < len(extra) and not extra[position].startswith("--"):
                value = extra[position]
                position += 1
        _check(name, row.kind, value)
        refused = row.verdict == REFUSED and value not in ("", row.harmless_value)
        if refused and not ignore_unsupported:
            raise ConfigError(f"--{name} has no effect here: {row.why}; omit it, or add --ignore-unsupported-flags")
        if name not in named:
            named.add(name)
            warn(f"--{name} is accepted and has no effect here")


_CHECKS: Mapping[str, Callable[[str, str], object]] = {"switch": boolean, "number": integer, "duration": duration}


def _check(name: str, kind: str, value: str) -> None:
    """Raise ConfigError for a value that is not of the flag's kind."""
    if value and kind in _CHECKS:
        _CHECKS[kind](name, value)
