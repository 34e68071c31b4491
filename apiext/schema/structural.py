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


class Structural(Struct, frozen=True, eq=False, weakref=True):
    """One node of a schema, or of a branch of a junctor.

    ``default`` None means unset (CRD-008). ``additional`` is None if absent, a bool, or the schema of map values.
    ``format`` is empty unless it affects values. Bounds are floats, as in upstream. ``compiled`` caches results of
    other modules about this node, by name.
    """

    type: str = ""
    nullable: bool = False
    int_or_string: bool = False
    preserve: bool = False
    embedded: bool = False
    list_type: str = ""
    list_keys: tuple[str, ...] = ()
    map_type: str | None = None
    properties: Mapping[str, "Structural"] = field(default_factory=lambda: EMPTY)
    additional: Union["Structural", bool, None] = None
    items: Union["Structural", None] = None
    default: Any = None
    enum: tuple[Any, ...] = ()
    format: str = ""
    maximum: float | None = None
    exclusive_maximum: bool = False
    minimum: float | None = None
    exclusive_minimum: bool = False
    multiple_of: float | None = None
    max_length: int | None = None
    min_length: int | None = None
    pattern: str = ""
    max_items: int | None = None
    min_items: int | None = None
    max_properties: int | None = None
    min_properties: int | None = None
    required: tuple[str, ...] = ()
    all_of: tuple["Structural", ...] = ()
    any_of: tuple["Structural", ...] = ()
    one_of: tuple["Structural", ...] = ()
    not_: Union["Structural", None] = None
    rules: tuple[Rule, ...] = ()
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


_DEFAULTS = dict(zip(Structural.__struct_fields__, Structural.__struct_defaults__, strict=True)) | {"properties": EMPTY}
_JSON = frozenset(("default", "enum"))
_NODES: weakref.WeakValueDictionary[tuple[Any, ...], Structural] = weakref.WeakValueDictionary()


def intern(**values: Any) -> Structural:
    """Return the node with these fields; an equal node that exists is shared.

    Children are compared by identity, since they were interned before.
    """
    key = tuple((name, _key(name, value)) for name, value in values.items() if value != _DEFAULTS[name])
    found = _NODES.get(key)
    if found is None:
        found = Structural(**values)
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
