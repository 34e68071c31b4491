"""Apply JSON patches (RFC 6902) as leniently as the library that Kubernetes uses (WRI-007)."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import orjson

from apiext.documents import limits
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import json_kind
from apiext.text.quotes import go_quote


class PatchMalformed(ValueError):
    """The error of a patch that is not an array of operations (400)."""


class PatchInvalid(ValueError):
    """The error of a patch that cannot be applied to the document (422)."""


class ResultIsArray(PatchInvalid):
    """The error of a patched document that is an array instead of an object."""


class TestFailed(PatchInvalid):
    """The error of a ``test`` operation that fails."""


class PatchTooBig(ValueError):
    """The error of a patch with too many operations (413)."""


_INDEX = re.compile(r"[+-]?[0-9]{1,9}\Z")
_MEMBERS = frozenset(("op", "path", "from", "value"))
Container = dict[str, Any] | list[Any]


def check(operations: Sequence[Any], *, strictly: bool = False, bounded: bool = True) -> list[str]:
    """Return notes about unknown fields of operations (``unknown field "[0].foo"``).

    Raise PatchMalformed for an operation that is neither an object nor null. If ``bounded`` is true, raise PatchTooBig
    for too many operations. If ``strictly`` is true, raise PatchMalformed also if ``op``, ``path`` or ``from`` is
    neither a string nor null, even if ``apply`` would not read this field.
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
                locate = f"Go struct field jsonPatchOp.{name} of type string"
                raise PatchMalformed(f"json: cannot unmarshal {json_kind(value)} into {locate}")
    if bounded and len(operations) > limits.MAX_JSON_PATCH_OPERATIONS:
        raise PatchTooBig(
            f"The allowed maximum operations in a JSON patch is {limits.MAX_JSON_PATCH_OPERATIONS}, "
            f"got {len(operations)}"
        )
    return notes


def copies(operations: Sequence[Any]) -> bool:
    """Return whether a patch contains copies; each copy of a copy can double the document."""
    return any(operation and operation.get("op") == "copy" for operation in operations)


