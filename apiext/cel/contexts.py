"""The tree of a text that did not parse: rules with their parts, and tokens that were not there."""

from dataclasses import dataclass, field
from typing import Any

from apiext.cel.grammar import State


@dataclass(slots=True, eq=False)
class Context:
    """A rule being parsed, or parsed: what it makes and the parts found, by label."""

    rule: str
    parent: "Context | None"
    invoked: State | None
    start: int
    precedence: int = 0
    makes: str = ""
    parts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Missing:
    """A token that was not there: its number in the text is that of the next one."""

    at: int
    kind: int
