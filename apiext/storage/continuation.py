"""Tokens that say where the next page of a list begins and at which revision (RV-005…007)."""

import base64
import posixpath
from typing import Any, NamedTuple

import orjson

from apiext.documents.encoding import decode_json

_VERSION = "meta.k8s.io/v1"
_ALPHABET = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
LATEST = -1
"""The revision of a token that goes on inconsistently, at whatever is newest (RV-007)."""


class BadToken(ValueError):
    """The text is upstream's, to be answered with 400 (RV-006)."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid continue token: {reason}")


class Continuation(NamedTuple):
    """``start`` is the first key of the page relative to the prefix listed, normally the last key given plus NUL."""

    start: str
    revision: int


def encode(start: str, revision: int) -> str:
    """Return the token of a page (RV-005)."""
    text = orjson.dumps({"v": _VERSION, "rv": revision, "start": f"/{start}"})
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def decode(token: str) -> Continuation:
    """Return what a token says; raises BadToken (RV-006)."""
    document = _document(token)
    if document.get("v", "") != _VERSION:
        raise BadToken("continue key is not valid: server does not recognize this encoded version " + _quote(document))
    revision = document.get("rv", 0)
    start = document.get("start", "")
    if not isinstance(revision, int) or isinstance(revision, bool) or not -(2**63) <= revision < 2**63:
        raise BadToken("continue key is not valid: json: cannot unmarshal value into Go struct field rv of type int64")
    if not isinstance(start, str):
        raise BadToken(
            "continue key is not valid: json: cannot unmarshal value into Go struct field start of type string"
        )
    if revision == 0:
        raise BadToken(f"continue key is not valid: incorrect encoded start resourceVersion (version {_VERSION})")
    if not start:
        raise BadToken(f"continue key is not valid: encoded start key empty (version {_VERSION})")
    key = start if start.startswith("/") else "/" + start
    if _clean(key) != key:
        raise BadToken(f"continue key is not valid: {start}")
    return Continuation(key[1:], revision)


def _document(token: str) -> dict[str, Any]:
    data = token.encode("utf-8", "surrogateescape")
    for position, char in enumerate(data):
        if char not in _ALPHABET:
            raise BadToken(f"continue key is not valid: illegal base64 data at input byte {position}")
    if len(data) % 4 == 1:
        raise BadToken(f"continue key is not valid: illegal base64 data at input byte {len(data) - 1}")
    raw = base64.urlsafe_b64decode(data + b"=" * (-len(data) % 4))
    try:
        document, _ = decode_json(raw)
    except ValueError as error:
        raise BadToken(f"continue key is not valid: {error}") from error
    if not isinstance(document, dict):
        raise BadToken("continue key is not valid: json: cannot unmarshal value into Go value of type continueToken")
    return document


def _quote(document: dict[str, Any]) -> str:
    return str(document.get("v", ""))


def _clean(key: str) -> str:
    # two leading slashes mean something to posixpath that they do not mean to Go
    return posixpath.normpath("/" + key.lstrip("/")) if key.startswith("//") else posixpath.normpath(key)
