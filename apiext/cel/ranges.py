"""Ranges of costs and sizes for the cost estimates of expressions."""

from math import ceil
from typing import Protocol, TypeAlias

from apiext.cel.ast import Call, Node
from apiext.cel.types import Type

MOST = (1 << 64) - 1
TRAVERSAL = 0.1  # cost of a character (upstream: StringTraversalCostFactor)
PATTERN = 0.25  # cost of a character of a regular expression (upstream: RegexStringLengthCostFactor)
LIST_COST, MAP_COST, OBJECT_COST = 10, 30, 40

Range: TypeAlias = tuple[int, int]  # minimal and maximal cost or size
UNKNOWN: Range = (0, MOST)
ONE: Range = (1, 1)


def add(one: Range, other: Range) -> Range:
    """Return the sum of two ranges, at most MOST."""
    return min(one[0] + other[0], MOST), min(one[1] + other[1], MOST)


def multiply(one: Range, other: Range) -> Range:
    """Return the product of two ranges, at most MOST."""
    return min(one[0] * other[0], MOST), min(one[1] * other[1], MOST)


def union(one: Range, other: Range) -> Range:
    """Return the smallest range that contains both ranges."""
    return min(one[0], other[0]), max(one[1], other[1])


def _scaled(number: int, factor: float) -> int:
    made = float(number) * factor
    return MOST if made >= 18446744073709551616.0 else ceil(made)


def scale(one: Range, factor: float) -> Range:
    """Return a range multiplied by a factor, rounded up."""
    return _scaled(one[0], factor), _scaled(one[1], factor)


class Path:
    """A path through the declared types.

    Several paths may share one list of cells, as Go slices share an array. Upstream appends a step in place if the
    array has room. This changes other paths that share the array: they then lead to another field, and the estimate
    uses the size of this other field. The validity of a definition can depend on this.
    """

    __slots__ = ("cells", "length")

    def __init__(self, cells: list[str], length: int) -> None:
        self.cells = cells
        self.length = length

    def then(self, step: str) -> "Path":
        """Return the path with one more step; double the cells if all are used."""
        cells, length = self.cells, self.length
        if length < len(cells):
            cells[length] = step
        else:
            cells = [*cells, step, *[""] * (length - 1)]
        return Path(cells, length + 1)

    def steps(self) -> list[str]:
        """Return the current steps of the path, beginning with the variable."""
        return self.cells[: self.length]


NOWHERE = Path([], 0)


class Part:
    """The data of a node for cost functions: its path in the declared types, type and size.

    ``size`` is None if it is unknown. ``literal`` is the value of a literal, None for other nodes.
    """

    __slots__ = ("literal", "path", "size", "type")

    def __init__(self, path: Path, type: Type, size: Range | None, literal: object = None) -> None:
        self.path = path
        self.type = type
        self.size = size
        self.literal = literal


# (range of the cost, range of the size of the result or None if unknown)
CallCost: TypeAlias = tuple[Range, Range | None]


class Entries:
    """The sizes of the keys and values of a list or map."""

    __slots__ = ("is_list", "key", "value")

    def __init__(self, is_list: bool, key: Range, value: Range) -> None:
        self.is_list = is_list
        self.key = key
        self.value = value


class Sizes(Protocol):
    """The sizes of the parts of one expression."""

    entries: dict[int, Entries]

    def part_size(self, part: Part) -> Range:
        """Return the size of a part as Kubernetes' functions estimate it."""

    def size_or_unknown(self, node: Node) -> Range:
        """Return the size of a node's value as CEL's own functions estimate it."""

    def entry_sizes(self, node: Node) -> Entries | None:
        """Return the sizes of the keys and values of a node's value, or None if they are unknown."""


class CallSizes:
    """The arguments of a call and their sizes, for its cost estimate; the receiver is first.

    ``size`` is for Kubernetes' functions. It returns the size that was recorded when the argument was estimated.
    ``late_size`` is for CEL's own functions. It determines the size after all arguments were estimated. The two results
    differ if paths share cells (see Path).
    """

    __slots__ = ("node", "parts", "sizes")

    def __init__(self, sizes: Sizes, node: Call, parts: list[Part]) -> None:
        self.sizes = sizes
        self.node = node
        self.parts = parts

    def part_size(self, part: Part) -> Range:
        """Return the size of a part."""
        return self.sizes.part_size(part)

    def size(self, at: int) -> Range:
        """Return the size of the argument at an index."""
        return self.sizes.part_size(self.parts[at])

    def late_size(self, at: int) -> Range:
        """Return the size of the argument at an index, after all arguments were estimated."""
        return self.sizes.size_or_unknown(self.node.all_args()[at])
