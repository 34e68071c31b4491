"""Codecs of built-in kinds, whose versions are Go types upstream."""

from collections.abc import Callable

from apiext.catalog.converted import place_of
from apiext.catalog.served import Codec
from apiext.catalog.splices import Splices, splice
from apiext.catalog.stored import Unreadable
from apiext.catalog.viewing import parse, stored_form, with_revision
from apiext.documents.document import Document, View
from apiext.documents.encoding import encode as encode_json
from apiext.documents.errors import DecodeError
from apiext.meta import objectmeta
from apiext.text.quotes import go_quote

Step = Callable[[View], Document]

_VERSIONS = frozenset(
    ("v1", "v1alpha1", "v1alpha2", "v1alpha3", "v1beta1", "v1beta2", "v1beta3", "v2", "v2beta1", "v2beta2")
)
"""All versions that built-in kinds have had; an object in any other version is unreadable."""


def typed_codec(api_version: str, kind: str, *, read: Step, own: Step, write: Step, same: bool) -> Codec:
    """Return the codec of one version of a built-in kind.

    ``read`` converts a stored object into the version's form. ``own`` does the same for an object that needs no
    defaults, since this codec has encoded it, or an earlier ``view`` changed nothing in it. ``write`` converts an
    object into the stored form. ``same`` is true if both forms are equal: then ``view`` only inserts the
    resourceVersion into most stored bytes (Splices).
    """
    splices = Splices()

    def decode(raw: bytes, revision: int) -> Document:
        stored = parse(raw)
        try:
            document = own(stored) if splices.has(raw) else read(_checked(stored, kind))
        except DecodeError as error:
            raise Unreadable(str(error), stored) from error
        metadata = objectmeta.repair(document.get("metadata") or {})
        return with_revision({**document, "apiVersion": api_version, "kind": kind, "metadata": metadata}, revision)

    def view(raw: bytes, revision: int) -> bytes:
        spliced = splices.view(raw, revision) if same else None
        if spliced is not None:
            return spliced
        document = decode(raw, revision)
        shown = encode_json(document)
        uid = document["metadata"].get("uid")
        place = place_of(raw, uid) if same else -1
        if place >= 0 and splice(raw, place, revision) == shown:
            splices.add(raw, uid)
        return shown

    def encode(document: Document) -> bytes:
        stored = stored_form(document)
        raw = encode_json(write(stored)) + b"\n"
        splices.add(raw, stored["metadata"].get("uid"))
        return raw

    return Codec(view, decode, encode, encode, splices.evict)


def _checked(stored: View, kind: str) -> View:
    """Return a stored object; raise DecodeError if its kind or version is unknown."""
    found, version = stored.get("kind"), stored.get("apiVersion")
    if found != kind or not isinstance(version, str) or version.rpartition("/")[2] not in _VERSIONS:
        raise DecodeError(
            f"no kind {go_quote(str(found or ''))} is registered for version {go_quote(str(version or ''))}"
        )
    return stored
