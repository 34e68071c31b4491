"""Sort notes about unknown and duplicate fields by the positions of these fields in JSON."""

import re
from collections.abc import Iterator
from functools import lru_cache

import orjson

from apiext.documents.json_errors import without_escaped_quotes
from apiext.documents.paths import short
from apiext.text.quotes import go_quote

_TOKEN = re.compile(rb'"[^"]*+"|[\[\]{},]')


# Paths are compared as numbers, since the strings of all paths could need memory in proportion to the square of the
# body's size. A Mersenne prime such as 2**127 - 1 is not suitable: with it, a path keeps its number if two bytes that
# are 127 positions apart are exchanged.
_PRIME = 2**256 - 189


def in_order_of_members(raw: bytes, notes: list[str]) -> list[str]:
    """Sort notes about unknown and duplicate fields by the position of the fields in the JSON.

    A note whose field is not found follows all other notes.
    """
    wanted: dict[tuple[str, int], str] = {}
    for note in notes:
        word, _, path = note.partition(" field ")
        if len(path) > 1 and path[0] == path[-1] == '"':
            wanted[word, _Path().and_then(path[1:-1]).sum] = note
    seen, places = set[int](), dict[str, int]()
    for place, path_sum in enumerate(_paths(raw)):
        found = wanted.get(("duplicate" if path_sum in seen else "unknown", path_sum))
        seen.add(path_sum)
        if found is not None:
            places.setdefault(found, place)
    return sorted(notes, key=lambda note: places.get(note, len(raw)))


class _Path:
    """The number of a path: the bytes of the printed path as an integer, modulo a prime.

    ``any`` is false for an empty path.
    """

    __slots__ = ("any", "sum")

    def __init__(self, total: int = 0, any_text: bool = False) -> None:
        self.sum = total
        self.any = any_text

    def and_then(self, quoted: str) -> "_Path":
        """Return the path with a string appended."""
        text = quoted.encode(errors="surrogatepass")
        total = (self.sum * _shift(len(text)) + int.from_bytes(text)) % _PRIME
        return _Path(total, self.any or bool(text))


@lru_cache(64)
def _shift(length: int) -> int:
    return pow(256, length, _PRIME)


def _paths(raw: bytes) -> Iterator[int]:
    """Yield the number of the path of each field, in the order of the text."""
    # for each open bracket: the path of its object or array, and the index of the current array item, -1 for an object
    here, holders, keys = _Path(), list[_Path](), list[int]()
    key_next = False
    for token in _TOKEN.finditer(without_escaped_quotes(raw)):
        text = raw[token.start() : token.end()]
        if text in (b"{", b"["):
            holders.append(holders[-1].and_then(f"[{keys[-1]}]") if keys and keys[-1] >= 0 else here)
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
            name = go_quote(short(str(orjson.loads(text))))[1:-1]
            here = holders[-1].and_then(f".{name}" if holders[-1].any else name)
            key_next = False
            yield here.sum
