"""RFC 6902 patches, with the leniency of the library that Kubernetes uses (WRI-007)."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from apiext.documents import limits
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import json_kind
from apiext.documents.quotes import go_quote


class PatchMalformed(ValueError):
    """The patch is not a list of operations (400)."""


class PatchInvalid(ValueError):
    """The patch cannot be applied to this document (422)."""


class MadeAList(PatchInvalid):
    """What the patch made is no object."""


class TestFailed(PatchInvalid):
    """A test in the patch that this document does not pass."""


class PatchTooBig(ValueError):
    """The patch has too many operations (413)."""


_INDEX = re.compile(r"[+-]?[0-9]{1,9}\Z")
_MEMBERS = frozenset(("op", "path", "from", "value"))
Container = dict[str, Any] | list[Any]


def check(operations: Sequence[Any], *, strictly: bool = False, bounded: bool = True) -> list[str]:
    """Return notes about members that operations do not have (``unknown field "[0].foo"``).

    Raises PatchMalformed, as ``apply`` does, and PatchTooBig if their number is ``bounded``. ``strictly``: also for a
    member of the wrong type, which ``apply`` may have no use for.
    """
    notes: list[str] = []
    for index, operation in enumerate(operations):
        if operation is not None and not isinstance(operation, dict):
            go = "handlers.jsonPatchOp" if strictly else "jsonpatch.Operation"
            raise PatchMalformed(f"json: cannot unmarshal {json_kind(operation)} into Go value of type {go}")
        for name, value in (operation or {}).items():
            if name not in _MEMBERS:
                notes.append(f"unknown field {go_quote(f'[{index}].{name}')}")
            elif strictly and name != "value" and value is not None and value.__class__ is not str:
                place = f"Go struct field jsonPatchOp.{name} of type string"
                raise PatchMalformed(f"json: cannot unmarshal {json_kind(value)} into {place}")
    if bounded and len(operations) > limits.MAX_JSON_PATCH_OPERATIONS:
        raise PatchTooBig(
            f"The allowed maximum operations in a JSON patch is {limits.MAX_JSON_PATCH_OPERATIONS}, "
            f"got {len(operations)}"
        )
    return notes


def copies(operations: Sequence[Any]) -> bool:
    """Tell whether a patch may make much of little: copies of copies double."""
    return any(operation and operation.get("op") == "copy" for operation in operations)


def apply(document: View, operations: Sequence[Any]) -> Document:
    """Return the patched document; it shares nothing with the arguments.

    Raises PatchMalformed, or PatchInvalid when an operation fails or they make a list; copies are bounded together by
    ``limits.MAX_JSON_PATCH_COPY`` bytes, and what moves in lists by ``limits.MAX_JSON_PATCH_MOVED`` elements.
    """
    check(operations, bounded=False)
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
        raise MadeAList("the patched document is not an object")
    return patching.root


def perform(document: Document, operation: View) -> Document:
    """Return the caller's own document after one operation of a patch that ``apply`` could apply."""
    patching = _Patching(document)
    _OPERATIONS[operation["op"]](patching, operation)
    found: Document = patching.root
    return found


class _Patching:
    """The document being patched, the bytes that were copied, and the elements that moved in lists."""

    def __init__(self, root: Document) -> None:
        self.root: Any = root
        self.copied = 0
        self.moved = 0

    def move(self, at: Container, key: str) -> None:
        """Count the elements that give way at a place of a list; raises PatchInvalid when they are too many in all."""
        if not isinstance(at, list) or not _INDEX.match(key):
            return
        index = int(key)
        self.moved += max(len(at) - index, 0) if index >= 0 else min(-index, len(at))
        if self.moved > limits.MAX_JSON_PATCH_MOVED:
            raise PatchInvalid(
                f"the elements of lists that give way are {self.moved}, exceeding the limit "
                f"{limits.MAX_JSON_PATCH_MOVED}"
            )

    def place(self, operation: Mapping[str, Any], member: str = "path") -> tuple[Container, str]:
        """Return the container that a pointer leads into and the last part of the pointer."""
        path = _pointer(operation, member)
        way = parts(path)
        at: Any = self.root if way else None
        try:
            for part in way[:-1]:
                at = _get(at, part) if isinstance(at, dict | list) else None
        except _Refused:
            at = None
        if not isinstance(at, dict | list):
            raise PatchInvalid(_lost(operation["op"], member, path))
        return at, way[-1]


class _Refused(ValueError):
    """What a container has against an operation."""


def _doing(what: str, work: Callable[..., Any], *args: Any) -> Any:
    """Return what the work returns; what is refused is told with what was done, in the library's words."""
    try:
        return work(*args)
    except _Refused as error:
        raise PatchInvalid(f"{what}: {error}") from None


