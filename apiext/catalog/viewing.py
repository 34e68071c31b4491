"""Codec of custom resources: from stored bytes to the JSON of one version, and back.

The slow path decodes, repairs, defaults, converts, prunes and encodes an object. The fast path only inserts the
resourceVersion into the stored bytes. The fast path is for bytes that this version has encoded, and for bytes to which
an earlier read by the slow path added nothing but the resourceVersion. ``Splices`` records these bytes, with the offset
of the resourceVersion.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from msgspec.structs import replace

from apiext.catalog import limits
from apiext.catalog.conversion_cache import ConversionCache
from apiext.catalog.converted import PLACE, place_of
from apiext.catalog.served import Codec
from apiext.catalog.splices import Splices, splice
from apiext.catalog.stored import Storage, Unreadable
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import decode_json, encode_with_float_flag
from apiext.documents.encoding import encode as encode_json
from apiext.documents.errors import DecodeError
from apiext.documents.json_errors import check_depth
from apiext.meta import objectmeta

# JSON that contains _LONG after its translation with _DIGITS has 19 digits in a row: an integer may exceed int64
_DIGITS, _LONG = bytes.maketrans(b"123456789", b"000000000"), b"0" * 19


def parse(raw: bytes) -> Document:
    """Decode a stored object; raise ValueError if the bytes are not a JSON object."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:  # kube-apiserver may have stored deeper nesting or invalid UTF-8
        document = decode_json(raw)[0]
    if raw.translate(_DIGITS).find(_LONG) >= 0:  # as in a request body, integers beyond int64 become floats
        document = decode_json(raw)[0]
    if not isinstance(document, dict):
        raise ValueError(f"stored value is not an object but {document.__class__.__name__}")  # noqa: TRY004
    return document


def _check_depth(raw: bytes) -> None:
    """Raise Unreadable for an object whose nesting is too deep for orjson to encode."""
    try:
        check_depth(raw, limits.MAX_STORED_DEPTH)
    except DecodeError as error:
        raise Unreadable(f"nested deeper than {limits.MAX_STORED_DEPTH} levels", orjson.loads(raw)) from error


def with_revision(document: Document, revision: int) -> Document:
    """Set metadata.resourceVersion in place, and return the document."""
    document.setdefault("metadata", {})["resourceVersion"] = str(revision)
    return document


_NEVER_STORED = frozenset(("resourceVersion", "selfLink"))


def stored_form(document: View) -> Document:
    """Return a copy of an object without the never stored fields (ETC-002); repair its metadata."""
    metadata = objectmeta.repair(document.get("metadata") or {})
    for name in _NEVER_STORED:
        metadata.pop(name, None)
    return {**document, "metadata": metadata}


def _without_never_stored(document: Document) -> Document:
    """Return an object without the fields that are never stored; its metadata must be valid.

    Copy the object only if it has such fields.
    """
    return document if _NEVER_STORED.isdisjoint(document["metadata"]) else stored_form(document)


def _encode_as_is(document: Document) -> bytes:
    return encode_json(stored_form(document)) + b"\n"


def _decode_metadata(splices: Splices, raw: bytes, revision: int) -> Document | None:
    """Fast path: return the metadata of an object in the splices, without managedFields.

    Return None if the object is not in the splices, or if its metadata cannot be found in the bytes.

    The keys of metadata are sorted, so the uid is the last key, and the name follows managedFields. The search for
    these keys cannot match inside a string value, since quotes in strings are escaped.
    """
    place, head = splices.place(raw), PLACE.match(raw)
    if place is None or head is None:
        return None
    start, end = head.end(), raw.find(b"}", place) + 1
    owned = raw.find(_OWNED, start, end)
    name = raw.find(_NAME, owned, end) if owned > 0 else -1
    try:
        metadata = orjson.loads(raw[start:end] if name < 0 else raw[start:owned] + raw[name + 2 : end])
    except orjson.JSONDecodeError:  # the uid contains a brace, at which the metadata was cut
        return None
    return with_revision({"metadata": metadata}, revision)


_OWNED, _NAME = b'"managedFields":[', b'],"name":"'


Read = Callable[[bytes, int], Document]


