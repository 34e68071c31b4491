"""Codecs of resources that are Go types upstream: what is stored, and what a version of the API shows."""

from collections.abc import Callable

from apiext.catalog.viewing import Codec, Splices, parse, place_of, splice, with_revision
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode as encode_json
from apiext.meta import objectmeta

Step = Callable[[View], Document]


def typed_codec(api_version: str, kind: str, *, read: Step, own: Step, write: Step, same: bool) -> Codec:
    """Return the closures of a typed version.

    ``read`` turns what anybody stored into the version's form, ``own`` does so with what this codec wrote, and
    ``write`` turns it back; ``same`` tells that both are one form, so that stored bytes may be spliced.
    """
    splices = Splices()

    def decode(raw: bytes, revision: int) -> Document:
        stored = parse(raw)
        document = own(stored) if splices.knows(raw) else read(stored)
        metadata = objectmeta.repair(document.get("metadata") or {})
        return with_revision({**document, "apiVersion": api_version, "kind": kind, "metadata": metadata}, revision)

    def view(raw: bytes, revision: int) -> bytes:
        known = splices.view(raw, revision) if same else None
        if known is not None:
            return known
        document = decode(raw, revision)
        shown = encode_json(document)
        uid = document["metadata"].get("uid")
        place = place_of(raw, uid) if same else -1
        if place >= 0 and splice(raw, place, revision) == shown:
            splices.note(raw, uid)
        return shown

    def encode(document: Document) -> bytes:
        metadata = objectmeta.repair(document.get("metadata") or {})
        metadata.pop("resourceVersion", None)
        metadata.pop("selfLink", None)
        raw = encode_json(write({**document, "metadata": metadata})) + b"\n"
        splices.note(raw, metadata.get("uid"))
        return raw

    return Codec(view, decode, encode, lambda document: document)
