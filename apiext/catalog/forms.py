"""How a webhook writes metadata, learned from one answer: in others like it they are known without being read.

Metadata are the larger part of many objects, and mostly differ from those of their neighbours in names and times only.
"""

import json
import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from struct import Struct, error
from typing import Any, NamedTuple

import orjson

from apiext import limits

_VALUE = re.compile(rb'(":\s*")([^"\\]*+)(?=")')  # of a member that is a text, with what stands before it
_BEFORE = re.compile(rb'"metadata"\s*:\s*\Z')
_AFTER = re.compile(rb'\s*,\s*(?=")')
_QUOTE, _BACKSLASH = b'"\\'  # as numbers: bytes are looked for in bytes by way of a TypeError
_SORTED = orjson.OPT_SORT_KEYS
_read = json.JSONDecoder().raw_decode


class Listed(NamedTuple):
    """Objects in a JSON text: what each begins with, where it begins, and how many bytes are between two of them.

    Where the last one ends is not known.
    """

    raw: bytes
    opening: bytes
    begins: Sequence[int]
    gap: int

    def text(self, index: int) -> bytes:
        """Return the text of an object."""
        return self.raw[self.begins[index] : self.begins[index + 1] - self.gap]


class Form:
    """Metadata with the same members and lengths: their text as it is asked about, and as it is answered.

    Both are in pieces, every second a value: of texts that have neither quotes nor backslashes each is as good as any,
    and takes the place of the one before.
    """

    __slots__ = ("_answered", "_asked", "_order", "_values", "size")

    def __init__(self, asked: bytes, answered: bytes, after: bytes) -> None:
        """``answered`` are metadata that mean those asked about, and ``after`` what stands before the next member.

        Raises ValueError when it is not certain what stands where.
        """
        fixed, values = _parted(asked)
        written, shown = _parted(answered)
        numbers = [b"%d" % number for number in range(len(shown))]
        numbered = orjson.loads(b"".join(_mixed(written, numbers)))
        sorted_fixed, sorted_numbers = _parted(orjson.dumps(numbered, option=_SORTED))
        known = sorted_fixed == fixed and sorted(sorted_numbers) == sorted(numbers) and len(values) > 1
        if not known or [shown[int(number)] for number in sorted_numbers] != values:
            raise ValueError("these metadata are written in a way that is not understood")
        self.size = len(asked)
        self._values = Struct("".join(f"{len(text)}x{len(value)}s" for text, value in zip(fixed, values, strict=False)))
        self._asked = _mixed(fixed, values)
        self._answered = [*_mixed(written, numbers), after]
        places = [sorted_numbers.index(number) for number in numbers]
        self._order: Callable[[Any], Any] | None = itemgetter(*places) if places != sorted(places) else None

    def rest(self, asked: bytes, start: int, answered: bytes, place: int) -> int:
        """Return where an answer goes on after metadata that are those asked about at ``start``; 0: look inside."""
        try:
            values: Any = self._values.unpack_from(asked, start)
        except error:  # the text is too short
            return 0
        text = b"".join(values)
        if _QUOTE in text or _BACKSLASH in text:
            return 0
        self._asked[1::2] = values
        if not asked.startswith(b"".join(self._asked), start):
            return 0
        self._answered[1:-1:2] = values if self._order is None else self._order(values)
        expected = b"".join(self._answered)
        return place + len(expected) if answered.startswith(expected, place) else 0


class Forms:
    """The forms of metadata in the answers of a webhook, by how long they are up to their uid, which is the last.

    Learning one takes what it spares for some objects: it goes on while that pays.
    """

    __slots__ = ("_credit", "_known", "_opening")

    def __init__(self) -> None:
        self._known: dict[int, Form] = {}
        self._credit = limits.FORM_CREDIT
        self._opening = b""

    def of(self, opening: bytes) -> Callable[[int], Form | None]:
        """Return what tells the form that metadata of a length may have in objects that begin so."""
        return self._known.get if opening == self._opening else _none

    def paid(self, objects: int) -> None:
        """Note that forms spared work."""
        self._credit = min(self._credit + objects, limits.FORM_CREDIT)

    def learn(self, length: int, asked: bytes, listed: Listed, index: int) -> None:
        """Learn from one of the objects listed, whose metadata mean those asked about."""
        opening = listed.opening
        if self._credit < limits.FORM_PRICE or len(asked) > limits.FORM_BYTES:
            return
        if index + 1 == len(listed.begins) or _BEFORE.search(opening) is None:
            return
        self._credit -= limits.FORM_PRICE
        text = listed.text(index)
        end = _read(text.decode("latin-1"), len(opening))[1]  # a character for each byte
        after = _AFTER.match(text, end)
        if after is None:
            return
        try:
            form = Form(asked, text[len(opening) : end], after[0])
        except ValueError:
            return
        if opening != self._opening:
            self._opening = opening
            self._known.clear()
        self._known.pop(length, None)
        self._known[length] = form
        if len(self._known) > limits.FORMS_OF_METADATA:
            del self._known[next(iter(self._known))]


def _none(length: int) -> None:
    """Return no form."""


def _parted(text: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return what stands around the values of a JSON text, one more than there are values, and the values."""
    parts = _VALUE.split(text)
    return [*map(bytes.__add__, parts[:-1:3], parts[1::3]), parts[-1]], parts[2::3]


def _mixed(fixed: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    mixed = [b""] * (2 * len(values) + 1)
    mixed[::2], mixed[1::2] = fixed, values
    return mixed
