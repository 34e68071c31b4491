"""Caches of converted objects: hash of stored bytes → converted object.

Each version of a definition has its own cache. The caches share one limit, limits.CONVERTED_BYTES. See VER-012.
"""

import re
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any
from weakref import ref

import orjson

from apiext.catalog import limits
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode

# Bytes that the cache counts for each conversion, in addition to the bytes of its object.
CONVERTED_OVERHEAD = 300


class NeedsConversion(Exception):
    """An object must be converted before a read or write can continue.

    The caller converts the object and retries. ``text`` is the JSON of the object, ``api_version`` the wanted version.
    Exceptions with equal ``key`` request the same conversion. ``keep(answer, metadata)`` caches the converted document
    ``answer`` for the retry. It returns the cached value, or None if there is no cache; it raises ValueError for an
    invalid document. ``metadata`` is the JSON of the metadata of ``answer``, empty if this is unknown.
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
        """The object to convert; parsed at the first use."""
        if self._document is None:
            self._document = orjson.loads(self.text)
        return self._document

    def unchanged_metadata(self, answer: View) -> bytes:
        """Return the JSON of the metadata if the conversion did not change kind and metadata.

        Return empty bytes if it changed one of them, or if this is unknown.
        """
        place = PLACE.match(self.text)
        metadata = answer.get("metadata")
        if place is None or metadata.__class__ is not dict or place["kind"].decode() != answer.get("kind"):
            return b""
        text = orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)
        return text if self.text.startswith(text, place.end()) else b""

    def keep(self, answer: Document, metadata: bytes) -> "Converted | None":
        """Cache and return a valid converted object; see the class."""
        return self._keep(answer, metadata)

    def keep_plain(self, answer: Any) -> "Converted | None":
        """Fast path: cache and return a converted object that needs no validation.

        Return None for other objects: the caller validates them and calls ``keep``.
        """
        return None

    @property
    def batch_key(self) -> object:
        """Key of the wanted version: one ConversionReview contains only requests with the same key."""
        return self.api_version

    @property
    def lookup(self) -> "Lookup":
        """The Lookup that finds cached conversions of other stored bytes to the same version."""
        return no_lookup


Lookup = Callable[[Sequence[bytes]], Sequence["NeedsConversion | Converted | None"]]
"""Several stored bytes → for each the cached conversion, or the NeedsConversion that requests it.

None stands for bytes that the caller must parse first.
"""


def no_lookup(raws: Sequence[bytes]) -> Sequence[None]:
    """Return None for each of the stored bytes: the Lookup without a cache."""
    return [None] * len(raws)


PLACE = re.compile(rb'\{"apiVersion":"[^"\\]*","kind":"(?P<kind>[^"\\]*)","metadata":')
"""The bytes up to the metadata of an object whose first fields are apiVersion and kind."""


def place_of(raw: bytes, uid: Any) -> int:
    """Return the offset of ``"uid":"…"}`` with this uid: the last field of the metadata.

    Return -1 if there is no uid, or if ``raw`` does not contain this text exactly once.
    """
    if not uid or not isinstance(uid, str):
        return -1
    pattern = b'"uid":%b}' % orjson.dumps(uid)
    place = raw.find(pattern)
    return -1 if place < 0 or raw.rfind(pattern) != place else place


class Converted:
    """A converted object as JSON, cut into ``head`` and ``tail``.

    The field resourceVersion belongs between them; neither part contains it. ``head`` is empty if the offset of the
    field is unknown. Both parts must be copies, since bytes from orjson use several times their length in memory.
    """

    __slots__ = ("head", "tail")

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head
        self.tail = tail

    @classmethod
    def cut(cls, raw: bytes, place: int = -1) -> "Converted":
        """Return a copy of an object, cut at this offset, or uncut if the offset is not positive."""
        return cls(b"", b"%b" % raw) if place <= 0 else cls(raw[:place], raw[place:])

    @property
    def raw(self) -> bytes:
        """The object without a resourceVersion."""
        return self.head + self.tail

    @property
    def size(self) -> int:
        """The length of the object in bytes."""
        return len(self.head) + len(self.tail)

    def at(self, revision: int) -> bytes:
        """Return the object with this resourceVersion."""
        if self.head:
            return b"".join((self.head, b'"resourceVersion":"', str(revision).encode(), b'",', self.tail))
        document: Any = orjson.loads(self.tail)
        document.setdefault("metadata", {})["resourceVersion"] = str(revision)
        return encode(document)


class Conversions:
    """Cached conversions to one version of one compiled definition.

    A changed definition is compiled again and has a new cache, so no reader gets conversions of the old definition.
    """

    __slots__ = ("__weakref__", "_by_hash")

    def __init__(self) -> None:
        self._by_hash: dict[int, Converted] = {}

    def find(self, raw: bytes) -> Converted | None:
        """Return the conversion of stored bytes, None on a cache miss."""
        return self._by_hash.get(hash(raw))

    def find_all(self, hashes: Sequence[int]) -> list[Converted | None]:
        """Return the conversion for each hash of stored bytes, None on a cache miss."""
        return [*map(self._by_hash.get, hashes)]

    def keep(self, raw: bytes, made: Converted) -> Converted:
        """Cache and return a conversion.

        Call it only on the event loop, since all caches share ``_BOUND``, which has no lock.
        """
        key = hash(raw)
        self._by_hash[key] = made
        _BOUND.take(self, key, made)
        return made

    def drop(self, key: int) -> None:
        """Evict the conversion of the bytes with this hash."""
        self._by_hash.pop(key, None)


class _Bound:
    """The order and size of the conversions in all caches.

    If they have more than limits.CONVERTED_BYTES, the oldest are evicted, but never the newest. The references to the
    caches are weak, so that the conversions of a deleted definition are freed with their cache.
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
