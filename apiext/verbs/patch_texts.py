"""Print the invalid result of a patch for an error message, with the fields in Go's order.

See WRI-007. Go prints unchanged fields in the order of its structs. It sorts the fields of each object on the path to a
change, and prints the client's numbers and strings as sent. The text is created only for an error.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from apiext.documents import json_patch
from apiext.documents.document import Document, View, clone
from apiext.documents.go_json import go_json
from apiext.meta import objectmeta
from apiext.verbs.call import Call

_INDEX = re.compile(r"[+-]?[0-9]+").fullmatch


def merged(call: Call, shown: View, raw: bytes, patch: View) -> str:
    """Return the text of an object after a merge patch."""
    return go_json(_merged(_as_printed(call, shown), _literally(raw, patch)))


def listed(raw: bytes, patch: Sequence[Any]) -> str:
    """Return the text of the result of a merge patch that is an array.

    The array replaces the object.
    """
    return go_json(_without_nulls(_literally(raw, patch)))


def patched(call: Call, shown: View, raw: bytes, operations: Sequence[View]) -> str:
    """Return the text of an object after a JSON patch, which must be applicable."""
    found = clone(_as_printed(call, shown))
    opened: dict[int, Any] = {}  # id() → object or array on the path of an operation; these objects are sorted
    for plain, literal in zip(operations, _literally(raw, operations), strict=True):
        kind, path = plain["op"], plain.get("path")
        source = _open(found, plain.get("from"), opened) if kind in ("copy", "move") else None
        if kind in ("copy", "test"):
            _open(found, path, opened)
        if kind == "copy":  # Go resolves ``from`` and ``path`` before the copy, so the copy is sorted
            _sort(source, opened)
        if kind != "test":
            found = json_patch.perform(found, {**plain, "value": literal["value"]} if "value" in plain else plain)
            _open(found, path, opened)
    opened[id(found)] = found
    _sort(found, opened)
    return go_json(found)


def _as_printed(call: Call, shown: View) -> Document:
    """Return an object with its fields in Go's order.

    For a built-in kind, this is the order of the fields in the Go struct. For a custom object, the fields are sorted.
    """
    if not call.endpoint.model.typed:
        document: Document = orjson.loads(orjson.dumps(shown, option=orjson.OPT_SORT_KEYS))
        return document
    document, _ = call.endpoint.model.normalize(clone(shown))
    if "metadata" in document:
        document["metadata"] = objectmeta.in_go_order(document["metadata"])
    return document


def _literally(raw: bytes, decoded: Any) -> Any:
    """Return a patch with its numbers and strings as the client wrote them."""
    try:
        return _Literally().decode(raw.decode())
    except ValueError:  # only the lenient decoder of requests accepts this text
        return decoded


class _Literally(json.JSONDecoder):
    """A JSON decoder that keeps the client's text of numbers and strings.

    The text ``1.0``, for example, stays as it is, and so do escapes in strings.
    """

    def __init__(self) -> None:
        super().__init__(parse_int=_literal, parse_float=_literal)
        self.parse_string = _literal_text
        self.scan_once = json.scanner.py_make_scanner(self)  # type: ignore[attr-defined]  # not in the stubs


def _literal(text: str) -> orjson.Fragment:
    return orjson.Fragment(text.encode())


def _literal_text(text: str, start: int, strict: bool) -> tuple[orjson.Fragment, int]:
    _, end = json.decoder.scanstring(text, start, strict)  # type: ignore[attr-defined]  # not in the stubs
    return _literal(text[start - 1 : end]), end


def _merged(old: Mapping[str, Any], patch: Mapping[str, Any]) -> Document:
    found: Document = {}
    for name in sorted({*old, *patch}):
        if name not in patch:
            found[name] = old[name]
        elif patch[name] is not None:
            found[name] = _replaced(old.get(name), patch[name])
    return found


def _replaced(old: Any, new: Any) -> Any:
    if isinstance(old, dict):
        return _merged(old, new) if isinstance(new, dict) else new
    return _without_nulls(new)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(value[name]) for name in sorted(value) if value[name] is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _open(value: Any, pointer: Any, opened: dict[int, Any]) -> Any:
    """Record the objects and arrays on the path of a pointer in ``opened``.

    Return the value to which the pointer leads, or None if the value is missing.
    """
    for part in json_patch.parts(pointer) if isinstance(pointer, str) else ():
        opened[id(value)] = value
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and _INDEX(part) and -len(value) <= int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def _sort(value: Any, opened: Mapping[int, Any]) -> None:
    """Sort the fields of all recorded objects inside a value."""
    if isinstance(value, dict):
        if id(value) in opened:
            members = sorted(value.items())
            value.clear()
            value.update(members)
        for item in value.values():
            _sort(item, opened)
    elif isinstance(value, list):
        for item in value:
            _sort(item, opened)
