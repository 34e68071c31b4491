"""Write the Python source of a generated function: lines, names, costs, data conversions.

A generated function evaluates one expression. If it raises Unhandled, the interpreter evaluates the expression. The
function reads raw data, that is, decoded JSON. A view (views.py) gives CEL functions raw data as a value of its
declared type.
"""

from typing import Any, NamedTuple

from apiext.cel import runtime
from apiext.cel.checker import Checked
from apiext.cel.declared import Declared
from apiext.cel.evaluation import Constant


class Unsupported(Exception):
    """The error of a step of an expression for which no code can be generated."""


class Val(NamedTuple):
    """A value in the generated code.

    ``text`` is a Python expression. ``kind`` is the kind of the CEL type; "any" and "dyn" stand for kinds that the
    generated code does not distinguish. The kind "raw" stands for decoded data whose declared type is ``declared``.
    """

    text: str
    kind: str
    declared: Declared | None = None


CHECKS = {"string": "str", "int": "int", "bool": "bool"}
_PYTHON = {
    "object": ("dict",), "map": ("dict",), "list": ("list",), "string": ("str",), "int": ("int",), "bool": ("bool",),
    "double": ("float", "int"), "int_or_string": ("str", "int"),
}  # fmt: skip
_CONTAINERS = ("object", "map", "list")
_VIEWED = ("bytes", "timestamp", "duration")
KINDS = frozenset(("bool", "int", "uint", "double", "string", "bytes", "timestamp", "duration", "list"))
LITERAL_KINDS: dict[type, str] = {
    bool: "bool", int: "int", float: "double", str: "string", bytes: "bytes", type(None): "null", list: "list"
}  # fmt: skip


class Writer:
    """The writer of one generated function."""

    def __init__(self, checked: Checked) -> None:
        self.checked = checked
        self.namespace: dict[str, Any] = dict(runtime.NAMES)
        self.lines: list[str] = []
        self.indent = 1
        self.count = 0
        self.pending = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self) -> str:
        self.count += 1
        return f"t{self.count}"

    def keep(self, value: object, prefix: str) -> str:
        """Return a name by which the generated code can refer to ``value``."""
        self.count += 1
        name = f"_{prefix}{self.count}"
        self.namespace[name] = value
        return name

    def let(self, text: str) -> str:
        name = self.name()
        self.line(f"{name} = {text}")
        return name

    def charge(self, units: int) -> None:
        self.pending += units

    def charge_text(self, text: str) -> None:
        self.line(f"c += {text}")

    def flush(self) -> None:
        if self.pending:
            self.line(f"c += {self.pending}")
            self.pending = 0

    def unhandled_if(self, condition: str) -> None:
        self.line(f"if {condition}: raise _Unhandled")

    def kind_of(self, id: int) -> str:
        kind = self.checked.types[id].kind
        return kind if kind in KINDS else "any"

    def value(self, val: Val) -> Val:
        """Return a value in the form that CEL functions accept.

        For raw data, write code that wraps the data in a view. Return other values unchanged.
        """
        if val.kind != "raw":
            return val
        assert val.declared is not None
        name = self.let(f"_view({val.text}, {self.keep(val.declared, 'd')})")
        self.unhandled_if(f"type({name}) is _Fault")
        return Val(name, "any")

    def load(self, text: str, declared: Declared, null_is_missing: bool = False) -> Val:
        """Write code that reads data.

        The code raises Unhandled if the data does not have its declared type. The type of a list, map or object is
        checked later, by ``container``. But if ``null_is_missing``, the code raises Unhandled if a nullable list, map
        or object is null. Raise Unsupported if no code can read the type.
        """
        kind = declared.kind
        name = self.let(text)
        if kind in _CONTAINERS:
            if null_is_missing and declared.nullable:
                self.unhandled_if(f"{name} is None")
            return Val(name, "raw", declared)
        if kind in CHECKS:
            self.unhandled_if(f"type({name}) is not {CHECKS[kind]}")
            return Val(name, kind)
        if kind == "double":
            self.line(f"if type({name}) is not float:")
            self.line(f"    if type({name}) is not int: raise _Unhandled")
            self.line(f"    {name} = float({name})")
            return Val(name, kind)
        if kind == "int_or_string":
            self.unhandled_if(f"type({name}) is not str and type({name}) is not int")
            return Val(name, "dyn")
        if kind not in _VIEWED:
            raise Unsupported
        name = self.let(f"_view({name}, {self.keep(declared, 'd')})")
        self.unhandled_if(f"type({name}) is _Fault or {name} is None")
        return Val(name, kind)

    def container(self, val: Val) -> str:
        """Return the expression of a list or map.

        The code raises Unhandled if raw data has another type.
        """
        if val.kind == "raw" and val.declared is not None:
            self.unhandled_if(f"type({val.text}) is not {'list' if val.declared.kind == 'list' else 'dict'}")
        return val.text

    def constant(self, step: Constant) -> Val:
        value = step.value
        kind = LITERAL_KINDS.get(type(value), "any")
        if kind in ("int", "bool", "string", "null"):
            return Val(repr(value), kind)
        return Val(self.keep(value, "k"), kind)

    def present(self, name: str, declared: Declared) -> Val:
        """Return the test for the presence of a field.

        The code raises Unhandled if the field does not have its declared type.
        """
        wanted = _PYTHON.get(declared.kind)
        if wanted is not None:
            misfit = " and ".join(f"type({name}) is not {kind}" for kind in wanted)
            self.unhandled_if(f"{name} is not None and {misfit}")
        elif declared.kind in _VIEWED:
            self.unhandled_if(f"{name} is not None and type(_view({name}, {self.keep(declared, 'd')})) is _Fault")
        return Val(f"({name} is not None)", "bool")

    def truth(self, val: Val) -> str:
        """Return the expression of a boolean; the code raises Unhandled for a value of another type."""
        if val.kind != "bool":
            name = self.let(self.value(val).text)
            self.unhandled_if(f"type({name}) is not bool")
            return name
        return val.text
