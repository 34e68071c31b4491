"""What a conversion webhook made of stored bytes: remembered by their hash, all versions together bounded (VER-012)."""

import re
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import ref

import orjson

from apiext.catalog import limits
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode

# Bytes counted for a cached conversion besides its object.
CONVERTED_OVERHEAD = 300


class NeedsConversion(Exception):
    """Work met an object that must go through the conversion webhook first.

    ``text`` is its JSON, to be converted to ``api_version``. ``keep(answer, metadata)`` takes the converted document,
    puts it where the work finds it when it is tried again, and returns it as kept; it raises ValueError for one that
    cannot be accepted. ``metadata`` are those of the answer as text, empty when that is not known. Questions with an
    equal ``key`` have the same answer.
    """

    __slots__ = ("_document", "_keep", "api_version", "key", "text")

    def __init__(
        self, text: bytes, api_version: str, key: Hashable, keep: "Callable[[Document, bytes], Converted | None]"
    ) -> None:
        super().__init__(api_version)
        self.text = text
        self.api_version = api_version
        self.key = key
        self._keep = keep
        self._document: View | None = None

    @property
    def document(self) -> View:
        """The object to be converted, parsed when somebody has to look inside."""
        if self._document is None:
            self._document = orjson.loads(self.text)
        return self._document

    def unchanged(self, answer: View) -> bytes:
        """Return an answer's metadata as text if it has the object's kind and metadata; empty: look inside."""
        place = PLACE.match(self.text)
        metadata = answer.get("metadata")
        if place is None or metadata.__class__ is not dict or place["kind"].decode() != answer.get("kind"):
            return b""
        text = orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)
        return text if self.text.startswith(text, place.end()) else b""

    def keep(self, answer: Document, metadata: bytes) -> "Converted | None":
        """Take an answer that was accepted; see above."""
        return self._keep(answer, metadata)

    def take(self, answer: Any) -> "Converted | None":
        """Keep an answer if it plainly is acceptable as it is, and return it; None: look inside, nothing is kept."""
        return None

    @property
    def asker(self) -> object:
        """The version that needs it: the needs of one asker make a review."""
        return self.api_version

    @property
    def others(self) -> "Ask":
        """What is to be asked about other stored bytes."""
        return unknown


Ask = Callable[[Sequence[bytes]], Sequence["NeedsConversion | Converted | None"]]
"""Tells of several stored bytes what a version knows, or the question about them; None: look closer."""


def unknown(raws: Sequence[bytes]) -> Sequence[None]:
    """Return neither answers nor questions."""
    return [None] * len(raws)


PLACE = re.compile(rb'\{"apiVersion":"[^"\\]*","kind":"(?P<kind>[^"\\]*)","metadata":')
"""What comes before metadata in the text of an object."""


def place_of(raw: bytes, uid: Any) -> int:
    """Return the offset of metadata.uid, which is metadata's last key; -1 when the uid occurs twice or never."""
    if not uid or not isinstance(uid, str):
        return -1
    pattern = b'"uid":%b}' % orjson.dumps(uid)
    place = raw.find(pattern)
    return -1 if place < 0 or raw.rfind(pattern) != place else place


class Converted:
    """A converted object as text, cut where its resourceVersion goes; ``head`` is empty when that is not known.

    Both must be copies: what orjson writes holds a multiple of its length for as long as it is kept.
    """

    __slots__ = ("head", "tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head
        self.tail = tail

    @classmethod
    def cut(cls, raw: bytes, place: int = -1) -> "Converted":
        """Return an object cut at a place, if there is one; a copy."""
        return cls(b"", b"%b" % raw) if place <= 0 else cls(raw[:place], raw[place:])

    @property
    def raw(self) -> bytes:
        """The object without a resourceVersion."""
        return self.head + self.tail

    @property
    def size(self) -> int:
        """Bytes of the text."""
        return len(self.head) + len(self.tail)

    def at(self, revision: int) -> bytes:
        """Return the object with a resourceVersion."""
        if self.head:
            return b"".join((self.head, b'"resourceVersion":"', str(revision).encode(), b'",', self.tail))
        document: Any = orjson.loads(self.tail)
        document.setdefault("metadata", {})["resourceVersion"] = str(revision)
        return encode(document)


class Conversions:
    """What the webhook made of bytes on their way to one version of one definition as it was compiled.

    A new generation of the definition has a new value, so what an old one made is never seen again.
    """

    __slots__ = ("__weakref__", "_made")

    def __init__(self) -> None:
        self._made: dict[int, Converted] = {}

    def find(self, raw: bytes) -> Converted | None:
        """Return what was made of the bytes, None when that is not known."""
        return self._made.get(hash(raw))

    def find_all(self, hashes: Sequence[int]) -> list[Converted | None]:
        """Return what was made of each of several bytes."""
        return [*map(self._made.get, hashes)]

    def keep(self, raw: bytes, made: Converted) -> Converted:
        """Cache the conversion of the bytes; on the loop only, since the bound is shared."""
        key = hash(raw)
        self._made[key] = made
        _BOUND.take(self, key, made)
        return made

    def drop(self, key: int) -> None:
        """Evict what was made of the bytes with this hash."""
        self._made.pop(key, None)


class _Bound:
    """All cached answers, oldest first; together at most limits.CONVERTED_BYTES, and always the newest.

    It keeps none itself: those of a definition that is deleted are deleted with it.
    """

    __slots__ = ("_bytes", "_held")

    def __init__(self) -> None:
        self._held: deque[tuple[ref[Conversions], int, int]] = deque()
        self._bytes = 0

    def take(self, conversions: Conversions, key: int, made: Converted) -> None:
        size = made.size + CONVERTED_OVERHEAD
        self._held.append((ref(conversions), key, size))
        self._bytes += size
        while self._bytes > limits.CONVERTED_BYTES and len(self._held) > 1:
            place, key, size = self._held.popleft()
            self._bytes -= size
            old = place()
            if old is not None:
                old.drop(key)


_BOUND = _Bound()
