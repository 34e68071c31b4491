r"""Rewrite named character classes of a pattern, such as ``\p{Letter}``, for RE2.

RE2 knows only short names. Go (1.25 and later) also accepts the long names of categories. Go ignores case, and deletes
spaces, hyphens and underscores from a name. So Go does not find scripts whose names have an underscore, such as
Old_Italic.
"""

import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from apiext.cel import re2_programs

_LONG = {
    "L": "letter", "Lu": "uppercaseletter", "Ll": "lowercaseletter", "Lt": "titlecaseletter", "Lm": "modifierletter",
    "Lo": "otherletter", "M": "mark combiningmark", "Mn": "nonspacingmark", "Mc": "spacingmark", "Me": "enclosingmark",
    "N": "number", "Nd": "decimalnumber digit", "Nl": "letternumber", "No": "othernumber", "P": "punctuation punct",
    "Pc": "connectorpunctuation", "Pd": "dashpunctuation", "Ps": "openpunctuation", "Pe": "closepunctuation",
    "Pi": "initialpunctuation", "Pf": "finalpunctuation", "Po": "otherpunctuation", "S": "symbol", "Sm": "mathsymbol",
    "Sc": "currencysymbol", "Sk": "modifiersymbol", "So": "othersymbol", "Z": "separator", "Zs": "spaceseparator",
    "Zl": "lineseparator", "Zp": "paragraphseparator", "Cc": "control cntrl", "Cf": "format", "Co": "privateuse",
    "Cs": "surrogate",
}  # fmt: skip
_SCRIPTS = """
    Adlam Ahom Arabic Armenian Avestan Balinese Bamum Batak Bengali Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid
    Carian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari Dogra
    Duployan Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati Gurmukhi Han Hangul Hanunoo
    Hatran Hebrew Hiragana Inherited Javanese Kaithi Kannada Katakana Kawi Kharoshthi Khmer Khojki Khudawadi Lao
    Latin Lepcha Limbu Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen Medefaidrin Miao
    Modi Mongolian Mro Multani Myanmar Nabataean Nandinagari Newa Nko Nushu Ogham Oriya Osage Osmanya Palmyrene
    Phoenician Rejang Runic Samaritan Saurashtra Sharada Shavian Siddham Sinhala Sogdian Soyombo Sundanese Syriac
    Tagalog Tagbanwa Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai
    Vithkuqi Wancho Yezidi Yi
"""
_NAMES = (
    {"any": "Any"}
    | {name.lower(): name for name in (*_LONG, *_SCRIPTS.split())}
    | {long: short for short, names in _LONG.items() for long in names.split()}
)
_GIVEN = r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}"
_ASSIGNED = _GIVEN + r"\p{C}"  # RE2's class C does not contain unassigned code points
_EMPTY = (0x40000, 0xDFFFF)  # planes without characters, which unassigned() need not search
_LISTED = ""  # stands for the list of ranges that unassigned() returns
_LIST = 3  # a list of ranges weighs as much as three classes
# name → (members, non-members), for use between brackets; both are needed, since RE2 negates a class wrongly with (?i)
_UNIONS = {
    "lc": (r"\p{Lu}\p{Ll}\p{Lt}", r"\PL\p{Lm}\p{Lo}"),
    "ascii": ("[:ascii:]", "[:^ascii:]"),
    "assigned": (_ASSIGNED, _LISTED),
    "cn": (_LISTED, _ASSIGNED),
    "c": (_LISTED, _GIVEN),
}
_UNIONS |= {"casedletter": _UNIONS["lc"], "unassigned": _UNIONS["cn"], "other": _UNIONS["c"]}
_IGNORED = str.maketrans("", "", "_- ")
_CLASS = re.compile(r"\\[pP](?:\{(?P<name>[^}]*)\}|(?P<letter>[^{]|\Z))", re.DOTALL)
_ONE = r"(?:\\x\{[0-9A-Fa-f]*+\}|\\[^pP]|[^\\])"  # RE2 refuses other characters in the braces of \x{…}
_INSIDE = re.compile(rf"\[:\^?[a-z]+:\]|\\[dDsSwW]|{_ONE}(?P<range>-(?=[^\]]))?", re.DOTALL)
_END = re.compile(_ONE, re.DOTALL)
_OUTSIDE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\[^pP]|(?P<open>\[\^?)|[^\\\[]+", re.DOTALL)


class Piece(NamedTuple):
    """A rewritten class: its (start, end) in the given pattern, and in the rewritten pattern."""

    given: tuple[int, int]
    made: tuple[int, int]


class Reading(NamedTuple):
    """A pattern that was rewritten for RE2.

    ``fault`` is Go's error text for an unknown name, and ``at`` the index of its class in the given pattern.
    ``weight`` is the number of classes that RE2 has to create; a union counts as several classes.
    """

    text: str
    weight: int
    pieces: tuple[Piece, ...] = ()
    at: int = 0
    fault: str = ""

    def given(self, pattern: str, part: str) -> str:
        """Return the part of the given pattern that corresponds to a part of the rewritten pattern.

        ``part`` is from an error text of RE2, and never begins with a class. It may end inside a class, at a character
        that RE2 did not expect.
        """
        start = self.text.find(part)
        for piece in self.pieces:
            if piece.made[0] <= start < piece.made[1]:
                start = self.text.find(part, piece.made[1])
        if not self.pieces or start < 0:
            return part
        return pattern[self._before(start) : self._before(start + len(part))]

    def upto(self, at: int) -> str:
        """Return the rewritten form of the text before an index of the given pattern."""
        moved = 0
        for piece in self.pieces:
            if piece.given[1] > at:
                break
            moved = piece.made[1] - piece.given[1]
        return self.text[: at + moved]

    def _before(self, place: int) -> int:
        moved = 0
        for piece in self.pieces:
            if piece.made[0] < place < piece.made[1]:
                return piece.given[0] + place - piece.made[0]
            if piece.made[1] > place:
                break
            moved = piece.given[1] - piece.made[1]
        return place + moved


def weight(pattern: str) -> int:
    """Return the minimal number of classes that RE2 has to create for a pattern.

    A union counts as several classes.
    """
    return read(pattern).weight if "\\p" in pattern or "\\P" in pattern else 0


def read(pattern: str) -> Reading:
    """Return a pattern rewritten for RE2."""
    made: list[str] = []
    pieces: list[Piece] = []
    weight = size = last = at = 0
    fault = ""
    for found, inside in _classes(pattern):
        text = _rewritten(found, inside)
        if not text:
            at, fault = found.start(), f"invalid character class range: `{found[0]}`"
            break
        weight += text.count("\\p") + text.count("\\P") + (_LIST if "\\x" in text else 0)
        made += (pattern[last : found.start()], text)
        size += found.start() - last
        pieces.append(Piece(found.span(), (size, size + len(text))))
        size, last = size + len(text), found.end()
    return Reading("".join((*made, pattern[last:])), weight, tuple(pieces), at, fault)


def _classes(pattern: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield each class of a pattern, and whether it is between brackets.

    Stop at an error that RE2 will report.
    """
    at, inside, first = 0, False, False
    while at < len(pattern):
        found = _CLASS.match(pattern, at)
        if found is not None:
            yield found, inside
            at, first = found.end(), False
            continue
        if inside and not first and pattern[at] == "]":
            at, inside = at + 1, False
            continue
        token = (_INSIDE if inside else _OUTSIDE).match(pattern, at)
        if token is None:
            return
        at, first = token.end(), token.lastgroup == "open"
        inside = inside or first
        if token.lastgroup == "range":
            end = _END.match(pattern, at)
            if end is None:  # a class cannot be the end of a range
                return
            at = end.end()


def _rewritten(found: re.Match[str], inside: bool) -> str:
    """Return the class for RE2, or an empty string for a class that Go does not know."""
    name = found["letter"] if found["name"] is None else found["name"]
    negated = (found[0][1] == "P") != name.startswith("^")
    key = name.removeprefix("^").translate(_IGNORED).lower() if name.isascii() else ""
    if key in _NAMES:
        return f"\\{'P' if negated else 'p'}{{{_NAMES[key]}}}"
    if key not in _UNIONS:
        return ""
    wanted, others = reversed(_UNIONS[key]) if negated else _UNIONS[key]
    if not inside:
        return f"[{wanted}]" if wanted else f"[^{others}]"
    return wanted or unassigned() + (r"\p{C}" if others == _GIVEN else "")


@cache
def unassigned() -> str:
    """Return the ranges of code points that have no category in RE2, for use between brackets."""
    made = re2_programs.api()
    options = made.options()
    options.log_errors = False
    match = made.program(f"[^{_ASSIGNED}]+".encode(), options).Match
    looked = (*range(_EMPTY[0]), *range(_EMPTY[1] + 1, sys.maxunicode + 1))
    raw = "".join(map(chr, looked)).encode("utf-8", "surrogatepass")
    found = [_range(*_EMPTY)]
    start, end = 0, 0
    while True:
        start, end = match(made.anywhere, raw, end, len(raw))[0]
        if start < 0:
            return "".join(found)
        run = raw[start:end].decode()
        found.append(_range(ord(run[0]), ord(run[-1])))


def _range(first: int, last: int) -> str:
    return f"\\x{{{first:x}}}-\\x{{{last:x}}}"
