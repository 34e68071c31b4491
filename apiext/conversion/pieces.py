"""Finds the objects in the text of an answer to a review, so that never more than one of them is decoded."""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

KEY = b'"convertedObjects"'
_TYPE = rb'"(?:apiVersion|kind)"\s*:'
_TEXT = rb'\s*"[^"\\]*"\s*,\s*'
_OPENING = re.compile(rb'%b\s*:\s*\[\s*(\{\s*%b(?:%b%b%b"metadata"\s*:\s*)?)' % (KEY, _TYPE, _TEXT, _TYPE, _TEXT))
_NEAR = 16 * 1024  # bytes that are searched more quickly than all


class Listed(NamedTuple):
    """Objects in a JSON text: where each begins, and how many bytes are between two of them.

    The end of the last object is unknown.
    """

    raw: bytes
    begins: Sequence[int]
    gap: int

    def text(self, index: int) -> bytes:
        """Return the text of an object."""
        return self.raw[self.begins[index] : self.begins[index + 1] - self.gap]


def split(raw: bytes, count: int) -> tuple[bytes, Listed] | None:
    """Return an answer cut down to the last of its ``count`` objects, and the texts of the objects before that.

    Return None if the objects cannot be cut apart: each must begin like the first, up to its metadata. If the short
    answer and all texts are JSON, then so is the whole answer, with the same meaning: its list begins with the first
    text, and commas separate the texts.
    """
    place = raw.find(KEY)
    found = _OPENING.match(raw, place) if place >= 0 else None
    if found is None:
        return None
    opening, begin = found[1], found.start(1)
    comma = b", " if b" " in raw[found.end() - 1 : found.end() + 1] else b","  # as Python has it
    between = b"}" + comma + opening
    begins, step = [begin], 1 + len(comma)
    at, following = found.end(), 0
    while len(begins) <= count:
        place = at
        at = following - step  # if it is as long as the one before
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
    """Return the texts of the objects as the answer has them, up to one that is not to be found; slow."""
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
