"""How stored bytes become what a client of one version sees, and back (performance.md §1).

The full route decodes, repairs, defaults, converts, prunes and encodes. Bytes for which that is known to add only the
resourceVersion are spliced instead: known are those that this version encoded, and those the full route has met.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, Protocol

import orjson

from apiext import limits
from apiext.catalog.converted import PLACE, Conversions, Converted, NeedsConversion
from apiext.documents.document import Document, View, clone
from apiext.documents.encoding import decode_json, encode_telling
from apiext.documents.encoding import encode as encode_json
from apiext.meta import objectmeta
from apiext.schema.structural import META_FIELDS

_DIGITS, _LONG = bytes.maketrans(b"123456789", b"000000000"), b"0" * 19  # finds integers that int64 may not hold


class Shape(Protocol):
    """What viewing asks of a version's schema (apiext.schema.compile.CompiledSchema)."""

    def from_storage(self, document: Document) -> bool:
        """Prune and default a stored object in place."""

    def prune(self, document: Document) -> list[str]:
        """Drop unknown fields in place."""

    def drop_nulls(self, document: Document) -> object:
        """Drop null members that nothing allows."""

    def default(self, document: Document) -> bool:
        """Fill in defaults in place; return whether any were missing."""

    @property
    def settled(self) -> Callable[[Any], bool]:
        """Tells that pruning, dropping nulls and coercing plainly change nothing, and that it holds no float."""

    def coerce_embedded(self, document: Document) -> object:
        """Bring embedded resources into shape."""


class WrongVersion(ValueError):
    """A stored object claims a version that its definition does not have (VER-011): a 500 for who asks."""


_NEGATIVE_ZERO = re.compile(rb"-0[],}]")


class Splices:
    """Where the resourceVersion goes in stored bytes that need nothing else, by their hash; bounded, oldest first."""

    __slots__ = ("_order", "_places")

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._order: deque[int] = deque()  # to look for a dict's first key takes longer with each that was removed

    def note(self, raw: bytes, uid: Any, *, floats: bool = True) -> None:
        """Remember bytes whose object has this uid, if its place is certain: ``"uid":"…"}`` ends metadata.

        Not those with a negative zero: it is written as -0, which reads as the integer 0. ``floats``: there may be one.
        """
        place = place_of(raw, uid)
        if place < 0 or (floats and b"-0" in raw and _NEGATIVE_ZERO.search(raw)):
            return
        key = hash(raw)
        if key not in self._places:
            self._order.append(key)
            if len(self._order) > limits.SPLICES:
                self._places.pop(self._order.popleft(), None)  # a thread may have been faster
        self._places[key] = place

    def view(self, raw: bytes, revision: int) -> bytes | None:
        """Return the bytes with their resourceVersion, None when they are not known."""
        place = self._places.get(hash(raw))
        return splice(raw, place, revision) if place is not None else None

    def place(self, raw: bytes) -> int | None:
        """Return where the resourceVersion goes, None when these bytes are not known."""
        return self._places.get(hash(raw))

    def knows(self, raw: bytes) -> bool:
        """Return whether these bytes are known to need only a resourceVersion."""
        return hash(raw) in self._places


def place_of(raw: bytes, uid: Any) -> int:
    """Return the offset of metadata.uid, which is metadata's last key; -1 when the uid occurs twice or never."""
    if not uid or not isinstance(uid, str):
        return -1
    pattern = b'"uid":%b}' % orjson.dumps(uid)
    place = raw.find(pattern)
    return -1 if place < 0 or raw.rfind(pattern) != place else place


def splice(raw: bytes, place: int, revision: int) -> bytes:
    """Return stored bytes with the resourceVersion put in at its sorted place, without their newline."""
    end = -1 if raw.endswith(b"\n") else len(raw)
    return b"".join((raw[:place], b'"resourceVersion":"', str(revision).encode(), b'",', raw[place:end]))


@dataclass(frozen=True, slots=True)
class Codec:
    """The closures of a served version; ``encode_as_is`` stores a document in its own version, whatever is written."""

    view: Callable[[bytes, int], bytes]
    decode: Callable[[bytes, int], Document]
    encode: Callable[[Document], bytes]
    accept: Callable[[Document], Document]
    encode_as_is: Callable[[Document], bytes] | None = None


