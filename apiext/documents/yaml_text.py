"""YAML texts and documents: the first document of a text, in the dialect of sigs.k8s.io/yaml (DEC-001, WRI-013)."""

import base64
import binascii
import re
from collections.abc import Iterator
from decimal import Decimal
from functools import cmp_to_key
from typing import Any

import orjson
import yaml
from yaml import cyaml

from apiext import limits
from apiext.documents.document import View, clone
from apiext.documents.errors import DecodeError
from apiext.documents.quotes import go_quote

_Parser: Any = cyaml.CParser  # type: ignore[attr-defined]  # not in the stubs
_TAG = "tag:yaml.org,2002:"
_BOOLS = {
    word: truth
    for truth, words in ((True, ("y", "yes", "true", "on")), (False, ("n", "no", "false", "off")))
    for name in words
    for word in (name, name.capitalize(), name.upper())
}
_FIRST_DIGITS: Any = re.compile(r"[0-9]*")  # match always, so nobody asks for None
_LAST_DIGITS: Any = re.compile(r"[0-9]*\Z")
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NO_TEXT = re.compile(  # numbers of base 60, and times
    r"(?:[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?[ \t]*"
    r"(?:Z|[-+][0-9:]+)?)?)\Z"
)
_NOT_FINITE = {
    sign + word: text
    for word, text in (
        (".inf", "Inf"),
        (".Inf", "Inf"),
        (".INF", "Inf"),
        (".nan", "NaN"),
        (".NaN", "NaN"),
        (".NAN", "NaN"),
    )
    for sign in ("", "+", "-")
    if word[1] in "iI" or not sign
}
_MAX_NOTES = 100  # notes per document (upstream: strict errors kept)
_UINT64_END = 2**64
_EXPONENTS_FROM = 6  # as of %g with the fewest digits
_PLAIN = "="  # a text that upstream does not quote
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1
_MERGE: Any = object()  # the key << of a mapping


def decode_yaml(raw: bytes) -> tuple[Any, list[str]]:
    """Return the first document of a YAML text, and one note with a line per duplicate key if there are any.

    The note reads ``yaml: unmarshal errors:\\n  line 3: key "a" already set in map``, as strict errors show it.
    Scalars are resolved as YAML 1.1 without timestamps; keys become text. Raises DecodeError with Go's text, also for
    aliases and nesting over their limits.
    """
    reader = _Reader(raw)
    try:
        document = reader.read()
    except yaml.MarkedYAMLError as error:
        raise DecodeError(_fault(error)) from error
    except yaml.YAMLError as error:
        raise DecodeError("yaml: control characters are not allowed") from error
    except UnicodeDecodeError as error:
        raise DecodeError("yaml: invalid leading UTF-8 octet") from error
    except RecursionError as error:
        raise DecodeError("yaml: exceeded max depth") from error
    return document, [
        "\n".join(["yaml: unmarshal errors:", *reader.duplicates[:_MAX_NOTES]])
    ] if reader.duplicates else []


def encode_yaml(document: View | list[Any]) -> bytes:
    """Return a YAML text with sorted keys and long lines folded, as Kubernetes prints objects (NEG-001)."""
    text = yaml.dump(
        _in_order(document), Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=80, sort_keys=False
    )
    assert isinstance(text, str)
    return text.removesuffix("...\n").encode()  # a mark after a text that ends with empty lines


