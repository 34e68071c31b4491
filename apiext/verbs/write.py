"""The one write loop: read, change, judge, commit, and again when somebody came between."""

from collections.abc import Callable
from dataclasses import dataclass

from apiext import limits
from apiext.admission.attributes import NAMESPACES, Attributes, Traces
from apiext.catalog import viewing
from apiext.catalog.accessors import AccessorError
from apiext.documents.document import Document, View
from apiext.meta import fields, status
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions, WriteOptions
from apiext.storage.collection import Collection
from apiext.storage.readplan import parse_revision
from apiext.storage.store import Entry, GuardChanged, KeyExists, RevisionChanged, StoreError, TooLarge
from apiext.verbs import escalation, identity, judging, metadata, ownership, threads
from apiext.verbs.call import Call, Outcome, Verbs
from apiext.verbs.changes import Change
from apiext.verbs.errors import as_status, invalid_object, of_store, translated
from apiext.verbs.guarded import OutdatedError, check_deadline, guard_of, holds, premise, reconsider, refresh

TERMINATING = "create not allowed while custom resource definition is terminating"


@dataclass(slots=True)
class Update:
    """An update under way: what is asked, by which change, and what the store is known to hold."""

    call: Call
    change: Change
    options: WriteOptions
    uid: str = ""  # precondition of a PUT
    unconditional: bool = False  # an empty resourceVersion is no error (scale)
    applied: bool = False  # the change settles who owns what
    creation: Callable[[], Document] | None = None  # makes the object of an apply where there is none
    moments: int = 0  # of admission that are over, when there is nothing to do in them


def collection_of(verbs: Verbs, call: Call) -> Collection:
    """Return the cache of the call's resource; 404 when the definition went away."""
    found = verbs.store.collection(call.served.stored_resource)
    if found is None:
        raise status.resource_not_found()
    return found


async def create(verbs: Verbs, call: Call, document: Document, options: WriteOptions) -> Outcome:
    """Store a new object; ``document`` is normalised. 403 under a terminating definition (DEL-004)."""
    identity.settle_namespace(call, document)
    warn_of_owners(call, document, admitted=False)
    await threads.run(call, ownership.posted, call, document, options, verbs.clock())
    prefixed = bool(document["metadata"].get("generateName"))
    try:
        return await _store_new(verbs, call, document, options, "")
    except KeyExists as taken:
        raise _taken(call, taken.current, prefixed) from taken


def _generated(document: View) -> bool:
    return not document["metadata"].get("name") and bool(document["metadata"].get("generateName"))


async def _store_new(verbs: Verbs, call: Call, document: Document, options: WriteOptions, place: str) -> Outcome:
    """Admit, fill in, judge and store an object that has its owners; raises KeyExists.

    ``place`` is the name that it is stored under, whatever admission calls it (upstream: Store.Update); empty: its own.
    """
    collection = collection_of(verbs, call)
    attributes = attributes_of(call, "CREATE", options, document, None)
    new = await _prepared(verbs, call, document, attributes)
    generated = _generated(new)
    if place:
        _number(new["metadata"].get("resourceVersion") or "")
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
        if not verbs.admission.still("validate", "CREATE", call.served.group_resource):
            await verbs.admission.review(attributes)
        try:
            return await _commit_create(verbs, call, collection, new, attributes, place)
        except GuardChanged as changed:
            await _look_again(verbs, call, changed)
            raise OutdatedError from changed
        except KeyExists:
            if attempts == 0:
                raise


async def _look_again(verbs: Verbs, call: Call, changed: GuardChanged) -> None:
    """Have the newest definition, or the newest namespace, before a create is tried again from its body."""
    if changed.key == call.resource.guard_key:
        await refresh(verbs, call)
    else:
        with translated():
            await verbs.store.fresh(verbs.store.collection(NAMESPACES))
        check_deadline(verbs, call)


