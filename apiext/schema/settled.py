"""Tells at a glance that nothing has to be done to an object: no field to prune, no null to drop, no float to write."""

from collections.abc import Callable
from typing import Any

from apiext.schema import limits
from apiext.schema.deeply import deeply
from apiext.schema.prune import FEW, members
from apiext.schema.structural import Structural

Test = Callable[[Any], bool]
"""Tells that pruning and dropping nulls leave a dict or list as it is, and that it has no float; False: look closer."""

_SCALARS = frozenset((str, int, bool))
_VALUES = _SCALARS | {dict, list}


def settled(node: Structural, *, root: bool = False) -> Test:
    """Return the test of a node without embedded resources; ``root`` leaves apiVersion, kind and metadata alone."""
    name = "settled root" if root else "settled"
    found = node.compiled.get(name)
    if found is None:
        holds = node.properties or node.items is not None or node.additional is not None or node.preserve
        with deeply(root):
            found = node.compiled[name] = _make(node, root) if holds or root else unsettled
    made: Test = found
    return made


def _yes(value: Any) -> bool:
    return True


def unsettled(value: Any) -> bool:
    """Tell that one has to look closer."""
    return False


def _make(node: Structural, root: bool) -> Test:
    known = {name: settled(child) if child is not None else _yes for name, child in members(node, root).items()}
    knows, test_of = frozenset(known).issuperset, known.get
    closed = not node.preserve and node.additional is None
    extra = settled(node.map_values) if node.map_values is not None else unsettled
    items = settled(node.items) if node.items is not None else unsettled

    seen: list[Any] = []  # names and types of the members of the last object that was settled and all scalars

    def test(value: Any) -> bool:
        nonlocal seen
        if value.__class__ is list:
            types = set(map(type, value))
            if types <= _SCALARS:
                return True
            return types <= _VALUES and all(items(it) for it in value if it.__class__ is dict or it.__class__ is list)
        size = len(value)
        if size > FEW:
            shape = [*value, *map(type, value.values())]
            if shape == seen:
                return True
            types = set(shape[size:])
            if not types <= _VALUES or (closed and not knows(value)):
                return False
            if types <= _SCALARS:
                if size <= limits.SHAPE_MEMBERS:
                    seen = shape
                return True
        elif closed and not knows(value):
            return False
        for name, item in value.items():
            kind = item.__class__
            if kind is dict or kind is list:
                if not test_of(name, extra)(item):
                    return False
            elif kind not in _SCALARS:
                return False
        return True

    return test
