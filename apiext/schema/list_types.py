"""Validate that items of lists of type set and map are unique (LST-001…003)."""

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from apiext.documents.encoding import encode
from apiext.documents.paths import Key, Path
from apiext.meta.fields import FieldError, duplicate, field_path, invalid
from apiext.schema.structural import Structural, anywhere

_UNSET = object()


applies_to = anywhere("list types", lambda node: node.extensions.list_type in ("set", "map"))
"""Returns whether the schema declares a list of type set or map at or below a node."""


def errors(node: Structural, value: Any, path: Path = None) -> Iterator[FieldError]:
    """Yield an error for the second occurrence of each repeated item.

    Call this function only if ``applies_to(node)``. In a list of type map, the first item that is neither an object nor
    null is an error; then repeated items of this list are not reported.
    """
    if isinstance(value, dict):
        of_maps = node.map_values if applies_to(node.map_values) else None
        for name, item in value.items():
            if isinstance(item, (dict, list)):
                if of_maps is not None:
                    yield from errors(of_maps, item, (path, Key(name)))
                child = node.properties.get(name)
                if applies_to(child):
                    assert child is not None
                    yield from errors(child, item, (path, name))
    elif isinstance(value, list):
        check = _CHECKS.get(node.extensions.list_type)
        if check is not None:
            yield from check(node, value, path)
        if applies_to(node.items):
            assert node.items is not None
            for index, item in enumerate(value):
                if isinstance(item, (dict, list)):
                    yield from errors(node.items, item, (path, index))


def _repeated(values: Sequence[Any]) -> list[int]:
    """Return the index of the second occurrence of each repeated value."""
    seen: dict[Hashable, int] = {}
    found: list[int] = []
    for index, value in enumerate(values):
        key = json_text(value) if isinstance(value, (dict, list)) else (value.__class__, value)
        times = seen.get(key, 0)
        seen[key] = times + 1
        if times == 1:
            found.append(index)
    return found


def _set(node: Structural, value: list[Any], path: Path) -> Iterator[FieldError]:
    if len(value) > 1:
        for index in _repeated(value):
            yield duplicate(field_path((path, index)), value[index])


def _map(node: Structural, value: list[Any], path: Path) -> Iterator[FieldError]:
    for index, item in enumerate(value):
        if item is not None and not isinstance(item, dict):
            yield invalid(field_path((path, index)), item, "must be an object for an array of list-type map")
            return
    if len(value) <= 1:
        return
    names = node.extensions.list_keys
    if len(names) == 1:
        name = names[0]
        keys = [_UNSET if item is None else item.get(name, _UNSET) for item in value]
        for index in _repeated(keys):
            yield duplicate(field_path((path, index)), {} if keys[index] is _UNSET else {name: keys[index]})
        return
    several = [{name: item[name] for name in names if name in item} if item else {} for item in value]
    for index in _repeated(several):
        yield duplicate(field_path((path, index)), several[index])


_CHECKS: dict[str, Callable[[Structural, list[Any], Path], Iterator[FieldError]]] = {"set": _set, "map": _map}


def json_text(value: Any) -> str:
    """Return the JSON of a container for comparisons; as in Go, 1.0 and 1 have the same JSON."""
    try:
        return encode(value).decode()
    except TypeError:  # another server stored an item with more levels than orjson supports: treat it as unique
        return str(id(value))
