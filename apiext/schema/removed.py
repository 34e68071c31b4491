"""What pruning has removed, as a tree: paths as texts would grow with the square of a body."""

from collections.abc import Collection, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from apiext.documents.places import short
from apiext.go_types import limits as go_types_limits
from apiext.schema import limits

Removed = list[Any]
"""What was removed below an object or list: names of fields, and (name or index, Removed) of what is kept itself.

No Removed is empty.
"""


_MANY = 4 * go_types_limits.MAX_UNKNOWN


def fields(names: Collection[str]) -> Removed:
    """Return unknown fields of one object; of very many only those that come first by name."""
    return [short(name) for name in (names if len(names) <= _MANY else sorted(names)[: go_types_limits.MAX_UNKNOWN])]


def add_item(removed: Removed, index: int, below: Removed) -> None:
    """Add what was removed below an item of a list; of very many items those stay whose paths come first."""
    removed.append((index, below))
    if len(removed) > _MANY:
        removed.sort(key=_key)
        del removed[go_types_limits.MAX_UNKNOWN :]


def _key(entry: Any) -> str:
    if entry.__class__ is str:
        return str(entry)
    return f"{entry[0]}]" if entry[0].__class__ is int else str(entry[0])


def sorted_paths(removed: Removed | None) -> list[str]:
    """Return the paths of what was removed from an object, the first by name, as many as a client is told (PRU-008)."""
    found: list[str] = []
    if not removed:
        return found
    size = 0
    # Of each holder that is open: the path of its next entry, which no path below comes before, and the entries behind.
    heap: list[tuple[str, int, Any, str | None, Iterator[Any]]] = []
    number = count()  # tells holders apart whose paths are equal

    def push(holder: str | None, entries: Iterator[Any]) -> None:
        for entry in entries:
            step, below = (entry, None) if entry.__class__ is str else entry
            path = f"{holder}[{step}]" if step.__class__ is int else step if holder is None else f"{holder}.{step}"
            heappush(heap, (path, next(number), below, holder, entries))
            return

    push(None, iter(sorted(removed, key=_key)))
    while heap and len(found) < go_types_limits.MAX_UNKNOWN and size < limits.MAX_UNKNOWN_TEXT:
        path, _, below, holder, entries = heappop(heap)
        push(holder, entries)
        if below is None:
            found.append(path)
            size += len(path)
        else:
            push(path, iter(sorted(below, key=_key)))
    return found
