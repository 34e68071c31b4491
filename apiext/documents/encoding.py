"""Decode and encode JSON and YAML (DEC-001…004).

Integers in the range of int64 are exact, floats have Go's format, duplicate keys are reported, and the depth is
limited.
"""

import codecs
import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import orjson

from apiext.documents import limits
from apiext.documents.document import View
from apiext.documents.errors import MAX_NOTES, BoundExceeded, DecodeError, OverflowingNumber
from apiext.documents.floats import json_float
from apiext.documents.integral import integral
from apiext.documents.json_errors import check_depth, syntax_error
from apiext.documents.paths import Path, written
from apiext.text.quotes import go_quote

__all__ = [
    "DecodeError",
    "Nulled",
    "decode_json",
    "decode_nulled",
    "decode_overflowing",
    "decode_yaml",
    "encode",
    "encode_in_order",
    "encode_with_float_flag",
    "encode_yaml",
    "has_overflow",
    "json_kind",
    "pretty",
    "resolved",
    "root_members",
]

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_BEYOND = 10**400  # stands for a number over the range of float64
_COLONS = (b":", b"\\u003a", b"\\u003A")
_SORTED = orjson.OPT_SORT_KEYS
_STRICT = orjson.OPT_STRICT_INTEGER
_CONTAINERS = (b"{", b"[")
_PLACES, _DIGITS = bytes.maketrans(b",[e", b"::."), b"-0123456789"
_FLATTENED = bytes.maketrans(b"123456789,[", b"000000000::")
_NO_YAML = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]|\xef\xbf[\xbe\xbf]|\xef\xbb\xbf")
_FLOAT = re.compile(rb"[:,\[]-?[0-9]+[.e]|^-?[0-9]+[.e]")


def decode_json(raw: bytes) -> tuple[Any, list[str]]:
    """Return the document of a JSON text, and notes about duplicate keys.

    Example of a note: ``duplicate field "spec.x"``. There are at most MAX_NOTES notes. The last value of a duplicate
    key wins. Integers in the range of int64 are exact; other integers become floats. Invalid UTF-8 and lone surrogates
    become U+FFFD, as in Go. Raise DecodeError with Go's text, among them OverflowingNumber for a number outside the
    range of float64. Raise BoundExceeded over ``limits.MAX_DEPTH`` levels (DEC-001) or ``limits.MAX_CONTAINERS``
    opening brackets.
    """
    containers = raw.count(b"{") + raw.count(b"[")
    if containers > limits.MAX_DEPTH:
        check_depth(raw, limits.MAX_DEPTH)
        if containers > limits.MAX_CONTAINERS:
            raise BoundExceeded(f"more than {limits.MAX_CONTAINERS} objects and lists")
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _decode_slowly(raw)
    try:
        again = orjson.dumps(document, option=_STRICT)
    except orjson.JSONEncodeError:
        document = _int64(document)
        again = orjson.dumps(document)
    if again == raw:  # the text is compact JSON, as most programs write it; so no duplicate key was lost
        return document, []
    if (raw.count(b":") != again.count(b":") or b"\\u003" in raw) and _lost_colons(raw, again):
        return _decode_slowly(raw)
    return document, []


def decode_overflowing(raw: bytes) -> tuple[Any, list[str]]:
    """Decode like ``decode_json``, but accept numbers outside the range of float64.

    In the result, _BEYOND or its negative stands for such a number; ``has_overflow`` recognises it. This function does
    not check the limits of depth and brackets.
    """
    return _decode_slowly(raw, _parse_beyond)


def has_overflow(value: Any) -> bool:
    """Return whether a document of ``decode_overflowing`` has a number outside float64."""
    if value.__class__ is int:
        return abs(value) == _BEYOND
    if isinstance(value, dict):
        return any(map(has_overflow, value.values()))
    return isinstance(value, list) and any(map(has_overflow, value))


def _lost_colons(raw: bytes, again: bytes) -> bool:
    """Return whether a text has more colons than the JSON of its document.

    Escaped colons are counted, too. Each field has one colon, so the text has more colons only if a duplicate key has
    replaced a field. The JSON of the document never escapes a colon: ``\\u003a`` in it belongs to an escaped
    backslash, which the text contains, too.
    """
    return sum(map(raw.count, _COLONS)) != sum(map(again.count, _COLONS))


