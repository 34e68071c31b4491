"""Calls that have code of their own in generated functions, by overload: operators and tests on plain values."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from apiext.cel.evaluation import Constant
from apiext.cel.plan import CallStep
from apiext.cel.regexes import matcher

if TYPE_CHECKING:
    from apiext.cel.generate import Generator, Val

Native = Callable[["Generator", CallStep, "list[Val]"], "Val | None"]

_PLAIN = ("int", "bool", "double")


def _val(text: str, kind: str) -> "Val":
    from apiext.cel.generate import Val  # the two modules use each other

    return Val(text, kind)


def _tenths(text: str) -> str:
    return f"(len({text}) + 9) // 10"


def _string_cost(g: "Generator", args: "list[Val]", steps: CallStep) -> None:
    """Charge the comparison of two texts: a tenth of the shorter one."""
    for one, other in ((0, 1), (1, 0)):
        step = steps.args[one]
        if isinstance(step, Constant) and type(step.value) is str:
            size = len(step.value)
            if not size:
                return
            if size <= 10:
                g.line(f"if {args[other].text}: c += 1")
            else:
                g.charge_text(f"(min(len({args[other].text}), {size}) + 9) // 10")
            return
    g.charge_text(f"(min(len({args[0].text}), len({args[1].text})) + 9) // 10")


def _named(g: "Generator", args: "list[Val]", step: CallStep) -> "list[Val]":
    """Return arguments that can be written twice without being evaluated twice."""
    return [
        arg if isinstance(step.args[at], Constant) or arg.text.isidentifier() else _val(g.let(arg.text), arg.kind)
        for at, arg in enumerate(args)
    ]


def _equality(operator: str) -> Native:
    def write(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
        kinds = args[0].kind, args[1].kind
        if kinds[0] == kinds[1] and kinds[0] in _PLAIN:
            g.charge(1)
            return _val(g.let(f"{args[0].text} {operator} {args[1].text}"), "bool")
        if kinds == ("string", "string"):
            args = _named(g, args, step)
            name = g.let(f"{args[0].text} {operator} {args[1].text}")
            _string_cost(g, args, step)
            return _val(name, "bool")
        return None

    return write


def _order(operator: str) -> Native:
    def write(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
        kinds = args[0].kind, args[1].kind
        if kinds in (("int", "int"), ("bool", "bool")):
            g.charge(1)
            return _val(g.let(f"{args[0].text} {operator} {args[1].text}"), "bool")
        if kinds == ("string", "string"):
            args = _named(g, args, step)
            name = g.let(f"{args[0].text} {operator} {args[1].text}")
            _string_cost(g, args, step)
            return _val(name, "bool")
        if kinds in (("timestamp", "timestamp"), ("duration", "duration")):
            g.charge(1)
            return _val(g.let(f"{args[0].text}.ns {operator} {args[1].text}.ns"), "bool")
        return None

    return write


def _whole(operator: str) -> Native:
    def write(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
        if (args[0].kind, args[1].kind) != ("int", "int"):
            return None
        g.charge(1)
        name = g.let(f"{args[0].text} {operator} {args[1].text}")
        g.odd_if(f"not -9223372036854775808 <= {name} <= 9223372036854775807")
        return _val(name, "int")

    return write


def _not(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
    g.charge(1)
    return _val(f"(not {g.truth(args[0])})", "bool")


def _not_strictly_false(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
    if args[0].kind != "bool":
        return None
    g.charge(1)
    return args[0]


def _size(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
    if args[0].kind not in ("raw", "string", "list", "bytes"):
        return None
    g.charge(1)
    return _val(g.let(f"len({args[0].text})"), "int")


def _test(text: str) -> Native:
    """Return the writer of a test of two texts; ``{0}`` and ``{1}`` stand for them."""

    def write(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
        if (args[0].kind, args[1].kind) != ("string", "string"):
            return None
        pattern = step.args[1]
        if isinstance(pattern, Constant):
            g.charge((len(pattern.value) + 9) // 10)
        else:
            args = _named(g, args, step)
            g.charge_text(_tenths(args[1].text))
        return _val(g.let(text.format(args[0].text, args[1].text)), "bool")

    return write


def _contains(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
    if (args[0].kind, args[1].kind) != ("string", "string"):
        return None
    args = _named(g, args, step)
    pattern = step.args[1]
    part = str((len(pattern.value) + 9) // 10) if isinstance(pattern, Constant) else f"({_tenths(args[1].text)})"
    g.charge_text(f"({_tenths(args[0].text)}) * {part}")
    return _val(g.let(f"{args[1].text} in {args[0].text}"), "bool")


def _matches(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
    pattern = step.args[1]
    if args[0].kind != "string" or not isinstance(pattern, Constant) or type(pattern.value) is not str:
        return None
    args = _named(g, args, step)
    match = g.keep(matcher(pattern.value), "r")
    g.charge_text(f"(len({args[0].text}) + 10) // 10 * {(len(pattern.value) + 3) // 4}")
    return _val(g.let(f"{match}({args[0].text})"), "bool")


def _in_list(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
    over = args[1].declared
    if args[1].kind != "raw" or over is None or over.kind != "list" or over.element is None:
        return None
    if over.element.kind not in ("string", "int") or args[0].kind != over.element.kind or over.element.nullable:
        return None
    args = [_named(g, args[:1], step)[0], args[1]]
    g.charge_text(f"len({args[1].text})")
    return _val(g.let(f"{args[0].text} in {args[1].text}"), "bool")


def _in_map(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
    over = args[1].declared
    if args[1].kind != "raw" or over is None or over.kind != "map" or args[0].kind != "string":
        return None
    g.charge(1)
    return _val(g.let(f"{args[0].text} in {args[1].text}"), "bool")


def _join_texts(g: "Generator", step: CallStep, args: "list[Val]") -> "Val | None":
    if (args[0].kind, args[1].kind) != ("string", "string"):
        return None
    name = g.let(f"{args[0].text} + {args[1].text}")
    g.charge_text(_tenths(name))
    return _val(name, "string")


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
