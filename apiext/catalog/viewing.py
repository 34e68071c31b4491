"""How stored bytes become what a client of one version sees, and back (performance.md §1).

The full route decodes, repairs, defaults, converts, prunes and encodes. Bytes for which that is known to add only the
resourceVersion are spliced instead: known are those that this version encoded, and those the full route has met.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from apiext import limits
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import decode_json
from apiext.documents.encoding import encode as encode_json
from apiext.meta import objectmeta


class Shape(Protocol):
    """What viewing asks of a version's schema (apiext.schema.compile.CompiledSchema)."""

    def from_storage(self, document: Document) -> bool:
        """Prune and default a stored object in place."""

    def prune(self, document: Document) -> list[str]:
        """Drop unknown fields in place."""

    def drop_nulls(self, document: Document) -> object:
        """Drop null members that nothing allows."""

    def coerce_embedded(self, document: Document) -> object:
        """Bring embedded resources into shape."""


class WrongVersion(ValueError):
    """A stored object claims a version that its definition does not have (VER-011): a 500 for who asks."""


class NeedsConversion(Exception):
    """A stored object must go through the conversion webhook first.

    ``document`` is in ``version``, defaulted there, with its resourceVersion.
    """

    def __init__(self, document: Document, version: str) -> None:
        super().__init__(version)
        self.document = document
        self.version = version


_NEGATIVE_ZERO = re.compile(rb"-0[],}]")


class Splices:
    """Where the resourceVersion goes in stored bytes that need nothing else, by their hash; bounded, oldest first."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, int] = {}

    def note(self, raw: bytes, uid: Any) -> None:
        """Remember bytes whose object has this uid, if its place is certain: ``"uid":"…"}`` ends metadata.

        Not those with a negative zero: it is written as -0, which reads as the integer 0.
        """
        place = place_of(raw, uid)
        if place < 0 or (b"-0" in raw and _NEGATIVE_ZERO.search(raw)):
            return
        if len(self._places) >= limits.SPLICES:
            self._places.pop(next(iter(self._places)), None)  # a thread may have been faster
        self._places[hash(raw)] = place

    def view(self, raw: bytes, revision: int) -> bytes | None:
        """Return the bytes with their resourceVersion, None when they are not known."""
        place = self._places.get(hash(raw))
        return splice(raw, place, revision) if place is not None else None

    def knows(self, raw: bytes) -> bool:
        """Return whether these bytes are known to need only a resourceVersion."""
        return hash(raw) in self._places


def place_of(raw: bytes, uid: Any) -> int:
    """Return the offset of metadata.uid, which is metadata's last key; -1 when the uid occurs twice or never."""
    if not uid or not isinstance(uid, str):
        return -1
    pattern = b'"uid":%b}' % orjson.dumps(uid)
    place = raw.find(pattern)
    return -1 if place < 0 or raw.find(pattern, place + 1) >= 0 else place


def splice(raw: bytes, place: int, revision: int) -> bytes:
    """Return stored bytes with the resourceVersion put in at its sorted place, without their newline."""
    end = -1 if raw.endswith(b"\n") else len(raw)
    return b'%b"resourceVersion":"%d",%b' % (raw[:place], revision, raw[place:end])


@dataclass(frozen=True, slots=True)
class Codec:
    """The three closures of a served version."""

    view: Callable[[bytes, int], bytes]
    decode: Callable[[bytes, int], Document]
    encode: Callable[[Document], bytes]
    accept: Callable[[Document], Document]


@dataclass(frozen=True, slots=True)
class Storage:
    """How the objects of a definition are stored: versions by name, which one is written, who converts."""

    group: str
    shapes: Mapping[str, Callable[[], Shape]]
    written: str
    webhook: bool

    def version_of(self, document: View) -> str:
        """Return the version that a stored object is in; raises WrongVersion when the definition has none such."""
        api_version = document.get("apiVersion")
        group, _, version = api_version.rpartition("/") if isinstance(api_version, str) else ("", "", "")
        if group != self.group or version not in self.shapes:
            raise WrongVersion(f"request to convert CR from an invalid group/version: {api_version}")
        return version


def parse(raw: bytes) -> Document:
    """Return the object that stored bytes hold; raises ValueError when they hold none."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:  # what others wrote may nest deeper or be looser UTF-8 than orjson takes
        document = decode_json(raw)[0]
    if not isinstance(document, dict):
        raise ValueError(f"stored value is not an object but {document.__class__.__name__}")  # noqa: TRY004
    return document


def with_revision(document: Document, revision: int) -> Document:
    """Set metadata.resourceVersion, making metadata when there is none."""
    document.setdefault("metadata", {})["resourceVersion"] = str(revision)
    return document


def stored_form(document: View) -> Document:
    """Return a copy of an object without what is never stored (ETC-002)."""
    metadata = objectmeta.repair(document.get("metadata") or {})
    metadata.pop("resourceVersion", None)
    metadata.pop("selfLink", None)
    return {**document, "metadata": metadata}


def custom_codec(storage: Storage, version: str, *, exact: bool) -> Codec:
    """Return the closures of one version of a custom resource.

    ``exact`` tells that reading back what this version encoded changes nothing, so that it may be spliced.
    """
    api_version = f"{storage.group}/{version}"
    shape = storage.shapes[version]
    splices = Splices()
    # what a conversion webhook made may lack the defaults of the written version
    exact = exact and version == storage.written and not (storage.webhook and len(storage.shapes) > 1)

    def accept(document: Document) -> Document:
        found = shape()
        document["apiVersion"] = api_version
        document["metadata"] = objectmeta.repair(document.get("metadata") or {})
        found.prune(document)
        found.drop_nulls(document)
        found.coerce_embedded(document)
        return document

    def decode(raw: bytes, revision: int) -> Document:
        document = parse(raw)
        if splices.knows(raw):
            return with_revision(document, revision)
        stored = storage.version_of(document)
        document["metadata"] = _repaired(document.get("metadata"))
        storage.shapes[stored]().from_storage(document)
        with_revision(document, revision)
        if stored == version:
            return document
        if storage.webhook:
            raise NeedsConversion(document, stored)
        return accept(document)

    def view(raw: bytes, revision: int) -> bytes:
        known = splices.view(raw, revision)
        if known is not None:
            return known
        document = decode(raw, revision)
        shown = encode_json(document)
        uid = document["metadata"].get("uid")
        place = place_of(raw, uid)
        if place >= 0 and splice(raw, place, revision) == shown:
            splices.note(raw, uid)
        return shown

    def encode(document: Document) -> bytes:
        stored = stored_form(document)
        if version != storage.written:
            stored = _converted(stored, storage)
        raw = encode_json(stored) + b"\n"
        if exact:
            splices.note(raw, stored["metadata"].get("uid"))
        return raw

    return Codec(view, decode, encode, accept)


def _converted(document: Document, storage: Storage) -> Document:
    """Return the object in the written version: another apiVersion, and pruned by that version's schema (VER-003)."""
    if storage.webhook:
        raise NeedsConversion(document, storage.written)
    changed: Document = clone(document)
    changed["apiVersion"] = f"{storage.group}/{storage.written}"
    shape = storage.shapes[storage.written]()
    shape.prune(changed)
    shape.drop_nulls(changed)
    shape.coerce_embedded(changed)
    return changed


def _repaired(metadata: Any) -> Document:
    """Return stored metadata with malformed fields dropped and a generation (MET-002)."""
    repaired = objectmeta.repair(metadata if isinstance(metadata, dict) else {})
    repaired["generation"] = repaired.get("generation") or 1
    return repaired
