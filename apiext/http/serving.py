"""aiohttp's server without its client: the latter reads all CA certificates of the machine, a tenth of each start.

Importing any part of a package runs the package first, and aiohttp's imports its client. Here the package stands in
``sys.modules`` without having run; it runs when somebody asks for what it defines.
"""

import re
import sys
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_NAME = "aiohttp"
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


class _Package(ModuleType):
    """The package before it ran: it has nothing but its version, which its parts ask for, and those that came."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if spec is None or spec.loader is None or name.startswith("__") or find_spec(f"{_NAME}.{name}") is not None:
            raise AttributeError(f"module {_NAME!r} has no attribute {name!r} yet")
        self.__class__ = ModuleType  # type: ignore[assignment]  # allowed for modules
        spec.loader.exec_module(self)
        return getattr(self, name)


def prepare() -> None:
    """Put the package in its place, unless it was imported before or looks unlike what is known of it."""
    spec = find_spec(_NAME) if _NAME not in sys.modules else None
    source = Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""
    version = _VERSION.search(source)
    if spec is not None and version is not None:
        package = module_from_spec(spec)
        package.__class__ = _Package
        package.__dict__["__version__"] = version[1]
        sys.modules[_NAME] = package


prepare()
