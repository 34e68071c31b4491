"""Rows that declare functions: signature, id, implementation, cost and examples.

The tests evaluate the examples.
"""

import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from apiext.cel import types
from apiext.cel.builder import Macros
from apiext.cel.costs import FLAT, Cost
from apiext.cel.types import SIMPLE, Type
from apiext.cel.values import Value, element, no_overload, type_name

Implement = Callable[..., Value]

_WORD = re.compile(r"\s*([A-Za-z]+|->|[(),.])")
# Kind of a type → type name of the values that an overload accepts. Opaque types and objects accept only values of
# their own name. Types of other kinds accept any value.
_RUNTIME_NAMES = {
    "bool": "bool", "int": "int", "uint": "uint", "double": "double", "string": "string", "bytes": "bytes",
    "null": "null_type", "timestamp": "google.protobuf.Timestamp", "duration": "google.protobuf.Duration",
    "list": "list", "map": "map",
}  # fmt: skip


class Overload(Struct, frozen=True, eq=False):
    """One overload of a function: its types, its implementation in Python, and its cost."""

    function: str
    id: str
    member: bool
    args: tuple[Type, ...]
    result: Type
    implement: Implement
    cost: Cost = FLAT
    examples: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()  # required type name of each argument, "" for any type
    parameters: tuple[str, ...] = ()
    guarded: bool = True  # the engine checks the argument types before the call (upstream: type guards)
    singleton: bool = False  # the function has one implementation for all its overloads (upstream: singleton binding)
    lazy: bool = False  # if true, an argument that is a fault ends the call before the next argument is evaluated

    def takes(self, values: Iterable[Value]) -> bool:
        """Return whether this overload accepts the values."""
        return not self.guarded or all(
            not name or (type_name(value) == name and (not type.params or _fits(type, value)))
            for name, type, value in zip(self.wanted, self.args, values, strict=False)
        )


def _fits(type: Type, value: Value) -> bool:
    """Return whether a value has a type. Check only the first element of a list."""
    name = _runtime_name(type)
    if not name:
        return True
    if type_name(value) != name:
        return False
    if type.kind == "list":
        return not len(value) or _fits(type.params[0], element(value, 0))
    return True


def planned(*_: Value) -> Value:
    """Return a fault.

    Never called: the planner evaluates functions with this implementation in steps of its own.
    """
    return no_overload()


def row(function: str, id: str, signature: str, implement: Implement, *examples: str, cost: Cost = FLAT) -> Overload:
    """Return a declared overload.

    ``signature`` is for example "string, int -> bool". It begins with a dot if the first argument is the receiver. A
    single capital letter is a type parameter. Each of the ``examples`` is an expression that evaluates to true.
    """
    member = signature.startswith(".")
    words = list(_WORD.findall(signature.lstrip(".")))
    words.reverse()
    args = []
    while words[-1] != "->":
        args.append(_read(words))
        if words[-1] == ",":
            words.pop()
    words.pop()
    result = _read(words)
    wanted = tuple(_runtime_name(arg) for arg in args)
    names = dict.fromkeys(name for arg in (*args, result) for name in _parameters(arg))
    return Overload(function, id, member, tuple(args), result, implement, cost, examples, wanted, tuple(names))


def with_flags(
    rows: Iterable[Overload], *, guarded: bool = True, singleton: bool = False, lazy: bool = False
) -> list[Overload]:
    """Return the rows with these flags set."""
    return [replace(it, guarded=guarded, singleton=singleton, lazy=lazy) for it in rows]


def _read(words: list[str]) -> Type:
    word = words.pop()
    if word.isupper() and len(word) == 1:
        return types.parameter(word)
    params = []
    if words and words[-1] == "(":
        words.pop()
        while True:
            params.append(_read(words))
            if words.pop() == ")":
                break
    if not params:
        return SIMPLE[word]
    made: Mapping[str, Callable[..., Type]] = {
        "list": types.list_of, "map": types.map_of, "optional": types.optional_of, "type": types.type_of
    }  # fmt: skip
    return made[word](*params)


def _parameters(type: Type) -> list[str]:
    if type.kind == "parameter":
        return [type.name]
    return [name for inner in type.params for name in _parameters(inner)]


def _runtime_name(type: Type) -> str:
    if type.kind in ("opaque", "object"):
        return type.name
    return _RUNTIME_NAMES.get(type.kind, "")


class Library(Struct, frozen=True):
    """Related functions and macros.

    ``since`` is the first Kubernetes version with the library. New rules may use the library only if this version is
    not later than COMPATIBLE (base.py).
    """

    name: str
    rows: tuple[Overload, ...]
    macros: Macros = field(default_factory=dict)
    since: tuple[int, int] = (1, 0)
    types: tuple[Type, ...] = ()
