"""Declare the CEL types of a schema: fields that expressions can read, with maximum sizes.

See CEL-002…004 and CEL-013.
"""

from collections.abc import Callable, Mapping

from apiext.cel.declared import Declared
from apiext.cel.escaping import escape
from apiext.schema.structural import EMPTY, Structural, intern
from apiext.schema.work_budget import DECLARING, current

REQUEST = 3 * 1024 * 1024  # bytes of the largest object in cost estimates (upstream: MaxRequestSizeBytes)
ROOT_NAME = "selfType1"
_META_SIZES = (("name", 253), ("generateName", 252))
# format → (maximal characters, minimal bytes) of a JSON string, with its quotes
_SIZES = {"duration": (32, 3), "date": (12, 12), "date-time": (32, 21)}
_MULTIBYTE = 4  # maximal bytes of a character


class Types:
    """The declared types of one schema.

    ``least`` maps each type to the minimal size of its values, in bytes of JSON. ``copied`` counts the AST nodes that
    macros copy in all rules of the schema.
    """

    __slots__ = ("copied", "least")

    def __init__(self) -> None:
        self.copied = 0
        self.least: dict[Declared, int] = {}

    def declare(self, node: Structural, name: str = ROOT_NAME, *, root: bool = False) -> Declared | None:
        """Return the type of a node, or None if expressions cannot read it.

        ``root`` is true for the schema of whole objects and for an embedded resource.
        """
        if node.int_or_string:
            most = node.strings.max_length * _MULTIBYTE if node.strings.max_length is not None else REQUEST - 2
            return self._made(Declared("int_or_string", max_elements=most, nullable=node.nullable), 1)
        read = _READ.get(node.type)
        return read(self, node, name, root) if read is not None else None

    def _made(self, declared: Declared, least: int) -> Declared:
        current().spend(DECLARING)
        self.least[declared] = least
        return declared

    def _list(self, node: Structural, name: str, root: bool) -> Declared | None:
        items = node.items
        element = self.declare(items, f"{name}.@idx", root=items.extensions.embedded) if items is not None else None
        if element is None:
            return None
        most = node.sizes.max_items if node.sizes.max_items is not None else (REQUEST - 2) // (self.least[element] + 1)
        declared = Declared(
            "list",
            element=element,
            max_elements=max(most, 0),
            list_type=node.extensions.list_type or "atomic",
            list_keys=node.extensions.list_keys,
            nullable=node.nullable,
        )
        return self._made(declared, 2)

    def _object(self, node: Structural, name: str, root: bool) -> Declared | None:
        values = node.map_values
        if values is not None:
            return self._map(node, values, name)
        fields: dict[str, Declared] = {}
        properties: dict[str, Declared] = {}
        least = 2
        for key, below in (with_metadata(node.properties) if root else node.properties).items():
            escaped = escape(key)
            declared = self.declare(below, f"{name}.{escaped or key}", root=below.extensions.embedded)
            if declared is None:
                properties[key] = Declared("preserved", nullable=below.nullable)
                continue
            properties[key] = declared
            if escaped is not None:
                fields[escaped] = declared
            if key in node.required and below.default is None:
                least += len(key.encode()) + self.least[declared] + 4
        return self._made(Declared("object", name, fields, properties, nullable=node.nullable), least)

    def _map(self, node: Structural, values: Structural, name: str) -> Declared | None:
        element = self.declare(values, f"{name}.@elem", root=values.extensions.embedded)
        if element is None:
            return None
        most = (
            node.sizes.max_properties
            if node.sizes.max_properties is not None
            else (REQUEST - 2) // (self.least[element] + 6)
        )
        return self._made(Declared("map", element=element, max_elements=max(most, 0), nullable=node.nullable), 2)

    def _string(self, node: Structural, name: str, root: bool) -> Declared:
        longest, nullable = node.strings.max_length, node.nullable
        if node.format == "byte":
            most = REQUEST - 2 if longest is None else longest
            return self._made(Declared("bytes", max_elements=most, nullable=nullable), 2)
        if node.format in _SIZES:
            most, least = _SIZES[node.format]
            kind = "duration" if node.format == "duration" else "timestamp"
            text = "" if kind == "duration" else node.format
            return self._made(Declared(kind, max_elements=most, format=text, nullable=nullable), least)
        if longest is not None:
            most = longest * _MULTIBYTE
        elif node.enum:
            most = max((len(value.encode()) for value in node.enum if isinstance(value, str)), default=0)
        else:
            most = REQUEST - 2
        return self._made(Declared("string", max_elements=most, nullable=nullable), 2)

    def _boolean(self, node: Structural, name: str, root: bool) -> Declared:
        return self._made(Declared("bool", nullable=node.nullable), 4)

    def _number(self, node: Structural, name: str, root: bool) -> Declared:
        return self._made(Declared("double", nullable=node.nullable), 1)

    def _integer(self, node: Structural, name: str, root: bool) -> Declared:
        return self._made(Declared("int", nullable=node.nullable), 1)


_READ: Mapping[str, Callable[[Types, Structural, str, bool], Declared | None]] = {
    "array": Types._list,
    "object": Types._object,
    "string": Types._string,
    "boolean": Types._boolean,
    "number": Types._number,
    "integer": Types._integer,
}


def is_shown(node: Structural) -> bool:
    """Return whether expressions can read a node: whether ``declare`` returns a type for it."""
    while not node.int_or_string:
        inner = node.items if node.type == "array" else node.map_values if node.type == "object" else None
        if inner is None:
            return node.type in _READ and node.type != "array"
        node = inner
    return True


def with_metadata(properties: Mapping[str, Structural]) -> Mapping[str, Structural]:
    """Return the properties of a whole object or an embedded resource for expressions (CEL-003).

    The properties always include apiVersion, kind, metadata.name and metadata.generateName as strings. If the schema
    lacks one of these four, or gives it another type, they include no further field of metadata.
    """
    metadata = properties.get("metadata")
    known = metadata.properties if metadata is not None else EMPTY
    is_object = metadata is not None and metadata.type == "object"
    if is_object and _texts(properties, ("kind", "apiVersion")) and _texts(known, ("name", "generateName")):
        return properties
    text = intern(type="string")
    names = {name: intern(type="string", max_length=_shorter(known.get(name), most)) for name, most in _META_SIZES}
    return {**properties, "kind": text, "apiVersion": text, "metadata": intern(type="object", properties=names)}


def _texts(properties: Mapping[str, Structural], names: tuple[str, ...]) -> bool:
    return all(name in properties and properties[name].type == "string" for name in names)


def _shorter(node: Structural | None, most: int) -> int:
    return most if node is None or node.strings.max_length is None else min(most, node.strings.max_length)
