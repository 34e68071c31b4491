"""Expand macros during parsing: has, loops over lists and maps, and macros on optionals."""

from apiext.cel.ast import Call, Fold, Ident, ListOf, Node, Select
from apiext.cel.builder import ACCUMULATOR, Builder, Expand, MacroError, Macros

_OLD_ACCUMULATOR = "__result__"
_UNUSED = "#unused"
_SORT_INPUT = "@__sortBy_input__"
_SORTABLE = (ListOf, Select, Ident, Fold, Call)


def _has(make: Builder, call: int, target: Node, args: list[Node]) -> Node:
    named = args[0]
    if not isinstance(named, Select):
        raise MacroError(named.id, "invalid argument to has() macro")
    return Select(make.id(make.offsets[call]), named.operand, named.field, True)


def _name(node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise MacroError(node.id, message)
    return node.name


def _variables(args: list[Node], count: int, message: str) -> tuple[str, str]:
    """Return the names of the loop's two variables; the second is "" if ``count`` is 1."""
    names = [_name(arg, message) for arg in args[:count]]
    if count == 2 and names[0] == names[1]:
        raise MacroError(args[1].id, f"duplicate variable name: {names[0]}")
    for arg, name in zip(args, names, strict=False):
        if name in (ACCUMULATOR, _OLD_ACCUMULATOR):
            raise MacroError(arg.id, "iteration variable overwrites accumulator variable")
    return names[0], names[1] if count == 2 else ""


def _quantifier(kind: str, count: int) -> Expand:
    """Return the expansion of all, exists or exists_one with ``count`` loop variables."""

    def expand(make: Builder, call: int, target: Node, args: list[Node]) -> Node:
        names = _variables(args, count, "argument must be a simple name")
        test = args[count]
        parts: list[Node]
        if kind == "all":
            init = make.literal(call, True)
            condition = make.plain_call(call, "@not_strictly_false", make.ident(call, ACCUMULATOR))
            step = make.plain_call(call, "_&&_", make.ident(call, ACCUMULATOR), test)
            parts = [init, condition, step, make.ident(call, ACCUMULATOR)]
        elif kind == "exists":
            init = make.literal(call, False)
            unlike = make.plain_call(call, "!_", make.ident(call, ACCUMULATOR))
            condition = make.plain_call(call, "@not_strictly_false", unlike)
            step = make.plain_call(call, "_||_", make.ident(call, ACCUMULATOR), test)
            parts = [init, condition, step, make.ident(call, ACCUMULATOR)]
        else:
            init = make.literal(call, 0)
            condition = make.literal(call, True)
            more = make.plain_call(call, "_+_", make.ident(call, ACCUMULATOR), make.literal(call, 1))
            step = make.plain_call(call, "_?_:_", test, more, make.ident(call, ACCUMULATOR))
            result = make.plain_call(call, "_==_", make.ident(call, ACCUMULATOR), make.literal(call, 1))
            parts = [init, condition, step, result]
        return make.fold(call, target, (*names, ACCUMULATOR), parts)

    return expand


def _gather(make: Builder, call: int, init: Node, step: Node, test: Node | None) -> list[Node]:
    """Return the parts of a loop that executes ``step`` for each element.

    With ``test``, the loop executes it only for the elements for which ``test`` is true.
    """
    condition = make.literal(call, True)
    if test is not None:
        step = make.plain_call(call, "_?_:_", test, step, make.ident(call, ACCUMULATOR))
    return [init, condition, step, make.ident(call, ACCUMULATOR)]


def _map(make: Builder, call: int, target: Node, args: list[Node]) -> Node:
    names = _variables(args, 1, "argument is not an identifier")
    init = make.list_of(call)
    step = make.plain_call(call, "_+_", make.ident(call, ACCUMULATOR), make.list_of(call, args[-1]))
    parts = _gather(make, call, init, step, args[1] if len(args) == 3 else None)
    return make.fold(call, target, (*names, ACCUMULATOR), parts)


def _filter(make: Builder, call: int, target: Node, args: list[Node]) -> Node:
    names = _variables(args, 1, "argument is not an identifier")
    init = make.list_of(call)
    step = make.plain_call(call, "_+_", make.ident(call, ACCUMULATOR), make.list_of(call, args[0]))
    return make.fold(call, target, (*names, ACCUMULATOR), _gather(make, call, init, step, args[1]))


def _transform_list(make: Builder, call: int, target: Node, args: list[Node]) -> Node:
    names = _variables(args, 2, "argument must be a simple name")
    step = make.plain_call(call, "_+_", make.ident(call, ACCUMULATOR), make.list_of(call, args[-1]))
    parts = _gather(make, call, make.list_of(call), step, args[2] if len(args) == 4 else None)
    return make.fold(call, target, (*names, ACCUMULATOR), parts)


def _transform_map(with_key: bool) -> Expand:
    def expand(make: Builder, call: int, target: Node, args: list[Node]) -> Node:
        names = _variables(args, 2, "argument must be a simple name")
        key = [make.ident(call, names[0])] if with_key else []
        step = make.plain_call(call, "cel.@mapInsert", make.ident(call, ACCUMULATOR), *key, args[-1])
        parts = _gather(make, call, make.map_of(call), step, args[2] if len(args) == 4 else None)
        return make.fold(call, target, (*names, ACCUMULATOR), parts)

    return expand


def _optional_map(name: str, wraps: bool) -> Expand:
    """Return the expansion of optMap or optFlatMap; optMap ``wraps`` its result in an optional."""

    def expand(make: Builder, call: int, target: Node, args: list[Node]) -> Node:
        variable = _name(args[0], f"{name}() variable name must be a simple identifier")
        has = make.plain_call(call, "hasValue", target=target)
        over = make.list_of(call)
        value = make.plain_call(call, "value", target=make.copy(call, target))
        parts = [value, make.literal(call, False), make.ident(call, variable), args[1]]
        bound = make.fold(call, over, (_UNUSED, "", variable), parts)
        if wraps:
            bound = make.plain_call(call, "optional.of", bound)
        return make.plain_call(call, "_?_:_", has, bound, make.plain_call(call, "optional.none"))

    return expand


def _sort_by(make: Builder, call: int, target: Node, args: list[Node]) -> Node:
    if not isinstance(target, _SORTABLE):
        raise MacroError(
            target.id, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    variable = make.ident(call, _SORT_INPUT)
    keys = _map(make, call, make.copy(call, variable), args)
    sort = make.plain_call(call, "@sortByAssociatedKeys", keys, target=make.copy(call, variable))
    parts = [target, make.literal(call, False), variable, sort]
    return make.fold(call, make.list_of(call), (_UNUSED, "", _SORT_INPUT), parts)


STANDARD: Macros = {
    ("has", 1, False): _has,
    ("all", 2, True): _quantifier("all", 1),
    ("exists", 2, True): _quantifier("exists", 1),
    ("exists_one", 2, True): _quantifier("exists_one", 1),
    ("map", 2, True): _map,
    ("map", 3, True): _map,
    ("filter", 2, True): _filter,
}
OPTIONAL: Macros = {
    ("optMap", 2, True): _optional_map("optMap", True),
    ("optFlatMap", 2, True): _optional_map("optFlatMap", False),
}
TWO_VARIABLES: Macros = {
    ("all", 3, True): _quantifier("all", 2),
    ("exists", 3, True): _quantifier("exists", 2),
    ("exists_one", 3, True): _quantifier("exists_one", 2),
    ("existsOne", 3, True): _quantifier("exists_one", 2),
    ("transformList", 3, True): _transform_list,
    ("transformList", 4, True): _transform_list,
    ("transformMap", 3, True): _transform_map(True),
    ("transformMap", 4, True): _transform_map(True),
    ("transformMapEntry", 3, True): _transform_map(False),
    ("transformMapEntry", 4, True): _transform_map(False),
}
LISTS: Macros = {("sortBy", 2, True): _sort_by}
