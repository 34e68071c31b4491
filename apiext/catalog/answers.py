"""What a conversion webhook answers about the objects of one version: questions, and what is kept of the answers."""

import re
from collections.abc import Sequence
from itertools import repeat
from typing import Any, NoReturn

import orjson

from apiext.catalog.converted import Ask, Conversions, Converted, NeedsConversion, place_of
from apiext.catalog.splices import Splices
from apiext.catalog.stored import Storage, Text
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode as encode_json
from apiext.schema.structural import META_FIELDS


class Question(NeedsConversion):
    """What a version asks about bytes that are stored in another one."""

    __slots__ = ("answers", "place", "raw")

    def __init__(self, answers: "Answers", text: bytes, place: int, raw: bytes) -> None:
        self.text, self.api_version, self.key = text, answers.api_version, (answers.known, hash(raw))
        self.answers, self.raw, self.place, self._document = answers, raw, place, None
        self.args = answers.told

    def keep(self, answer: Document, metadata: bytes) -> Converted:
        return self.answers.keep(answer, metadata, self.raw)

    def take(self, answer: Any) -> Converted | None:
        return self.answers.take(answer, self)

    @property
    def asker(self) -> object:
        return self.answers

    @property
    def others(self) -> Ask:
        return self.answers.of


class Answers:
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
        self._source: tuple[bytes, Text, Splices] | None = None  # beginning, text and splices of what was asked last
        self._kind = ""  # of the last answer; then what stands before metadata, mostly, in what is asked and shown
        self._asked = self._shown = b""
        self._types: Document = {}

    def of(self, raws: Sequence[bytes]) -> Sequence[Converted | Question | None]:
        """Return what is known of objects of other versions, or the questions about them; None as ``question``."""
        hashes = [*map(hash, raws)]
        found = self.known.find_all(hashes)
        if None not in found:
            return found
        source = self._source  # the objects that have a place there are asked about as they are stored
        places = source[2].places(hashes) if source is not None else repeat(None)
        return [
            made or (self.question(raw) if place is None else Question(self, raw, place, raw))
            for raw, made, place in zip(raws, found, places, strict=False)
        ]

    def ask_quickly(self, raw: bytes, revision: int) -> None:
        question = self.question(raw) if revision else None
        if question is not None:
            raise question

    def question(self, raw: bytes) -> Question | None:
        """Return the question about an object of another version; None if that is not to be seen without parsing."""
        source = self._source
        if source is None or not raw.startswith(source[0]):
            found = self._stored.match(raw)
            version = found[1].decode() if found is not None else self._version
            if found is None or version == self._version or version not in self._storage.texts:
                return None
            source = self._source = found[0], self._storage.texts[version], self._storage.splices[version]
        return Question(self, *source[1](raw), raw)

    def read(self, document: Document, raw: bytes) -> NoReturn:
        """Ask for an object that is stored in another version, and as that version shows it."""
        del document["metadata"]["resourceVersion"]
        raise Question(self, encode_json(document), -1, raw)

    def take(self, answer: Any, question: Question) -> Converted | None:
        """Keep an answer with the kind and metadata of the object asked about, the rest as the schema leaves it.

        None when it is not plainly so: then it has to be judged, and ``keep`` makes the same of it, or refuses it.
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
            if kind != question.document.get("kind"):
                return None
            self._kind, self._asked, self._types = kind, b"", {"apiVersion": self.api_version, "kind": kind}
            self._shown = _head_of(self._types)
        same = orjson.dumps(metadata, option=orjson.OPT_SORT_KEYS)
        place = same.rfind(b'"uid":"')
        if place < 0 or same.find(b'"', place + 7) != len(same) - 2:
            return None
        start = self._start(question)
        if not start or not question.text.startswith(same, start):
            return None
        before, after = self._around({name: value for name, value in answer.items() if name not in META_FIELDS})
        if self._is_written and not self.lacking:
            self.lacking = self._shape().default(answer)
        return self.known.keep(question.raw, Converted(before + same[:place], same[place:] + after))

    def _start(self, question: Question) -> int:
        """Return where metadata begin in a text asked about; 0 when that is not plain, or the kind is another one."""
        text = question.text
        if self._asked and text.startswith(self._asked):
            return len(self._asked)
        end = text.rfind(_METADATA, 0, question.place)
        if end < 0:
            return 0
        try:
            head = orjson.loads(text[:end] + b"}")
        except orjson.JSONDecodeError:  # it is in the middle of something
            return 0
        if head.get("kind") != self._kind:
            return 0
        start = end + len(_METADATA)
        if len(head) == 2:  # others will begin so, too
            self._asked = text[:start]
        return start

    def _around(self, rest: Document) -> tuple[bytes, bytes]:
        """Return what stands before and after the metadata of an object with this rest; all are sorted."""
        before, after = self._shown, rest
        if rest and min(rest) < "metadata":
            first = {name: value for name, value in rest.items() if name < "metadata"}
            after = {name: value for name, value in rest.items() if name > "metadata"}
            before = _head_of({**self._types, **first})
        return before, b"," + orjson.dumps(after, option=orjson.OPT_SORT_KEYS)[1:] if after else b"}"

    def keep(self, answer: Document, metadata: bytes, raw: bytes) -> Converted:
        """Keep an answer that was accepted, pruned and coerced; ``metadata`` as NeedsConversion has it."""
        known: Document = answer["metadata"]
        known.pop("resourceVersion", None)
        made = self.known.keep(raw, Converted.cut(*_encoded(answer, metadata, self._storage, self._version)))
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
            return self._written.keep(asked, Converted.cut(text + b"\n"))

        raise NeedsConversion(asked, f"{storage.group}/{storage.written}", (self._written, hash(asked)), keep)


_METADATA = b',"metadata":'


def _head_of(first: View) -> bytes:
    """Return what stands before the metadata of an object with these fields before them, sorted."""
    return orjson.dumps(first, option=orjson.OPT_SORT_KEYS)[:-1] + _METADATA


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
