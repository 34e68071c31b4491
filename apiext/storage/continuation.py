"""Continue tokens of lists: the first key and the revision of the next page (RV-005…007)."""

import base64
import json
import posixpath
import re
from typing import Any, NamedTuple

import orjson

from apiext.documents.encoding import decode_json, json_kind

_VERSION = "meta.k8s.io/v1"
# The alphabet contains line ends, which Go's decoder ignores.
_ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_\r\n")
_INTEGER = re.compile(r"-?[0-9]{1,20}\Z").match


class BadToken(ValueError):
    """An invalid token. The server responds with 400 and upstream's text (RV-006)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid continue token: {reason}")


class Continuation(NamedTuple):
    """A decoded token.

    ``start`` is the first possible key of the page, relative to the listed prefix: the last key of the previous page
    with an appended NUL.
    """

    start: str
    revision: int


def encode(start: str, revision: int, *, cached: bool = True) -> str:
    """Return the token of a page (RV-005).

    If ``cached`` is true, begin the key with a slash, as upstream's watch cache does.
    """
    text = orjson.dumps({"v": _VERSION, "rv": revision, "start": f"/{start}" if cached else start})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def decode(token: str) -> Continuation:
    """Return the content of a token; raise BadToken (RV-006)."""
    version, revision, start = _fields(token)
    if version != _VERSION:
        raise BadToken(f"continue key is not valid: server does not recognize this encoded version {version}")
    if revision == 0:
        raise BadToken(f"continue key is not valid: incorrect encoded start resourceVersion (version {_VERSION})")
    if not start:
        raise BadToken(f"continue key is not valid: encoded start key empty (version {_VERSION})")
    key = start if start.startswith("/") else "/" + start
    if _clean(key) != key:
        raise BadToken(f"continue key is not valid: {start}")
    return Continuation(key[1:], revision)


class _Number(str):
    """The text of a JSON number."""

    __slots__ = ()


class _Fields(list[tuple[str, Any]]):
    """The fields of a JSON object, in their order."""


def _fields(token: str) -> tuple[str, int, str]:
    """Return v, rv and start; "" or 0 if the field is absent or null.

    Field names are case-insensitive, as in Go.
    """
    data = token.encode("utf-8", "surrogateescape")
    for position, char in enumerate(data):
        if char not in _ALPHABET:
            raise BadToken(f"continue key is not valid: illegal base64 data at input byte {position}")
    encoded = data.translate(None, b"\r\n")
    if len(encoded) % 4 == 1:
        raise BadToken(f"continue key is not valid: illegal base64 data at input byte {len(data) - 1}")
    raw = base64.urlsafe_b64decode(encoded + b"=" * (-len(encoded) % 4))
    try:
        decode_json(raw)
    except ValueError as error:
        raise BadToken(f"continue key is not valid: {error}") from error
    text = raw.decode("utf-8", "replace")
    document = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Fields)
    if document is None:
        document = _Fields()
    if not isinstance(document, _Fields):
        raise _type_error(document, "value of type storage.continueToken")
    found: dict[str, Any] = {"v": "", "rv": 0, "start": ""}
    for field, value in document:
        name = field.lower()
        if name not in found or value is None:
            continue
        if name == "rv":
            if not isinstance(value, _Number) or not _INTEGER(value) or not -(2**63) <= int(value) < 2**63:
                raise _type_error(value, "struct field continueToken.rv of type int64", literal=True)
            found[name] = int(value)
        elif not isinstance(value, str) or isinstance(value, _Number):
            raise _type_error(value, f"struct field continueToken.{name} of type string")
        else:
            found[name] = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return found["v"], found["rv"], found["start"]


def _type_error(value: Any, wanted: str, *, literal: bool = False) -> BadToken:
    """Return the error of a value whose type differs from the type of the Go field."""
    kind = "number" if isinstance(value, _Number) else json_kind(value)
    if kind == "array" and isinstance(value, _Fields):
        kind = "object"
    if kind == "number" and literal:
        kind = f"number {value}"
    return BadToken(f"continue key is not valid: json: cannot unmarshal {kind} into Go {wanted}")


def _clean(key: str) -> str:
    # Unlike Go, posixpath does not reduce two leading slashes to one.
    return posixpath.normpath("/" + key.lstrip("/")) if key.startswith("//") else posixpath.normpath(key)
