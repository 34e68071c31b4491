"""Tokens that say where the next page of a list begins and at which revision (RV-005…007)."""

import base64
import json
import posixpath
import re
from typing import Any, NamedTuple

import orjson

from apiext.documents.encoding import decode_json, json_kind

_VERSION = "meta.k8s.io/v1"
_ALPHABET = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_\r\n"
)  # Go skips the ends of lines
_INTEGER = re.compile(r"-?[0-9]{1,20}\Z").match


class BadToken(ValueError):
    """The text is upstream's, to be answered with 400 (RV-006)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid continue token: {reason}")


class Continuation(NamedTuple):
    """``start`` is the first key of the page relative to the prefix listed, normally the last key given plus NUL."""

    start: str
    revision: int


def encode(start: str, revision: int, *, cached: bool = True) -> str:
    """Return the token of a page (RV-005); upstream's cache and upstream's store begin keys in two ways."""
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
    """A number as it was written."""

    __slots__ = ()


class _Members(list[tuple[str, Any]]):
    """The members of an object, in their order."""


def _fields(token: str) -> tuple[str, int, str]:
    """Return v, rv and start; absent or null ones are empty, names have no case."""
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
    document = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_Members)
    if document is None:
        document = _Members()
    if not isinstance(document, _Members):
        raise _unlike(document, "value of type storage.continueToken")
    found: dict[str, Any] = {"v": "", "rv": 0, "start": ""}
    for given, value in document:
        name = given.lower()
        if name not in found or value is None:
            continue
        if name == "rv":
            if not isinstance(value, _Number) or not _INTEGER(value) or not -(2**63) <= int(value) < 2**63:
                raise _unlike(value, "struct field continueToken.rv of type int64", literal=True)
            found[name] = int(value)
        elif not isinstance(value, str) or isinstance(value, _Number):
            raise _unlike(value, f"struct field continueToken.{name} of type string")
        else:
            found[name] = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return found["v"], found["rv"], found["start"]


def _unlike(value: Any, wanted: str, *, literal: bool = False) -> BadToken:
    """Return the error of a value of another type than Go's."""
    kind = "number" if isinstance(value, _Number) else json_kind(value)
    if kind == "array" and isinstance(value, _Members):
        kind = "object"
    if kind == "number" and literal:
        kind = f"number {value}"
    return BadToken(f"continue key is not valid: json: cannot unmarshal {kind} into Go {wanted}")


def _clean(key: str) -> str:
    # two leading slashes mean something to posixpath that they do not mean to Go
    return posixpath.normpath("/" + key.lstrip("/")) if key.startswith("//") else posixpath.normpath(key)
