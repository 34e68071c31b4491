"""The structural form of a schema: one frozen node per value; equal subtrees are shared."""

import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Union

import orjson
from msgspec import Struct, field

EMPTY: Mapping[str, "Structural"] = MappingProxyType({})
META_FIELDS = frozenset(("apiVersion", "kind", "metadata"))


class Rule(Struct, frozen=True):
    """One entry of x-kubernetes-validations, as written."""

    rule: str = ""
    message: str = ""
    message_expression: str = ""
    reason: str | None = None
    field_path: str = ""
    optional_old_self: bool | None = None


class Numbers(Struct, frozen=True):
    """Bounds of a number; floats, as upstream."""

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
    """Schemas of which a value must satisfy all, any, exactly one, or not the one."""

    all_of: tuple["Structural", ...] = ()
    any_of: tuple["Structural", ...] = ()
    one_of: tuple["Structural", ...] = ()
    not_: Union["Structural", None] = None


class Extensions(Struct, frozen=True):
    """The fields x-kubernetes-*, except int-or-string."""

    preserve: bool = False
    embedded: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    map_type: str | None = None
    rules: tuple[Rule, ...] = ()


class Structural(Struct, frozen=True, eq=False, weakref=True):
    """One node of a schema, or of a branch of a junctor.

    ``default`` None means unset (CRD-008). ``additional`` is None if absent, a bool, or the schema of map values.
    ``format`` is empty unless it affects values. ``compiled`` caches results of other modules about this node, by name.
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
        """Return the allowed JSON types, as error texts list them; empty means any (VAL-010)."""
        if self.int_or_string:
            return ("integer", "string")
        return (self.type,) if self.type else ()

    @property
    def map_values(self) -> Union["Structural", None]:
        """Return the schema of map values, or None."""
        return self.additional if isinstance(self.additional, Structural) else None

    def member(self, name: str) -> Union["Structural", None]:
        """Return the schema of a field: its property, else that of map values."""
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


def intern(**values: Any) -> Structural:
    """Return the node with these fields, which include those of its parts; an equal node that exists is shared.

    Children are compared by identity, since they were interned before.
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
        except TypeError:  # nested deeper than orjson supports
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
    """Return a predicate: whether ``here`` holds for a node or one below it; each node caches the result as ``mark``.

    ``values`` false skips the schemas of map values.
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
