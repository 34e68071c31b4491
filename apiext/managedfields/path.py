"""Path elements: the steps of a field path, in the form of FieldsV1 and of error texts.

See SSA-002, SSA-008. An element is a string of FieldsV1. ``f:name`` is a field, ``k:{"name":"a"}`` an item by its keys,
``v:"a"`` an item of a set, and ``i:0`` an item by its index. Elements are equal if their strings are equal, so they can
be dictionary keys.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from apiext.documents.encoding import encode
from apiext.documents.floats import go_float
from apiext.documents.paths import short
from apiext.text.quotes import go_quote, html_escaped

SELF = "."


def field(name: str) -> str:
    """Return the element of a field."""
    return f"f:{name}"


def key(values: Mapping[str, Any]) -> str:
    """Return the element of the list item with these key values, with sorted keys."""
    return "k:" + _json(values)


def value(item: Any) -> str:
    """Return the element of an item of a set."""
    return "v:" + _json(item)


_UNDEFINED = {"{{undefined}}": None}


def _undefined(_: Any) -> dict[str, Any]:
    """Return the placeholder for a value without JSON.

    Apply configurations of policies may contain such values.
    """
    return _UNDEFINED


def _json(item: Any) -> str:
    """Return JSON as upstream's library writes it.

    Keys are sorted, and HTML characters are escaped. The number 1.0 becomes ``1``, and 0.0000001 ``1e-07``.
    """
    text = orjson.dumps(item, _undefined, orjson.OPT_SORT_KEYS).decode()
    if _UNLIKE.search(text):
        text = html_escaped(encode(orjson.loads(text)).decode())
        if "e-" in text:
            text = _SMALL.sub(lambda found: found[1] or f"{found[2]}0{found[3]}", text)
    return text


_UNLIKE = re.compile("[0-9][.eE]|[<>&\u2028\u2029]")  # parts of JSON that Go may print in another form than orjson
# a string, or a number with an exponent of one digit
_SMALL = re.compile(r'("(?:[^"\\]|\\.)*")|([0-9]e-)([0-9])(?![0-9])')


def index(position: int) -> str:
    """Return the element of an item by its index."""
    return f"i:{position}"


class ElementError(ValueError):
    """The error of a string that is not a path element."""


def check(element: str) -> str:
    """Return the element in its canonical form. Raise ElementError for an invalid element."""
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return element
    if kind == "i:" and _INDEX.match(text):
        return index(int(text))
    if kind in ("v:", "k:"):
        try:
            decoded = orjson.loads(text)
            if kind == "v:":
                return value(decoded)
            if isinstance(decoded, dict):
                return key(decoded)
        except (ValueError, TypeError) as error:  # not JSON, or nested deeper than orjson supports
            raise ElementError(f"invalid path element {element!r}") from error
    raise ElementError(f"unsupported element: {element!r}")


_INT_MAX = 2**63 - 1
_INDEX = re.compile(r"[+-]?[0-9]{1,18}\Z")
_ORDER = {"f:": 0, "k:": 1, "v:": 2, "i:": 3}


def order(element: str) -> tuple[Any, ...]:
    """Return the sort key of an element: fields sort first, then keys, values and indices.

    Elements of the same kind sort by their content. The order equals that of upstream's PathElement.Compare.
    """
    kind, text = element[:2], element[2:]
    rank = _ORDER.get(kind, -1)
    if kind == "k:":
        return (rank, tuple((name, _value_order(one)) for name, one in sorted(orjson.loads(text).items())))
    if kind == "v:":
        return (rank, _value_order(orjson.loads(text)))
    return (rank, int(text) if kind == "i:" else text)


def _value_order(item: Any) -> tuple[Any, ...]:
    """Return the sort key of a value.

    The order is numbers, strings, booleans, arrays, objects, null.
    """
    if isinstance(item, bool):
        return (2, item)
    if isinstance(item, (int, float)):
        return (0, item)
    if isinstance(item, str):
        return (1, item)
    if isinstance(item, list):
        return (3, tuple(map(_value_order, item)))
    if isinstance(item, dict):
        return (4, tuple((name, _value_order(item[name])) for name in sorted(item)))
    return (5,)


def printed(path: Sequence[str], *, owned: bool = False) -> str:
    """Return a path as error texts print it, such as ``.spec.list[name="a"].v``.

    Long names are truncated. ``owned`` is true for a path from managedFields. Upstream decodes such paths from JSON, so
    all their numbers are floats.
    """
    return "".join(_printed(element, owned) for element in path)


def _printed(element: str, owned: bool) -> str:
    kind, text = element[:2], element[2:]
    if kind == "f:":
        return f".{short(text)}"
    if kind == "i:":
        return f"[{text}]"
    decoded = orjson.loads(text)
    if kind == "v:":
        return f"[{short(f'={_literal(decoded, owned)}')}]"
    keys = ",".join(f"{name}={_literal(decoded[name], owned)}" for name in sorted(decoded))
    return f"[{short(keys)}]"


def _literal(item: Any, owned: bool) -> str:
    if isinstance(item, str):
        return go_quote(item)
    # In Go, these numbers are floats: floats, all numbers of managedFields, and integers over int64.
    if isinstance(item, float) or (item.__class__ is int and (owned or item > _INT_MAX)):  # upstream: a float
        return go_float(float(item))
    if isinstance(item, list):
        return f"[{','.join(_literal(one, owned) for one in item)}]"
    if item == _UNDEFINED:
        return "{{undefined}}"
    if isinstance(item, dict):  # upstream: prints an object without separators and braces
        return "".join(f"{name}={_literal(item[name], owned)}" for name in sorted(item))
    return orjson.dumps(item, option=orjson.OPT_SORT_KEYS).decode()