class _Reader:
    """Builds a document from parser events with its own stack: no recursion, bounded aliases and nodes."""

    def __init__(self, raw: bytes) -> None:
        self.duplicates: list[str] = []
        self._events: Iterator[Any] = self._parse(raw)
        self._anchors: dict[str, tuple[Any, int]] = {}  # value and number of its nodes
        self._aliases = 0
        self._nodes = 0

    @staticmethod
    def _parse(raw: bytes) -> Iterator[Any]:
        parser = _Parser(raw.decode())
        try:
            while True:
                yield parser.get_event()
        finally:
            parser.dispose()

    def read(self) -> Any:
        """Return the first document; nothing but comments is null."""
        next(self._events)  # stream start
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            return None
        if start.version not in (None, (1, 1)):
            raise DecodeError("yaml: found incompatible YAML document")
        return self._value(next(self._events), 0)

    def _value(self, event: Any, depth: int) -> Any:
        before = self._nodes
        self._count(1)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth >= limits.MAX_DEPTH:
            raise DecodeError("yaml: exceeded max depth")
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth + 1)
        else:
            value = self._mapping(depth + 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, self._nodes - before)
        return value

    def _alias(self, event: Any) -> Any:
        self._aliases += 1
        if self._aliases > limits.MAX_YAML_ALIASES:
            raise DecodeError("yaml: document contains excessive aliasing")
        if event.anchor not in self._anchors:
            raise DecodeError(f"yaml: unknown anchor '{event.anchor}' referenced")
        value, size = self._anchors[event.anchor]
        self._count(size)
        return clone(value)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > limits.MAX_YAML_NODES:
            raise DecodeError("yaml: document contains excessive aliasing")

    def _sequence(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth))
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        own: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            name = self._key(event, depth)
            event = next(self._events)
            line = event.start_mark.line + 1  # of the value, as upstream
            value = self._value(event, depth)
            if name is _MERGE:
                _merge(own, value)
                continue
            if name is None:
                raise DecodeError(f"unsupported map key of type: %!s(<nil>), key: <nil>, value: {_go_syntax(value)}")
            key = _key_text(name)
            if key in own:
                shown = go_quote(key) if isinstance(name, str) else key
                self.duplicates.append(f"  line {line}: key {shown} already set in map")
            own[key] = value
        return own

    def _key(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.ScalarEvent) and event.value == "<<" and event.implicit[0]:
            return _MERGE
        key = self._value(event, depth)
        if isinstance(key, dict | list):
            raise DecodeError(f"yaml: invalid map key: {_go_syntax(key)}")
        return key


def _merge(own: dict[str, Any], value: Any) -> None:
    """Add the members of a merged mapping, or of a list of them of which the first counts most.

    upstream: members are set in the order of the text, so a merge replaces what stands before it
    """
    for source in reversed(value) if isinstance(value, list) else [value]:
        if not isinstance(source, dict):
            raise DecodeError("yaml: map merge requires map or sequence of maps as the value")
        own.update(source)


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _go_syntax(value: Any) -> str:
    """Return a value as Go's %#v prints it."""
    if isinstance(value, dict):
        members = ", ".join(f"{_go_syntax(key)}:{_go_member(item)}" for key, item in value.items())
        return f"map[interface {{}}]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_member, value))}}}"
    if isinstance(value, str):
        return go_quote(value)
    return "<nil>" if value is None else orjson.dumps(value).decode()


def _go_member(value: Any) -> str:
    return "interface {}(nil)" if value is None else _go_syntax(value)


def _scalar(event: Any) -> Any:
    text: str = event.value
    if event.tag is not None and event.tag != "!":
        return _tagged(event.tag, text)
    if not event.implicit[0]:
        return text
    return _resolve(text)


def _tagged(tag: str, text: str) -> Any:
    """Return a scalar with an explicit tag; tags that are not YAML's own say nothing about the value."""
    if tag == _TAG + "binary":
        try:
            return base64.b64decode("".join(text.split()), validate=True).decode(errors="replace")
        except binascii.Error as error:
            raise DecodeError("yaml: !!binary value contains invalid base64 data") from error
    if tag == _TAG + "str" or not tag.startswith(_TAG):
        return text
    value = _resolve(text)
    if tag == _TAG + "float" and isinstance(value, int):
        return value
    return value


def _resolve(text: str) -> Any:
    """Return what a plain scalar means."""
    if text in _NULLS:
        return None
    if text[0].isalpha():
        return _BOOLS.get(text, text)
    if text in _NOT_FINITE:
        name = _NOT_FINITE[text]
        sign = "" if name == "NaN" else "-" if text[0] == "-" else "+"
        raise DecodeError(f"json: unsupported value: {sign}{name}")
    plain = text.replace("_", "")
    if _INTEGER.match(plain):
        return _integer(plain)
    if _FLOAT.match(plain):
        return integral(float(plain))
    return text


