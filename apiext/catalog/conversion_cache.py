"""Cache of webhook conversions to one version, and requests for missing conversions.

See VER-012. A request is an exception (NeedsConversion): its receiver sends the object to the webhook, and repeats the
read or write. Splices (splices.py) cache the offset in stored JSON at which the resourceVersion belongs. A shape is the
compiled schema of a version (Storage.shapes).
"""

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Any, NoReturn

import orjson

from apiext.catalog.converted import Conversions, Converted, Lookup, NeedsConversion, place_of
from apiext.catalog.splices import Splices
from apiext.catalog.stored import Storage, Text
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode as encode_json
from apiext.schema.structural import META_FIELDS


class ConversionRequest(NeedsConversion):
    """Stored bytes of another version must be converted before a client can read the object.

    ``text`` is the object in its stored version, without a resourceVersion. ``place`` is the offset in ``text`` at
    which the resourceVersion belongs (-1: unknown). ``raw`` are the stored bytes.
    """

    __slots__ = ("cache", "place", "raw")

    def __init__(self, cache: "ConversionCache", text: bytes, place: int, raw: bytes) -> None:
        self.text, self.api_version, self.key = text, cache.api_version, (cache.cached, hash(raw))
        self.cache, self.raw, self.place, self._document = cache, raw, place, None
        self.args = cache.error_args

    def keep(self, answer: Document, metadata: bytes) -> Converted:
        return self.cache.keep(answer, metadata, self.raw)

    def keep_plain(self, answer: Any) -> Converted | None:
        return self.cache.keep_plain(answer, self)

    @property
    def batch_key(self) -> object:
        return self.cache

    @property
    def lookup(self) -> Lookup:
        return self.cache.lookup


class ConversionCache:
    """The webhook's conversions of the objects that clients read or write in one version.

    ``cached`` are the conversions of read objects to ``api_version``. ``error_args`` are the arguments of the
    exceptions that request a conversion. ``lacks_defaults`` is true if the webhook has returned an object of the
    storage version without its defaults; written objects may then lack defaults, too.
    """

    def __init__(self, storage: Storage, version: str) -> None:
        self.api_version = f"{storage.group}/{version}"
        self.error_args = (self.api_version,)
        self.cached = Conversions()
        self.lacks_defaults = False
        self._storage = storage
        self._version = version
        self._is_written = version == storage.written
        self._shape = storage.shapes[version]
        self._written = Conversions()
        self._stored = re.compile(rb'\{"apiVersion":"%b/(\w+)"' % re.escape(storage.group.encode()))
        # For the stored version of the last requested object: (first bytes of its objects, function that returns the
        # JSON of an object, splices).
        self._source: tuple[bytes, Text, Splices] | None = None
        self._kind = ""  # kind of the last converted object
        # The bytes before the metadata of an object of this kind: in its stored version, and in this cache's version.
        self._stored_head = self._shown_head = b""
        self._types: Document = {}

    def lookup(self, raws: Sequence[bytes]) -> Sequence[Converted | ConversionRequest | None]:
        """Return the cached conversion of each object, else the result of ``request``."""
        hashes = [*map(hash, raws)]
        found = self.cached.find_all(hashes)
        if None not in found:
            return found
        # an object whose offset is cached in these splices is not parsed: the webhook receives its stored bytes
        source = self._source
        places = source[2].places(hashes) if source is not None else repeat(None)
        return [
            made or (self.request(raw) if place is None else ConversionRequest(self, raw, place, raw))
            for raw, made, place in zip(raws, found, places, strict=False)
        ]

    def request_if_recognized(self, raw: bytes, revision: int) -> None:
        """Fast path: create the conversion request for stored bytes without parsing, and raise it.

        Do nothing if ``request`` returns None, or if ``revision`` is 0. Callers pass 0 for bytes that are not stored
        yet.
        """
        request = self.request(raw) if revision else None
        if request is not None:
            raise request

    def request(self, raw: bytes) -> ConversionRequest | None:
        """Return the request to convert an object.

        Return None if the bytes do not begin with a known version, or begin with the version of this cache.
        """
        source = self._source
        if source is None or not raw.startswith(source[0]):
            found = self._stored.match(raw)
            version = found[1].decode() if found is not None else self._version
            if found is None or version == self._version or version not in self._storage.texts:
                return None
            source = self._source = found[0], self._storage.texts[version], self._storage.splices[version]
        return ConversionRequest(self, *source[1](raw), raw)

    def read(self, document: Document, raw: bytes) -> NoReturn:
        """Raise the request to convert a document of another version; ``raw`` are its stored bytes."""
        del document["metadata"]["resourceVersion"]
        raise ConversionRequest(self, encode_json(document), -1, raw)

    def keep_plain(self, answer: Any, request: ConversionRequest) -> Converted | None:
        """Fast path: cache and return a converted object that needs neither validation nor pruning.

        The object must have the kind and metadata of the original, and the schema must not change it. ``keep`` would
        cache the same bytes. Return None for other objects: the caller validates them and calls ``keep``.
        """
        if answer.__class__ is not dict or answer.get("apiVersion") != self.api_version:
            return None
        kind, metadata = answer.get("kind"), answer.get("metadata")
        if (
            metadata.__class__ is not dict
            or not kind
            or kind.__class__ is not str
            or not self._shape().is_normal(answer)
        ):
            return None
        if kind != self._kind:
            if kind != request.document.get("kind"):
                return None
            self._kind, self._stored_head, self._types = kind, b"", {"apiVersion": self.api_version, "kind": kind}
            self._shown_head = _head_of(self._types)
        same = orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)
        place = same.rfind(b'"uid":"')
        if place < 0 or same.find(b'"', place + 7) != len(same) - 2:
            return None
        start = self._start(request)
        if not start or not request.text.startswith(same, start):
            return None
        before, after = self._around({name: value for name, value in answer.items() if name not in META_FIELDS})
        if self._is_written and not self.lacks_defaults:
            self.lacks_defaults = self._shape().default(answer)
        return self.cached.keep(request.raw, Converted(before + same[:place], same[place:] + after))

    def _start(self, request: ConversionRequest) -> int:
        """Return the offset of the metadata in the text of a request.

        Return 0 if the offset is unknown, or if the kind is not ``_kind``.
        """
        text = request.text
        if self._stored_head and text.startswith(self._stored_head):
            return len(self._stored_head)
        end = text.rfind(_METADATA, 0, request.place)
        if end < 0:
            return 0
        try:
            head = orjson.loads(text[:end] + b"}")
        except orjson.JSONDecodeError:  # this "metadata" is a nested field
            return 0
        if head.get("kind") != self._kind:
            return 0
        start = end + len(_METADATA)
        if len(head) == 2:  # only apiVersion and kind: most objects of the kind begin with these bytes
            self._stored_head = text[:start]
        return start

    def _around(self, rest: Document) -> tuple[bytes, bytes]:
        """Return the bytes before and after the metadata of an object.

        ``rest`` are the other fields of the object.
        """
        before, after = self._shown_head, rest
        if rest and min(rest) < "metadata":
            first = {name: value for name, value in rest.items() if name < "metadata"}
            after = {name: value for name, value in rest.items() if name > "metadata"}
            before = _head_of({**self._types, **first})
        return before, b"," + orjson.dumps(after, option=orjson.OPT_SORT_KEYS)[1:] if after else b"}"

    def keep(self, answer: Document, metadata: bytes, raw: bytes) -> Converted:
        """Prune, coerce and cache a valid converted object.

        ``metadata`` is the JSON of the object's metadata, empty if this JSON is unknown. ``raw`` are the stored bytes.
        """
        known: Document = answer["metadata"]
        known.pop("resourceVersion", None)
        made = self.cached.keep(raw, Converted.cut(*_encoded(answer, metadata, self._storage, self._version)))
        answer["metadata"] = known
        if self._is_written and not self.lacks_defaults:
            self.lacks_defaults = self._shape().default(answer)
        return made

    def write(self, stored: Document) -> bytes:
        """Return an object's JSON in the storage version; raise NeedsConversion on a cache miss."""
        given = encode_json(stored)
        known = self._written.find(given)
        if known is not None:
            return known.raw
        storage = self._storage

        def keep(answer: Document, metadata: bytes) -> Converted:
            text, _ = _encoded(answer, metadata, storage, storage.written)
            return self._written.keep(given, Converted.cut(text + b"\n"))

        raise NeedsConversion(given, f"{storage.group}/{storage.written}", (self._written, hash(given)), keep)


