"""The composed variables of a policy as one value: what the name ``variables`` stands for (pkg/cel/lazy)."""

from collections.abc import Mapping

from apiext.cel.escaping import unescape
from apiext.cel.values import Fault, Special, Value, no_overload

TYPE_NAME = "kubernetes.variables"


class Composed(Special):
    """Values, or the faults that came instead, by the names of variables; it has fields, and is no map."""

    __slots__ = ("values",)
    type_name = TYPE_NAME
    go_type = "*lazy.MapValue"

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def find(self, key: Value) -> tuple[Value, Value] | Fault | None:
        """Return a variable, which upstream looks for by its unescaped name."""
        if type(key) is not str:
            return no_overload()
        name = unescape(key)
        return (key, self.values[name]) if name is not None and name in self.values else None

    def same(self, other: Value) -> bool | Fault:
        """Return whether it is the very same."""
        return self is other if type(other) is Composed else no_overload()
