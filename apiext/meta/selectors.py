"""Parse label and field selectors, with upstream's messages, and match them.

See SEL-001, SEL-005.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct

from apiext.meta import limits
from apiext.meta.fields import FieldError, aggregate, invalid
from apiext.meta.syntax import label_value, qualified_name


class SelectorError(ValueError):
    """The error of a selector that cannot be parsed.

    The server returns the message to the client (400).
    """


class Requirement(Struct, frozen=True):
    """One term of a label selector; ``operator`` is in, notin, exists, !, gt or lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether the term holds for these labels."""
        return self.accepts(labels.get(self.key))

    def accepts(self, value: str | None) -> bool:
        """Return whether the term holds for a label value; None stands for an absent label."""
        return _MATCHES[self.operator](value, self.values)


def _greater(value: str | None, values: Sequence[str]) -> bool:
    number = _int64(value)
    return number is not None and number > int(values[0])


def _less(value: str | None, values: Sequence[str]) -> bool:
    number = _int64(value)
    return number is not None and number < int(values[0])


_MATCHES: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "in": lambda value, values: value in values,
    "notin": lambda value, values: value not in values,
    "exists": lambda value, _: value is not None,
    "!": lambda value, _: value is None,
    "gt": _greater,
    "lt": _less,
}
_INT64 = re.compile(r"[+-]?[0-9]+\Z")


def _int64(text: str | None) -> int | None:
    """Return the int64 that Go's strconv.ParseInt returns, or None for an invalid text."""
    if text is None or len(text) > 64 or not _INT64.match(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None


class LabelSelector(Struct, frozen=True):
    """A conjunction of requirements; a selector without requirements selects all objects."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def empty(self) -> bool:
        """Return whether the selector selects all objects."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether every requirement holds for the labels."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    @classmethod
    def parse(cls, text: str) -> "LabelSelector":
        """Parse a query parameter (``a=b,c in (d,e),!f``). Raise SelectorError (SEL-005)."""
        if not text:
            return EVERYTHING
        if len(text) > limits.MAX_LINE:
            raise SelectorError(f"the selector is longer than {limits.MAX_LINE} characters")
        usual = _USUAL(text) if len(text) < 254 else None
        if usual is not None:
            return cls((Requirement(usual[1], "in", (usual[2],)),))
        return cls(tuple(_Parser(text).parse()))

    @classmethod
    def from_document(cls, selector: Mapping[str, Any]) -> "LabelSelector":
        """Parse a v1 LabelSelector object with matchLabels and matchExpressions.

        Raise SelectorError.
        """
        found = [_requirement(key, "in", [value]) for key, value in sorted((selector.get("matchLabels") or {}).items())]
        for expression in selector.get("matchExpressions") or ():
            operator = _DOCUMENT_OPERATORS.get(expression.get("operator", ""))
            if operator is None:
                raise SelectorError(f'"{expression.get("operator", "")}" is not a valid label selector operator')
            found.append(_requirement(expression.get("key", ""), operator, expression.get("values") or []))
        return cls(tuple(found))


EVERYTHING = LabelSelector()
_DOCUMENT_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
_OPERATORS = {"=": "in", "==": "in", "!=": "notin", "in": "in", "notin": "notin", ">": "gt", "<": "lt"}
_SYMBOLS = frozenset(("=", "==", "!=", "!", "(", ")", ">", "<", ","))
_USUAL = re.compile(  # fast path for most selectors: a short equality (``a=b``) with a valid key and a valid value
    r"((?:(?=[^=]*/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)==?([A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)"
).fullmatch
_TOKEN = re.compile(r"[ \t\r\n]*(?:([=!()<>,]+)|([^=!()<>, \t\r\n]+))")
_NO_TOKEN = re.compile(r"(?<![^\0 \t\r\n])\0")
_SYMBOL = re.compile(r"==|!=|.")
_END = ""  # the token at the end of the text


def _tokens(text: str) -> list[str]:
    """Return identifiers and symbols.

    Split a sequence of symbol characters into the longest known symbols.
    """
    found: list[str] = []
    if "\0" in text:  # upstream: a NUL ends a token; at the beginning of a token it ends the selector
        text = _NO_TOKEN.split(text, 1)[0].replace("\0", " ")
    for symbols, word in _TOKEN.findall(text):
        if word:
            found.append(word)
        else:
            found.extend(_SYMBOL.findall(symbols))
    found.append(_END)
    return found


class _Parser:
    """A recursive-descent parser of tokens, with upstream's messages."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._tokens[self._at]
        if self._at < len(self._tokens) - 1:
            self._at += 1
        return token

    def parse(self) -> list[Requirement]:
        """Return the requirements."""
        found: list[Requirement] = []
        while self._peek() != _END:
            if not _is_word(self._peek()) and self._peek() != "!":
                raise SelectorError(f"found '{self._peek()}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from error
            token = self._take()
            if token == _END:
                break
            if token != ",":
                raise SelectorError(f"found '{token}', expected: ',' or 'end of string'")
            if not _is_word(self._peek()) and self._peek() != "!":
                raise SelectorError(f"found '{self._peek()}', expected: identifier after ','")
        return found

    def _requirement(self) -> Requirement:
        token = self._take()
        absent = token == "!"
        key = self._take() if absent else token
        if not _is_word(key):
            raise SelectorError(f"found '{key}', expected: identifier")
        if faults := qualified_name(key):
            raise SelectorError(str(invalid("", key, "; ".join(faults))))
        if absent or self._peek() in (_END, ","):
            return Requirement(key, "!" if absent else "exists")
        token = self._take()
        operator = _OPERATORS.get(token)
        if operator is None:
            raise SelectorError(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if token in ("in", "notin") else [self._exact_value()]
        return _requirement(key, operator, sorted(values))

    def _exact_value(self) -> str:
        if self._peek() in (_END, ","):
            return ""
        token = self._take()
        if not _is_word(token):
            raise SelectorError(f"found '{token}', expected: identifier")
        return token

    def _values(self) -> set[str]:
        token = self._take()
        if token != "(":
            raise SelectorError(f"found '{token}' expected: '('")
        first = self._peek()
        if first == ")":
            self._take()
            return {""}
        if not _is_word(first) and first != ",":
            raise SelectorError(f"found '{first}', expected: ',', ')' or identifier")
        found: set[str] = set()
        before = ","
        while True:
            token = self._take()
            if token in (",", ")") and before == ",":
                found.add("")  # upstream: an empty element of the list stands for the empty value
            if token == ")":
                return found
            if _is_word(token):
                if before != ",":
                    raise SelectorError(f"found '{token}', expected: ',' or ')'")
                found.add(token)
            elif token != ",":
                expected = "',' or ')'" if before != "," else "',', or identifier"
                raise SelectorError(f"found '{token}', expected: {expected}")
            before = token


def _is_word(token: str) -> bool:
    return token != _END and token not in _SYMBOLS


def _requirement(key: str, operator: str, values: Sequence[str]) -> Requirement:
    """Validate and return a requirement. Raise SelectorError."""
    errors: list[FieldError] = []
    if faults := qualified_name(key):
        errors.append(invalid("key", key, "; ".join(faults)))
    if operator in ("in", "notin") and not values:
        errors.append(invalid("values", [], "for 'in', 'notin' operators, values set can't be empty"))
    if operator in ("exists", "!") and values:
        errors.append(invalid("values", list(values), "values set must be empty for exists and does not exist"))
    for index, value in enumerate(values):
        if operator in ("gt", "lt") and _int64(value) is None:
            text = "for 'Gt', 'Lt' operators, the value must be an integer"
            errors.append(invalid(f"values[{index}]", value, text))
        if faults := label_value(value):
            errors.append(invalid(f"values[{index}][{key}]", value, "; ".join(faults)))
    if errors:
        raise SelectorError(aggregate(errors))
    return Requirement(key, operator, tuple(values))


class FieldSelector(Struct, frozen=True):
    """A conjunction of terms (field path, ``=`` or ``!=``, value).

    Terms are sorted by their text, as upstream.
    """

    terms: tuple[tuple[str, str, str], ...] = ()

    def exact(self, field: str) -> str | None:
        """Return the value that a field must equal, or None."""
        for name, operator, value in self.terms:
            if name == field and operator == "=":
                return value
        return None

    @classmethod
    def parse(cls, text: str) -> "FieldSelector":
        """Parse a query parameter (``metadata.name=a,spec.x!=b``). Raise SelectorError (SEL-001)."""
        if not text:
            return NO_FIELDS
        if len(text) > limits.MAX_LINE:
            raise SelectorError(f"the selector is longer than {limits.MAX_LINE} characters")
        return _known_fields(text) if len(text) < 254 else _fields(text)


NO_FIELDS = FieldSelector()


def _fields(text: str) -> FieldSelector:
    terms = []
    for part in sorted(filter(None, _PART.findall(text))):
        split = _TERM.match(part)
        if split is None:
            raise SelectorError(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = split.groups()
        if field or value:  # upstream: a term without field and value selects all objects
            terms.append((field, "!=" if operator == "!=" else "=", _unescape(value)))
    return FieldSelector(tuple(terms))


# Cached, since a list or watch parses its selector twice: for the name in RequestInfo, and to select objects.
_known_fields = lru_cache(limits.SELECTORS_SEEN)(_fields)
_PART = re.compile(r"(?:[^,\\]|\\(?:.|\Z))+", re.DOTALL)
_TERM = re.compile(r"(.*?)(!=|==|=)(.*)\Z", re.DOTALL)
_ESCAPE = re.compile(r"\\(.?)|[,=]", re.DOTALL)


def _unescape(value: str) -> str:
    if value.isalnum():
        return value

    def replace(match: re.Match[str]) -> str:
        char = match.group(1)
        if char is None:
            raise SelectorError(f"invalid field selector: unescaped character in value: {ord(match.group())}")
        if char not in ("\\", ",", "="):
            raise SelectorError(f"invalid field selector: invalid escape sequence: \\{char}")
        return char

    return _ESCAPE.sub(replace, value)