_METADATA = b',"metadata":'


def _head_of(first: View) -> bytes:
    """Return the bytes of an object up to its metadata.

    ``first`` are the fields before the metadata.
    """
    return orjson.dumps(first, option=orjson.OPT_SORT_KEYS)[:-1] + _METADATA


def _encoded(answer: Document, metadata: bytes, storage: Storage, version: str) -> tuple[bytes, int]:
    """Return a converted object as JSON, and the offset for a resourceVersion (-1: unknown).

    The object is pruned and coerced. ``metadata`` is the JSON of its metadata, to avoid encoding it again; empty if it
    is unknown.
    """
    shape, head = storage.shapes[version](), b""
    uid = answer["metadata"].get("uid")
    if metadata:
        answer["metadata"] = orjson.Fragment(metadata)
        api_version, kind = answer["apiVersion"], answer["kind"]
        head = f'{{"apiVersion":"{api_version}","kind":"{kind}","metadata":'.encode() + metadata
    shape.prune(answer)
    shape.coerce_embedded(answer)
    text = _after(head, answer)
    if text.find(b":null", len(head) if text.startswith(head) else 0) >= 0:  # most objects contain no null
        shape.drop_nulls(answer)
        text = _after(head, answer)
    end = f'"uid":"{uid}"}}'.encode()
    place = len(head) - len(end) if uid and head.endswith(end) and text.startswith(head) else place_of(text, uid)
    return text, place


def _after(head: bytes, answer: Document) -> bytes:
    """Return an object as JSON.

    ``head`` is its JSON up to the end of metadata, empty if this is unknown.
    """
    if not head:
        return encode_json(answer)
    rest = {name: value for name, value in answer.items() if name not in META_FIELDS}
    if not rest:
        return head + b"}"
    return b"%b,%b" % (head, encode_json(rest)[1:]) if min(rest) > "metadata" else encode_json(answer)
