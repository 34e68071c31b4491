"""Stand-ins for modules that a library imports and that this server does not use.

See decision 36.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

_ORIGIN = "_origin"


class StandIn(ModuleType):
    """A stand-in for a module, or for a name in a module.

    Each attribute of a stand-in for a module is a stand-in for a name, except special names such as ``__path__``. The
    module is imported when the stand-in for a name is called, or when an attribute of this stand-in is read.
    """

    def __init__(self, module: str, attribute: str = "") -> None:
        super().__init__(f"{module}.{attribute}" if attribute else module)
        self.__dict__[_ORIGIN] = module, attribute

    def __getattr__(self, name: str) -> Any:
        module, attribute = self.__dict__[_ORIGIN]
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(value_of(self), name) if attribute else StandIn(module, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return value_of(self)(*arguments, **named)


def value_of(stand_in: StandIn) -> Any:
    """Return the module or the name that a stand-in represents. Import the module if necessary."""
    module, attribute = stand_in.__dict__[_ORIGIN]
    value = import_module(module)
    return getattr(value, attribute) if attribute else value


@contextmanager
def standing_in(names: Iterable[str], others: Mapping[str, ModuleType] | None = None) -> Iterator[None]:
    """Put stand-ins for the modules ``names`` into ``sys.modules`` during an import.

    ``others`` is name of a module → its replacement. Modules that are imported already are not replaced.
    """
    modules: dict[str, ModuleType] = {**(others or {}), **{name: StandIn(name) for name in names}}
    placed = {name: module for name, module in modules.items() if name not in sys.modules}
    sys.modules.update(placed)
    try:
        yield
    finally:
        for name in placed:
            del sys.modules[name]