async def _prepared(verbs: Verbs, call: Call, document: Document, attributes: Attributes) -> Document:
    """Run the mutating half of a create: admission, system metadata, the endpoint's own rules."""
    owned = document
    document = await verbs.admission.mutate(attributes, document)
    if document is not owned:
        identity.settle_namespace(call, document)
    ownership.check_admitted(call, owned, document)
    if verbs.policy is not None:
        await escalation.judge(verbs, verbs.policy, call, document, None)
    warn_of_owners(call, document)
    metadata.fill_on_create(document, verbs.clock())
    return call.endpoint.prepare(document, None)


def _is_revision(text: str) -> bool:
    """upstream: what is no number is no revision, and neither is 0."""
    try:
        return parse_revision(text) > 0
    except ValueError:
        return False


def _number(revision: str) -> int:
    """Return a resourceVersion as a number; 500 for what is none."""
    try:
        return parse_revision(revision)
    except ValueError as error:
        raise status.unknown(str(error)) from error


async def _commit_create(
    verbs: Verbs, call: Call, collection: Collection, new: Document, attributes: Attributes, place: str
) -> Outcome:
    namespace, name = new["metadata"].get("namespace", ""), place or new["metadata"]["name"]
    if call.verb == "patch":
        new = await threads.run(call, call.served.accept, new)
    if attributes.dry_run:
        with translated():
            existing = await verbs.store.current(collection, namespace, name)
        if existing is not None:
            raise KeyExists(existing)
        if not await holds(verbs, call):
            raise GuardChanged(call.resource.guard_key)
        revision = new["metadata"].get("resourceVersion")
        return Outcome(201, document=await threads.run(call, _read_back, call, new, revision))
    if not place and _is_revision(new["metadata"].get("resourceVersion") or ""):
        raise status.unknown("resourceVersion should not be set on objects to be created")
    new["metadata"].pop("resourceVersion", None)
    raw = await threads.encoded(call, new)
    try:
        guard, also = guard_of(call.resource), premise(verbs, attributes)
        entry = await verbs.store.create(collection, namespace, name, raw, guard, also)
    except (GuardChanged, KeyExists):
        raise
    except StoreError as error:
        if isinstance(error, TooLarge) and call.verb != "patch" and _slimmer(new):
            return await _commit_create(verbs, call, collection, new, attributes, place)
        raise as_status(error) from error
    return Outcome(201, entry=entry)


def _read_back(call: Call, new: Document, resource_version: object = None) -> Document:
    """Return what a read would show of an object: defaults that reads add, without what its storage version lacks."""
    shown = call.served.decode(call.served.encode(new), 0)
    shown["metadata"].pop("resourceVersion", None)
    if resource_version:
        shown["metadata"]["resourceVersion"] = resource_version
    return shown


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


async def update(verbs: Verbs, wanted: Update) -> Outcome:
    """Apply the change to whatever is stored, until nobody came between or the deadline is over."""
    call = wanted.call
    identity.check_segment(call.name)
    collection = collection_of(verbs, call)
    namespace = call.namespace or ""
    entry, newest = collection.cached(namespace, call.name), False
    while True:
        if entry is None:
            if not newest:
                with translated():
                    entry, newest = await verbs.store.current(collection, namespace, call.name), True
                continue
            if wanted.creation is None:
                raise status.not_found(call.served.group_resource, call.name)
            _check_uid(verbs, wanted, {"metadata": {}})
            if isinstance(made := await _made(verbs, wanted, wanted.creation), Outcome):
                return made
            entry = made
            check_deadline(verbs, call)
            continue
        try:
            return await _attempt(verbs, wanted, collection, entry)
        except RevisionChanged as race:
            entry, newest = race.current, True
        except GuardChanged:
            await _renew(verbs, call)
        except (StaleError, status.StatusError) as fault:
            if of_store(fault):
                raise
            if not newest:
                before = entry.revision
                with translated():
                    entry, newest = await verbs.store.current(collection, namespace, call.name), True
                if entry is None or entry.revision != before:
                    check_deadline(verbs, call)
                    continue
            if await holds(verbs, call):  # it was not stale: webhooks are asked once
                if isinstance(fault, StaleError):
                    return fault.outcome
                raise
            await _renew(verbs, call)
        check_deadline(verbs, call)


