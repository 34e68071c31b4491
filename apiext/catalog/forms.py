"""How a webhook writes objects, learned from one answer: what others like it mean is known without reading them.

Objects of one kind mostly differ from their neighbours in names, times and other texts.
"""

import json
import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from struct import Struct, error
from typing import Any, Generic, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import orjson

from apiext import limits
from apiext.documents.document import View

_VALUE = re.compile(rb'([:\[,]\s*")([^"\\]*+)(?="\s*[,\]}])')  # a text with what stands before it; names have a colon
_MARK = re.compile(rb'(?<=")\x7f(\d+)(?=")')  # in the place of such a text
_BEFORE = re.compile(rb'"metadata"\s*:\s*\Z')
_AFTER = re.compile(rb'\s*,\s*(?=")')
_QUOTE, _BACKSLASH = b'"\\'  # as numbers: bytes are looked for in bytes by way of a TypeError
_NONE: View = {}
_read = json.JSONDecoder().raw_decode


METADATA = b',"metadata":'


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
    """What JSON texts mean that are like one of them, but for values of the same lengths.

    The text and its meaning are in pieces, every second a value, which takes the place of the one before: of values
    that are texts without quotes and backslashes each is as good as any.
    """

    __slots__ = ("_joined", "_meaning", "_order", "_text", "_values", "size")

    def __init__(self, text: bytes, meaning: bytes, types: View = _NONE, after: bytes = b"") -> None:
        """``meaning`` is what orjson makes of the text, sorted; ``after`` has to follow the text.

        With ``types`` the meaning is that of an object with them and this text from its metadata on. Raises ValueError
        when it is not certain what stands where.
        """
        fixed, values = _parted(text)
        before = head_of(types) if types else b""
        marked = orjson.loads(before + b"".join(_mixed(fixed, [b"\x7f%d" % number for number in range(len(values))])))
        pieces = _MARK.split(orjson.dumps(marked, option=orjson.OPT_SORT_KEYS))
        order = [int(number) for number in pieces[1::2]]
        self.size = len(text) + len(after)
        self._values = Struct("".join(f"{len(text)}x{len(value)}s" for text, value in zip(fixed, values, strict=False)))
        self._text = [*_mixed(fixed, values), after]
        self._meaning = pieces
        self._order: Callable[[Any], Any] | None = itemgetter(*order) if order != sorted(order) else None
        known = sorted(order) == [*range(len(values))] and len(order) > 1 and types.items() <= marked.items()
        if not known or self.read(text + after, 0) != meaning:
            raise ValueError("this text is written in a way that is not understood")

    def meaning_of(self, raw: bytes, place: int, asked: bytes, start: int) -> bytes:
        """Return what the text at a place means if that is what an object asked about has at ``start``; empty: look."""
        meaning = self.read(raw, place)
        return meaning if asked.startswith(meaning, start) else b""

    def read(self, raw: bytes, place: int) -> bytes:
        """Return what the text at a place means if its values are texts, which is not seen here; empty: look."""
        try:
            values: Any = self._values.unpack_from(raw, place)
        except error:  # what is there is too short
            return b""
        self._text[1:-1:2] = values
        if not raw.startswith(b"".join(self._text), place):
            return b""
        joined = self._joined = b",".join(values)
        if _QUOTE in joined or _BACKSLASH in joined:
            return b""
        self._meaning[1::2] = values if self._order is None else self._order(values)
        return b"".join(self._meaning)


