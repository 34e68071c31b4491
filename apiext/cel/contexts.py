"""The tree of a text that did not parse: rules with their parts, and tokens that were not there."""

from typing import Any

from msgspec import Struct, field

from apiext.cel.grammar import State


class Context(Struct, eq=False):
    """A rule being parsed, or parsed: what it makes and the parts found, by label."""

    rule: str
    parent: "Context | None"
    invoked: State | None
    start: int
    precedence: int = 0
    makes: str = ""
    parts: dict[str, Any] = field(default_factory=dict)


class Missing(Struct, frozen=True):
    """A token that was not there: its number in the text is that of the next one."""

    at: int
    kind: int
