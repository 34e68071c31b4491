"""Decoding of stored values, descriptions of unreadable values, and changes of a cache."""

from sys import intern
from typing import Any

import orjson
from msgspec import Struct

from apiext.documents import cbor
from apiext.documents.encoding import decode_json, encode, json_kind
from apiext.storage import limits
from apiext.storage.encryption import PLAIN, EncryptedEntry, Secret
from apiext.storage.history import Change
from apiext.storage.store import Entry


class Broken(Struct, frozen=True):
    """A stored value that cannot be decoded or decrypted.

    ``last`` is the last readable state of the object, None if the cache had none. ``undecryptable`` is true if no
    configured key decrypts the value. ``lacking`` is true if no plug-in has decrypted the data key of the value yet.
    """

    revision: int
    reason: str
    last: Entry | None
    undecryptable: bool = False
    lacking: bool = False


def json_object(value: bytes) -> bytes:
    """Return the JSON of a stored value (JSON or CBOR); raise ValueError if it is not an object."""
    return _parsed(value)[0]


def custom_object(value: bytes) -> bytes:
    """Return the JSON of a stored custom resource.

    Raise ValueError if it is not an object or has no kind.
    """
    raw, document = _parsed(value, null_is_empty=True)
    kind = document.get("kind")
    if not kind or kind.__class__ is not str:
        shown = value[: limits.FAULT_BYTES].decode("utf-8", "replace")
        raise ValueError(f"Object 'Kind' is missing in '{shown}'")
    return raw


def _parsed(value: bytes, *, null_is_empty: bool = False) -> tuple[bytes, dict[str, Any]]:
    """Return the JSON of a stored value, and the parsed object; raise ValueError with Go's text."""
    if value.startswith(cbor.SELF_DESCRIBED):
        value = encode(cbor.decode(value)) + b"\n"
    try:
        document: Any = orjson.loads(value)
    # Unlike orjson, decode_json raises errors with Go's text, and accepts some more values, as Go does.
    except orjson.JSONDecodeError:
        document = decode_json(value)[0]
        value = encode(document) + b"\n"
    if isinstance(document, dict):
        return value, document
    if document is None and null_is_empty:
        return value, {}
    raise ValueError(f"json: cannot unmarshal {json_kind(document)} into Go value of type map[string]interface {{}}")


def secret_of(entry: Entry) -> Secret:
    """Return the key that has encrypted the stored value of an entry, PLAIN if none has."""
    return entry.secret if isinstance(entry, EncryptedEntry) else PLAIN


def entry_of(key: str, revision: int, raw: bytes) -> Entry:
    """Return an entry. ``key`` is namespace/name, or name, without the prefix of the collection."""
    namespace, _, name = key.rpartition("/")
    return Entry(intern(namespace), name, revision, raw)


def _uid_of(entry: Entry) -> Any:
    metadata = orjson.loads(entry.raw).get("metadata")
    return metadata.get("uid") if isinstance(metadata, dict) else None


def differences(
    before: dict[str, Entry], after: dict[str, Entry], broken: dict[str, Broken], revision: int
) -> list[Change]:
    """Return the changes between two states, ordered by revision.

    ``before`` and ``after`` contain the readable objects, ``broken`` the unreadable objects of the state after. An
    object in ``broken`` has no change. A recreated object has two changes: DELETED, then ADDED, with the revision of
    the new object. Other deletions have ``revision``.
    """
    found = [
        Change("DELETED", entry.with_revision(revision), entry, revision)
        for key, entry in before.items()
        if key not in after and key not in broken
    ]
    for key, entry in after.items():
        old = before.get(key)
        if old is not None and old.revision != entry.revision and _uid_of(old) != _uid_of(entry):
            found.append(Change("DELETED", old.with_revision(entry.revision), old, entry.revision))
            old = None
        if old is None or old.revision != entry.revision or old.raw != entry.raw:
            found.append(Change("ADDED" if old is None else "MODIFIED", entry, old, entry.revision))
    return sorted(found, key=lambda change: change.revision)