def apply(document: View, operations: Sequence[Any]) -> Document:
    """Return the patched document; it shares no object or array with the arguments.

    Raise PatchMalformed as ``check`` does, or PatchInvalid if an operation fails, or if the result is an array or too
    deeply nested. An operation also fails if all copies so far exceed ``limits.MAX_JSON_PATCH_COPY`` bytes, or if all
    operations so far have shifted more than ``limits.MAX_JSON_PATCH_MOVED`` array elements.
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
        raise ResultIsArray("the patched document is not an object")
    return patching.root


def perform(document: Document, operation: View) -> Document:
    """Apply one operation to the caller's own document, and return the result.

    The result is the changed document, or a new document if the operation replaces the root. The operation must belong
    to a patch that ``apply`` has already applied to the same document.
    """
    patching = _Patching(document)
    _OPERATIONS[operation["op"]](patching, operation)
    found: Document = patching.root
    return found


class _Patching:
    """The document that a patch changes, with counts of copied bytes and shifted array elements."""

    def __init__(self, root: Document) -> None:
        self.root: Any = root
        self.copied = 0
        self.moved = 0

    def move(self, at: Container, key: str) -> None:
        """Count the elements that an insertion or a removal at ``key`` shifts.

        Raise PatchInvalid if the sum exceeds the limit of the whole patch.
        """
        if not isinstance(at, list) or not _INDEX.match(key):
            return
        index = int(key)
        self.moved += max(len(at) - index, 0) if index >= 0 else min(-index, len(at))
        if self.moved > limits.MAX_JSON_PATCH_MOVED:
            raise PatchInvalid(
                f"the patch shifts {self.moved} list elements, exceeding the limit {limits.MAX_JSON_PATCH_MOVED}"
            )

    def locate(self, operation: Mapping[str, Any], member: str = "path") -> tuple[Container, str]:
        """Return (container of a value, last part of its pointer).

        Raise PatchInvalid if there is no such container.
        """
        path = _pointer(operation, member)
        way = parts(path)
        at: Any = self.root if way else None
        try:
            for part in way[:-1]:
                at = _get(at, part) if isinstance(at, dict | list) else None
        except _Refused:
            at = None
        if not isinstance(at, dict | list):
            raise PatchInvalid(_no_such_path(operation["op"], member, path))
        return at, way[-1]


class _Refused(ValueError):
    """The error of an operation that a container does not allow; the text is the reason."""


def _with_context(what: str, work: Callable[..., Any], *args: Any) -> Any:
    """Return the result of ``work``.

    Convert a _Refused to a PatchInvalid whose text begins with ``what``.
    """
    try:
        return work(*args)
    except _Refused as error:
        raise PatchInvalid(f"{what}: {error}") from None


def parts(pointer: str) -> list[str]:
    """Return the names and indices of a pointer.

    As upstream does, ignore the text before the first slash.
    """
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


def _no_such_path(op: str, member: str, path: str) -> str:
    """Return the error text for a pointer to a path that does not exist."""
    if op in ("add", "remove"):
        return f'{op} operation does not apply: doc is missing path: "{path}": missing value'
    end = "from path" if member == "from" else "path" if op in ("replace", "test") else "destination path"
    return f"{op} operation does not apply: {'' if op == 'test' else 'doc '}is missing {end}: {path}: missing value"


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~") if "~" in part else part


def _index(key: str, size: int) -> int:
    """Return a key as an index below ``size``.

    As upstream, a negative index counts from the end.
    """
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
        return at.get(key)  # upstream: a missing field reads as null
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


def _pop(at: Container, key: str) -> Any:
    if isinstance(at, dict):
        if key not in at:
            raise _Refused(f"Unable to remove nonexistent key: {key}: missing value")
        return at.pop(key)
    return at.pop(_index(key, len(at)))


def _add(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.locate(operation)
    patching.move(at, key)
    _with_context(f"error in add for path: '{operation['path']}'", _put_new, at, key, clone(operation.get("value")))


def _remove(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.locate(operation)
    patching.move(at, key)
    _with_context(f"error in remove for path: '{operation['path']}'", _pop, at, key)


def _replace(patching: _Patching, operation: Mapping[str, Any]) -> None:
    value = clone(operation.get("value"))
    if operation.get("path") == "":
        if not isinstance(value, dict | list):
            raise PatchInvalid("replace operation value must be object or array: %!w(<nil>)")
        patching.root = value
        return
    at, key = patching.locate(operation)
    if isinstance(at, dict):
        at[key] = value  # upstream: replacing a missing field adds it
        return
    try:
        at[_index(key, len(at))] = value
    except _Refused:
        path = operation["path"]
        raise PatchInvalid(f"replace operation does not apply: doc is missing key: {path}: missing value") from None


def _move(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.locate(operation, "from")
    patching.move(at, key)
    value = _with_context(f"error in move for path: '{key}'", _pop, at, key)
    at, key = patching.locate(operation)
    patching.move(at, key)
    _with_context(f"error in move for path: '{operation['path']}'", _put_new, at, key, value)


def _copy(patching: _Patching, operation: Mapping[str, Any]) -> None:
    at, key = patching.locate(operation, "from")
    value = _with_context(f"error in copy for from: '{operation['from']}'", _get, at, key)
    at, key = patching.locate(operation)
    patching.copied += len(orjson.dumps(value))
    if patching.copied > limits.MAX_JSON_PATCH_COPY:
        raise PatchInvalid(
            f"Unable to complete the copy, the accumulated size increase of copy is {patching.copied}, "
            f"exceeding the limit {limits.MAX_JSON_PATCH_COPY}"
        )
    patching.move(at, key)
    _with_context("error while adding value during copy", _put_new, at, key, clone(value))


def _test(patching: _Patching, operation: Mapping[str, Any]) -> None:
    expected, path = operation.get("value"), _pointer(operation, "path")
    found = patching.root
    if path:
        found = _with_context(f"error in test for path: '{path}'", _get, *patching.locate(operation))
    if not _same(found, expected):
        raise TestFailed(f"testing value {path} failed: test failed")


def _same(one: Any, other: Any) -> bool:
    """Return whether two values have the same JSON; the order of fields does not matter."""
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
