"""Find the schema of the field at a path: the fieldPath of a rule, or a selectable field.

See CEL-018, CRD-034.
"""

import re
from collections.abc import Iterator

from apiext.schema.structural import Structural

_ESCAPE = re.compile(r"\\.", re.DOTALL)
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "'": "'", "\\": "\\"}
_TOKEN = re.compile(r"'(?:.*?[^\\])??'|[.\[\]]|'.*|[^.\[\]]+", re.DOTALL)

NOWHERE = "does not refer to a valid field"
_ANYTHING = Structural()  # schema of the values of a map whose ``additionalProperties`` is a bool


class PathError(ValueError):
    """The error of a path that refers to no field of the schema; the text is upstream's reason."""


def follow(path: str, node: Structural, *, arrays: bool = True) -> tuple[str, Structural]:
    """Return the path as errors print it, and the schema of its field.

    Raise PathError if the path refers to no field of the schema, or if it has brackets and ``arrays`` is false.
    """
    tokens = _tokens(path)
    text = ""
    for token in tokens:
        if token == "[":
            if not arrays:
                raise PathError("array notation is not allowed")
            name = _quoted(_next(tokens))
            node, step = _step(node, name)
            text += step
            closing = _next(tokens)
            if closing != "]":
                raise PathError(f"expected ] but got {closing}")
        elif token == ".":
            node, step = _step(node, _next(tokens))
            text += step
        else:
            raise PathError(f"expected [ or . but got: {token}")
    return text.removeprefix("."), node


def _tokens(path: str) -> Iterator[str]:
    return iter(_TOKEN.findall(path))


def _next(tokens: Iterator[str]) -> str:
    token = next(tokens, None)
    if token is None:
        raise PathError("unexpected end of JSON path")
    return token


def _quoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise PathError(f"expected single quoted string but got {token}")
    for escape in _ESCAPE.findall(token[1:-1]):
        if escape[1] not in _ESCAPES:
            raise PathError(f"invalid string literal: invalid escape char {escape}")
    return _ESCAPE.sub(lambda match: _ESCAPES[match[0][1]], token[1:-1])


def _step(node: Structural, name: str) -> tuple[Structural, str]:
    if node.properties:
        below = node.properties.get(name)
        if below is not None:
            return below, f".{name}" if name else "[]"
    elif node.additional is not None:
        return node.map_values or _ANYTHING, f"[{name}]"
    raise PathError(NOWHERE)