async def _made(verbs: Verbs, wanted: Update, creation: Callable[[], Document]) -> Outcome | Entry | None:
    """Store the object that an apply makes; what somebody else made meanwhile, None to try by a newer definition."""
    call = wanted.call
    try:
        return await _store_new(verbs, call, await threads.run(call, creation), wanted.options, call.name)
    except KeyExists as race:
        return race.current
    except (OutdatedError, status.StatusError) as fault:
        if await reconsider(verbs, call, fault):
            return None
        raise


async def _renew(verbs: Verbs, call: Call) -> None:
    """Have the newest definition before a change is tried again; the body of a PUT is read again by it."""
    await refresh(verbs, call)
    if call.verb == "update":
        raise OutdatedError


class StaleError(Exception):
    """The answer would rest on what no transaction has compared, and may be old: look at the store first."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


async def _attempt(verbs: Verbs, wanted: Update, collection: Collection, entry: Entry) -> Outcome:
    """One turn of the loop: decide on this state, then commit if the store still holds it."""
    call = wanted.call
    call.size = max(call.size, len(entry.raw))
    decide = _alone if _is_quiet(verbs, wanted) else _with_others
    new, raw = await decide(verbs, wanted, entry)
    if raw is None:
        return await _remove(verbs, wanted, collection, entry, new)
    shown = await threads.run(call, _read_back, call, new) if call.endpoint.kind or wanted.options.dry_run else new
    if raw == entry.raw and not collection.stale(entry):  # upstream: a no-op write keeps its resourceVersion
        raise StaleError(_answer(call, entry, shown, wanted.options.dry_run))
    if wanted.options.dry_run:
        raise StaleError(Outcome(200, document=_shown(call, shown, entry.revision)))
    stored = await _stored(verbs, wanted, collection, (entry, raw), new)
    return _answer(call, stored, shown, dry_run=False)


async def _stored(
    verbs: Verbs, wanted: Update, collection: Collection, state: tuple[Entry, bytes], new: Document
) -> Entry:
    """Replace an entry by the new object and its bytes; once more without owners if that is too large (WRI-023)."""
    call, (entry, raw) = wanted.call, state
    try:
        return await verbs.store.update(
            collection, entry.namespace, entry.name, raw, entry.revision, guard_of(call.resource)
        )
    except (RevisionChanged, GuardChanged):
        raise
    except StoreError as error:
        if isinstance(error, TooLarge) and not wanted.applied and _slimmer(new):
            return await _stored(verbs, wanted, collection, (entry, await threads.encoded(call, new)), new)
        raise as_status(error) from error


def _slimmer(new: Document) -> bool:
    """Drop who owns what from an object that the store finds too large; tell whether there was something to drop."""
    return new["metadata"].pop("managedFields", None) is not None


def _may_go(call: Call, new: View) -> bool:
    """A namespace stays until its own finalizers are gone, too (NSP-005)."""
    return not (call.served.typed and new.get("kind") == "Namespace" and (new.get("spec") or {}).get("finalizers"))


async def _remove(verbs: Verbs, wanted: Update, collection: Collection, entry: Entry, new: Document) -> Outcome:
    """The last finalizer is gone: delete instead of writing (WRI-009)."""
    call = wanted.call
    if wanted.options.dry_run:
        raise StaleError(Outcome(200, document=_shown(call, new, entry.revision)))
    try:
        await verbs.store.delete(collection, entry.namespace, entry.name, entry.revision)
    except RevisionChanged:
        raise
    except StoreError as error:
        raise as_status(error) from error
    return Outcome(200, document=_shown(call, new, entry.revision))


def _answer(call: Call, entry: Entry, new: Document, dry_run: bool) -> Outcome:
    if dry_run or call.endpoint.kind:
        return Outcome(200, document=_shown(call, new, entry.revision))
    return Outcome(200, entry=entry)


def _shown(call: Call, new: Document, revision: int) -> Document:
    shown = dict(call.endpoint.project(new))
    shown["metadata"] = {**shown["metadata"], "resourceVersion": str(revision)}
    return shown


def _asked(verbs: Verbs, wanted: Update, entry: Entry) -> tuple[Document, View, Document]:
    """Return the stored object, what the endpoint shows of it, and that as the client wants it, with its owners."""
    call, raw = wanted.call, entry.raw
    old = call.served.decode(raw, entry.revision)
    call.exact = not call.endpoint.kind and call.served.exact(raw)
    shown = identity.projected(call.endpoint, old)
    if call.endpoint.kind:
        shown = ownership.with_owners(call, shown, old)
    _check_uid(verbs, wanted, old)
    asked = wanted.change(shown)
    if not wanted.applied:
        ownership.follow(call, shown, asked, wanted.options, verbs.clock())
    return old, shown, asked


def _is_quiet(verbs: Verbs, wanted: Update) -> bool:
    """Tell whether nobody else has to be asked about a change, so that it is decided in one go."""
    served = wanted.call.served
    if verbs.policy is not None or served.converts:
        return False
    return verbs.admission.spares("UPDATE", served.group_resource)


async def _alone(verbs: Verbs, wanted: Update, entry: Entry) -> tuple[Document, bytes | None]:
    """Return the object to store and its bytes, None when it is to go instead; nobody is asked on the way."""
    try:
        return await threads.run(wanted.call, _decided_alone, verbs, wanted, entry)
    finally:
        for moment in _MOMENTS[: wanted.moments]:
            verbs.admission.passed(moment, "UPDATE")


_MOMENTS = ("admit", "validate")


def _decided_alone(verbs: Verbs, wanted: Update, entry: Entry) -> tuple[Document, bytes | None]:
    wanted.moments = 0  # it may be done again
    old, _, asked = _asked(verbs, wanted, entry)
    wanted.moments = 1
    new = _decided(wanted, old, asked, entry.revision)
    wanted.moments = 2
    return _final(wanted, old, new)


async def _with_others(verbs: Verbs, wanted: Update, entry: Entry) -> tuple[Document, bytes | None]:
    """Return the object to store and its bytes, None when it is to go instead; admission and roles have their say."""
    call = wanted.call
    old, shown_before, owned = await threads.run(call, _asked, verbs, wanted, entry)
    shown, attributes = owned, None
    if not verbs.admission.still("admit", "UPDATE", call.served.group_resource):
        attributes = attributes_of(call, "UPDATE", wanted.options, shown, shown_before)
        shown = await verbs.admission.mutate(attributes, shown)
        ownership.check_admitted(call, owned, shown)
    if verbs.policy is not None:
        await escalation.judge(verbs, verbs.policy, call, shown, shown_before)
    new = await threads.run(call, _decided, wanted, old, shown, entry.revision)
    if attributes is not None or not verbs.admission.still("validate", "UPDATE", call.served.group_resource):
        attributes = attributes or attributes_of(call, "UPDATE", wanted.options, shown, shown_before)
        attributes.new = call.endpoint.project(new)
        if call.endpoint.kind:
            attributes.old = call.endpoint.project(old)  # upstream: only who may change a Scale sees its owners
        await verbs.admission.review(attributes)
    new, raw = await threads.run(call, _final, wanted, old, new)
    if call.served.converts and raw is not None:  # what the webhook cannot show is not written, as in threads.encoded
        await threads.run(call, call.served.view, raw, 0)
    return new, raw


def _decided(wanted: Update, old: View, shown: Document, revision: int) -> Document:
    """Return the whole object, judged; what is put back twice, since judging took long, is the same as once."""
    warn_of_owners(wanted.call, shown)  # upstream warns also of what is refused then
    _check_revision(wanted, shown, revision)
    call = wanted.call
    if not call.endpoint.kind:
        identity.settle_namespace(call, shown)  # upstream: rest.BeforeUpdate, which sees no Scale
    new = _put_back(wanted, old, shown)
    judging.judge(call, new, old)  # upstream: nobody has filled in defaults of a part that a scale has made
    reads = call.endpoint.kind and call.served is call.resource.storage
    return call.served.complete(new) if reads else new


def _final(wanted: Update, old: View, new: Document) -> tuple[Document, bytes | None]:
    """Return the object to store and its bytes, None when it goes, as the last finalizer has gone (WRI-009)."""
    call = wanted.call
    # upstream: an untyped map takes fields that no read shows; they were judged and counted
    if wanted.applied or (call.endpoint.kind and call.served is call.resource.storage):  # so does a scale
        new = call.served.accept(new)
    new["metadata"].pop("resourceVersion", None)
    if old["metadata"].get("deletionTimestamp") and not metadata.finalizers(new) and _may_go(call, new):
        return new, None
    return new, (call.served.encode_formed or call.served.encode)(new)


def _put_back(wanted: Update, old: View, shown: Document) -> Document:
    """Return the whole object with what was shown of it put back, and with what only the server may set."""
    call = wanted.call
    try:
        new = call.endpoint.embed(old, shown)
    except AccessorError as error:
        raise status.unknown(str(error)) from error
    except ValueError as error:
        raise status.bad_request(str(error)) from error
    new["metadata"] = dict(new["metadata"])
    metadata.fill_on_update(new, old)
    if call.endpoint.kind:
        ownership.put_back(call, old, shown, new)
    new = call.endpoint.prepare(new, old)
    ownership.settle(call.served, new, old)
    new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]  # rules compare metadata and all
    return new


def _check_uid(verbs: Verbs, wanted: Update, old: View) -> None:
    """409 when a PUT means another object of that name (ERR-06)."""
    uid = old["metadata"].get("uid", "")
    if not wanted.uid or wanted.uid == uid:
        return
    resource = wanted.call.served.group_resource
    key = verbs.store.keys.object(wanted.call.served.stored_resource, wanted.call.namespace or "", wanted.call.name)
    if wanted.options.dry_run:
        key = f"/{key.removeprefix(verbs.store.keys.root)}"  # upstream: nobody has added the prefix by then
    fault = f"Precondition failed: UID in precondition: {wanted.uid}, UID in object meta: {uid}"
    raise status.conflict(resource, wanted.call.name, invalid_object(key, fault))


def _check_revision(wanted: Update, shown: View, revision: int) -> None:
    """The optimistic lock of PUT and of patches that carry a resourceVersion (WRI-005, UPD-004)."""
    call = wanted.call
    given = shown["metadata"].get("resourceVersion") or ""
    if given == str(revision):
        return
    number = _number(given)
    if number == revision or (not number and (call.served.unconditional or (wanted.unconditional and not given))):
        return
    if not number:
        wrong = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise status.invalid(call.served.group_resource, call.name, [wrong])
    raise status.conflict(call.served.group_resource, call.name, status.MODIFIED)


def warn_of_owners(call: Call, document: Document, admitted: bool = True) -> None:
    """Drop owners that are named twice and tell of them; bodies are looked at before admission, too (WRI-015)."""
    doubles = metadata.dedup_owners(document)
    if doubles:
        after = " after mutating admission happens" if admitted else ""
        text = (
            f".metadata.ownerReferences contains duplicate entries{after}; API server dedups owner references in "
            "1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) "
            f"observed: {', '.join(doubles)}"
        )
        if text not in call.warnings:  # a change may be made several times
            call.warnings.append(text)


def attributes_of(
    call: Call, operation: str, options: WriteOptions | DeleteOptions, new: View | None, old: View | None
) -> Attributes:
    """Return a write as admission sees it."""
    served = call.served
    name = call.name or str(((new or {}).get("metadata") or {}).get("name", ""))
    return Attributes(
        operation, served.group_resource, served.version, served.group_kind, call.endpoint.name,
        call.namespace, name, call.user, options.dry_run, new, old,
        options, served, call.resource, call.deadline, Traces(call.warnings, call.annotations), call.size,
    )  # fmt: skip
