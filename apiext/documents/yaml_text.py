"""Decode the first document of a YAML text, and encode YAML (DEC-001, WRI-013).

The dialect is that of sigs.k8s.io/yaml.
"""

import re
from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any, NamedTuple

import orjson
import yaml
from yaml import cyaml

from apiext.documents import limits
from apiext.documents.document import View, clone
from apiext.documents.errors import MAX_NOTES, DecodeError
from apiext.documents.floats import yaml_float
from apiext.documents.integral import Unsupported
from apiext.documents.yaml_scalars import (
    TAG,
    as_key,
    as_value,
    is_ambiguous,
    resolve,
    shown_key,
    tagged,
    unsupported_key,
)
from apiext.text.quotes import go_quote

_Parser: Any = cyaml.CParser  # type: ignore[attr-defined]  # not in the stubs
_FIRST_DIGITS: Any = re.compile(r"[0-9]*")  # always matches, so callers need not check for None
_DIGITS = "0123456789"
_UINT64_END = 2**64
_UNFOLDED = 2**31 - 1  # maximal characters of a line, so that no line is folded
_INT_MAX = 2**63 - 1
_MERGE: Any = object()  # stands for the key ``<<`` of a mapping
_NO_KEY = "\ud800"  # prefix of a key that upstream refuses (``as_key`` returns None)
_NULL_KEY = f"{_NO_KEY}{None}"
# placeholders for colons and byte order marks that PyYAML's parser treats specially, but upstream treats like letters
_COLON, _BOM = "\ue000", "\ue001"
_COLON_BEFORE_SIGN = re.compile(r":[,\[\]{}?]")
# a colon in brackets that does not end a key; a colon ends a key before white space, or after a quote or bracket
_COLON_IN_FLOW = re.compile(
    r"((?:[\[{,?]|:(?=\s))\s*(?:(?:[&*][\w-]++|!\S{0,64}+)\s*+){0,2}:)"  # ends an empty key
    r"|([^\s\"'\[\]{},:][ \t]*|(?<![\"'\]}])(?<![\"'\]}][ \t]):):(?=[,\[\]{}?])"
)
_PIECE = 16 * 1024  # characters that one regular expression scans, in 3 ms
_CONTEXT = 1_024  # characters before a piece that the regular expression also scans
_MAX_CHARACTER = 4  # maximal bytes of a character
_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))  # byte order marks of UTF-16
_UNREADABLE_16 = {  # Python's errors of decoding UTF-16 → Go's texts
    "truncated data": "incomplete UTF-16 character",
    "unexpected end of data": "incomplete UTF-16 surrogate pair",
    "illegal encoding": "unexpected low surrogate area",
    "illegal UTF-16 surrogate": "expected low surrogate area",
}
_TRAILING = bytes(range(0x80, 0xC0))
_FIRST_TRAILING = {0xE0: 0xA0, 0xF0: 0x90}  # first byte → smallest second byte that is not an overlong encoding
_CONVERTED, _WRITTEN = range(2)  # upstream's stages after decoding: first keys become strings, then JSON is written


def decode_yaml(raw: bytes) -> tuple[Any, list[str]]:
    """Return the first document of a YAML text, and at most one note about duplicate keys.

    The note has one line for each duplicate key. The note is ``yaml: unmarshal errors:\\n  line 3: key "a" already
    set in map``, as in upstream's strict errors. The note has at most MAX_NOTES such lines. Scalars have the types
    of YAML 1.1, but timestamps stay strings; keys become strings. Raise DecodeError with Go's text, also if
    aliases, nodes or nesting exceed their limits.
    """
    reader = _Reader(raw)
    try:
        document = reader.read()
    except yaml.MarkedYAMLError as error:
        raise DecodeError(_fault(error)) from error
    except yaml.YAMLError as error:
        raise DecodeError("yaml: control characters are not allowed") from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"yaml: {_decoding_error(error)}") from error
    except RecursionError as error:
        raise DecodeError("yaml: exceeded max depth") from error
    return document, [
        "\n".join(["yaml: unmarshal errors:", *reader.duplicates[:MAX_NOTES]])
    ] if reader.duplicates else []


def _text(raw: bytes) -> str:
    """Decode the bytes of a YAML text in the encoding of its byte order mark, else as UTF-8."""
    for mark, encoding in _MARKS:
        if raw.startswith(mark):
            return raw[len(mark) :].decode(encoding)
    return raw.decode()


