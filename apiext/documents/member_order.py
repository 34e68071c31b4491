"""The members of a JSON text in the order of the text, those that stand there twice, too."""

import re
from collections.abc import Iterator

import orjson

from apiext.documents.json_errors import without_escaped_quotes
from apiext.documents.places import short
from apiext.documents.quotes import go_quote

_TOKEN = re.compile(rb'"[^"]*+"|[\[\]{},]')


def in_order_of_members(raw: bytes, notes: list[str]) -> list[str]:
    """Return notes about unknown and duplicate fields in the order in which a text, which is JSON, gives cause."""
    wanted, seen, places = frozenset(notes), set[str](), dict[str, int]()
    for place, path in enumerate(_paths(raw)):
        note = f"{'duplicate' if path in seen else 'unknown'} field {go_quote(path)}"
        seen.add(path)
        if note in wanted:
            places.setdefault(note, place)
    return sorted(notes, key=lambda note: places.get(note, len(raw)))


def _paths(raw: bytes) -> Iterator[str]:
    """Yield the path of each member."""
    here, holders, keys = "", list[str](), list[int]()  # of each open bracket: its path, and how many items it had
    key_next = False
    for token in _TOKEN.finditer(without_escaped_quotes(raw)):
        text = raw[token.start() : token.end()]
        if text in (b"{", b"["):
            holders.append(f"{holders[-1]}[{keys[-1]}]" if keys and keys[-1] >= 0 else here)
            keys.append(-1 if text == b"{" else 0)
            key_next = text == b"{"
        elif text in (b"}", b"]"):
            holders.pop()
            keys.pop()
            key_next = False
        elif text == b",":
            key_next = keys[-1] < 0
            keys[-1] += not key_next
        elif key_next:
            name = short(str(orjson.loads(text)))
            here = f"{holders[-1]}.{name}" if holders[-1] else name
            key_next = False
            yield here