def decode_yaml(raw: bytes) -> tuple[Any, list[str]]:
    """Return the first document of a YAML text, and at most one note about duplicate keys.

    The note has a line for each duplicate key (WRI-013). The note has at most MAX_NOTES such lines. Raise DecodeError.
    Try JSON first: most bodies that clients declare as YAML are JSON, which decodes much faster.
    """
    if _like_json(raw):
        try:
            document, notes = decode_json(raw)
        except DecodeError:
            notes = ["not JSON"]
        if not notes:
            return (_integral(document) if _has_floats(orjson.dumps(document)) else document), []
    from apiext.documents import yaml_text  # its import takes 10 ms (decision 36)

    return yaml_text.decode_yaml(raw)


def _like_json(raw: bytes) -> bool:
    """Return whether a text that is a valid JSON object means the same in YAML.

    The two formats treat some line breaks, control characters, and tabs around the text differently.
    """
    bare = raw.strip(b" \r\n")
    return bare[:1] == b"{" and bare[-1:] == b"}" and _NO_YAML.search(raw) is None


def encode_yaml(document: View | list[Any]) -> bytes:
    """Return a YAML text with sorted keys, as Kubernetes prints objects (NEG-001)."""
    from apiext.documents import yaml_text  # its import takes 10 ms (decision 36)

    return yaml_text.encode_yaml(document)


def encode(document: View | list[Any]) -> bytes:
    """Return compact JSON with sorted keys and Go's floats, without a newline.

    See DEC-001, NEG-006.
    """
    raw = orjson.dumps(document, option=_SORTED)
    return orjson.dumps(_go_floats(document), option=_SORTED) if _has_floats(raw) else raw


def encode_with_float_flag(document: View) -> tuple[bytes, bool]:
    """Return (the JSON of ``encode``, whether it may contain a float).

    The float -0.0 becomes ``-0`` in the JSON: then the flag is true, too.
    """
    raw = orjson.dumps(document, option=_SORTED)
    if not _has_floats(raw):
        return raw, False
    return orjson.dumps(_go_floats(document), option=_SORTED), True


def encode_in_order(document: View | list[Any]) -> bytes:
    """Return compact JSON with Go's floats, with the keys in their own order.

    Go prints the fields of a struct in the order of its type, not sorted.
    """
    raw = orjson.dumps(document)
    return orjson.dumps(_go_floats(document)) if _has_floats(raw) else raw


def _has_floats(raw: bytes) -> bool:
    """Return whether compact JSON may contain a float.

    A string such as ``":1.5"`` also gives True.
    """
    if raw[:1] in _CONTAINERS:  # fast path: searching translated bytes is ten times as fast as a pattern
        # ``translate`` deletes digits and ``-``, maps ``,`` and ``[`` to ``:``, ``e`` to ``.``: a float becomes ``:.``
        if raw.translate(_PLACES, _DIGITS).find(b":.") < 0:
            return False  # ``in`` would take twice as long, since it first tries to convert the bytes to a number
        flat = raw.translate(_FLATTENED, b"-")
        if flat.find(b"0.0") < 0 and flat.find(b":0e") < 0:
            return False
    return _FLOAT.search(raw) is not None


def pretty(raw: bytes) -> bytes:
    """Return a JSON text indented by two spaces, in the order of its keys (NEG-005)."""
    document = orjson.loads(raw)
    compact = orjson.dumps(document)  # ``raw`` may have an integer of many digits, which ``document`` has as a float
    return orjson.dumps(_go_floats(document) if _has_floats(compact) else document, option=orjson.OPT_INDENT_2)


def json_kind(value: Any) -> str:
    """Return Go's name of a JSON type in errors of its decoder.

    The names are object, array, string, number, bool and null.
    """
    return _KINDS.get(value.__class__, "object")


_KINDS = {
    dict: "object",
    list: "array",
    str: "string",
    int: "number",
    float: "number",
    bool: "bool",
    type(None): "null",
}


def _go_floats(value: Any) -> Any:
    if value.__class__ is float:
        return orjson.Fragment(json_float(value))
    if isinstance(value, dict):
        return {key: _go_floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_go_floats(item) for item in value]
    return value


