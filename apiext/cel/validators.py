"""Report invalid literals in CEL expressions.

These are invalid durations, times and patterns, mixed lists and maps, and formats with wrong arguments.
"""

from apiext.cel.ast import Call, ListOf, Literal, MapOf, Node, children
from apiext.cel.checker import Checked
from apiext.cel.conversions import to_duration, to_timestamp
from apiext.cel.formatting import REFUSALS, FormatError, read_clauses
from apiext.cel.regexes import PatternError, program
from apiext.cel.source import Issues
from apiext.cel.types import Type
from apiext.cel.values import Fault

_CONVERT = {"duration": to_duration, "timestamp": to_timestamp}


def validate(checked: Checked, issues: Issues) -> None:
    """Report the invalid literals of an expression.

    Inner nodes are reported before outer nodes, calls of ``format`` last. Lists and maps inside a call of ``format``
    may contain values of different types.
    """
    formats: list[Call] = []
    for node, exempt in _inside_out(checked.root):
        if isinstance(node, Call):
            if node.function == "format":
                formats.append(node)
            else:
                _call(checked, node, issues)
        elif isinstance(node, ListOf) and not exempt:
            _list(checked, node, issues)
        elif isinstance(node, MapOf) and not exempt:
            _map(checked, node, issues)
    for call in formats:
        _format(checked, call, issues)


def _inside_out(root: Node) -> list[tuple[Node, bool]]:
    """Return (node, whether it is inside a call of ``format``) of each node, inner nodes first."""
    found: list[tuple[Node, bool]] = []
    waiting = [(root, False)]
    while waiting:
        node, exempt = waiting.pop()
        found.append((node, exempt))
        exempt = exempt or (isinstance(node, Call) and node.function == "format")
        waiting.extend((child, exempt) for child in children(node))
    found.reverse()
    return found


def _call(checked: Checked, node: Call, issues: Issues) -> None:
    name = node.function
    if name not in ("duration", "timestamp", "matches") or not node.args or not isinstance(node.args[0], Literal):
        return
    literal = node.args[0]
    if name == "matches":
        try:
            program(str(literal.value))
            return
        except PatternError:
            pass
    elif type(_CONVERT[name](literal.value)) is not Fault:
        return
    issues.at(checked.parsed.offsets[literal.id], f"invalid {name} argument")


def _same(one: Type, other: Type) -> bool:
    return one == other or (one.kind == other.kind and "wrapper" in (one.name, other.name))


def _mixed(checked: Checked, id: int, expected: Type, found: Type, issues: Issues) -> None:
    issues.at(checked.parsed.offsets[id], f"expected type '{expected}' but found '{found}'")


def _list(checked: Checked, node: ListOf, issues: Issues) -> None:
    first: Type | None = None
    for at, element in enumerate(node.elements):
        found = checked.types[element.id]
        if at in node.optional:
            found = found.params[0] if found.params else found
        if first is None:
            first = found
        elif not _same(first, found):
            _mixed(checked, element.id, first, found, issues)
            break


def _map(checked: Checked, node: MapOf, issues: Issues) -> None:
    first: tuple[Type, Type] | None = None
    for entry in node.entries:
        key, value = checked.types[entry.key.id], checked.types[entry.value.id]
        if entry.optional:
            value = value.params[0] if value.params else value
        if first is None:
            first = key, value
            continue
        if not _same(first[0], key):
            _mixed(checked, entry.key.id, first[0], key, issues)
        if not _same(first[1], value):
            _mixed(checked, entry.value.id, first[1], value, issues)


_TAKES = {
    "d": ("int", "uint"), "f": ("double", "string"), "e": ("double", "string"), "b": ("int", "uint", "bool"),
    "x": ("int", "uint", "string", "bytes"), "X": ("int", "uint", "string", "bytes"), "o": ("int", "uint"),
    "s": ("list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"),
}  # fmt: skip


class _Types:
    """The arguments of a ``format`` call; only their types are known."""

    def __init__(self, checked: Checked, elements: list[Node]) -> None:
        self.checked = checked
        self.elements = elements
        self.asked = 0

    def need(self, index: int, ended: bool) -> None:
        """Count an argument that the format uses. Raise FormatError if it does not exist.

        ``ended`` is true if the format ends after the ``%``; then the caller raises its own error.
        """
        self.asked += 1
        if not ended and index >= len(self.elements):
            raise FormatError(f"index {index} out of range")

    def clause(self, kind: str, precision: int, index: int) -> str:
        """Raise FormatError if the type of an argument does not fit its clause, such as ``%d``.

        Return "".
        """
        wrong = self.misfit(self.elements[index], kind)
        if wrong is not None:
            name = self.checked.types[wrong.id].name
            raise FormatError(f"error during formatting: {REFUSALS[kind].format(name)}", wrong.id)
        return ""

    def misfit(self, node: Node, kind: str) -> Node | None:
        """Return the part of an argument that does not fit its clause, or None."""
        found = self.checked.types[node.id]
        if found.kind != "dyn" and found.kind not in _TAKES[kind]:
            return node
        if kind == "s":
            for inner in children(node) if isinstance(node, (ListOf, MapOf)) else ():
                wrong = self.misfit(inner, kind)
                if wrong is not None:
                    return wrong
        return None


def _format(checked: Checked, node: Call, issues: Issues) -> None:
    target, args = node.target, node.args
    if not isinstance(target, Literal) or type(target.value) is not str:
        return
    if len(args) != 1 or not isinstance(args[0], ListOf):
        return
    elements = args[0].elements
    given = _Types(checked, elements)
    offsets = checked.parsed.offsets
    try:
        read_clauses(target.value, given)
    except FormatError as wrong:
        issues.at(offsets[wrong.blamed if wrong.blamed >= 0 else node.id], str(wrong))
        return
    if len(elements) > given.asked:
        issues.at(
            offsets[node.id],
            f"too many arguments supplied to string.format (expected {given.asked}, got {len(elements)})",
        )
