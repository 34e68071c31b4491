"""Import functions named in rows of built-in kinds; build columns and field labels."""

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from msgspec.structs import replace

from apiext.catalog.columns import BUILTIN_AGE, CREATED_AT, NAME
from apiext.catalog.served import Column
from apiext.documents.document import View
from apiext.go_types.rows import Row

REVIEW_VERBS = ("create",)


@cache
def function(name: str) -> Callable[..., Any]:
    """Return a function that calls ``module.function`` of this package.

    The first call of the returned function imports the module.
    """
    module, _, attribute = name.partition(".")
    loaded: list[Callable[..., Any]] = []

    def call(*arguments: Any) -> Any:
        if not loaded:
            loaded.append(getattr(import_module(f"{__package__}.{module}"), attribute))
        return loaded[0](*arguments)

    return call


def never_slow(size: int) -> bool:
    """Return False: validation of the kind never needs a thread.

    ``size`` is the size of the object in bytes.
    """
    return False


def slow_until_imported(name: str) -> Callable[[int], bool]:
    """Return a function for ``Work.slow`` that is True until a module is imported.

    Thus a thread does the slow import. ``name`` is ``module.function`` of this package, as for ``function``.
    """
    module = f"{__package__}.{name.partition('.')[0]}"
    return lambda size: module not in sys.modules


# --- columns and labels ---

_KNOWN = {"name": NAME, "plain name": replace(NAME, format=""), "age": BUILTIN_AGE, "created": CREATED_AT}


def columns_of(row: Row) -> tuple[Column, ...]:
    """Return the columns of a kind's Table.

    If the row describes a version that is not stored, such as autoscaling/v1, the cells receive the stored form.
    """
    columns = tuple(_KNOWN[one] if isinstance(one, str) else _column(one) for one in row.published.columns)
    if not row.storage.restored:
        return columns
    restore = function(row.storage.restored)
    return tuple(replace(one, cell=_restoring(restore, one.cell)) for one in columns)


def _restoring(restore: Callable[[View], View], cell: Callable[[View], Any]) -> Callable[[View], Any]:
    return lambda document: cell(restore(document))


def _column(given: Mapping[str, Any]) -> Column:
    return Column(
        given["name"],
        given.get("type", "string"),
        format=given.get("format", ""),
        description=given.get("description", ""),
        priority=1 if given.get("wide") else 0,
        cell=_cell(given),
        shows_age=given.get("age", False),
    )


def _cell(given: Mapping[str, Any]) -> Callable[[View], Any]:
    if "cell" in given:
        return function(given["cell"])
    text = _text_at(given["path"])
    return (lambda document: int(text(document) or 0)) if given.get("type") == "integer" else text


def labels_of(row: Row) -> dict[str, Callable[[View], str]]:
    """Return name → getter of the fields for field selectors (``select`` of a row).

    Of alternatives such as ``spec.a|spec.b|=false``, the first path with a value is used; ``=false`` is a constant.
    """
    found: dict[str, Callable[[View], str]] = {}
    for one in row.published.select:
        for label, path in ({one: one} if isinstance(one, str) else one).items():
            found[label] = _text_at(path)
    return found


def _text_at(paths: str) -> Callable[[View], str]:
    alternatives = [tuple(path.split(".")) for path in paths.split("|")]

    def get(document: View) -> str:
        for steps in alternatives:
            if steps[0][:1] == "=":
                return steps[0][1:]
            value: Any = document
            for name in steps:
                value = value.get(name) if isinstance(value, Mapping) else None
            if value not in (None, ""):
                return ("true" if value else "false") if isinstance(value, bool) else str(value)
        return ""

    return get