def _integer(text: str) -> int | float:
    digits = text.lstrip("+-")
    base = {"x": 16, "o": 8, "b": 2}.get(digits[1:2].lower(), 8 if digits[0] == "0" and len(digits) > 1 else 10)
    if len(digits) > 70:
        return integral(float(digits)) if base == 10 else text  # type: ignore[return-value]
    number = int(digits[2:] if base in (2, 16) or digits[1:2].lower() == "o" else digits, base)
    number = -number if text[0] == "-" else number
    return number if _INT_MIN <= number <= _INT_MAX else float(number)


def integral(number: float) -> int | float:
    """Return a float as it is after YAML became JSON, where integral ones print without a fraction.

    Raises DecodeError for infinity.
    """
    if number in (float("inf"), float("-inf")):
        raise DecodeError(f"json: unsupported value: {'+' if number > 0 else '-'}Inf")
    if not number.is_integer():
        return number
    whole = int(Decimal(repr(number)))  # the shortest digits that mean the float, then zeros: that is what is printed
    return whole if _INT_MIN <= whole <= _INT_MAX else number


def _fault(error: yaml.MarkedYAMLError) -> str:
    """Return go-yaml's message: the zero-based line of the problem, for scanner errors one more."""
    mark = error.problem_mark
    line = 0
    if mark is not None and mark.line:
        line = mark.line + isinstance(error, yaml.scanner.ScannerError)
    elif error.context_mark is not None:
        line = error.context_mark.line
    where = f"line {line}: " if line else ""
    return f"yaml: {where}{error.problem or 'unknown problem parsing YAML content'}"


def _in_order(value: Any) -> Any:
    """Return the value with the keys of its mappings as upstream sorts them."""
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    keys = sorted(value)
    if not "".join(keys).isalpha():
        keys.sort(key=cmp_to_key(_compare))
    return {key: _in_order(value[key]) for key in keys}


def _compare(left: str, right: str) -> int:
    """Compare keys: letters after all else, numbers in them by value (upstream: keyList)."""
    place = next((at for at, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), None)
    if place is None:
        return len(left) - len(right)
    a, b = left[place], right[place]
    if a.isalpha() or b.isalpha():
        return (ord(a) - ord(b)) if a.isalpha() and b.isalpha() else (1 if a.isalpha() else -1)
    inside = "0" in (a, b) and bool(_LAST_DIGITS.search(left[:place])[0].strip("0"))
    (m, m_size), (n, n_size) = (_number(text[place:], inside) for text in (left, right))
    return (m - n) or (m_size - n_size) or (ord(a) - ord(b))


def _number(text: str, inside: bool) -> tuple[int, int]:
    """Return the number that a text begins with, 0 for none, and its length; ``inside``: digits stand before it.

    upstream: an int64 that runs over, so only its last 64 digits count.
    """
    digits = _FIRST_DIGITS.match(text)[0]
    value = int(f"{'1' if inside else '0'}{digits}"[-64:]) % _UINT64_END
    return value - _UINT64_END if value > _INT_MAX else value, len(digits)


class _Dumper(yaml.CSafeDumper):
    """Writes what reads back the same with YAML 1.1 and 1.2, without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write shared values each time they occur."""
        return True


def _represent_str(dumper: Any, text: str) -> Any:
    if "\n" in text:
        return dumper.represent_scalar(_TAG + "str", text, style="|")
    if text == _PLAIN:
        return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, text, (True, False)), text)
    ambiguous = text in _BOOLS or text in _NULLS or _resolves_to_number(text) or _NO_TEXT.match(text)
    return dumper.represent_scalar(_TAG + "str", text, style='"' if ambiguous else None)


def _resolves_to_number(text: str) -> bool:
    plain = text.replace("_", "")
    return bool(_INTEGER.match(plain) or _FLOAT.match(plain) or text in _NOT_FINITE)


def _represent_float(dumper: Any, value: float) -> Any:
    text = _go_float(value)
    return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, text, (True, False)), text)


def _go_float(value: float) -> str:
    """Return a float as Go writes it in YAML: as an integer where it is one, else in the form of %g."""
    number = Decimal(repr(value)).normalize()
    if _INT_MIN <= number < _UINT64_END and value.is_integer():
        return str(int(number))
    exponent = number.adjusted()
    if -5 < exponent < _EXPONENTS_FROM:
        return format(number, "f")
    return f"{number.scaleb(-exponent):f}e{exponent:+03d}"


_Dumper.add_representer(str, _represent_str)
_Dumper.add_representer(float, _represent_float)