def _decoding_error(error: UnicodeDecodeError) -> str:
    """Return Go's error text for bytes that cannot be decoded."""
    if error.encoding != "utf-8":
        return _UNREADABLE_16[error.reason]
    broken = error.object[error.start : error.start + 4]
    first = broken[0]
    width = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if not 0xC0 <= first < 0xF8:
        return "invalid leading UTF-8 octet"
    if len(broken) < width:
        return "incomplete UTF-8 octet sequence"
    if broken[1:width].translate(None, _TRAILING):
        return "invalid trailing UTF-8 octet"
    short = first < 0xC2 or broken[1] < _FIRST_TRAILING.get(first, 0)
    return "invalid length of a UTF-8 sequence" if short else "invalid Unicode character"


def _with_placeholders(text: str) -> str:
    """Replace characters that PyYAML, unlike upstream, treats specially by placeholders.

    The result is ``text`` itself if ``text`` already contains a placeholder, or if it has at most _PIECE characters and
    needs no placeholder. Otherwise, the result is a new string.
    """
    if _COLON in text or _BOM in text:
        return text
    found = text
    if text.find("\ufeff", 1) > 0 and not text.startswith("\ufeff\ufeff"):
        found = text[0] + text[1:].replace("\ufeff", _BOM)
    parts: list[str] = []
    # short pieces, since a regular expression blocks all other threads until it ends
    for at in range(0, len(found), _PIECE):
        parts += _without_colons(found, at, at + _PIECE)
    return "".join(parts)


def _without_colons(text: str, begin: int, end: int) -> Iterator[str]:
    """Yield the pieces of ``text[begin:end]``, with placeholders for colons.

    Only colons that the parser treats specially get a placeholder. The pattern sees at most _CONTEXT characters before
    ``begin``. So it may decide wrongly on a colon after an anchor, a tag or white space that is longer than this.
    """
    if _COLON_BEFORE_SIGN.search(text, begin, end + 1) is not None:
        for match in _COLON_IN_FLOW.finditer(text, max(0, begin - _CONTEXT), end + 1):
            colon = match.end() - 1
            if match[1] is None and begin <= colon < end:
                yield text[begin:colon]
                yield _COLON
                begin = colon + 1
    yield text[begin:end]


