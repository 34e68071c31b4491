"""The functions, macros and types of the CEL environments."""

from collections.abc import Mapping
from functools import cache

from msgspec import Struct, field
from msgspec.structs import replace

from apiext.cel import limits, types, well_known
from apiext.cel.builder import Macros
from apiext.cel.constructed import Resolve, Shape, join
from apiext.cel.costs import Charge, one
from apiext.cel.library import (
    authorization,
    lists,
    named_formats,
    network,
    optionals,
    patterns,
    quantities,
    semver,
    sets,
    standard,
    texts,
    urls,
)
from apiext.cel.overloads import Library, Overload
from apiext.cel.types import Type

COMPATIBLE = (1, 36)  # Kubernetes version whose functions new rules may use; it precedes the served version
_SHORT = ("timestamp", "duration")
_DEFINED = (types.TIMESTAMP.name, types.DURATION.name)
UNDEFINED = frozenset((*_SHORT, *well_known.TYPES)) - {*_DEFINED}
"""Names of types that the type checker knows, but the planner does not."""
SCALARS = ("bool", "bytes", "double", "int", "string", "uint")

LIBRARIES: tuple[Library, ...] = (
    standard.LIBRARY, urls.LIBRARY, patterns.LIBRARY, lists.KUBERNETES, authorization.LIBRARY, optionals.LIBRARY,
    quantities.LIBRARY, texts.LIBRARY, sets.LIBRARY, network.ADDRESSES, network.NETWORKS, named_formats.LIBRARY,
    optionals.COMPREHENSIONS, semver.LIBRARY, lists.EXTENSION, lists.INCLUDES,
)  # fmt: skip


# (result type of a call, its overloads, number of type parameters that the checker created)
Resolved = tuple[Type, tuple[Overload, ...], int]


class Function:
    """A function with its overloads from all libraries.

    ``charge`` returns the cost of a call whose overload is unknown.
    """

    __slots__ = ("charge", "name", "overloads", "singleton")

    def __init__(self, name: str, overloads: tuple[Overload, ...]) -> None:
        self.name = name
        self.overloads = overloads
        self.singleton = any(overload.singleton for overload in overloads)
        self.charge: Charge = next((overload.cost.charge for overload in overloads if overload.cost.by_name), one)


class Extension(Struct, frozen=True, eq=False):
    """Additions to an environment: functions, and types of objects that expressions construct."""

    library: Library
    resolve: Resolve


class Base(Struct):
    """The functions, macros and types of CEL environments.

    An Environment (environment.py) adds variables. ``resolve`` returns the shape of an object type of the Extension;
    it is None without an Extension. ``resolved`` caches the overloads of calls.
    """

    functions: Mapping[str, Function]
    macros: Macros
    type_names: Mapping[str, Type]
    resolve: Resolve | None = None
    resolved: dict[object, Resolved] = field(default_factory=dict)

    def shape(self, name: str) -> Shape | None:
        """Return the Shape of an object type that expressions can construct, else None."""
        return well_known.SHAPES.get(name) or (None if self.resolve is None else self.resolve(name))

    def cache_overloads(self, key: object, found: Resolved) -> None:
        """Cache the overloads of a call; ``key`` contains the types of its arguments."""
        if len(self.resolved) >= limits.MAX_RESOLVED:
            self.resolved.clear()
        self.resolved[key] = found


@cache
def base(version: str = "stored", extension: Extension | None = None) -> Base:
    """Return the Base of a ``version``, which is "stored" or "new".

    "stored" is for expressions of stored objects and has all functions. "new" is for expressions that a write adds. It
    has only the functions of the Kubernetes version COMPATIBLE and of earlier versions.
    """
    functions: dict[str, list[Overload]] = {}
    macros: Macros = {}
    names = {name: kind for name, kind in types.SIMPLE.items() if name in SCALARS or name == "type"}
    names |= {
        "list": types.list_of(types.parameter("A")),
        "map": types.map_of(types.parameter("A"), types.parameter("B")),
        "null_type": types.NULL,
        **well_known.TYPES,
        "optional_type": types.optional_of(types.DYN),
        **{name: types.SIMPLE[name] for name in _SHORT},
    }
    for library in LIBRARIES if extension is None else (*LIBRARIES, extension.library):
        if version == "new" and library.since > COMPATIBLE:
            continue
        macros |= library.macros
        names |= {type.name: type for type in library.types}
        for overload in library.rows:
            functions.setdefault(overload.function, []).append(overload)
    if extension is not None:
        functions["_+_"] = [replace(overload, implement=join) for overload in functions["_+_"]]
    known = {name: Function(name, tuple(rows)) for name, rows in functions.items()}
    return Base(known, macros, names, None if extension is None else extension.resolve)
