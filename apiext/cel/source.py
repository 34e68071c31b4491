"""The text of an expression: its positions, and errors that quote a source line."""

import re
from bisect import bisect_right

from apiext.cel import limits

NOWHERE = (-1, -1)  # the position of errors of the whole expression
UNKNOWN = -2  # offset of a node without a position; its errors point before the first character


class TooLarge(Exception):
    """The error of an expression whose macros or types exceed a limit."""


class Issue:
    """One error: its line (the first is 1), its column (the first is 0), and upstream's text."""

    __slots__ = ("column", "line", "message")

    def __init__(self, line: int, column: int, message: str) -> None:
        self.line = line
        self.column = column
        self.message = message


class Source:
    """The characters of one expression, and the starts of its lines."""

    __slots__ = ("_lines", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines: list[int] | None = None

    def _line_starts(self) -> list[int]:
        if self._lines is None:
            self._lines = [0] + [at + 1 for at, char in enumerate(self.text) if char == "\n"]
        return self._lines

    def place(self, offset: int) -> tuple[int, int]:
        """Return the line (from 1) and the column (from 0) of an offset.

        Return (1, -1) for UNKNOWN, and NOWHERE for any other negative offset.
        """
        if offset == UNKNOWN:
            return 1, -1
        if offset < 0:
            return NOWHERE
        if not self.text:
            return 1, -1  # as upstream: an empty source has no lines
        starts = self._line_starts()
        line = bisect_right(starts, offset)
        return line, offset - starts[line - 1]

    def line(self, number: int) -> str | None:
        """Return a line without its line break, or None if it does not exist."""
        starts = self._line_starts()
        if not self.text or not 1 <= number <= len(starts):
            return None
        end = starts[number] - 1 if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end]

    def show(self, issue: Issue) -> str:
        """Return one error as upstream prints it.

        The text has the position, the message, the source line, and a mark below the column. Leave out line and mark if
        the line does not exist, or has more than limits.MAX_SNIPPET bytes.
        """
        head = f"ERROR: <input>:{issue.line}:{issue.column + 1}: {issue.message}"
        line = self.line(issue.line)
        if line is None or len(line.encode("utf-8", "replace")) > limits.MAX_SNIPPET:
            return head
        line = line.replace("\t", " ")
        before = "".join("．" if ord(char) > 127 else "." for char in line[: max(issue.column, 0)])
        under = line[issue.column : issue.column + 1] if issue.column >= 0 else line[:1]
        mark = "＾" if under and ord(under) > 127 else "^"
        return f"{head}\n | {line}\n | {before}{mark}"


class Issues:
    """The errors of one expression, in the order in which they were found."""

    __slots__ = ("found", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: list[Issue] = []

    def __bool__(self) -> bool:
        return bool(self.found)

    def at(self, offset: int, message: str) -> None:
        """Add an error at an offset.

        The offset -1 stands for the whole expression, UNKNOWN for a node without a position.
        """
        line, column = self.source.place(offset)
        self.found.append(Issue(line, column, message))

    def text(self) -> str:
        """Return the first limits.MAX_REPORTED errors as upstream prints them, sorted by position.

        If there are more errors, the last line states how many were left out.
        """
        first = self.found[: limits.MAX_REPORTED]
        first.sort(key=lambda issue: (issue.line, issue.column))
        shown = [self.source.show(issue) for issue in first]
        if len(self.found) > limits.MAX_REPORTED:
            shown.append(f"{len(self.found) - limits.MAX_REPORTED} more errors were truncated")
        return "\n".join(shown)


_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_ESCAPES = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)


class UnescapeError(ValueError):
    """The error of an invalid literal; the text is upstream's."""


def unescape_literal(quoted: str, octets: bool) -> str | bytes:
    """Return the value of a quoted literal: a str, or bytes if ``octets``. Raise UnescapeError.

    The literal may have the prefix ``r``, but not ``b``.
    """
    if "\r" in quoted:
        quoted = quoted.replace("\r\n", "\n").replace("\r", "\n")
    raw = quoted[0] in "rR"
    if raw:
        quoted = quoted[1:]
    inner = quoted[3:-3] if len(quoted) >= 6 and quoted[:3] in ("'''", '"""') else quoted[1:-1]
    if raw or "\\" not in inner:
        return inner.encode() if octets else inner
    if octets:
        return _bytes(inner)
    return _ESCAPES.sub(_character, inner)


def _character(found: re.Match[str]) -> str:
    """Return the character of one escape sequence of a string."""
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        digits = found[group]
        if digits is not None:
            point = int(digits, base)
            if point > 0x10FFFF or 0xD800 <= point < 0xE000:
                raise UnescapeError("invalid unicode code point")
            return chr(point)
    return _SIMPLE[found[5]]


def _bytes(inner: str) -> bytes:
    out = bytearray()
    at = 0
    for found in _ESCAPES.finditer(inner):
        out += inner[at : found.start()].encode()
        at = found.end()
        if found[1] is not None or found[4] is not None:
            out.append(int(found[1], 16) if found[1] is not None else int(found[4], 8))
        elif found[2] is not None or found[3] is not None:
            raise UnescapeError("unable to unescape string")
        else:
            out += _SIMPLE[found[5]].encode()
    return bytes(out + inner[at:].encode())
