"""Find the type of each part of an expression and the overloads of each call.

The errors are upstream's.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from apiext.cel import types, well_known
from apiext.cel.ast import Call, Entry, Fold, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Parsed, Select
from apiext.cel.base import SCALARS, Base, Function
from apiext.cel.builder import RESERVED
from apiext.cel.constructed import UNNAMED
from apiext.cel.declared import Declared
from apiext.cel.overloads import Overload
from apiext.cel.source import Issues
from apiext.cel.types import DYN, ERROR, Substitution, Type, unwrap_optional
from apiext.cel.values import Uint

_NO_FIELDS = frozenset((*SCALARS, "list"))
_LITERALS: dict[type, Type] = {
    bool: types.BOOL, int: types.INT, Uint: types.UINT, float: types.DOUBLE, str: types.STRING, bytes: types.BYTES,
    type(None): types.NULL,
}  # fmt: skip


class Checked(Struct):
    """A checked expression, with the types, overloads and resolved names of its nodes by id."""

    parsed: Parsed
    root: Node
    types: list[Type]
    calls: dict[int, tuple[Overload, ...]]
    names: dict[int, str]  # id of a node → name of a variable or type
    constants: dict[int, Type]  # id of a node that is the name of a type → this type
    constructs: bool = False  # true if the expression constructs objects
    loose: bool = False  # the planner sets this if a value can have another type than the checked type

    @property
    def result(self) -> Type:
        """Return the type of the expression."""
        return self.types[self.root.id]

    def mentions(self, variable: str) -> bool:
        """Return whether the expression uses a variable."""
        return variable in self.names.values()


class Checker:
    """The checker of one expression in one environment."""

    def __init__(
        self, parsed: Parsed, base: Base, variables: dict[str, Type], objects: dict[str, Declared], issues: Issues
    ) -> None:
        self.parsed = parsed
        self.base = base
        self.objects = objects
        self.issues = issues
        self.globals = variables
        self.scopes: list[dict[str, Type]] = []
        self.known = Substitution()
        self.types: list[Type] = [ERROR] * len(parsed.offsets)
        self.calls: dict[int, tuple[Overload, ...]] = {}
        self.names: dict[int, str] = {}
        self.constants: dict[int, Type] = {}
        self.constructs = False

    def run(self) -> Checked:
        """Return the checked expression; add errors to the issues."""
        root = self.check(self.parsed.root)
        apply = self.known.apply
        final = [type if type.ground else apply(type, True) for type in self.types]
        return Checked(self.parsed, root, final, self.calls, self.names, self.constants, self.constructs)

    def fault(self, id: int, message: str) -> None:
        self.issues.at(self.parsed.offsets[id], message)

    def mismatch(self, id: int, expected: Type, found: Type) -> None:
        self.fault(id, f"expected type '{expected}' but found '{found}'")

    def undeclared(self, id: int, name: str) -> None:
        self.fault(id, f"undeclared reference to '{name}' (in container '')")

    def check(self, node: Node) -> Node:
        """Set the types of a node and its parts; return the node or its replacement."""
        return _CHECKS[type(node)](self, node)

    def check_literal(self, node: Literal) -> Node:
        self.types[node.id] = _LITERALS[type(node.value)]
        return node

    # Names

    def local(self, name: str) -> Type | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def find_global(self, name: str) -> tuple[Type, Type | None] | None:
        """Return (type of a global name, the type that it denotes or None).

        Return None for an unknown name.
        """
        found = self.globals.get(name)
        if found is not None:
            return found, None
        if name in well_known.CONSTANTS:
            return types.INT, None
        named = self.find_type(name)
        return None if named is None else (types.type_of(named), named)

    def find_type(self, name: str) -> Type | None:
        """Return the type with this name, or None."""
        named = self.base.type_names.get(name)
        if named is None and (name in self.objects or self.base.shape(name) is not None):
            return types.object_named(name)
        return named

    def check_ident(self, node: Ident) -> Node:
        name = node.name
        found = None if name.startswith(".") else self.local(name)
        if found is None:
            meant = self.find_global(name.removeprefix("."))
            if meant is None:
                self.types[node.id] = ERROR
                self.undeclared(node.id, name)
                return node
            found, constant = meant
            if constant is not None:
                self.constants[node.id] = constant
            shadowed = name.startswith(".") and self.local(name[1:]) is not None
            node.name = name if shadowed else name.removeprefix(".")
            name = node.name.removeprefix(".")
        self.types[node.id] = found
        self.names[node.id] = name
        return node

    def qualified(self, node: Select) -> str | None:
        """Return the dotted name of a chain of selections, or None if it cannot be a global name."""
        parts = []
        inner: Node = node
        while isinstance(inner, Select):
            if inner.test:
                return None
            parts.append(inner.field)
            inner = inner.operand
        if not isinstance(inner, Ident):
            return None
        parts.append(inner.name)
        if not inner.name.startswith(".") and self.local(inner.name) is not None:
            return None
        return ".".join(reversed(parts)).removeprefix(".")

    def check_select(self, node: Select) -> Node:
        name = self.qualified(node)
        if name is not None:
            meant = self.find_global(name)
            if meant is not None:
                found, constant = meant
                if constant is not None:
                    self.constants[node.id] = constant
                self.types[node.id] = found
                self.names[node.id] = name
                return Ident(node.id, name)
        node.operand, found = self.field_type(node.id, node.operand, node.field, False)
        self.types[node.id] = types.BOOL if node.test else self.known.apply(found)
        return node

    def field_type(self, id: int, operand: Node, field: str, optional: bool) -> tuple[Node, Type]:
        operand = self.check(operand)
        target, was_optional = unwrap_optional(self.known.apply(self.types[operand.id]))
        if target.kind == "map":
            found = target.params[1]
        elif target.kind == "object":
            found = self.object_field(id, target.name, field)
        elif target.kind == "parameter":
            self.known.assignable(DYN, target)
            found = DYN
        else:
            if target.kind not in ("dyn", "error"):
                self.fault(id, f"type '{target}' does not support field selection")
            found = DYN
        return operand, types.optional_of(found) if was_optional or optional else found

    def object_field(self, id: int, name: str, field: str) -> Type:
        if name == "map":
            return DYN
        shape = self.base.shape(name)
        if shape is not None and not (shape.closed and field not in (shape.fields or ())):
            return shape.field(field)
        declared = self.objects.get(name)
        if declared is None and shape is None:
            self.fault(id, f"unexpected failed resolution of '{name}'")
            return ERROR
        found = None if declared is None else declared.fields.get(field)
        if declared is not None and found is None and field in RESERVED:
            found = declared.fields.get(f"__{field}__")
        if found is None:
            self.fault(id, f"undefined field '{field}'")
            return ERROR
        return found.type()

    # Calls

    def check_call(self, node: Call) -> Node:
        if node.function == "_?._":
            return self.check_optional_select(node)
        args = node.args
        for at, arg in enumerate(args):
            args[at] = self.check(arg)
        target = node.target
        if target is None:
            function = self.base.functions.get(node.function.removeprefix("."))
            if function is None:
                return self.unknown(node)
            node.function = function.name
            self.resolve(node, function, None)
            return node
        prefix = _dotted(target)
        if prefix is not None:
            function = self.base.functions.get(f"{prefix}.{node.function}".removeprefix("."))
            if function is not None:
                node.function, node.target = function.name, None
                self.resolve(node, function, None)
                return node
        node.target = self.check(target)
        function = self.base.functions.get(node.function)
        if function is None:
            return self.unknown(node)
        self.resolve(node, function, node.target)
        return node

    def unknown(self, node: Call) -> Node:
        self.types[node.id] = ERROR
        self.undeclared(node.id, node.function)
        return node

    def check_optional_select(self, node: Call) -> Node:
        field = node.args[1]
        assert isinstance(field, Literal)
        node.args[0], found = self.field_type(node.id, node.args[0], str(field.value), True)
        self.types[field.id] = types.STRING
        self.types[node.id] = self.known.apply(found)
        self.calls[node.id] = (self.base.functions["_?._"].overloads[0],)
        return node

    def resolve(self, node: Call, function: Function, target: Node | None) -> None:
        """Find the overloads that accept the arguments.

        If their result types differ, the call has the type dyn.
        """
        given = tuple(self.types[arg.id] for arg in node.args)
        if target is not None:
            given = (self.types[target.id], *given)
        if function.name in ("_&&_", "_||_"):
            self.resolve_logic(node, function, given)
            return
        ground = all(type.ground for type in given)
        key = (function.name, target is not None, given)
        if ground:
            known = self.base.resolved.get(key)
            if known is not None:
                self.types[node.id], self.calls[node.id], fresh = known
                # Use up as many numbers of type parameters as without this cache: error texts contain the numbers.
                self.known.number += fresh
                return
        before = self.known.number
        found: list[Overload] = []
        result: Type | None = None
        for overload in function.overloads:
            if overload.member != (target is not None):
                continue
            wanted, gives = overload.args, overload.result
            if overload.parameters:
                new = {name: self.known.fresh() for name in overload.parameters}
                wanted = tuple(types.replace(arg, new) for arg in wanted)
                gives = types.replace(gives, new)
            if self.known.all_assignable(given, wanted):
                found.append(overload)
                gives = self.known.apply(gives)
                if result is None:
                    result = gives
                elif result.kind != "dyn" and gives != result:
                    result = DYN
        if result is None:
            self.no_overload(node, function, given, target)
            return
        self.types[node.id] = result
        self.calls[node.id] = tuple(found)
        if ground and result.ground:
            self.base.cache_overloads(key, (result, tuple(found), self.known.number - before))

    def resolve_logic(self, node: Call, function: Function, given: tuple[Type, ...]) -> None:
        wrong = False
        for arg, type in zip(node.args, given, strict=True):
            if not self.known.assignable(type, types.BOOL):
                self.mismatch(arg.id, types.BOOL, type)
                wrong = True
        self.types[node.id] = ERROR if wrong else types.BOOL
        self.calls[node.id] = (function.overloads[0],)

    def no_overload(self, node: Call, function: Function, given: tuple[Type, ...], target: Node | None) -> None:
        shown = [str(self.known.apply(type, True)) for type in given]
        signature = f"{shown[0]}.({', '.join(shown[1:])})" if target is not None else f"({', '.join(shown)})"
        self.fault(node.id, f"found no matching overload for '{function.name}' applied to '{signature}'")
        self.types[node.id] = ERROR

    # Lists, maps, objects

    def join(self, before: Type | None, found: Type) -> Type:
        """Return the common type of the elements so far, or dyn.

        The module ``validators`` reports elements of different types later.
        """
        if before is None or before == found:
            return found
        if self.known.assignable(before, found):
            return before if types.less_specific(before, found) else found
        return DYN

    def unwrapped(self, node: Node) -> Type:
        """Return the type inside an optional element or entry."""
        found, was_optional = unwrap_optional(self.types[node.id])
        if not was_optional and found.kind != "dyn":
            self.mismatch(node.id, types.optional_of(found), found)
        return found

    def check_list(self, node: ListOf) -> Node:
        joined: Type | None = None
        for at, element in enumerate(node.elements):
            node.elements[at] = checked = self.check(element)
            found = self.unwrapped(checked) if at in node.optional else self.types[checked.id]
            joined = self.join(joined, found)
        self.types[node.id] = types.list_of(joined if joined not in (None, UNNAMED) else self.known.fresh())
        return node

    def check_map(self, node: MapOf) -> Node:
        keys: Type | None = None
        values: Type | None = None
        for entry in node.entries:
            entry.key = self.check(entry.key)
            keys = self.join(keys, self.types[entry.key.id])
            entry.value = self.check(entry.value)
            found = self.unwrapped(entry.value) if entry.optional else self.types[entry.value.id]
            values = self.join(values, found)
        if keys is None or values is None:
            keys, values = self.known.fresh(), self.known.fresh()
        self.types[node.id] = types.map_of(keys, values)
        return node

    def check_object(self, node: ObjectOf) -> Node:
        name = node.type_name.removeprefix(".")
        named = self.find_type(name)
        if named is None:
            self.types[node.id] = ERROR
            self.undeclared(node.id, node.type_name)
            return node
        message = well_known.message_of(named, name)
        known = message is not None or (named.kind == "object" and name in self.objects)
        known = known or (named.kind == "object" and self.base.shape(name) is not None)
        if not known:
            self.fault(node.id, f"'{named.name}' is not a message type")
        self.types[node.id] = named if known else ERROR
        self.constructs = True
        for field in node.fields:
            self.check_field(field, message or name, known or name not in _NO_FIELDS)
        return node

    def check_field(self, field: Entry, name: str, looked_up: bool) -> None:
        field.value = self.check(field.value)
        assert isinstance(field.key, Literal)
        name_of_field = str(field.key.value) if isinstance(field.key.value, str) else ""
        found = self.types[field.value.id]
        if field.optional:
            found = self.unwrapped(field.value)
        wanted = ERROR
        if looked_up:
            wanted = self.object_field(field.id, name, name_of_field)
        else:
            self.fault(field.id, f"undefined field '{name_of_field}'")
        if not self.known.assignable(wanted, found) or (wanted is UNNAMED and found is UNNAMED):
            self.fault(
                field.id,
                f"expected type of field '{name_of_field}' is '{wanted}' but provided type is '{found}'",
            )

    def check_fold(self, node: Fold) -> Node:
        node.over = self.check(node.over)
        node.init = self.check(node.init)
        over = self.known.apply(self.types[node.over.id])
        accumulated = self.types[node.init.id]
        first = second = DYN
        if over.kind == "list":
            first = second = over.params[0]
            if node.var2:
                first = types.INT
        elif over.kind == "map":
            first, second = over.params
        elif over.kind in ("dyn", "error", "parameter"):
            self.known.assignable(DYN, over)
        else:
            self.fault(
                node.over.id,
                f"expression of type '{over}' cannot be range of a comprehension (must be list, map, or dynamic)",
            )
            first = second = ERROR
        self.scopes.append({node.accu: accumulated})
        self.scopes.append({node.var: first} if not node.var2 else {node.var: first, node.var2: second})
        node.condition = self.check(node.condition)
        self.assert_type(node.condition, types.BOOL)
        node.step = self.check(node.step)
        self.assert_type(node.step, accumulated)
        self.scopes.pop()
        node.result = self.check(node.result)
        self.scopes.pop()
        self.types[node.id] = self.known.apply(self.types[node.result.id])
        return node

    def assert_type(self, node: Node, wanted: Type) -> None:
        found = self.types[node.id]
        if not self.known.assignable(wanted, found):
            self.mismatch(node.id, wanted, found)


_CHECKS: Mapping[type[Node], Callable[[Checker, Any], Node]] = {
    Literal: Checker.check_literal,
    Ident: Checker.check_ident,
    Select: Checker.check_select,
    Call: Checker.check_call,
    Fold: Checker.check_fold,
    ListOf: Checker.check_list,
    MapOf: Checker.check_map,
    ObjectOf: Checker.check_object,
}


def _dotted(node: Node) -> str | None:
    """Return the dotted name of the target of a call, or None if it is not a chain of names."""
    parts = []
    while isinstance(node, Select) and not node.test:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Ident):
        return None
    parts.append(node.name)
    return ".".join(reversed(parts))
