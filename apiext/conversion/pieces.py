"""Splits the answer to a review into the texts of its objects, so that never more than one of them is decoded."""

import json
import re

KEY = b'"convertedObjects"'
_OPENING = re.compile(KEY + rb'\s*:\s*\[\s*(\{\s*"(?:apiVersion|kind)"\s*:)')


def split(raw: bytes, count: int) -> tuple[bytes, list[bytes]] | None:
    """Return an answer shortened to the last of its ``count`` objects, and the texts of the objects before that.

    None when the objects cannot be told apart by looking. If the short answer and all texts are JSON, then the whole
    answer is, and has the same meaning: its list begins where the first text was, and commas are between the texts.
    """
    place = raw.find(KEY)
    found = _OPENING.match(raw, place) if place >= 0 else None
    if found is None:
        return None
    opening, begin, end = found[1], found.start(1), found.end(1)
    spaced = raw[end : end + 1] == b" "  # as Python has it
    first, *texts = raw.split((b"}, " if spaced else b"},") + opening)
    if len(texts) != count - 1 or len(first) < end:
        return None
    if not texts:
        return raw, []
    short = first[:begin] + opening + texts.pop()
    if short.count(KEY) != 1:
        return None
    return short, [first[begin:] + b"}", *[b"%b%b}" % (opening, text) for text in texts]]


_ARRAY = re.compile(r'"convertedObjects"\s*:\s*\[\s*')
_COMMA = re.compile(r"\s*,\s*")


def text_of(raw: bytes, index: int) -> str:
    """Return the text of one object as the answer has it, empty if it is not to be found; slow."""
    text, decoder = raw.decode("utf-8", "replace"), json.JSONDecoder()
    found = _ARRAY.search(text)
    try:
        for _ in range(index):
            found = _COMMA.match(text, decoder.raw_decode(text, found.end())[1]) if found is not None else None
        return text[found.end() : decoder.raw_decode(text, found.end())[1]] if found is not None else ""
    except (ValueError, RecursionError):
        return ""