class _Stream:
    """A text that the parser reads in pieces, so that other threads can run between two pieces."""

    __slots__ = ("_at", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def read(self, size: int) -> str:
        """Return the next characters, which the parser encodes to at most ``size`` bytes."""
        begin, self._at = self._at, self._at + size // _MAX_CHARACTER
        return self._text[begin : self._at]


def encode_yaml(document: View | list[Any]) -> bytes:
    """Return a YAML text with sorted keys and folded long lines, as Kubernetes prints objects.

    See NEG-001.
    """
    return _dumped(_in_order(document), 80).encode()


def yaml_in_order(value: Any) -> str:
    """Return a value as YAML, with the keys in their own order, and without folded lines."""
    return _dumped(value, _UNFOLDED)


def _dumped(value: Any, width: int) -> str:
    text = yaml.dump(value, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, width=width, sort_keys=False)
    assert isinstance(text, str)
    # the dumper appends "..." to a document that is a plain scalar, and to a document whose last string ends with empty
    # lines; dots inside a string are indented
    return text[:-4] if text.endswith("\n...\n") else text


class _NotJson:
    """A placeholder for a YAML value without an equivalent in JSON.

    ``fault`` is the error of the value, and ``stage`` is the stage at which upstream reports it.
    """

    __slots__ = ("fault", "stage")

    def __init__(self, stage: int, fault: DecodeError) -> None:
        self.stage = stage
        self.fault = fault


def _not_json_values(value: Any) -> Iterator[_NotJson]:
    """Yield the placeholders in a document, in the order of sorted keys."""
    if isinstance(value, _NotJson):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from _not_json_values(value[key])
    elif isinstance(value, list):
        for item in value:
            yield from _not_json_values(item)


class _Anchored(NamedTuple):
    """An anchored value, with the data that each alias adds again.

    These are the value's numbers of nodes and characters, its steps (see _Construction), and its notes on duplicate
    keys.
    """

    value: Any
    nodes: int
    letters: int
    steps: Any
    duplicates: list[str]


class _Reader:
    """A builder of a document from parser events, with bounded depth, aliases and nodes."""

    def __init__(self, raw: bytes) -> None:
        self.duplicates: list[str] = []
        self._events: Iterator[Any] = self._parse(raw)
        self._anchors: dict[str, _Anchored | None] = {}  # None: the value is incomplete
        self._aliases = 0
        self._nodes = 0
        self._letters = 0
        self._fault: DecodeError | None = None
        self._has_placeholders = False
        self._steps: Any = []  # steps (see _Construction) of the last mapping, or of each mapping in the last list

    @staticmethod
    def _parse(raw: bytes) -> Iterator[Any]:
        text = _text(raw)
        disguised = _with_placeholders(text)
        parser = _Parser(_Stream(disguised))
        flow: list[Any] = []
        try:
            while True:
                event = parser.get_event()
                if isinstance(event, yaml.ScalarEvent):
                    if disguised is not text:
                        event.value = event.value.replace(_COLON, ":").replace(_BOM, "\ufeff")
                    if flow and flow[-1].flow_style and not event.style and "?" in event.value:
                        raise _unexpected_key(flow[-1], event.start_mark, text)
                elif isinstance(event, yaml.CollectionStartEvent):
                    flow.append(event)
                elif isinstance(event, yaml.CollectionEndEvent):
                    flow.pop()
                yield event
        finally:
            parser.dispose()

    def read(self) -> Any:
        """Return the first document, or None for a text without a document.

        A text with only comments has no document.
        """
        next(self._events)  # stream start
        start = next(self._events)
        if isinstance(start, yaml.StreamEndEvent):
            return None
        if start.version not in (None, (1, 1)):
            raise DecodeError("yaml: found incompatible YAML document")
        document = self._value(next(self._events), 0)
        next(self._events)  # document end; the parser scans the next token for it, and may raise an error
        if self._fault is not None:
            raise self._fault
        if self._has_placeholders:
            left = min(_not_json_values(document), key=lambda it: it.stage, default=None)
            if left is not None:
                raise left.fault
        return document

    def _keep_error(self, text: str) -> None:
        """Store the first decoding error; ``read`` raises it if the whole document can be parsed."""
        self._fault = self._fault or DecodeError(text)

    def _placeholder(self, stage: int, fault: DecodeError) -> "_NotJson":
        """Return a placeholder with an error that ``read`` may raise.

        ``read`` does not raise the error of a value that a duplicate key replaces. Of several placeholders, ``read``
        chooses the earliest stage, then the first in the order of sorted keys.
        """
        self._has_placeholders = True
        return _NotJson(stage, fault)

    def _value(self, event: Any, depth: int) -> Any:
        before, letters, notes = self._nodes, self._letters, len(self.duplicates)
        self._count(1)
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if depth >= limits.MAX_DEPTH:
            raise DecodeError("yaml: exceeded max depth")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            try:
                value = as_value(self._native(event))
            except Unsupported as fault:
                value = self._placeholder(_WRITTEN, fault)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(depth + 1)
        else:
            value = self._mapping(depth + 1)
        if event.anchor is not None:
            size = self._nodes - before, self._letters - letters
            self._anchors[event.anchor] = _Anchored(value, *size, self._steps, self.duplicates[notes:])
        return value

    def _native(self, event: Any) -> Any:
        """Return the YAML value of a scalar."""
        text: str = event.value
        self._letters += len(text)
        if event.tag is None or event.tag == "!":
            return resolve(text) if event.implicit[0] else text
        try:
            return tagged(event.tag, text)
        except DecodeError as fault:
            self._keep_error(str(fault))
            return text

    def _alias(self, event: Any) -> Any:
        self._aliases += 1
        if self._aliases > limits.MAX_YAML_ALIASES:
            raise DecodeError("yaml: document contains excessive aliasing")
        if event.anchor not in self._anchors:
            raise DecodeError(f"yaml: unknown anchor '{event.anchor}' referenced")
        found = self._anchors[event.anchor]
        if found is None:
            self._keep_error(f"yaml: anchor '{event.anchor}' value contains itself")
            return None
        self._steps = found.steps
        self._letters += found.letters
        if self._letters > limits.MAX_BODY:
            raise DecodeError("yaml: document contains excessive aliasing")
        self._count(found.nodes)
        self.duplicates += found.duplicates  # upstream: an alias is decoded again at each use
        return clone(found.value)

    def _count(self, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > limits.MAX_YAML_NODES:
            raise DecodeError("yaml: document contains excessive aliasing")

    def _sequence(self, depth: int) -> list[Any]:
        items: list[Any] = []
        steps: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth))
            steps.append(self._steps)
        self._steps = steps
        return items

    def _mapping(self, depth: int) -> dict[str, Any]:
        own: dict[str, Any] = {}
        construction = _Construction()
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            name = self._key(event, depth)
            event = next(self._events)
            line = event.start_mark.line + 1  # the line of the value, as in upstream
            notes = len(self.duplicates)
            value = self._value(event, depth)
            if name is _MERGE:
                del self.duplicates[notes:]
                self._merge(own, construction, value)
                continue
            key = as_key(name)
            if key is None:
                key = f"{_NO_KEY}{name}"
                value = self._placeholder(_CONVERTED, unsupported_key(name, _go_syntax(value)))
            if notes < len(self.duplicates):
                construction.steps += self.duplicates[notes:]
            self._mark(construction, name, line)
            own[key] = value
        self._steps = construction.steps
        return own

    def _key(self, event: Any, depth: int) -> Any:
        if not isinstance(event, yaml.ScalarEvent):
            key = self._value(event, depth)
            if isinstance(key, dict | list):
                self._keep_error(f"yaml: invalid map key: {_go_syntax(key)}")
                return ""
            return key
        if event.value == "<<" and (event.implicit[0] or event.tag == f"{TAG}merge"):
            return _MERGE
        if event.anchor is not None:
            return self._value(event, depth)
        self._count(1)
        return self._native(event)

    def _mark(self, construction: "_Construction", name: Any, line: int) -> None:
        """Record the line of a field.

        Add a note if the key already exists (as in upstream, 1 differs from "1").
        """
        mark = name if name.__class__ is str else (name.__class__, name)
        if mark in construction.marks:
            self.duplicates.append(f"  line {line}: key {shown_key(name)} already set in map")
        construction.marks.add(mark)
        construction.steps.append((name, line))

    def _merge(self, own: dict[str, Any], construction: "_Construction", value: Any) -> None:
        """Add the fields of a merged mapping or array of mappings.

        Earlier mappings of an array have precedence. As in upstream, a merge replaces fields that precede the merge
        in the text.
        """
        pairs = zip(value, self._steps, strict=True) if isinstance(value, list) else ((value, self._steps),)
        for source, steps in reversed(tuple(pairs)):
            if not isinstance(source, dict):
                self._keep_error("yaml: map merge requires map or sequence of maps as the value")
                return
            for step in steps:
                if step.__class__ is str:
                    self.duplicates.append(step)
                    construction.steps.append(step)
                else:
                    self._mark(construction, *step)
            own.update(source)