def parts(pointer: str) -> list[str]:
    """Return the names and indices of a pointer; upstream: what stands before the first slash is ignored."""
    return [_unescape(part) for part in pointer.split("/")[1:]]


def _pointer(operation: Mapping[str, Any], member: str) -> str:
    path, op = operation.get(member), operation["op"]
    if isinstance(path, str):
        return path
    if member == "path" and op in ("add", "remove", "copy"):
        why = "missing value"
    elif path is not None:
        why = f"json: cannot unmarshal {json_kind(path)} into Go value of type string"
    else:
        why = f"operation{',' if member == 'from' else ''} missing {member} field: missing value"
    raise PatchInvalid(f"{op} operation failed to decode {member}: {why}")


def _lost(op: str, member: str, path: str) -> str:
    """Return the text about a pointer that leads nowhere."""
    if op in ("add", "remove"):
        return f'{op} operation does not apply: doc is missing path: "{path}": missing value'
    end = "from path" if member == "from" else "path" if op in ("replace", "test") else "destination path"
    return f"{op} operation does not apply: {'' if op == 'test' else 'doc '}is missing {end}: {path}: missing value"


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~") if "~" in part else part


def _index(key: str, size: int) -> int:
    """Return an index below ``size``; upstream: negative ones count from the end."""
    if not _INDEX.match(key):
        raise _Refused(_no_number(key))
    index = int(key)
    if not -size <= index < size:
        raise _Refused(f"Unable to access invalid index: {index}: invalid index referenced")
    return index + size if index < 0 else index


def _no_number(key: str) -> str:
    return f"strconv.Atoi: parsing {go_quote(key)}: invalid syntax"


def _get(at: Container, key: str) -> Any:
    if isinstance(at, dict):
        return at.get(key)  # upstream: a missing member reads as null
    return at[_index(key, len(at))]


def _put_new(at: Container, key: str, value: Any) -> None:
    if isinstance(at, dict):
        at[key] = value
    elif key == "-":
        at.append(value)
    elif _INDEX.match(key):
        at.insert(_index(key, len(at) + 1), value)
    else:
        raise _Refused(f"value was not a proper array index: '{key}': {_no_number(key)}")


def _take(at: Container, key: str) -> Any:
    if isinstance(at, dict):
        if key not in at:
            raise _Refused(f"Unable to remove nonexistent key: {key}: missing value")
        return at.pop(key)
    return at.pop(_index(key, len(at)))


def _add(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.place(operation)
    patching.move(at, key)
    _doing(f"error in add for path: '{operation['path']}'", _put_new, at, key, clone(operation.get("value")))


def _remove(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.place(operation)
    patching.move(at, key)
    _doing(f"error in remove for path: '{operation['path']}'", _take, at, key)


def _replace(patching: _Patching, operation: Mapping[str, Any]) -> None:
    value = clone(operation.get("value"))
    if operation.get("path") == "":
        if not isinstance(value, dict | list):
            raise PatchInvalid("replace operation value must be object or array: %!w(<nil>)")
        patching.root = value
        return
    at, key = patching.place(operation)
    if isinstance(at, dict):
        at[key] = value  # upstream: replacing a missing member adds it
        return
    try:
        at[_index(key, len(at))] = value
    except _Refused:
        path = operation["path"]
        raise PatchInvalid(f"replace operation does not apply: doc is missing key: {path}: missing value") from None


def _move(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.place(operation, "from")
    patching.move(at, key)
    value = _doing(f"error in move for path: '{key}'", _take, at, key)
    at, key = patching.place(operation)
    patching.move(at, key)
    _doing(f"error in move for path: '{operation['path']}'", _put_new, at, key, value)


def _copy(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.place(operation, "from")
    value = _doing(f"error in copy for from: '{operation['from']}'", _get, at, key)
    at, key = patching.place(operation)
    patching.copied += len(orjson.dumps(value))
    if patching.copied > limits.MAX_JSON_PATCH_COPY:
        raise PatchInvalid(
            f"Unable to complete the copy, the accumulated size increase of copy is {patching.copied}, "
            f"exceeding the limit {limits.MAX_JSON_PATCH_COPY}"
        )
    patching.move(at, key)
    _doing("error while adding value during copy", _put_new, at, key, clone(value))


def _test(patching: _Patching, operation: Mapping[str, Any]) -> None:
    expected, path = operation.get("value"), _pointer(operation, "path")
    found = patching.root
    if path:
        found = _doing(f"error in test for path: '{path}'", _get, *patching.place(operation))
    if not _same(found, expected):
        raise TestFailed(f"testing value {path} failed: test failed")


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
