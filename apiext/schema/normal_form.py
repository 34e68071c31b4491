"""Fast path of normalization: recognise objects that normalization would not change.

Such an object has no field to prune, no null to delete, and no float outside its metadata.
"""

from collections.abc import Callable
from typing import Any

from apiext.schema import limits
from apiext.schema.prune import FEW, members
from apiext.schema.recursion import deep_recursion
from apiext.schema.structural import Structural

Test = Callable[[Any], bool]
"""Returns true only if a dict or list has no float, and pruning and deleting nulls would not change it.

False means unknown.
"""

_SCALARS = frozenset((str, int, bool))
_VALUES = _SCALARS | {dict, list}


def normal_test(node: Structural, *, root: bool = False) -> Test:
    """Return the test for a schema without embedded resources.

    If ``root`` is true, the test does not read inside metadata, or inside an apiVersion or kind that is an object or
    array.
    """
    name = "normal root" if root else "normal"
    found = node.compiled.get(name)
    if found is None:
        holds = node.properties or node.items is not None or node.additional is not None or node.extensions.preserve
        with deep_recursion(root):
            found = node.compiled[name] = _make(node, root) if holds or root else unknown
    made: Test = found
    return made


def _yes(value: Any) -> bool:
    return True


def unknown(value: Any) -> bool:
    """Return False: the value may need normalization."""
    return False


def _make(node: Structural, root: bool) -> Test:
    known = {name: normal_test(child) if child is not None else _yes for name, child in members(node, root).items()}
    knows, test_of = frozenset(known).issuperset, known.get
    closed = not node.extensions.preserve and node.additional is None
    extra = normal_test(node.map_values) if node.map_values is not None else unknown
    items = normal_test(node.items) if node.items is not None else unknown

    # names and types of the fields of the last object that passed the test, had only scalars, and had more than FEW and
    # at most SHAPE_MEMBERS fields
    seen: list[Any] = []

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
