"""Splits the JSON of a conversion response into objects, to decode each separately."""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

KEY = b'"convertedObjects"'
_TYPE = rb'"(?:apiVersion|kind)"\s*:'
_TEXT = rb'\s*"[^"\\]*"\s*,\s*'
_OPENING = re.compile(rb'%b\s*:\s*\[\s*(\{\s*%b(?:%b%b%b"metadata"\s*:\s*)?)' % (KEY, _TYPE, _TEXT, _TYPE, _TEXT))
_NEAR = (
    16 * 1024
)  # bytes of the first search for the next object: ``bytes.find`` has a higher fixed cost for long texts


class Listed(NamedTuple):
    """A JSON text with objects, and the offsets at which these begin.

    ``gap`` is the number of bytes between two objects. The end of the last object is unknown.
    """

    raw: bytes
    begins: Sequence[int]
    gap: int

    def text(self, index: int) -> bytes:
        """Return the JSON of an object, which must not be the last."""
        return self.raw[self.begins[index] : self.begins[index + 1] - self.gap]


def split(raw: bytes, count: int) -> tuple[bytes, Listed] | None:
    """Return the response with only its last object, and the offsets of all objects.

    ``count`` is the number of objects. Each object must begin with the same bytes as the first object, up to its
    metadata; else, or if the number of objects is not ``count``, return None. If the shortened response and all
    separated objects are valid JSON, the complete response is valid JSON with these objects.
    """
    place = raw.find(KEY)
    found = _OPENING.match(raw, place) if place >= 0 else None
    if found is None:
        return None
    opening, begin = found[1], found.start(1)
    comma = b", " if b" " in raw[found.end() - 1 : found.end() + 1] else b","  # the json module of Python writes ", "
    between = b"}" + comma + opening
    begins, step = [begin], 1 + len(comma)
    at, following = found.end(), 0
    while len(begins) <= count:
        place = at
        at = following - step  # a guess: the object has the same length as the previous object
        if not following or not raw.startswith(between, at):
            at = raw.find(between, place, place + _NEAR)
            if at < 0 and (at := raw.find(between, place)) < 0:
                break
        at += step
        following = 2 * at - begins[-1]
        begins.append(at)
    if len(begins) != count:
        return None
    short = raw[:begin] + raw[begins[-1] :] if count > 1 else raw
    return (short, Listed(raw, begins, len(comma))) if short.count(KEY) == 1 else None


_ARRAY = re.compile(r'"convertedObjects"\s*:\s*\[\s*')
_COMMA = re.compile(r"\s*,\s*")


def texts_of(raw: bytes) -> list[str]:
    """Return the JSON of the objects in a response, up to the first invalid object.

    This is slow.
    """
    text, decoder = raw.decode("utf-8", "replace"), json.JSONDecoder()
    found, texts = _ARRAY.search(text), []
    try:
        while found is not None:
            begin, end = found.end(), decoder.raw_decode(text, found.end())[1]
            texts.append(text[begin:end])
            found = _COMMA.match(text, end)
    except (ValueError, RecursionError):
        pass
    return texts
