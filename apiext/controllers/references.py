"""Parser and edits of owner references, finalizers and managed fields in stored metadata."""

from collections.abc import Callable, Collection
from sys import intern
from typing import Any

import orjson
from msgspec import Struct

from apiext.documents.document import Document, View
from apiext.storage.store import Entry


class Reference(Struct, frozen=True):
    """An item of metadata.ownerReferences.

    ``blocking`` is its blockOwnerDeletion: if true, a foreground deletion of the owner waits for this dependent.
    """

    api_version: str
    kind: str
    name: str
    uid: str
    blocking: bool


def metadata_of(entry: Entry) -> dict[str, Any]:
    """Return the metadata of a stored object, {} if there is none."""
    metadata = orjson.loads(entry.raw).get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def references_of(metadata: View) -> tuple[Reference, ...]:
    """Return the owner references in metadata. Ignore references without a uid.

    Equal versions and kinds are interned, so that they share memory. Names and uids are not, since CPython 3.12 never
    frees interned strings.
    """
    listed = metadata.get("ownerReferences")
    return tuple(
        Reference(
            intern(str(one.get("apiVersion", ""))),
            intern(str(one.get("kind", ""))),
            str(one.get("name", "")),
            one["uid"],
            one.get("blockOwnerDeletion") is True,
        )
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and one.get("uid") and isinstance(one["uid"], str)
    )


Edit = Callable[[Document], None]
"""Changes the metadata of a stored object in place."""


def without_owners(uids: Collection[str]) -> Edit:
    """Return an edit that removes the references to these owners."""

    def edit(metadata: Document) -> None:
        kept = [
            one
            for one in metadata.get("ownerReferences") or ()
            if not (isinstance(one, dict) and one.get("uid") in uids)
        ]
        _put(metadata, "ownerReferences", kept, {"k:" + orjson.dumps({"uid": uid}).decode() for uid in uids})

    return edit


def without_finalizer(finalizer: str) -> Edit:
    """Return an edit that removes a finalizer."""

    def edit(metadata: Document) -> None:
        kept = [one for one in metadata.get("finalizers") or () if one != finalizer]
        _put(metadata, "finalizers", kept, {f"v:{orjson.dumps(finalizer).decode()}"})

    return edit


def unblocked(metadata: Document) -> None:
    """Set blockOwnerDeletion to false in all references, to break a foreground deletion cycle."""
    metadata["ownerReferences"] = [
        {**one, "blockOwnerDeletion": False} if isinstance(one, dict) and one.get("blockOwnerDeletion") else one
        for one in metadata.get("ownerReferences") or ()
    ]


def _put(metadata: Document, name: str, kept: list[Any], gone: set[str]) -> None:
    """Set a list in metadata, or remove it if it is empty.

    ``gone`` are the path elements of removed items, such as ``v:"example.com/a"``. Remove them from managedFields
    (SSA-007).
    """
    if kept:
        metadata[name] = kept
    else:
        metadata.pop(name, None)
    owners = metadata.get("managedFields")
    if isinstance(owners, list):
        left = [one for one in owners if not _disowned(one, f"f:{name}", gone, everything=not kept)]
        if left:
            metadata["managedFields"] = left
        else:
            metadata.pop("managedFields")


def _disowned(owner: Any, name: str, gone: set[str], *, everything: bool) -> bool:
    """Remove items of a list from the managed fields of a manager.

    Return True if the manager owns no more fields.
    """
    fields = owner.get("fieldsV1") if isinstance(owner, dict) else None
    if not isinstance(fields, dict):
        return False
    within = fields.get("f:metadata")
    if not isinstance(within, dict) or not isinstance(items := within.get(name), dict):
        return False
    for item in gone:
        items.pop(item, None)
    if everything or not items:
        del within[name]
    if not within.keys() - {"."}:
        del fields["f:metadata"]
    return not fields
