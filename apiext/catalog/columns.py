"""Table columns: their definitions, and the functions that return the cells of an object.

See TAB-002, TAB-003.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from apiext.catalog.served import Column
from apiext.documents import jsonpath
from apiext.documents import limits as documents_limits
from apiext.documents.document import View
from apiext.documents.encoding import encode
from apiext.documents.floats import go_float
from apiext.meta.time import ZERO_TIME
from apiext.text.quotes import html_escaped

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_EXACT = 2**53
NAME_DESCRIPTION = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a"
    " client to request the generation of an appropriate name automatically. Name is primarily intended for creation"
    " idempotence and configuration definition. Cannot be updated. More info:"
    " https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
CREATED_DESCRIPTION = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed"
    " to be set in happens-before order across separate operations. Clients may not set this value. It is represented"
    " in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info:"
    " https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


def name_cell(document: View) -> Any:
    """Return metadata.name."""
    return document.get("metadata", {}).get("name", "")


def created(document: View) -> Any:
    """Return metadata.creationTimestamp, None if it is unset."""
    return document.get("metadata", {}).get("creationTimestamp")


def created_at(document: View) -> Any:
    """Return metadata.creationTimestamp, or Go's zero time if it is unset.

    The creationTimestamp is unset in bookmarks.
    """
    return created(document) or ZERO_TIME


OF_METADATA = (name_cell, created, created_at)
"""Cell functions that read only metadata."""
NAME = Column("Name", "string", format="name", description=NAME_DESCRIPTION, cell=name_cell)
AGE = Column("Age", "date", description=CREATED_DESCRIPTION, cell=created, shows_age=True)
"""The age of a custom object; null in the row of a bookmark."""
BUILTIN_AGE = Column("Age", "string", description=CREATED_DESCRIPTION, cell=created_at, shows_age=True)
"""The age of an object of a built-in kind; ``<unknown>`` in the row of a bookmark."""
CREATED_AT = Column("Created At", "date", description=CREATED_DESCRIPTION, cell=created_at)


class Searching:
    """A cell function whose cost grows with the object.

    Its JSONPath is not just a path of field names.
    """

    __slots__ = ("_cell",)

    def __init__(self, cell: Callable[[View], Any]) -> None:
        self._cell = cell

    def __call__(self, document: View) -> Any:
        """Return the value of the cell."""
        return self._cell(document)


def custom_columns(definitions: Iterable[View]) -> tuple[Column, ...]:
    """Return the columns of a version: the name, then printer columns, else the age (TAB-002).

    The first column with an invalid path is left out, with all later columns (TAB-006). The work budget of a row is
    divided equally among the columns with a Searching cell, so that a cell does not depend on the work for other cells.
    """
    definitions, columns = list(definitions), [NAME]
    searching = sum(not jsonpath.is_simple(definition.get("jsonPath") or "") for definition in definitions)
    for definition in definitions:
        column = _column(definition, documents_limits.JSONPATH_WORK // max(1, searching))
        if column is None:
            return tuple(columns)
        columns.append(column)
    return (NAME, AGE) if len(columns) == 1 else tuple(columns)


def _column(definition: View, work: int) -> Column | None:
    path = definition.get("jsonPath") or ""
    try:
        find = jsonpath.compile(path, work)
    except ValueError:
        return None
    kind = definition.get("type") or ""
    return Column(
        definition.get("name") or "",
        kind,
        format=definition.get("format") or "",
        description=definition.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        priority=definition.get("priority") or 0,
        cell=_cell(path, find, kind),
        shows_age=kind == "date",
    )


def _cell(path: str, find: Callable[[View], list[Any]], kind: str) -> Callable[[View], Any]:
    show: Callable[[Any], Any] = _CELLS.get(kind) or _nothing

    def cell(document: View) -> Any:
        try:
            found = find(document)
        except (ValueError, LookupError):
            return None
        return show(found[0]) if found else None

    return cell if jsonpath.is_simple(path) else Searching(cell)


def _nothing(value: Any) -> None:
    return None


def text_of(value: Any) -> str:
    """Print the result of a JSONPath: a string unquoted, objects and arrays as compact JSON.

    The JSON equals that of Go.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) or (isinstance(value, int) and not _INT_MIN <= value <= _INT_MAX):
        return go_float(float(value))
    if isinstance(value, dict | list):
        return html_escaped(encode(value).decode())
    return "<no value>" if value is None else str(value)


def _integer(value: Any) -> int | None:
    if value.__class__ not in (int, float):
        return None
    # upstream: Go converts numbers beyond int64 to the smallest int64
    return int(value) if _INT_MIN <= value <= _INT_MAX else _INT_MIN


def _number(value: Any) -> float | None:
    if value.__class__ not in (int, float):
        return None
    return value if abs(value) <= _EXACT else float(value)  # Go reads the number as a float64


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _date(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    return ZERO_TIME if value in ("", "null") else value  # upstream: empty and null texts are decoded as the zero time


_CELLS: Mapping[str, Callable[[Any], Any]] = {
    "string": text_of,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "date": _date,
}


def _scale_cell(part: str) -> Callable[[View], Any]:
    # The cell of zero desired replicas is null.
    return lambda scale: (scale.get(part) or {}).get("replicas")  # upstream: the spec of a Scale omits zero


SCALE_COLUMNS = (
    NAME,
    Column("Desired", "integer", description="Number of desired replicas", cell=_scale_cell("spec")),
    Column("Available", "integer", description="Number of actual replicas", cell=_scale_cell("status")),
    replace(BUILTIN_AGE, type="date"),
)
