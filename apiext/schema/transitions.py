"""Fit old values to a schema whose fields have changed their types.

Rules with oldSelf (transition rules) need this.
"""

from collections.abc import Callable
from typing import Any

from apiext.cel.declared import Declared
from apiext.cel.values import Fault
from apiext.cel.views import view

_GONE: Any = object()


def fitted(old: Any, new: Any, declared: Declared, spend: Callable[[], object]) -> tuple[Any, bool]:
    """Replace parts of the old value that lack the declared type by those of the new value.

    Omit such a part if the new value lacks it. Return the result, and whether all parts of the old value have the
    declared type. Call ``spend`` for each part.
    """
    spend()
    if view(old, declared).__class__ is Fault:
        return new, False
    if old.__class__ is dict:
        others = new if new.__class__ is dict else {}
        members = {name: _member(declared, name, item, others.get(name, _GONE), spend) for name, item in old.items()}
        if all(fits for _, fits in members.values()):
            return old, True
        return {name: item for name, (item, _) in members.items() if item is not _GONE}, False
    if old.__class__ is list and declared.element is not None:
        rest = new if new.__class__ is list else []
        rest = [*rest, *[_GONE] * (len(old) - len(rest))]
        items = [fitted(item, rest[index], declared.element, spend) for index, item in enumerate(old)]
        if all(fits for _, fits in items):
            return old, True
        return [item for item, _ in items if item is not _GONE], False
    return old, True


def _member(declared: Declared, name: str, old: Any, new: Any, spend: Callable[[], object]) -> tuple[Any, bool]:
    below = declared.element if declared.kind == "map" else declared.properties.get(name)
    if below is None or (old is None and declared.kind == "object"):  # a null field of an object counts as missing
        return old, True
    return fitted(old, new, below, spend)
