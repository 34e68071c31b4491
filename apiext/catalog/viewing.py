"""How stored bytes become what a client of one version sees, and back.

The full route decodes, repairs, defaults, converts, prunes and encodes. Bytes for which that is known to add only the
resourceVersion are spliced instead: known are those that this version encoded, and those the full route has met.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from msgspec.structs import replace

from apiext.catalog import limits
from apiext.catalog.answers import Answers
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

_DIGITS, _LONG = bytes.maketrans(b"123456789", b"000000000"), b"0" * 19  # finds integers that int64 may not hold


def parse(raw: bytes) -> Document:
    """Return the object that stored bytes hold; raises ValueError when they hold none."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:  # what others wrote may nest deeper or be looser UTF-8 than orjson takes
        document = decode_json(raw)[0]
    if raw.translate(_DIGITS).find(_LONG) >= 0:  # an integer beyond int64 is a float, as in a body
        document = decode_json(raw)[0]
    if not isinstance(document, dict):
        raise ValueError(f"stored value is not an object but {document.__class__.__name__}")  # noqa: TRY004
    return document


def _check_depth(raw: bytes) -> None:
    """Raise Unreadable for an object that nests deeper than orjson writes."""
    try:
        check_depth(raw, limits.MAX_STORED_DEPTH)
    except DecodeError as error:
        raise Unreadable(f"nested deeper than {limits.MAX_STORED_DEPTH} levels", orjson.loads(raw)) from error


def with_revision(document: Document, revision: int) -> Document:
    """Set metadata.resourceVersion, making metadata when there is none."""
    document.setdefault("metadata", {})["resourceVersion"] = str(revision)
    return document


_NEVER_STORED = frozenset(("resourceVersion", "selfLink"))


def stored_form(document: View) -> Document:
    """Return a copy of an object without what is never stored (ETC-002)."""
    metadata = objectmeta.repair(document.get("metadata") or {})
    for name in _NEVER_STORED:
        metadata.pop(name, None)
    return {**document, "metadata": metadata}


def _formed(document: Document) -> Document:
    """Return an object whose metadata are in form without what is never stored."""
    return document if _NEVER_STORED.isdisjoint(document["metadata"]) else stored_form(document)


def _encode_as_is(document: Document) -> bytes:
    return encode_json(stored_form(document)) + b"\n"


def _decode_metadata(splices: Splices, raw: bytes, revision: int) -> Document | None:
    """Return the metadata without managedFields of an object whose bytes are known to need nothing; None: look closer.

    The uid ends them, and the name follows managedFields, in which no other list stands, since keys are sorted. Neither
    text is to be found within another, where its quotes would be escaped.
    """
    place, head = splices.place(raw), PLACE.match(raw)
    if place is None or head is None:
        return None
    start, end = head.end(), raw.find(b"}", place) + 1
    owned = raw.find(_OWNED, start, end)
    name = raw.find(_NAME, owned, end) if owned > 0 else -1
    try:
        metadata = orjson.loads(raw[start:end] if name < 0 else raw[start:owned] + raw[name + 2 : end])
    except orjson.JSONDecodeError:  # a uid with a brace
        return None
    return with_revision({"metadata": metadata}, revision)


_OWNED, _NAME = b'"managedFields":[', b'],"name":"'


Read = Callable[[bytes, int], Document]


def custom_codec(storage: Storage, version: str, *, exact: bool) -> Codec:
    """Return the codec of one version of a custom resource.

    ``exact``: reading back the bytes that this version encoded changes nothing, so they may be spliced. With a webhook,
    all but ``encode_as_is`` raise NeedsConversion until the answer is cached.
    """
    splices = Splices()
    answers = Answers(storage, version) if storage.webhook and len(storage.shapes) > 1 else None
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
        document = _accepted(document, storage, version) if answers is None else answers.read(document, raw)
        # what lacks defaults of this version may be written so, too
        exact = exact and not storage.shapes[version]().default(clone(document))
        return document

    def view(raw: bytes, revision: int) -> bytes:
        known = splices.view(raw, revision) or _renamed(storage, version, raw, revision)
        if known is not None:
            return known
        document, shown = _read_and_written(read, raw, revision)
        uid = document["metadata"].get("uid")
        place = place_of(raw, uid)
        if place >= 0 and splice(raw, place, revision) == shown:
            splices.note(raw, uid)
        return shown

    def written(stored: Document) -> bytes:
        if version != storage.written:
            storage.check(stored)
            if answers is not None:
                return answers.write(stored)
            stored = _accepted(clone(stored), storage, storage.written)
        text, floats = encode_with_float_flag(stored)
        raw = text + b"\n"
        if exact and not (answers is not None and answers.lacking):
            splices.note(raw, stored["metadata"].get("uid"), floats=floats)
        return raw

    decode = partial(_read_within_bounds, read)
    storage.splices[version], storage.texts[version] = splices, partial(_shown_without_revision, decode, splices)
    codec = Codec(
        view,
        decode,
        encode=lambda document: written(stored_form(document)),
        to_store=lambda document: written(_formed(document)),
        evict=splices.evict,
        encode_as_is=_encode_as_is,
        decode_metadata=partial(_decode_metadata, splices),
        is_normalized=splices.has,
        converts=answers is not None,
    )
    return codec if answers is None else _remembered_first(codec, answers)