@dataclass(frozen=True, slots=True)
class Storage:
    """How the objects of a definition are stored: versions by name, which one is written, who converts.

    ``texts`` make stored bytes of a version what that version shows, but for the resourceVersion, which no webhook is
    told; ``splices`` are those of a version; each codec adds its own.
    """

    group: str
    shapes: Mapping[str, Callable[[], Shape]]
    written: str
    webhook: bool
    texts: dict[str, Callable[[bytes], bytes]] = field(default_factory=dict)
    splices: dict[str, Splices] = field(default_factory=dict)

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
    if _LONG in raw.translate(_DIGITS):  # an integer beyond int64 is a float, as in a body
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

    ``exact`` tells that reading back what this version encoded changes nothing, so that it may be spliced. With a
    webhook, all but ``accept`` and ``encode_as_is`` raise NeedsConversion until the answer is remembered.
    """
    splices = Splices()
    answers = _Answers(storage, version) if storage.webhook and len(storage.shapes) > 1 else None
    exact = exact and version == storage.written

    def accept(document: Document) -> Document:
        document["metadata"] = objectmeta.repair(document.get("metadata") or {})
        return _accepted(document, storage, version)

    def decode(raw: bytes, revision: int) -> Document:
        nonlocal exact
        document = parse(raw)
        if splices.knows(raw):
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
        document = decode(raw, revision)
        shown = encode_json(document)
        uid = document["metadata"].get("uid")
        place = place_of(raw, uid)
        if place >= 0 and splice(raw, place, revision) == shown:
            splices.note(raw, uid)
        return shown

    def encode_as_is(document: Document) -> bytes:
        return encode_json(stored_form(document)) + b"\n"

    def encode(document: Document) -> bytes:
        stored = stored_form(document)
        if version != storage.written:
            if answers is not None:
                return answers.write(stored)
            stored = _accepted(clone(stored), storage, storage.written)
        text, floats = encode_telling(stored)
        raw = text + b"\n"
        if exact and not (answers is not None and answers.lacking):
            splices.note(raw, stored["metadata"].get("uid"), floats=floats)
        return raw

    storage.splices[version], storage.texts[version] = splices, partial(_shown_without_revision, decode, splices)
    codec = Codec(view, decode, encode, accept, encode_as_is)
    return codec if answers is None else answers.before(codec)


def _shown_without_revision(decode: Callable[[bytes, int], Document], splices: Splices, raw: bytes) -> bytes:
    """Return what a version shows of an object that is stored in it, but for the resourceVersion: mostly as stored."""
    if splices.knows(raw):
        return raw
    document = decode(raw, 0)
    del document["metadata"]["resourceVersion"]
    text = encode_json(document)
    if text == raw.removesuffix(b"\n"):
        splices.note(raw, document["metadata"].get("uid"))
    return text


def _renamed(storage: Storage, version: str, raw: bytes, revision: int) -> bytes | None:
    """Return an object of the written version under another version's name, if it needs nothing else in both."""
    if storage.webhook or version == storage.written:
        return None
    written = storage.splices.get(storage.written)
    place = written.place(raw) if written is not None else None
    head = f'{{"apiVersion":"{storage.group}/{storage.written}"'.encode()
    if place is None or not raw.startswith(head) or not storage.shapes[version]().settled(orjson.loads(raw)):
        return None
    return f'{{"apiVersion":"{storage.group}/{version}"'.encode() + splice(raw, place, revision)[len(head) :]


class _Question(NeedsConversion):
    """What a version asks about bytes that are stored in another one."""

    __slots__ = ("_answers", "_raw")

    def __init__(self, answers: "_Answers", text: bytes, raw: bytes) -> None:
        self.text, self.api_version, self.key = text, answers.api_version, (answers.known, hash(raw))
        self._answers, self._raw, self._document = answers, raw, None
        self.args = answers.told

    def keep(self, answer: Document, metadata: bytes) -> Converted:
        return self._answers.keep(answer, metadata, self._raw)

    def take(self, answer: Any) -> Converted | None:
        return self._answers.take(answer, self.text, self._raw)

    def another(self, raw: bytes) -> NeedsConversion | Converted | None:
        return self._answers.known.find(raw) or self._answers.question(raw)


