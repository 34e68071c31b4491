"""Generate inline code for calls of common overloads: operators and tests on plain values."""

from collections.abc import Callable, Mapping

from apiext.cel.evaluation import Constant
from apiext.cel.plan import CallStep
from apiext.cel.regexes import matcher
from apiext.cel.writer import Val, Writer

Native = Callable[[Writer, CallStep, list[Val]], Val | None]

_TYPES = {"string": frozenset((str,)), "int": frozenset((int,))}
_PLAIN = ("int", "bool", "double")


def _tenths(text: str) -> str:
    return f"(len({text}) + 9) // 10"


def _string_cost(w: Writer, args: list[Val], call: CallStep) -> None:
    """Write code that adds the cost of comparing two strings.

    The cost is a tenth of the length of the shorter string.
    """
    for one, other in ((0, 1), (1, 0)):
        step = call.args[one]
        if isinstance(step, Constant) and type(step.value) is str:
            size = len(step.value)
            if not size:
                return
            if size <= 10:
                w.line(f"if {args[other].text}: c += 1")
            else:
                w.charge_text(f"(min(len({args[other].text}), {size}) + 9) // 10")
            return
    w.charge_text(f"(min(len({args[0].text}), len({args[1].text})) + 9) // 10")


def _named(w: Writer, args: list[Val], step: CallStep) -> list[Val]:
    """Assign arguments to variables, so that code that uses them twice evaluates them once."""
    return [
        arg if isinstance(step.args[at], Constant) or arg.text.isidentifier() else Val(w.let(arg.text), arg.kind)
        for at, arg in enumerate(args)
    ]


def _equality(operator: str) -> Native:
    def write(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
        kinds = args[0].kind, args[1].kind
        if kinds[0] == kinds[1] and kinds[0] in _PLAIN:
            w.charge(1)
            return Val(w.let(f"{args[0].text} {operator} {args[1].text}"), "bool")
        return _compared_texts(w, step, args, operator) if kinds == ("string", "string") else None

    return write


def _compared_texts(w: Writer, step: CallStep, args: list[Val], operator: str) -> Val:
    args = _named(w, args, step)
    name = w.let(f"{args[0].text} {operator} {args[1].text}")
    _string_cost(w, args, step)
    return Val(name, "bool")


def _order(operator: str) -> Native:
    def write(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
        kinds = args[0].kind, args[1].kind
        if kinds in (("int", "int"), ("bool", "bool")):
            w.charge(1)
            return Val(w.let(f"{args[0].text} {operator} {args[1].text}"), "bool")
        if kinds == ("string", "string"):
            return _compared_texts(w, step, args, operator)
        if kinds in (("timestamp", "timestamp"), ("duration", "duration")):
            w.charge(1)
            return Val(w.let(f"{args[0].text}.ns {operator} {args[1].text}.ns"), "bool")
        return None

    return write


def _whole(operator: str) -> Native:
    def write(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
        if (args[0].kind, args[1].kind) != ("int", "int"):
            return None
        w.charge(1)
        name = w.let(f"{args[0].text} {operator} {args[1].text}")
        w.unhandled_if(f"not -9223372036854775808 <= {name} <= 9223372036854775807")
        return Val(name, "int")

    return write


def _not(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
    w.charge(1)
    return Val(f"(not {w.truth(args[0])})", "bool")


def _not_strictly_false(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
    if args[0].kind != "bool":
        return None
    w.charge(1)
    return args[0]


def _size(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
    if args[0].kind not in ("raw", "string", "list", "bytes"):
        return None
    w.charge(1)
    return Val(w.let(f"len({w.container(args[0])})"), "int")


def _test(text: str) -> Native:
    """Return the code generator of a test of two strings.

    ``{0}`` and ``{1}`` in ``text`` stand for the strings.
    """

    def write(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
        if (args[0].kind, args[1].kind) != ("string", "string"):
            return None
        pattern = step.args[1]
        if isinstance(pattern, Constant):
            w.charge((len(pattern.value) + 9) // 10)
        else:
            args = _named(w, args, step)
            w.charge_text(_tenths(args[1].text))
        return Val(w.let(text.format(args[0].text, args[1].text)), "bool")

    return write


def _contains(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
    if (args[0].kind, args[1].kind) != ("string", "string"):
        return None
    args = _named(w, args, step)
    pattern = step.args[1]
    part = str((len(pattern.value) + 9) // 10) if isinstance(pattern, Constant) else f"({_tenths(args[1].text)})"
    w.charge_text(f"({_tenths(args[0].text)}) * {part}")
    return Val(w.let(f"{args[1].text} in {args[0].text}"), "bool")


def _matches(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
    pattern = step.args[1]
    if args[0].kind != "string" or not isinstance(pattern, Constant) or type(pattern.value) is not str:
        return None
    args = _named(w, args, step)
    match = w.keep(matcher(pattern.value), "r")
    w.charge_text(f"(len({args[0].text}) + 10) // 10 * {(len(pattern.value) + 3) // 4}")
    return Val(w.let(f"{match}({args[0].text})"), "bool")


def _in_list(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
    over = args[1].declared
    if args[1].kind != "raw" or over is None or over.kind != "list" or over.element is None:
        return None
    if over.element.kind not in ("string", "int") or args[0].kind != over.element.kind or over.element.nullable:
        return None
    args = [_named(w, args[:1], step)[0], args[1]]
    w.charge_text(f"len({w.container(args[1])})")
    w.unhandled_if(f"not {w.keep(_TYPES[over.element.kind], 't')}.issuperset(map(type, {args[1].text}))")
    return Val(w.let(f"{args[0].text} in {args[1].text}"), "bool")


def _in_map(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
    over = args[1].declared
    if args[1].kind != "raw" or over is None or over.kind != "map" or args[0].kind != "string":
        return None
    assert over.element is not None
    w.charge(1)
    key = _named(w, args[:1], step)[0].text
    entries = w.container(args[1])
    name = w.let(f"{entries}.get({key})")
    w.unhandled_if(f"{name} is None and {key} in {entries}")
    return w.present(name, over.element)


def _join_texts(w: Writer, step: CallStep, args: list[Val]) -> Val | None:
    if (args[0].kind, args[1].kind) != ("string", "string"):
        return None
    name = w.let(f"{args[0].text} + {args[1].text}")
    w.charge_text(_tenths(name))
    return Val(name, "string")


NATIVE: Mapping[str, Native] = {
    "equals": _equality("=="), "not_equals": _equality("!="),
    **{f"{name}_{kind}": _order(operator)
       for name, operator in (("less", "<"), ("less_equals", "<="), ("greater", ">"), ("greater_equals", ">="))
       for kind in ("int64", "string", "bool", "timestamp", "duration")},
    "add_int64": _whole("+"), "subtract_int64": _whole("-"), "multiply_int64": _whole("*"),
    "add_string": _join_texts, "logical_not": _not, "not_strictly_false": _not_strictly_false,
    **dict.fromkeys(("size_list", "list_size", "size_map", "map_size", "size_string", "string_size"), _size),
    "starts_with_string": _test("{0}.startswith({1})"), "ends_with_string": _test("{0}.endswith({1})"),
    "contains_string": _contains, "matches_string": _matches, "in_list": _in_list, "in_map": _in_map,
}  # fmt: skip
