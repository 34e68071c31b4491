"""Types that the caller declares for its data: fields, elements, sizes, and the conversion of the data."""

from collections.abc import Mapping

from msgspec import Struct, field

from apiext.cel import types
from apiext.cel.types import Type

_TYPES = {
    "bool": types.BOOL, "int": types.INT, "double": types.DOUBLE, "string": types.STRING, "bytes": types.BYTES,
    "timestamp": types.TIMESTAMP, "duration": types.DURATION, "int_or_string": types.DYN, "dyn": types.DYN,
}  # fmt: skip


class Declared(Struct, frozen=True, eq=False):
    """The declared type of a value of the caller.

    ``kind`` is object, map, list, string, bytes, timestamp, duration, int, double, bool, int_or_string, or preserved
    (data without a type). ``fields`` are by the names that expressions use. ``properties`` are all fields that the data
    may have, by their names in the data. ``max_elements`` is the maximal number of characters, elements or entries, for
    estimates. ``format`` is date or date-time for a timestamp; without one, it stays the string of the data.
    ``list_type`` is atomic, set or map, the last with ``list_keys``. ``known`` is the type of data that is only
    checked, not evaluated.
    """

    kind: str
    name: str = ""
    fields: "Mapping[str, Declared]" = field(default_factory=dict)
    properties: "Mapping[str, Declared]" = field(default_factory=dict)
    element: "Declared | None" = None
    max_elements: int = 0
    format: str = ""
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    nullable: bool = False
    known: Type | None = None

    def type(self) -> Type:
        """Return the type in expressions."""
        if self.known is not None:
            return self.known
        if self.kind == "object":
            return types.object_named(self.name)
        if self.kind == "list":
            assert self.element is not None
            return types.list_of(self.element.type())
        if self.kind == "map":
            assert self.element is not None
            return types.map_of(types.STRING, self.element.type())
        return _TYPES[self.kind]

    def objects(self) -> "dict[str, Declared]":
        """Return all object types inside, by name."""
        found: dict[str, Declared] = {}
        waiting = [self]
        while waiting:
            declared = waiting.pop()
            if declared.kind == "object" and declared.name not in found:
                found[declared.name] = declared
                waiting.extend(declared.fields.values())
            elif declared.element is not None:
                waiting.append(declared.element)
        return found