def accepting(storage: Storage, version: str) -> Callable[[Document], Document]:
    """Return the function that prunes and coerces a document which a webhook or an apply made in this version."""

    def accept(document: Document) -> Document:
        document["metadata"] = objectmeta.repair(document.get("metadata") or {})
        return _accepted(document, storage, version)

    return accept


def _read_and_written(read: Read, raw: bytes, revision: int) -> tuple[Document, bytes]:
    """Return an object and its JSON; raises Unreadable for one that nests deeper than orjson writes."""
    try:
        document = read(raw, revision)
        return document, encode_json(document)
    except (RecursionError, TypeError):
        _check_depth(raw)
        raise


def _read_within_bounds(read: Read, raw: bytes, revision: int) -> Document:
    """Return an object that is to be changed; raises Unreadable for one that nests deeper than orjson writes."""
    if raw.count(b"{") + raw.count(b"[") > limits.MAX_STORED_DEPTH:
        _check_depth(raw)
    return read(raw, revision)


def _remembered_first(codec: Codec, answers: Answers) -> Codec:
    """Return a codec for which remembered answers come first."""
    find, then_view, then_decode = answers.known.find, codec.view, codec.decode

    def view(raw: bytes, revision: int) -> bytes:
        known = find(raw)
        if known is not None:
            return known.at(revision)
        answers.ask_quickly(raw, revision)
        return then_view(raw, revision)

    def decode(raw: bytes, revision: int) -> Document:
        known = find(raw)
        if known is not None:
            return parse(known.at(revision))
        answers.ask_quickly(raw, revision)
        return then_decode(raw, revision)

    return replace(
        codec, view=view, decode=decode, decode_metadata=lambda raw, revision: None, is_normalized=lambda raw: False
    )


def _shown_without_revision(
    decode: Callable[[bytes, int], Document], splices: Splices, raw: bytes
) -> tuple[bytes, int]:
    """Return what a version shows of an object that is stored in it, but for the resourceVersion: mostly as stored.

    The second value is the place of the latter, -1 when it is not known.
    """
    place = splices.place(raw)
    if place is not None:
        return raw, place
    document = decode(raw, 0)
    del document["metadata"]["resourceVersion"]
    text = encode_json(document)
    if text == raw.removesuffix(b"\n"):
        splices.note(raw, document["metadata"].get("uid"))
        place = splices.place(raw)
    return text, -1 if place is None else place


def _renamed(storage: Storage, version: str, raw: bytes, revision: int) -> bytes | None:
    """Return an object of the written version under another version's name, if it needs nothing else in both."""
    if storage.webhook or version == storage.written:
        return None
    written = storage.splices.get(storage.written)
    place = written.place(raw) if written is not None else None
    head = f'{{"apiVersion":"{storage.group}/{storage.written}"'.encode()
    if place is None or not raw.startswith(head) or not storage.shapes[version]().is_normal(orjson.loads(raw)):
        return None
    return f'{{"apiVersion":"{storage.group}/{version}"'.encode() + splice(raw, place, revision)[len(head) :]


def _accepted(document: Document, storage: Storage, version: str) -> Document:
    """Return a document given in another version as one of this version, pruned by its schema (VER-003, PRU-007).

    What is malformed in embedded resources is left out: nobody has judged a status, nor what others have stored.
    """
    shape = storage.shapes[version]()
    document["apiVersion"] = f"{storage.group}/{version}"
    shape.prune(document)
    shape.drop_nulls(document)
    shape.coerce_embedded(document, drop_invalid=True)
    return document


def _repaired(metadata: Any) -> Document:
    """Return stored metadata with malformed fields dropped and a generation (MET-002)."""
    repaired = objectmeta.repair(metadata if isinstance(metadata, dict) else {})
    repaired["generation"] = repaired.get("generation") or 1
    return repaired
