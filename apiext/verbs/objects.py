"""Common steps of writes, for example for admission and for fields that a version hides."""

from collections.abc import Callable

from apiext.admission.attributes import Attributes, Traces
from apiext.catalog import viewing
from apiext.documents.document import Document, View
from apiext.managedfields import hidden
from apiext.managedfields.fieldset import EMPTY, FieldSet
from apiext.meta import status
from apiext.meta.options import DeleteOptions, WriteOptions
from apiext.storage.collection import Collection
from apiext.storage.readplan import parse_revision
from apiext.verbs import metadata, threads
from apiext.verbs.call import Call, Verbs


def collection_of(verbs: Verbs, call: Call) -> Collection:
    """Return the cache of the call's resource. Raise a 404 if the definition was deleted."""
    found = verbs.store.collection(call.served.names.stored_resource)
    if found is None:
        raise status.resource_not_found()
    return found


def is_revision(text: str) -> bool:
    """Return whether a resourceVersion is a number over 0, which upstream treats as a revision."""
    try:
        return parse_revision(text) > 0
    except ValueError:
        return False


def number(revision: str) -> int:
    """Return a resourceVersion as a number; raise a 500 if it is not a number."""
    try:
        return parse_revision(revision)
    except ValueError as error:
        raise status.unknown(str(error)) from error


def read_back(call: Call, new: Document, resource_version: object = None) -> Document:
    """Return an object as a read would return it after the write.

    The result has defaults, and no fields of other versions.
    """
    shown = call.served.codec.decode(call.served.codec.encode(new), 0)
    shown["metadata"].pop("resourceVersion", None)
    if resource_version:
        shown["metadata"]["resourceVersion"] = resource_version
    return shown


def accepted(call: Call, new: Document) -> Document:
    """Prune an object that no decoder has pruned.

    Return an object of another version unchanged: encoding converts it to the storage version and prunes it there.
    """
    return call.served.shaping.accept(new) if call.served.names.version == call.resource.storage_version else new


def with_hidden(
    call: Call, raw: bytes, shown: View, new: Document, deleted: Callable[[], FieldSet] = lambda: EMPTY
) -> Document:
    """Return a changed object with the stored fields that the version of the call does not have.

    ``raw`` are the stored bytes, and ``shown`` is the object in the version of the call. ``deleted()`` returns hidden
    paths that the write deletes. Fields are hidden only by the conversion strategy None. A conversion webhook converts
    the complete object, and the conversion of a built-in kind keeps all fields.
    """
    versions = call.resource.all_versions
    if len(versions) < 2 or call.served.codec.converts or call.served.model.typed:
        return new
    if raw.startswith(f'{{"apiVersion":"{call.served.names.api_version}"'.encode()):
        return new  # the object is stored in this version
    stored = viewing.parse(raw)
    source = versions.get(str(stored.get("apiVersion")).rpartition("/")[2])
    if source is None or source is call.served:
        return new
    return accepted(
        call, hidden.restore(source.model.merge_type(), source.shaping.accept(stored), shown, new, deleted())
    )


async def without_managed_fields(call: Call, new: Document) -> bytes | None:
    """Delete managedFields of an object that the store rejects as too large.

    Return the bytes of the object. Return None if the object has no managedFields.
    """
    if new["metadata"].pop("managedFields", None) is None:
        return None
    return await threads.encoded(call, new)


def absent(call: Call) -> status.StatusError:
    """Return the 404 for the call's object.

    If the store has confirmed that the object does not exist, the caller raises it ``from RevisionChanged(None)``. Then
    ``commit`` does not read the store again.
    """
    return status.not_found(call.served.names.group_resource, call.name)


def warn_of_owners(call: Call, document: Document, admitted: bool = True) -> None:
    """Delete duplicate ownerReferences, with a warning (WRI-015).

    ``admitted`` is false for the check of a request body before admission.
    """
    doubles = metadata.dedup_owners(document)
    if doubles:
        after = " after mutating admission happens" if admitted else ""
        text = (
            f".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in "
            "1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) "
            f"observed: {', '.join(doubles)}"
        )
        if text not in call.warnings:  # a write may be retried
            call.warnings.append(text)


def attributes_of(
    call: Call, operation: str, options: WriteOptions | DeleteOptions, new: View | None, old: View | None
) -> Attributes:
    """Return the attributes of a write for admission."""
    served = call.served
    name = call.name or str(((new or {}).get("metadata") or {}).get("name", ""))
    return Attributes(
        operation, served.names.group_resource, served.names.version, served.names.group_kind, call.endpoint.name,
        call.namespace, name, call.user, options.dry_run, new, old,
        options, served, call.resource, call.deadline,
        Traces(call.warnings, call.annotations, on_end=call.settled), call.size,
    )  # fmt: skip