class _Construction:
    """The construction of a mapping, which each merge of the mapping repeats.

    ``marks`` are its keys. ``steps`` are (key, line) of each field, and the notes on duplicate keys in its values.
    """

    __slots__ = ("marks", "steps")

    def __init__(self) -> None:
        self.marks: set[Any] = set()
        self.steps: list[Any] = []


def _go_syntax(value: Any) -> str:
    """Return a value as Go's %#v prints it."""
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (key != _NULL_KEY, key))
        members = ", ".join(f"{_go_key(key)}:{_go_member(value[key])}" for key in keys)
        return f"map[interface {{}}]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(_go_member, value))}}}"
    if isinstance(value, str):
        return go_quote(value)
    if isinstance(value, _NotJson):
        return str(value.fault).rpartition(" ")[2]
    return "<nil>" if value is None else orjson.dumps(value).decode()


def _go_key(key: str) -> str:
    return "interface {}(nil)" if key == _NULL_KEY else _go_syntax(key)


def _go_member(value: Any) -> str:
    return "interface {}(nil)" if value is None else _go_syntax(value)


def _unexpected_key(start: Any, place: Any, text: str) -> yaml.MarkedYAMLError:
    """Return the error of a plain scalar with a question mark, in a list or mapping in brackets.

    Upstream always treats the question mark as the start of a key.
    """
    line = place.line + text.count("\n", place.index, text.find("?", place.index))
    mark = yaml.Mark(place.name, place.index, line, 0, None, 0)
    kind, end = ("sequence", "]") if isinstance(start, yaml.SequenceStartEvent) else ("mapping", "}")
    problem = f"did not find expected ',' or '{end}'"
    return yaml.parser.ParserError(f"while parsing a flow {kind}", start.start_mark, problem, mark)


