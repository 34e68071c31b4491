"""The members of a JSON text in the order of the text, those that stand there twice, too."""

import re
from collections.abc import Iterator
from functools import lru_cache

import orjson

from apiext.documents.json_errors import without_escaped_quotes
from apiext.documents.paths import short
from apiext.documents.quotes import go_quote

_TOKEN = re.compile(rb'"[^"]*+"|[\[\]{},]')


# Of sums that stand for paths, since texts of all of them would grow with the square of a body. Modulo a prime like
# 2**127 - 1 bytes that stand 127 apart could change places.
_PRIME = 2**256 - 189


def in_order_of_members(raw: bytes, notes: list[str]) -> list[str]:
    """Return notes about unknown and duplicate fields in the order in which a text, which is JSON, gives cause."""
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
    """A path as notes quote it: the remainder of its text, taken for one number, by a prime; and whether it is any."""

    __slots__ = ("any", "sum")

    def __init__(self, total: int = 0, any_text: bool = False) -> None:
        self.sum = total
        self.any = any_text

    def and_then(self, quoted: str) -> "_Path":
        """Return the path with a text behind it."""
        text = quoted.encode(errors="surrogatepass")
        total = (self.sum * _shift(len(text)) + int.from_bytes(text)) % _PRIME
        return _Path(total, self.any or bool(text))


@lru_cache(64)
def _shift(length: int) -> int:
    return pow(256, length, _PRIME)


def _paths(raw: bytes) -> Iterator[int]:
    """Yield the sum of the path of each member."""
    here, holders, keys = _Path(), list[_Path](), list[int]()  # of each open bracket: its path, how many items it had
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
