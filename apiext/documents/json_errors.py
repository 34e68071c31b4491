"""Find the first syntax error of a text that is not JSON, with the message of Go's scanner.

See ERR-11. ``syntax_error`` is the slow path: decoders call it only after a failure. ``check_depth`` runs before
decoding.
"""

import re
from itertools import accumulate

from apiext.documents.errors import BoundExceeded, DecodeError

END = "unexpected end of JSON input"
_SPACE = re.compile(rb"[ \t\r\n]*")
_RUN = 1000  # maximal repetitions of a group in one match, since the regex engine needs memory for each
_STRING_START = re.compile(rb'"[^"\\\x00-\x1f]*+')
_ESCAPES = re.compile(rb'(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+){1,%d}' % _RUN)
_PLAIN = rb'(?:"[^"\\\x00-\x1f]*+"|-?(?:0|[1-9][0-9]*+)(?=[,\]}\s])|true|false|null|\[\]|\{\})'
# patterns that match many plain elements at once, at the speed of C
_PLAIN_ELEMENTS = re.compile(rb"(?:,[ \t\r\n]*+%b[ \t\r\n]*+){1,%d}" % (_PLAIN, _RUN))
_PLAIN_MEMBERS = re.compile(rb'(?:,[ \t\r\n]*+"[^"\\\x00-\x1f]*+":[ \t\r\n]*+%b[ \t\r\n]*+){1,%d}' % (_PLAIN, _RUN))
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_SCALAR = re.compile(rb'"[^"]*+"|(?P<number>%b)' % _NUMBER.pattern)
_NUMBER_MESSAGE = re.compile(r"\Ajson: cannot unmarshal number (-?[0-9]\S*) into Go ")
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_NUMBER_STARTS = frozenset(b"-0123456789")
_HEX = re.compile(rb"[0-9a-fA-F]{0,4}")
_FIRST = 4096  # number of brackets and quotes that are checked before the whole text
_PASSES = 32  # each pass removes the innermost brackets at the speed of C; few texts have more levels
_NO_BRACKETS = bytes(code for code in range(256) if code not in b'[]{}"')
_STEPS = bytes(2 if code in b"[{" else 0 for code in range(256))
_QUOTED = {
    0x27: "\\'",
    0x22: '"',
    0x5C: "\\\\",
    7: "\\a",
    8: "\\b",
    9: "\\t",
    10: "\\n",
    11: "\\v",
    12: "\\f",
    13: "\\r",
}


def check_depth(raw: bytes, limit: int) -> None:
    """Raise BoundExceeded if brackets outside strings have more levels than the limit (DEC-001).

    The check takes linear time, without recursion.
    """
    marks = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _NO_BRACKETS)
    _check_marks(marks[:_FIRST], limit)  # most hostile texts begin with their brackets
    if len(marks) > _FIRST:
        _check_marks(marks, limit)


def _check_marks(marks: bytes, limit: int) -> None:
    brackets = shallow = b"".join(marks.split(b'"')[::2])
    for _ in range(_PASSES):
        if len(shallow) <= limit:
            return
        shallow = shallow.replace(b"[]", b"").replace(b"{}", b"")
    for position, depth in enumerate(accumulate(step - 1 for step in brackets.translate(_STEPS))):
        if depth > limit:
            raise BoundExceeded(f"{_invalid(brackets[position])} exceeded max depth")


def syntax_error(raw: bytes) -> str | None:
    """Return Go's message about the first syntax error of a text, or None if there is none."""
    try:
        _scan(raw)
    except DecodeError as error:
        return str(error)
    return None


def without_escaped_quotes(raw: bytes) -> bytes:
    """Return a JSON text of the same length in which quotes only delimit strings."""
    return raw.replace(b"\\\\", b"__").replace(b'\\"', b"__")


def as_written(raw: bytes, text: str) -> str:
    """Return Go's message ``text`` with the number as the JSON text writes it.

    Only messages about a number of a wrong type contain a number; other messages are returned unchanged.
    """
    message = _NUMBER_MESSAGE.search(text)
    if message is None:
        return text
    value = float(message[1])
    for found in _SCALAR.finditer(without_escaped_quotes(raw)):
        if found["number"] and float(found["number"]) == value:
            return text[: message.start(1)] + found["number"].decode() + text[message.end(1) :]
    return text


def _scan(raw: bytes) -> None:
    stack: list[int] = []  # open brackets
    at = _value(raw, _skip(raw, 0), stack)
    while stack:
        at = _runs(_PLAIN_MEMBERS if stack[-1] == ord("{") else _PLAIN_ELEMENTS, raw, _skip(raw, at))
        at = _member(raw, at, stack) if stack[-1] == ord("{") else _element(raw, at, stack)
    at = _skip(raw, at)
    if at < len(raw):
        raise DecodeError(f"{_invalid(raw[at])} after top-level value")