def _fault(error: yaml.MarkedYAMLError) -> str:
    """Return go-yaml's message.

    The message has the zero-based line number of the problem, plus one for scanner errors. If the problem is on the
    first line, or its line is unknown, the message has the zero-based line number of the context, unless it is 0.
    """
    mark = error.problem_mark
    line = 0
    if mark is not None and mark.line:
        line = mark.line + isinstance(error, yaml.scanner.ScannerError)
    elif error.context_mark is not None:
        line = error.context_mark.line
    where = f"line {line}: " if line else ""
    return f"yaml: {where}{error.problem or 'unknown problem parsing YAML content'}"


def _in_order(value: Any) -> Any:
    """Return the value with the keys of its mappings in upstream's order."""
    if isinstance(value, list):
        return [_in_order(item) for item in value]
    if not isinstance(value, dict):
        return value
    keys = sorted(value)
    if not "".join(keys).isalpha():
        keys.sort(key=cmp_to_key(_compare))
    return {key: _in_order(value[key]) for key in keys}


def _compare(left: str, right: str) -> int:
    """Compare keys: letters sort after other characters, numbers inside keys by value.

    Upstream: keyList.
    """
    place = _first_difference(left, right)
    if place == min(len(left), len(right)):
        return len(left) - len(right)
    a, b = left[place], right[place]
    if a.isalpha() or b.isalpha():
        return (ord(a) - ord(b)) if a.isalpha() and b.isalpha() else (1 if a.isalpha() else -1)
    head = left[:place]
    inside = "0" in (a, b) and bool(head[len(head.rstrip(_DIGITS)) :].strip("0"))
    (m, m_size), (n, n_size) = (_number(text[place:], inside) for text in (left, right))
    return (m - n) or (m_size - n_size) or (ord(a) - ord(b))


def _first_difference(left: str, right: str) -> int:
    """Return the first index at which two strings differ, by bisection."""
    place, end = 0, min(len(left), len(right))
    while place < end:
        middle = (place + end + 1) // 2
        if left[place:middle] == right[place:middle]:
            place = middle
        else:
            end = middle - 1
    return place


def _number(text: str, inside: bool) -> tuple[int, int]:
    """Return (number at the start of a text or 0, number of its digits).

    If ``inside`` is true, a digit 1 is put before the number. As upstream, the caller requests this if one of the two
    compared texts begins with 0, and follows digits of its key that include a digit from 1 to 9. As in upstream, the
    number is an int64 that overflows, so only its last 64 bits count.
    """
    digits = _FIRST_DIGITS.match(text)[0]
    value = int(f"{'1' if inside else '0'}{digits}"[-64:]) % _UINT64_END
    return value - _UINT64_END if value > _INT_MAX else value, len(digits)


class _Dumper(yaml.CSafeDumper):
    """A dumper of YAML that parsers of YAML 1.1 and 1.2 read as the same value.

    The dumper writes no aliases.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that a shared value is written each time that it occurs."""
        return True


def _represent_str(dumper: Any, text: str) -> Any:
    if "\n" in text:
        return dumper.represent_scalar(TAG + "str", text, style="|")
    if is_ambiguous(text):
        return dumper.represent_scalar(TAG + "str", text, style='"')
    if text[0] in _LIKE_NUMBERS:  # the tag of a number keeps the dumper from quoting the string
        return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, text, (True, False)), text)
    return dumper.represent_scalar(TAG + "str", text)


_LIKE_NUMBERS = frozenset("0123456789.+-=")  # first characters of strings that the dumper would quote


def _represent_float(dumper: Any, value: float) -> Any:
    text = yaml_float(value)
    return dumper.represent_scalar(dumper.resolve(yaml.ScalarNode, text, (True, False)), text)


_Dumper.add_representer(str, _represent_str)
_Dumper.add_representer(float, _represent_float)
