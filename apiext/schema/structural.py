"""The structural form of a schema: a tree of frozen nodes.

``intern`` returns the same object for equal subtrees.
"""

import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Union

import orjson
from msgspec import Struct, field

EMPTY: Mapping[str, "Structural"] = MappingProxyType({})
META_FIELDS = frozenset(("apiVersion", "kind", "metadata"))


class Rule(Struct, frozen=True):
    """One entry of x-kubernetes-validations."""

    rule: str = ""
    message: str = ""
    message_expression: str = ""
    reason: str | None = None
    field_path: str = ""
    optional_old_self: bool | None = None


class Numbers(Struct, frozen=True):
    """Bounds of a number; as upstream, they are floats."""

    maximum: float | None = None
    exclusive_maximum: bool = False
    minimum: float | None = None
    exclusive_minimum: bool = False
    multiple_of: float | None = None


class Strings(Struct, frozen=True):
    """Bounds of a string."""

    max_length: int | None = None
    min_length: int | None = None
    pattern: str = ""


class Sizes(Struct, frozen=True):
    """Bounds of the number of items or properties."""

    max_items: int | None = None
    min_items: int | None = None
    max_properties: int | None = None
    min_properties: int | None = None


class Junctors(Struct, frozen=True):
    """The schemas in allOf, anyOf, oneOf and not."""

    all_of: tuple["Structural", ...] = ()
    any_of: tuple["Structural", ...] = ()
    one_of: tuple["Structural", ...] = ()
    not_: Union["Structural", None] = None


class Extensions(Struct, frozen=True):
    """The x-kubernetes-* fields of a schema, except x-kubernetes-int-or-string."""

    preserve: bool = False
    embedded: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    map_type: str | None = None
    rules: tuple[Rule, ...] = ()


class Structural(Struct, frozen=True, eq=False, weakref=True):
    """One node of a schema, also inside allOf, anyOf, oneOf and not.

    ``default`` is None if it is not set (CRD-008). ``additional`` is the schema of map values, a bool, or None if
    ``additionalProperties`` is absent. ``format`` is empty if it has no effect on values, unless ``parse`` was called
    with ``strip_formats=False``. ``compiled`` is a cache of other modules: name → result for this node.
    """

    type: str = ""
    int_or_string: bool = False
    nullable: bool = False
    properties: Mapping[str, "Structural"] = field(default_factory=lambda: EMPTY)
    additional: Union["Structural", bool, None] = None
    items: Union["Structural", None] = None
    default: Any = None
    enum: tuple[Any, ...] = ()
    format: str = ""
    required: tuple[str, ...] = ()
    numbers: Numbers = Numbers()
    strings: Strings = Strings()
    sizes: Sizes = Sizes()
    junctors: Junctors = Junctors()
    extensions: Extensions = Extensions()
    compiled: dict[str, Any] = field(default_factory=dict)

    @property
    def types(self) -> tuple[str, ...]:
        """Return the allowed JSON types in the order of error texts, or an empty tuple for any type.

        See VAL-010.
        """
        if self.int_or_string:
            return ("integer", "string")
        return (self.type,) if self.type else ()

    @property
    def map_values(self) -> Union["Structural", None]:
        """Return the schema of map values, or None if the node has no such schema."""
        return self.additional if isinstance(self.additional, Structural) else None

    def member(self, name: str) -> Union["Structural", None]:
        """Return the schema of a field, or None.

        The result is the schema in ``properties``, else the schema of map values.
        """
        found = self.properties.get(name)
        return found if found is not None else self.map_values


_PARTS: Mapping[str, type[Struct]] = {
    "numbers": Numbers,
    "strings": Strings,
    "sizes": Sizes,
    "junctors": Junctors,
    "extensions": Extensions,
}
_PART_OF = {name: part for part, kind in _PARTS.items() for name in kind.__struct_fields__}
_KINDS: tuple[type[Struct], ...] = (Structural, *_PARTS.values())
_DEFAULTS = {
    name: default
    for kind in _KINDS
    for name, default in zip(kind.__struct_fields__, kind.__struct_defaults__, strict=True)
} | {"properties": EMPTY}
_JSON = frozenset(("default", "enum"))
_NODES: weakref.WeakValueDictionary[tuple[Any, ...], Structural] = weakref.WeakValueDictionary()
"""Cache: fields of a node → the node, for ``intern``."""


def intern(**values: Any) -> Structural:
    """Return the existing node with these fields, or create the node.

    ``values`` are fields of Structural or of one of its parts, such as ``maximum`` of Numbers. Children are compared by
    identity, since equal children are the same object. Fields or properties in another order make another node.
    """
    key = tuple((name, _key(name, value)) for name, value in values.items() if value != _DEFAULTS[name])
    found = _NODES.get(key)
    if found is None:
        own: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            part = _PART_OF.get(name)
            (own if part is None else parts.setdefault(part, {}))[name] = value
        own.update((part, _PARTS[part](**given)) for part, given in parts.items())
        found = Structural(**own)
        _NODES[key] = found
    return found


def _key(name: str, value: Any) -> Any:
    if name in _JSON:
        try:
            return orjson.dumps(value)
        except TypeError:  # the value has more levels than orjson supports
            return id(value)
    if isinstance(value, Structural):
        return id(value)
    if isinstance(value, tuple):
        return tuple(id(part) if isinstance(part, Structural) else part for part in value)
    if isinstance(value, Mapping):
        return tuple((member, id(part)) for member, part in value.items())
    return value


def anywhere(
    mark: str, here: Callable[[Structural], object], *, values: bool = True
) -> Callable[[Structural | None], bool]:
    """Return a predicate that reports whether ``here`` is true for a node or any below it.

    The predicate ignores schemas inside allOf, anyOf, oneOf and not. If ``values`` is false, it also ignores schemas of
    map values. Each node caches the result under the name ``mark``.
    """

    def among(node: Structural | None) -> bool:
        if node is None:
            return False
        found = node.compiled.get(mark)
        if found is None:
            found = bool(here(node)) or among(node.items) or (values and among(node.map_values))
            if not found:
                for below in node.properties.values():
                    if among(below):
                        found = True
                        break
            node.compiled[mark] = found
        return bool(found)

    return among