def _member(raw: bytes, at: int, stack: list[int]) -> int:
    """Read the end of an object, or a key and the beginning of its value; return the next index.

    ``at`` is the index after the value of a field.
    """
    char = _char(raw, at)
    if char == ord("}"):
        stack.pop()
        return at + 1
    if char != ord(","):
        raise DecodeError(f"{_invalid(char)} after object key:value pair")
    return _key(raw, _skip(raw, at + 1), stack)


def _element(raw: bytes, at: int, stack: list[int]) -> int:
    char = _char(raw, at)
    if char == ord("]"):
        stack.pop()
        return at + 1
    if char != ord(","):
        raise DecodeError(f"{_invalid(char)} after array element")
    return _value(raw, _skip(raw, at + 1), stack)


def _key(raw: bytes, at: int, stack: list[int]) -> int:
    char = _char(raw, at)
    if char != ord('"'):
        raise DecodeError(f"{_invalid(char)} looking for beginning of object key string")
    at = _skip(raw, _string(raw, at))
    if _char(raw, at) != ord(":"):
        raise DecodeError(f"{_invalid(raw[at])} after object key")
    return _value(raw, _skip(raw, at + 1), stack)


def _value(raw: bytes, at: int, stack: list[int]) -> int:
    """Read a value as far as its first scalar or empty container; return the next index.

    Push the brackets that enclose this scalar or container on the stack.
    """
    while True:
        char = _char(raw, at)
        if char == ord('"'):
            return _string(raw, at)
        if char in _NUMBER_STARTS:
            return _number(raw, at)
        if char in _LITERALS:
            return _literal(raw, at, _LITERALS[char])
        if char not in b"[{":
            raise DecodeError(f"{_invalid(char)} looking for beginning of value")
        inner = _skip(raw, at + 1)
        if _char(raw, inner) == char + 2:  # the codes of ']' and '}' are two above their openers
            return inner + 1
        stack.append(char)
        if char == ord("{"):
            return _key(raw, inner, stack)
        at = inner


def _string(raw: bytes, at: int) -> int:
    start = _STRING_START.match(raw, at)
    assert start is not None
    at = _runs(_ESCAPES, raw, start.end())
    char = _char(raw, at)
    if char == ord('"'):
        return at + 1
    if char != ord("\\"):
        raise DecodeError(f"{_invalid(char)} in string literal")
    kind = _char_inside(raw, at + 1)
    if kind != ord("u"):
        raise DecodeError(f"{_invalid(kind)} in string escape code")
    digits = _HEX.match(raw, at + 2)
    assert digits is not None
    raise DecodeError(f"{_invalid(_char_inside(raw, digits.end()))} in \\u hexadecimal character escape")


def _number(raw: bytes, at: int) -> int:
    match = _NUMBER.match(raw, at)
    if match is None:
        raise DecodeError(f"{_invalid(_char_inside(raw, at + 1))} in numeric literal")
    end = match.end()
    rest = raw[end : end + 2]
    text = match.group()
    if rest[:1] == b"." and not re.search(rb"[.eE]", text):
        raise DecodeError(f"{_invalid(_char_inside(raw, end + 1))} after decimal point in numeric literal")
    if rest[:1] in (b"e", b"E") and not re.search(rb"[eE]", text):
        at = end + (2 if rest[1:] in (b"+", b"-") else 1)
        raise DecodeError(f"{_invalid(_char_inside(raw, at))} in exponent of numeric literal")
    return end


def _literal(raw: bytes, at: int, word: bytes) -> int:
    for offset, expected in enumerate(word):
        char = _char_inside(raw, at + offset)
        if char != expected:
            raise DecodeError(f"{_invalid(char)} in literal {word.decode()} (expecting {quote_byte(expected)})")
    return at + len(word)


def _runs(pattern: re.Pattern[bytes], raw: bytes, at: int) -> int:
    """Return the index after consecutive matches of a pattern that begin at ``at``."""
    while (run := pattern.match(raw, at)) is not None:
        at = run.end()
    return at


def _skip(raw: bytes, at: int) -> int:
    match = _SPACE.match(raw, at)
    assert match is not None
    return match.end()


def _char(raw: bytes, at: int) -> int:
    if at >= len(raw):
        raise DecodeError(END)
    return raw[at]


def _char_inside(raw: bytes, at: int) -> int:
    """Return a byte inside a literal, a number or an escape.

    As upstream, the end of the text counts as a space.
    """
    return raw[at] if at < len(raw) else 0x20


def _invalid(char: int) -> str:
    return f"invalid character {quote_byte(char)}"


def quote_byte(char: int) -> str:
    """Return a byte as Go's quoteChar prints it."""
    text = chr(char)
    if not text.isprintable():
        text = f"\\x{char:02x}" if char < 0x80 else f"\\u{char:04x}"
    return f"'{_QUOTED.get(char, text)}'"
