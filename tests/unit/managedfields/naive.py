"""A simple, slow model of server-side apply: values and owners by path.

It is independent of the engine.
"""

from __future__ import annotations

from typing import Any

Place = tuple[str, ...]


def places(value: Any, path: Place = ()) -> dict[Place, Any]:
    """Return the leaves of a spec by path.

    Items of ``items`` are named by their key, items of ``set`` by their value.
    """
    if path == ("items",) and isinstance(value, list):
        found: dict[Place, Any] = {}
        for item in value:
            name = f"k={item['k']}"
            found[(*path, name)] = ...  # the item itself
            found |= {(*path, name, *rest): leaf for rest, leaf in places({**item}).items()}
        return found
    if path == ("set",) and isinstance(value, list):
        return {(*path, f"={item}"): item for item in value}
    if isinstance(value, dict) and (path in ((), ("map",))):
        return {place: leaf for name, item in value.items() for place, leaf in places(item, (*path, name)).items()}
    return {path: value}


class Model:
    """An object as values by path, and the paths of each manager."""

    def __init__(self) -> None:
        self.values: dict[Place, Any] = {}
        self.owners: dict[str, set[Place]] = {}

    def conflicts(self, manager: str, spec: dict[str, Any]) -> set[tuple[str, Place]]:
        """Return the conflicts of an apply: other managers and their paths with a different value."""
        wanted = places(spec)
        return {
            (other, place)
            for other, owned in self.owners.items()
            if other != manager
            for place in owned & wanted.keys()
            if self.values[place] != wanted[place]
        }

    def apply(self, manager: str, spec: dict[str, Any], *, force: bool = False) -> bool:
        """Apply a configuration; return False for conflicts."""
        met = self.conflicts(manager, spec)
        if met and not force:
            return False
        for other, place in met:
            self.owners[other].discard(place)
        wanted = places(spec)
        before = self.owners.get(manager, set())
        self.values |= wanted
        self.owners[manager] = set(wanted)
        for place in before - wanted.keys():
            if not any(place in owned for owned in self.owners.values()):
                self._drop(place)
        self.owners = {name: owned for name, owned in self.owners.items() if owned}
        return True

    def _drop(self, place: Place) -> None:
        """Remove a path, and the paths inside a list item that no manager owns."""
        if self.values.get(place) is ...:
            below = [other for other in self.values if other[: len(place)] == place and other != place]
            if any(other in owned for owned in self.owners.values() for other in below):
                return
            for other in below:
                self.values.pop(other)
        self.values.pop(place, None)
