"""RFC 6902 patches, with the leniency of the library that Kubernetes uses (WRI-007)."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from apiext import limits
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import json_kind


class PatchMalformed(ValueError):
    """The patch is not a list of operations (400)."""


class PatchInvalid(ValueError):
    """The patch cannot be applied to this document (422)."""


class PatchTooBig(ValueError):
    """The patch has too many operations (413)."""


_INDEX = re.compile(r"[+-]?[0-9]{1,9}\Z")
_MEMBERS = frozenset(("op", "path", "from", "value"))
Container = dict[str, Any] | list[Any]


def check(operations: Sequence[Any]) -> list[str]:
    """Return notes about members that operations do not have (``unknown field "[0].foo"``); raise what ``apply`` would.

    Raises PatchMalformed and PatchTooBig, which do not depend on the document.
    """
    notes = []
    for index, operation in enumerate(operations):
        if operation is not None and not isinstance(operation, dict):
            kind = json_kind(operation)
            raise PatchMalformed(f"json: cannot unmarshal {kind} into Go value of type jsonpatch.Operation")
        notes += [f'unknown field "[{index}].{name}"' for name in operation or () if name not in _MEMBERS]
    if len(operations) > limits.MAX_JSON_PATCH_OPERATIONS:
        raise PatchTooBig(
            f"The allowed maximum operations in a JSON patch is {limits.MAX_JSON_PATCH_OPERATIONS}, "
            f"got {len(operations)}"
        )
    return notes


def apply(document: View, operations: Sequence[Any]) -> Document:
    """Return the patched document; it shares nothing with the arguments.

    Raises PatchMalformed, PatchTooBig, or PatchInvalid when an operation fails; copies are bounded together by
    ``limits.MAX_JSON_PATCH_COPY`` bytes.
    """
    check(operations)
    patching = _Patching(clone(document))
    try:
        for operation in operations:
            name = (operation or {}).get("op")
            perform = _OPERATIONS.get(name) if isinstance(name, str) else None
            if perform is None:
                raise PatchInvalid(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}")
            perform(patching, operation)
        orjson.dumps(patching.root)
    except (RecursionError, orjson.JSONEncodeError) as error:
        raise PatchInvalid("the patched document exceeds max depth") from error
    if not isinstance(patching.root, dict):
        raise PatchInvalid("the patched document is not an object")
    return patching.root


class _Patching:
    """The document being patched and the bytes that were copied."""

    def __init__(self, root: Document) -> None:
        self.root: Any = root
        self.copied = 0

    def place(self, operation: Mapping[str, Any], member: str = "path") -> tuple[Container, str]:
        """Return the container that a pointer leads into and the last part of the pointer."""
        path = _pointer(operation, member)
        way = parts(path)
        if not way:
            raise PatchInvalid(f"doc is missing path: {path}")
        at: Any = self.root
        for part in way[:-1]:
            at = _get(at, part) if isinstance(at, dict | list) else None
        if not isinstance(at, dict | list):
            raise PatchInvalid(f"doc is missing path: {path}")
        return at, way[-1]


def parts(pointer: str) -> list[str]:
    """Return the names and indices of a pointer; upstream: what stands before the first slash is ignored."""
    return [_unescape(part) for part in pointer.split("/")[1:]]


def _pointer(operation: Mapping[str, Any], member: str) -> str:
    path = operation.get(member)
    if not isinstance(path, str):
        raise PatchInvalid(f"operation missing {member} field")
    return path


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~") if "~" in part else part


def _index(items: Sequence[Any], key: str, size: int) -> int:
    """Return an index below ``size``; upstream: negative ones count from the end."""
    if not _INDEX.match(key):
        raise PatchInvalid(f"invalid array index: {key}")
    index = int(key)
    if not -size <= index < size:
        raise PatchInvalid(f"Unable to access invalid index: {key}")
    return index + size if index < 0 else index


def _get(at: Container, key: str) -> Any:
    if isinstance(at, dict):
        return at.get(key)  # upstream: a missing member reads as null
    return at[_index(at, key, len(at))]


def _put_new(at: Container, key: str, value: Any) -> None:
    if isinstance(at, dict):
        at[key] = value
    elif key == "-":
        at.append(value)
    else:
        at.insert(_index(at, key, len(at) + 1), value)


def _take(at: Container, key: str) -> Any:
    if isinstance(at, dict):
        if key not in at:
            raise PatchInvalid(f"Unable to remove nonexistent key: {key}")
        return at.pop(key)
    return at.pop(_index(at, key, len(at)))


def _add(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.place(operation)
    _put_new(at, key, clone(operation.get("value")))


def _remove(patching: _Patching, operation: Mapping[str, Any]) -> None:
    _take(*patching.place(operation))


def _replace(patching: _Patching, operation: Mapping[str, Any]) -> None:
    value = clone(operation.get("value"))
    if operation.get("path") == "":
        if not isinstance(value, dict | list):
            raise PatchInvalid("replace operation hit invalid value type")
        patching.root = value
        return
    at, key = patching.place(operation)
    if isinstance(at, dict):
        at[key] = value  # upstream: replacing a missing member adds it
    else:
        at[_index(at, key, len(at))] = value


def _move(patching: _Patching, operation: Mapping[str, Any]) -> None:
    value = _take(*patching.place(operation, "from"))
    at, key = patching.place(operation)
    _put_new(at, key, value)


def _copy(patching: _Patching, operation: Mapping[str, Any]) -> None:
    value = _get(*patching.place(operation, "from"))
    at, key = patching.place(operation)
    patching.copied += len(orjson.dumps(value))
    if patching.copied > limits.MAX_JSON_PATCH_COPY:
        raise PatchInvalid(
            f"Unable to complete the copy, the accumulated size increase of copy is {patching.copied}, "
            f"exceeding the limit {limits.MAX_JSON_PATCH_COPY}"
        )
    _put_new(at, key, clone(value))


def _test(patching: _Patching, operation: Mapping[str, Any]) -> None:
    expected = operation.get("value")
    found = patching.root if operation.get("path") == "" else _get(*patching.place(operation))
    if not _same(found, expected):
        raise PatchInvalid(f"testing value {operation.get('path')} failed")


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON: 1 is not true, and not 1.5; the order of members does not count."""
    if one is other:
        return True
    return orjson.dumps(one, option=orjson.OPT_SORT_KEYS) == orjson.dumps(other, option=orjson.OPT_SORT_KEYS)


_OPERATIONS: Mapping[str, Callable[[_Patching, Mapping[str, Any]], None]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