class ObjectForm(Form):
    """A form of whole objects; ``place`` is that of the uid of metadata in what they mean."""

    __slots__ = ("_begin", "_end", "_plain", "place")

    def __init__(self, text: bytes, meaning: bytes, types: View, begin: int, place: int) -> None:
        """Metadata ``begin`` there in the meaning."""
        super().__init__(text, meaning, types)
        self.place = place
        self._begin, self._end = begin, meaning.index(b'"}', place) + 2
        self._plain = meaning.startswith(head_of(types))  # no value stands before metadata

    def meaning_of(self, raw: bytes, place: int, asked: bytes, start: int) -> bytes:
        """Return what the text at a place means if an object asked about has its metadata at ``start``; empty: look.

        Many answers say what was asked about with another apiVersion: then their values are texts as those are.
        """
        meaning, begin = self.read(raw, place), self._begin
        if not meaning or (self._plain and asked.startswith(meaning[begin:], start)):
            return meaning
        known = asked.startswith(meaning[begin : self._end], start) and _is_text(self._joined)
        return meaning if known else b""


Known = TypeVar("Known", bound=Form)


class Forms(Generic[Known]):
    """The forms of texts of one kind in the answers of a webhook, by a length that tells them apart.

    Learning one takes what it spares for some objects: it goes on while that pays. All together are bounded: where too
    many know some, the one that has learned nothing for longest forgets its own.
    """

    __slots__ = ("__weakref__", "_credit", "_known", "_opening")

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._credit = limits.FORM_CREDIT
        self._opening = b""

    def of(self, opening: bytes) -> Callable[[int], Known | None]:
        """Return what tells the form that a text of a length may have in objects that begin so."""
        return self._known.get if opening == self._opening else _none

    @property
    def willing(self) -> bool:
        """Whether another one may be learned."""
        return self._credit >= limits.FORM_PRICE

    def paid(self, objects: int) -> None:
        """Note that forms spared work."""
        self._credit = min(self._credit + objects, limits.FORM_CREDIT)

    def learn(self, length: int, listed: Listed, index: int, make: Callable[[bytes], Known]) -> None:
        """Learn from one of the objects listed; ``make`` makes a form of what follows its opening, or ValueError."""
        opening = listed.opening
        if not self.willing or index + 1 == len(listed.begins) or _BEFORE.search(opening) is None:
            return
        text = listed.text(index)[len(opening) :]
        if len(text) > limits.FORM_BYTES:
            return
        self._credit -= limits.FORM_PRICE
        try:
            form = make(text)
        except ValueError:
            return
        if opening != self._opening:
            self._opening = opening
            self._known.clear()
        _learned.pop(self, None)
        _learned[self] = None
        if len(_learned) > limits.FORMS_AT_ALL:
            oldest = next(iter(_learned))
            del _learned[oldest]
            oldest._known.clear()
        self._known.pop(length, None)
        self._known[length] = form
        if len(self._known) > limits.FORMS_KEPT:
            del self._known[next(iter(self._known))]


_learned: WeakKeyDictionary[Forms[Any], None] = WeakKeyDictionary()
"""Those that know some, the one that learned last at the end."""


def form_of_metadata(asked: bytes, text: bytes) -> Form:
    """Return the form of metadata which mean those asked about, with what stands before the next member."""
    end = _read(text.decode("latin-1"))[1]  # a character for each byte
    after = _AFTER.match(text, end)
    if after is None:
        raise ValueError("nothing follows")
    return Form(text[:end], asked, after=after[0])


def _none(length: int) -> None:
    """Return no form."""


def head_of(first: View) -> bytes:
    """Return what stands before the metadata of an object with these members before them, sorted."""
    return orjson.dumps(first, option=orjson.OPT_SORT_KEYS)[:-1] + METADATA


def _is_text(values: bytes) -> bool:
    """Tell whether bytes without quotes and backslashes may stand in a JSON text."""
    try:
        orjson.loads(b'"%b"' % values)
    except orjson.JSONDecodeError:
        return False
    return True


def _parted(text: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return what stands around the values of a JSON text, one more than there are values, and the values."""
    parts = _VALUE.split(text)
    return [*map(bytes.__add__, parts[:-1:3], parts[1::3]), parts[-1]], parts[2::3]


def _mixed(fixed: Sequence[bytes], values: Sequence[bytes]) -> list[bytes]:
    mixed = [b""] * (2 * len(values) + 1)
    mixed[::2], mixed[1::2] = fixed, values
    return mixed
