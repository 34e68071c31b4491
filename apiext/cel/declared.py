"""Declared types of the data that expressions read: fields, elements, sizes and formats."""

from collections.abc import Mapping

from msgspec import Struct, field

from apiext.cel import types
from apiext.cel.types import Type

_TYPES = {
    "bool": types.BOOL, "int": types.INT, "double": types.DOUBLE, "string": types.STRING, "bytes": types.BYTES,
    "timestamp": types.TIMESTAMP, "duration": types.DURATION, "int_or_string": types.DYN, "dyn": types.DYN,
}  # fmt: skip


class Declared(Struct, frozen=True, eq=False):
    """The declared type of a variable's value, or of a part of this value.

    ``kind`` is object, map, list, string, bytes, timestamp, duration, int, double, bool, int_or_string, dyn, or (in
    ``properties`` only) preserved, for data without a type. ``fields`` maps the names that expressions use to the types
    of these fields. ``properties`` maps the names in the data to the types of all fields that the data may have.
    ``max_elements`` is the maximal number of characters, elements or entries, for estimates. ``format`` is date or
    date-time for a timestamp that the data contain as a string; a timestamp without format is not converted.
    ``list_type`` is atomic, set or map; only a list of type map has ``list_keys``. ``known`` is the CEL type, for
    declarations that are only used by the type checker.
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
        """Return the CEL type of the value."""
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
        """Return name → type of the object types among this type and all types in it."""
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