def custom_codec(storage: Storage, version: str, *, exact: bool) -> Codec:
    """Return the codec of one version of a custom resource.

    ``exact`` is true if decoding changes nothing in the bytes that this version has encoded, so that the fast path may
    read them. If a webhook converts objects, ``view``, ``decode``, ``encode`` and ``to_store`` raise NeedsConversion
    while the converted object is not in the cache.
    """
    splices = Splices()
    cache = ConversionCache(storage, version) if storage.webhook and len(storage.shapes) > 1 else None
    exact = exact and version == storage.written

    def read(raw: bytes, revision: int) -> Document:
        nonlocal exact
        document = parse(raw)
        if splices.has(raw):
            return with_revision(document, revision)
        stored = storage.version_of(document)
        document["metadata"] = _repaired(document.get("metadata"))
        storage.shapes[stored]().from_storage(document)
        with_revision(document, revision)
        if stored == version:
            return document
        document = _accepted(document, storage, version) if cache is None else cache.read(document, raw)
        # the object has the defaults of its stored version only. If it lacks defaults of this version, a write may
        # store it without these; then the stored bytes differ from the bytes that clients read.
        exact = exact and not storage.shapes[version]().default(clone(document))
        return document

    def view(raw: bytes, revision: int) -> bytes:
        spliced = splices.view(raw, revision) or _renamed(storage, version, raw, revision)
        if spliced is not None:
            return spliced
        document, shown = _read_and_written(read, raw, revision)
        uid = document["metadata"].get("uid")
        place = place_of(raw, uid)
        if place >= 0 and splice(raw, place, revision) == shown:
            splices.add(raw, uid)
        return shown

    def written(stored: Document) -> bytes:
        if version != storage.written:
            storage.check(stored)
            if cache is not None:
                return cache.write(stored)
            stored = _accepted(clone(stored), storage, storage.written)
        text, floats = encode_with_float_flag(stored)
        raw = text + b"\n"
        if exact and not (cache is not None and cache.lacks_defaults):
            splices.add(raw, stored["metadata"].get("uid"), floats=floats)
        return raw

    decode = partial(_read_within_bounds, read)
    storage.splices[version], storage.texts[version] = splices, partial(_shown_without_revision, decode, splices)
    codec = Codec(
        view,
        decode,
        encode=lambda document: written(stored_form(document)),
        to_store=lambda document: written(_without_never_stored(document)),
        evict=splices.evict,
        encode_as_is=_encode_as_is,
        decode_metadata=partial(_decode_metadata, splices),
        is_normalized=splices.has,
        converts=cache is not None,
    )
    return codec if cache is None else _cached_first(codec, cache)


def accepting(storage: Storage, version: str) -> Callable[[Document], Document]:
    """Return ``Shaping.accept`` of this version: a function that prunes and coerces a document."""

    def accept(document: Document) -> Document:
        document["metadata"] = objectmeta.repair(document.get("metadata") or {})
        return _accepted(document, storage, version)

    return accept


def _read_and_written(read: Read, raw: bytes, revision: int) -> tuple[Document, bytes]:
    """Return an object and its JSON.

    Raise Unreadable if the object's nesting is too deep for orjson to encode.
    """
    try:
        document = read(raw, revision)
        return document, encode_json(document)
    except (RecursionError, TypeError):
        _check_depth(raw)
        raise


def _read_within_bounds(read: Read, raw: bytes, revision: int) -> Document:
    """Return a decoded object; raise Unreadable if its nesting is too deep for orjson to encode."""
    if raw.count(b"{") + raw.count(b"[") > limits.MAX_STORED_DEPTH:
        _check_depth(raw)
    return read(raw, revision)


def _cached_first(codec: Codec, cache: ConversionCache) -> Codec:
    """Return a codec that searches the conversion cache before it decodes an object."""
    find, then_view, then_decode = cache.cached.find, codec.view, codec.decode

    def view(raw: bytes, revision: int) -> bytes:
        known = find(raw)
        if known is not None:
            return known.at(revision)
        cache.request_if_recognized(raw, revision)
        return then_view(raw, revision)

    def decode(raw: bytes, revision: int) -> Document:
        known = find(raw)
        if known is not None:
            return parse(known.at(revision))
        cache.request_if_recognized(raw, revision)
        return then_decode(raw, revision)

    return replace(
        codec, view=view, decode=decode, decode_metadata=lambda raw, revision: None, is_normalized=lambda raw: False
    )


def _shown_without_revision(
    decode: Callable[[bytes, int], Document], splices: Splices, raw: bytes
) -> tuple[bytes, int]:
    """Return the JSON of an object without resourceVersion, and the offset at which it belongs.

    For most objects, the JSON is the stored bytes. The offset is -1 if it is unknown.
    """
    place = splices.place(raw)
    if place is not None:
        return raw, place
    document = decode(raw, 0)
    del document["metadata"]["resourceVersion"]
    text = encode_json(document)
    if text == raw.removesuffix(b"\n"):
        splices.add(raw, document["metadata"].get("uid"))
        place = splices.place(raw)
    return text, -1 if place is None else place


def _renamed(storage: Storage, version: str, raw: bytes, revision: int) -> bytes | None:
    """Fast path without a webhook: replace only the apiVersion and insert the resourceVersion.

    Return None if the slow path is needed: a webhook converts objects, ``version`` is the storage version, the splices
    of the storage version lack the object, or the conversion would change other fields.
    """
    if storage.webhook or version == storage.written:
        return None
    written = storage.splices.get(storage.written)
    place = written.place(raw) if written is not None else None
    head = f'{{"apiVersion":"{storage.group}/{storage.written}"'.encode()
    if place is None or not raw.startswith(head) or not storage.shapes[version]().is_normal(orjson.loads(raw)):
        return None
    return f'{{"apiVersion":"{storage.group}/{version}"'.encode() + splice(raw, place, revision)[len(head) :]


def _accepted(document: Document, storage: Storage, version: str) -> Document:
    """Set the version of a document, and prune it with the schema of this version.

    See VER-003, PRU-007. Invalid fields of embedded resources are dropped, since no validation reports them later for a
    write of the status or for a stored object.
    """
    shape = storage.shapes[version]()
    document["apiVersion"] = f"{storage.group}/{version}"
    shape.prune(document)
    shape.drop_nulls(document)
    shape.coerce_embedded(document, drop_invalid=True)
    return document


def _repaired(metadata: Any) -> Document:
    """Return stored metadata without invalid fields, and with a generation (MET-002)."""
    repaired = objectmeta.repair(metadata if isinstance(metadata, dict) else {})
    repaired["generation"] = repaired.get("generation") or 1
    return repaired
