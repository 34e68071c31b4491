"""A new object on its way into the store: by itself where nobody has to be asked about it, else with all who have."""

from collections.abc import Mapping

from apiext import limits
from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.catalog import viewing
from apiext.documents.document import Document
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.options import WriteOptions
from apiext.storage.collection import Collection
from apiext.storage.store import Entry, GuardChanged, KeyExists, Malformed, StoreError, TooLarge
from apiext.verbs import escalation, identity, judging, metadata, ownership, threads
from apiext.verbs.call import Call, Outcome, Verbs
from apiext.verbs.errors import as_status, translated
from apiext.verbs.guarded import OutdatedError, check_deadline, guard_of, holds, premise, refresh
from apiext.verbs.objects import (
    accepted,
    attributes_of,
    collection_of,
    is_revision,
    number,
    read_back,
    slimmer,
    warn_of_owners,
)

TERMINATING = "create not allowed while custom resource definition is terminating"


async def create(verbs: Verbs, call: Call, document: Document, options: WriteOptions) -> Outcome:
    """Store a new object; ``document`` is normalised. 403 under a terminating definition (DEL-004)."""
    identity.settle_namespace(call, document)
    warn_of_owners(call, document, admitted=False)
    if call.size < limits.OFF_LOOP and not call.served.converts and not call.served.slow(call.size):
        ownership.posted(call, document, options, verbs.clock())  # no rule, no other version: nothing to be tried again
    else:
        await threads.run(call, ownership.posted, call, document, options, verbs.clock())
    prefixed = bool(document["metadata"].get("generateName"))
    try:
        return await store_new(verbs, call, document, options)
    except KeyExists as taken:
        raise _taken(call, taken.current, prefixed) from taken


async def store_new(verbs: Verbs, call: Call, document: Document, options: WriteOptions, place: str = "") -> Outcome:
    """Admit, fill in, judge and store an object that has its owners; raises KeyExists and OutdatedError.

    ``place`` is the name that it is stored under, whatever admission calls it (upstream: Store.Update); empty: its own.
    """
    collection = collection_of(verbs, call)
    try:
        return await _admitted(verbs, call, collection, document, options, place)
    except GuardChanged as changed:
        await _look_again(verbs, call, changed)
        raise OutdatedError from changed


async def _admitted(
    verbs: Verbs, call: Call, collection: Collection, document: Document, options: WriteOptions, place: str
) -> Outcome:
    """Admit and store an object, under a generated name if it has none."""
    attributes = attributes_of(call, "CREATE", options, document, None)
    new = await _prepared(verbs, call, document, attributes, place)
    generated = not new["metadata"].get("name") and bool(new["metadata"].get("generateName"))
    if place:
        number(new["metadata"].get("resourceVersion") or "")
        if generated:
            raise status.internal("metadata.name was not generated")
    attempts = limits.CREATE_NAME_ATTEMPTS if generated else 1
    while True:
        if call.resource.terminating:
            raise status.forbidden(call.served.group_resource, new["metadata"].get("name", ""), TERMINATING)
        attempts -= 1
        if generated:
            new["metadata"]["name"] = metadata.generate_name(new["metadata"]["generateName"])
            new = call.served.named(new)
        await threads.run(call, judging.judge, call, new, None)
        escalation.may_create(verbs, call)
        attributes.new, attributes.name = new, call.name or str(new["metadata"].get("name", ""))
        await verbs.admission.review(attributes)
        try:
            return await _commit(verbs, call, collection, new, attributes, place)
        except KeyExists:
            if attempts == 0:
                raise


async def _prepared(verbs: Verbs, call: Call, document: Document, attributes: Attributes, place: str) -> Document:
    """Run the mutating half of a create: admission, system metadata, the endpoint's own rules.

    An apply or a PUT that creates loses the marks of a deletion here, after admission (upstream: Store.Update); a POST
    has lost them before.
    """
    owned = document
    document = await verbs.admission.mutate(attributes, document)
    call.size = max(call.size, attributes.size)
    if document is not owned:
        identity.settle_namespace(call, document)
    ownership.check_admitted(call, owned, document)
    if verbs.policy is not None:
        await escalation.judge(verbs, verbs.policy, call, document, None)
    warn_of_owners(call, document)
    if place:
        metadata.wipe(document)
    metadata.fill_on_create(document, verbs.clock())
    return call.endpoint.prepared(document, None, attributes.dry_run)


async def _commit(
    verbs: Verbs, call: Call, collection: Collection, new: Document, attributes: Attributes, place: str
) -> Outcome:
    """Store an admitted object, or tell what would have been stored."""
    name = place or new["metadata"]["name"]
    if call.verb == "patch":
        new = await threads.run(call, accepted, call, new)
    if attributes.dry_run:
        namespace = new["metadata"].get("namespace", "")
        with translated():
            try:
                existing = await verbs.store.current(collection, namespace, name)
            except Malformed as error:  # upstream: no conflict, though the create would meet one
                existing = Entry(namespace, name, error.revision, b"")
        if existing is not None:
            raise KeyExists(existing)
        if not await holds(verbs, call):
            raise GuardChanged(call.resource.guard_key)
        revision = new["metadata"].get("resourceVersion")
        return Outcome(201, document=await threads.run(call, read_back, call, new, revision))
    if not place and is_revision(new["metadata"].get("resourceVersion") or ""):
        raise status.unknown("resourceVersion should not be set on objects to be created")
    new["metadata"].pop("resourceVersion", None)
    raw = await threads.encoded(call, new)
    return await _put(verbs, call, collection, (new, raw), name, attributes.traces.premises)


async def _put(
    verbs: Verbs,
    call: Call,
    collection: Collection,
    made: tuple[Document, bytes],
    name: str,
    premises: Mapping[str, int],
) -> Outcome:
    """Store a new object and its bytes; once more without owners if that is too large (WRI-023)."""
    new, raw = made
    namespace = new["metadata"].get("namespace", "")
    try:
        guard, also = guard_of(call.resource), premise(verbs, premises)
        entry = await verbs.store.create(collection, namespace, name, raw, guard, also)
    except (GuardChanged, KeyExists):
        raise
    except StoreError as error:
        if isinstance(error, TooLarge) and call.verb != "patch" and slimmer(new):
            made = new, await threads.encoded(call, new)
            return await _put(verbs, call, collection, made, name, premises)
        raise as_status(error) from error
    return Outcome(201, entry=entry)


async def _look_again(verbs: Verbs, call: Call, changed: GuardChanged) -> None:
    """Have the newest definition, or the newest namespace, before a create is tried again from its body."""
    if changed.key == call.resource.guard_key:
        await refresh(verbs, call)
    else:
        with translated():
            await verbs.store.fresh(verbs.store.collection(NAMESPACES))
        check_deadline(verbs, call)


def _taken(call: Call, current: Entry, prefixed: bool) -> status.StatusError:
    """409 for a name that is taken; ``prefixed``: the object has a generateName, whoever chose the name."""
    if prefixed:  # upstream: of the group that it is stored in
        stored = GroupResource(call.served.stored_resource.group, call.served.resource)
        error = status.generate_name_conflict(stored, current.name)
    else:
        error = status.already_exists(call.served.group_resource, current.name)
    metadata = viewing.parse(current.raw).get("metadata") if current.raw else None
    if isinstance(metadata, dict) and metadata.get("deletionTimestamp"):  # others may store anything
        error.message = f"object is being deleted: {error.message}"  # WRI-022
    return error