def _integral(value: Any) -> Any:
    """Return the value with integers in place of integral floats.

    Upstream's conversion from YAML does the same.
    """
    if value.__class__ is float:
        return integral(value)
    if isinstance(value, dict):
        return {key: _integral(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_integral(item) for item in value]
    return value


def _int64(value: Any) -> Any:
    """Return the value with floats in place of integers outside the range of int64."""
    if value.__class__ is int and not _INT_MIN <= value <= _INT_MAX:
        return float(value)
    if isinstance(value, dict):
        return {key: _int64(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_int64(item) for item in value]
    return value


# --- slow path: duplicates with their paths, texts that orjson refuses, and Go's error texts ---


class _Pairs(list[tuple[str, Any]]):
    """The fields of an object in their order, including duplicates."""


def _parse_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise OverflowingNumber(f"json: cannot unmarshal number {text[:64]} into Go value of type float64")
    return number


def _parse_beyond(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _BEYOND if number > 0 else -_BEYOND


def _decode_slowly(raw: bytes, real: Callable[[str], float] = _parse_float) -> tuple[Any, list[str]]:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode(errors="apiext.go")
    doubles: list[int] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        document = dict(pairs)
        if len(document) < len(pairs):
            doubles.append(len(pairs) - len(document))
        return document

    try:
        document = _loads(text, members, real)
    except ValueError as error:
        fault = syntax_error(raw)
        if fault is None and isinstance(error, DecodeError):
            raise
        raise DecodeError(fault or "invalid JSON") from error
    notes: dict[str, None] = {}
    if doubles or "\\u" in text:  # a second pass finds the paths of duplicates, and replaces lone surrogates
        document = _assemble(_loads(text, _Pairs, real), None, notes)
    return document, [f"duplicate field {go_quote(path)}" for path in notes]


def root_members(raw: bytes) -> Sequence[tuple[str, Any]]:
    """Return the fields of a JSON object in their order, including duplicates.

    The text must be valid.
    """
    members: _Pairs = _loads(raw.decode(errors="apiext.go"), _Pairs, _parse_beyond)
    return members


class Nulled:
    """A null that replaced an earlier value of the same key; ``before`` is the earlier value."""

    __slots__ = ("before",)

    def __init__(self, before: Any) -> None:
        self.before = before


def decode_nulled(raw: bytes) -> Any:
    """Return the document of a valid JSON text, with marks at nulls that replaced a value.

    The mark is a Nulled in place of the null.
    """
    return _with_nulled(_loads(raw.decode(errors="apiext.go"), _Pairs, _parse_beyond))


def _with_nulled(value: Any) -> Any:
    if isinstance(value, _Pairs):
        document: dict[str, Any] = {}
        for key, item in value:
            name, read = _repaired(key), _with_nulled(item)
            before = document.get(name)
            if read is None and before is not None:
                read = before if before.__class__ is Nulled else Nulled(before)
            document[name] = read
        return document
    if isinstance(value, list):
        return [_with_nulled(item) for item in value]
    return _repaired(value) if isinstance(value, str) else value


def resolved(value: Any, kept: Collection[str] = ()) -> Any:
    """Return a document with null in place of each Nulled.

    Fields in ``kept`` get the earlier value instead.
    """
    if isinstance(value, dict):
        return {
            name: resolved((item.before if name in kept else None) if item.__class__ is Nulled else item, kept)
            for name, item in value.items()
        }
    return [resolved(item, kept) for item in value] if isinstance(value, list) else value


def _loads(text: str, members: Callable[[list[tuple[str, Any]]], Any], real: Callable[[str], float]) -> Any:
    def whole(digits: str) -> int | float:
        if len(digits) <= 20:  # length of the smallest int64 with its sign
            number = int(digits)
            if _INT_MIN <= number <= _INT_MAX:
                return number
        return real(digits)

    return json.loads(text, object_pairs_hook=members, parse_int=whole, parse_float=real, parse_constant=_refuse)


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def _replace_each(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "\ufffd" * (error.end - error.start), error.end


codecs.register_error("apiext.go", _replace_each)


def _assemble(value: Any, path: Path, notes: dict[str, None]) -> Any:
    if isinstance(value, _Pairs):
        document: dict[str, Any] = {}
        for key, item in value:
            name = _repaired(key)
            here = (path, name)
            if name in document and len(notes) < MAX_NOTES:
                notes[written(here)] = None
            document[name] = _assemble(item, here, notes)
        return document
    if isinstance(value, list):
        return [_assemble(item, (path, index), notes) for index, item in enumerate(value)]
    return _repaired(value) if isinstance(value, str) else value


def _repaired(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
