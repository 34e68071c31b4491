"""Import aiohttp's server without its client, its framework and their imports.

Those imports take a quarter of the start time. The client reads all CA certificates of the machine, the framework
all MIME types. To import a module of a package, Python first runs the package, and the package of aiohttp imports
the client. So this module puts the package and ``aiohttp.web`` into ``sys.modules`` without running them. Each of
them is run later, if code uses one of its names that the server does not need.

The modules of aiohttp's server also import names that only aiohttp's client and framework use. During the import of the
server, ``sys.modules`` contains stand-ins for the modules with these names. When the package aiohttp is run later, the
names get their real values.
"""

import re
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from msgspec import defstruct

from apiext.system.stand_ins import StandIn, standing_in, value_of

_NAME = "aiohttp"
_WEB = f"{_NAME}.web"
_SERVER = {"RequestHandler": "web_protocol", "RequestPayloadError": "web_protocol", "Server": "web_server"}
"""Name in ``aiohttp.web`` that apiext uses → the module that defines it."""
_UNUSED = ("aiohttp.multipart", "email.parser", "email.policy", "html", "mimetypes", "tempfile", "urllib.request")
"""Modules of which aiohttp's server imports names that only its client and framework use."""
_ATTR = "attr"
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


class _Package(ModuleType):
    """The package ``aiohttp`` before it has run.

    The package then has only its version, and the modules that are imported already.
    """

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if spec is None or spec.loader is None or name.startswith("__") or find_spec(f"{_NAME}.{name}") is not None:
            raise AttributeError(f"module {_NAME!r} has no attribute {name!r} yet")
        _run(self)
        return getattr(self, name)


class _Web(ModuleType):
    """``aiohttp.web`` before it has run; it has only the names in ``_SERVER``."""

    def __getattr__(self, name: str) -> Any:
        if name in _SERVER:
            return getattr(import_module(f"{_NAME}.{_SERVER[name]}"), name)
        if name.startswith("__"):
            raise AttributeError(f"module {_WEB!r} has no attribute {name!r} yet")
        _run(self)
        return getattr(self, name)


def _record(**settings: bool) -> Callable[[type], type]:
    """Replace ``attr.s``: return a decorator that turns a class into a frozen Struct.

    Without this, the import of attrs would take a third of the time of the import of this module.
    """

    def make(kind: type) -> type:
        names, given = dict(kind.__annotations__), dict(vars(kind))
        fields = [(name, Any, given.pop(name)) if name in given else (name, Any) for name in names]
        kept = {name: value for name, value in given.items() if name not in ("__dict__", "__weakref__")}
        kept.pop("__annotations__")
        return defstruct(kind.__name__, fields, namespace=kept, frozen=True)

    return make


def _run(module: ModuleType) -> None:
    for part in [part for name, part in sys.modules.items() if name.startswith(f"{_NAME}.")]:
        for name, value in list(vars(part).items()):
            if isinstance(value, StandIn):
                setattr(part, name, value_of(value))
    module.__class__ = ModuleType
    assert module.__spec__ is not None
    assert module.__spec__.loader is not None
    module.__spec__.loader.exec_module(module)


def prepare() -> None:
    """Import aiohttp's server without its client and framework.

    Do nothing if aiohttp is imported already or its package has no version line.
    """
    spec = find_spec(_NAME) if _NAME not in sys.modules else None
    source = Path(spec.origin).read_text(encoding="utf-8") if spec is not None and spec.origin else ""
    version = _VERSION.search(source)
    if spec is not None and version is not None:
        package = module_from_spec(spec)
        package.__class__ = _Package
        package.__dict__["__version__"] = version[1]
        sys.modules[_NAME] = package
        parts = find_spec(_WEB)
        if parts is not None:
            web = module_from_spec(parts)
            web.__class__ = _Web
            sys.modules[_WEB] = web
            package.__dict__["web"] = web
        attrs = ModuleType(_ATTR)
        attrs.__dict__["s"] = _record
        with standing_in(_UNUSED, {_ATTR: attrs}):
            for part in {*_SERVER.values()}:
                import_module(f"{_NAME}.{part}")


prepare()