class _Answers:
    """What the conversion webhook answered about objects read in a version, and about objects written in it.

    ``known`` are those that were read, in ``api_version``; ``told`` is what questions about them say. ``lacking`` tells
    that an object read in the written version lacked defaults of it: then what is written may, too.
    """

    def __init__(self, storage: Storage, version: str) -> None:
        self.api_version = f"{storage.group}/{version}"
        self.told = (self.api_version,)
        self.known = Conversions()
        self.lacking = False
        self._storage = storage
        self._version = version
        self._is_written = version == storage.written
        self._shape = storage.shapes[version]
        self._written = Conversions()
        self._stored = re.compile(rb'\{"apiVersion":"%b/(\w+)"' % re.escape(storage.group.encode()))
        self._source: tuple[bytes, Callable[[bytes], bytes]] | None = None  # beginning and text of what was asked last
        self._heads = b"", b"", ""  # what came before metadata in the last text asked about and answered, and the kind

    def before(self, codec: Codec) -> Codec:
        """Return the codec with remembered answers coming first."""
        find, then_view, then_decode = self.known.find, codec.view, codec.decode

        def view(raw: bytes, revision: int) -> bytes:
            known = find(raw)
            if known is not None:
                return known.at(revision)
            self._ask_quickly(raw, revision)
            return then_view(raw, revision)

        def decode(raw: bytes, revision: int) -> Document:
            known = find(raw)
            if known is not None:
                return parse(known.at(revision))
            self._ask_quickly(raw, revision)
            return then_decode(raw, revision)

        return replace(codec, view=view, decode=decode)

    def _ask_quickly(self, raw: bytes, revision: int) -> None:
        question = self.question(raw) if revision else None
        if question is not None:
            raise question

    def question(self, raw: bytes) -> _Question | None:
        """Return the question about an object of another version; None if that is not to be seen without parsing."""
        source = self._source
        if source is None or not raw.startswith(source[0]):
            found = self._stored.match(raw)
            version = found[1].decode() if found is not None else self._version
            if found is None or version == self._version or version not in self._storage.texts:
                return None
            source = self._source = found[0], self._storage.texts[version]
        return _Question(self, source[1](raw), raw)

    def read(self, document: Document, raw: bytes) -> NoReturn:
        """Ask for an object that is stored in another version, and as that version shows it."""
        del document["metadata"]["resourceVersion"]
        raise _Question(self, encode_json(document), raw)

    def take(self, answer: Any, text: bytes, raw: bytes) -> Converted | None:
        """Keep an answer with the kind and metadata of the text asked about, the rest as the schema leaves it.

        None when it is not plainly so: then it has to be judged, and ``keep`` makes the same of it, or refuses it.
        """
        if answer.__class__ is not dict or answer.get("apiVersion") != self.api_version:
            return None
        kind, metadata = answer.get("kind"), answer.get("metadata")
        if metadata.__class__ is not dict or not self._shape().settled(answer):
            return None
        same = orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)
        asked, shown, known = self._heads
        if not asked or kind != known or not text.startswith(asked):
            found = PLACE.match(text)
            if found is None or found["kind"].decode() != kind:
                return None
            asked, shown = found[0], f'{{"apiVersion":"{self.api_version}","kind":"{kind}","metadata":'.encode()
            self._heads = asked, shown, kind
        place = same.rfind(b'"uid":"')
        if place < 0 or same.find(b'"', place + 7) != len(same) - 2 or not text.startswith(same, len(asked)):
            return None
        answer["metadata"] = orjson.Fragment(same)
        made = orjson.dumps(answer, option=orjson.OPT_SORT_KEYS)
        answer["metadata"] = metadata
        if not made.startswith(shown):
            return None
        if self._is_written and not self.lacking:
            self.lacking = self._shape().default(answer)
        return self.known.keep(raw, Converted(made, len(shown) + place))

    def keep(self, answer: Document, metadata: bytes, raw: bytes) -> Converted:
        """Keep an answer that was accepted, pruned and coerced; ``metadata`` as NeedsConversion has it."""
        known: Document = answer["metadata"]
        known.pop("resourceVersion", None)
        made = self.known.keep(raw, Converted(*_encoded(answer, metadata, self._storage, self._version)))
        answer["metadata"] = known
        if self._is_written and not self.lacking:
            self.lacking = self._shape().default(answer)
        return made

    def write(self, stored: Document) -> bytes:
        """Return an object in the version that is written, or ask for it."""
        asked = encode_json(stored)
        known = self._written.find(asked)
        if known is not None:
            return known.raw
        storage = self._storage

        def keep(answer: Document, metadata: bytes) -> Converted:
            text, _ = _encoded(answer, metadata, storage, storage.written)
            return self._written.keep(asked, Converted(text + b"\n"))

        raise NeedsConversion(asked, f"{storage.group}/{storage.written}", (self._written, hash(asked)), keep)


def _encoded(answer: Document, metadata: bytes, storage: Storage, version: str) -> tuple[bytes, int]:
    """Return what a webhook answered as this version takes it, and where a resourceVersion goes (-1: unknown).

    ``metadata`` are those of the answer as text, empty when that is not known; they are not written again.
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
    if text.find(b":null", len(head) if text.startswith(head) else 0) >= 0:  # most answers have no nulls to look for
        shape.drop_nulls(answer)
        text = _after(head, answer)
    end = f'"uid":"{uid}"}}'.encode()
    place = len(head) - len(end) if uid and head.endswith(end) and text.startswith(head) else place_of(text, uid)
    return text, place


def _after(head: bytes, answer: Document) -> bytes:
    """Return an answer as text; ``head`` are its type and metadata as text, empty when that is not known."""
    if not head:
        return encode_json(answer)
    rest = {name: value for name, value in answer.items() if name not in META_FIELDS}
    if not rest:
        return head + b"}"
    return b"%b,%b" % (head, encode_json(rest)[1:]) if min(rest) > "metadata" else encode_json(answer)


def _accepted(document: Document, storage: Storage, version: str) -> Document:
    """Return a document given in another version as one of this version, pruned by its schema (VER-003, PRU-007)."""
    shape = storage.shapes[version]()
    document["apiVersion"] = f"{storage.group}/{version}"
    shape.prune(document)
    shape.drop_nulls(document)
    shape.coerce_embedded(document)
    return document


def _repaired(metadata: Any) -> Document:
    """Return stored metadata with malformed fields dropped and a generation (MET-002)."""
    repaired = objectmeta.repair(metadata if isinstance(metadata, dict) else {})
    repaired["generation"] = repaired.get("generation") or 1
    return repaired
