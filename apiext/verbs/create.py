"""Create: validate and store a new object."""

from functools import partial

from apiext import limits as server_limits
from apiext.admission.attributes import Attributes
from apiext.catalog import viewing
from apiext.documents.document import Document
from apiext.meta import status
from apiext.meta.generated_names import generate_name
from apiext.meta.names import GroupResource
from apiext.meta.options import WriteOptions
from apiext.storage.store import Entry, KeyExists, Malformed
from apiext.verbs import escalation, identity, limits, metadata, ownership, threads, validation
from apiext.verbs.call import Call, Outcome, Verbs
from apiext.verbs.commit import Decision, Put, Unconfirmed
from apiext.verbs.errors import translated
from apiext.verbs.guarded import guards_of
from apiext.verbs.objects import (
    accepted,
    attributes_of,
    collection_of,
    is_revision,
    number,
    read_back,
    warn_of_owners,
    without_managed_fields,
)

TERMINATING = "create not allowed while custom resource definition is terminating"


class Creation:
    """A create in progress.

    Admission mutates the object once; each attempt may have another generated name.
    """

    def __init__(self, verbs: Verbs, call: Call, document: Document, options: WriteOptions) -> None:
        """Begin the create of a normalized document."""
        self._verbs = verbs
        self._call = call
        self._document = document
        self._attributes = attributes_of(call, "CREATE", options, document, None)
        self._options = options
        self._new: Document | None = None  # the object after admission
        self._generates = False
        self._attempts = 1  # remaining attempts to create the object

    async def decide(self, entry: Entry | None) -> Decision:
        """Decide on the create.

        ``entry`` is the object that already has the name of the last attempt, or None. Raise a 409 if there is such an
        object and no attempt remains. Raise a 403 if the definition is terminating (DEL-004), and the errors of
        admission and validation.
        """
        call = self._call
        if entry is not None and not self._attempts:
            prefixed = bool(self._document["metadata"].get("generateName"))
            raise _taken(call, entry, prefixed=prefixed) from KeyExists(entry)
        if self._new is None:
            await self._claim()
            self._new = await mutated(self._verbs, call, self._document, self._attributes)
            if not self._new["metadata"].get("name") and self._new["metadata"].get("generateName"):
                self._generates, self._attempts = True, limits.CREATE_NAME_ATTEMPTS
        self._attempts -= 1
        if self._generates and not call.resource.definition.terminating:
            self._new["metadata"]["name"] = generate_name(self._new["metadata"]["generateName"])
            self._new = call.served.shaping.named(self._new)
        return await admitted(self._verbs, call, self._new, self._attributes)

    async def _claim(self) -> None:
        """Set the namespace and the managedFields of the document."""
        verbs, call, document = self._verbs, self._call, self._document
        identity.settle_namespace(call, document)
        warn_of_owners(call, document, admitted=False)
        if (
            call.size < server_limits.WORK_INLINE
            and not call.served.codec.converts
            and not call.served.work.slow(call.size)
        ):
            ownership.claim_posted(call, document, self._options, verbs.clock())  # short work needs no thread
        else:
            await threads.run(call, ownership.claim_posted, call, document, self._options, verbs.clock())


async def decide_at(verbs: Verbs, call: Call, document: Document, options: WriteOptions) -> Decision:
    """Decide on an apply or a PUT that creates an object.

    The document already has its managedFields. The URL determines the namespace and name of the stored object.
    """
    attributes = attributes_of(call, "CREATE", options, document, None)
    new = await mutated(verbs, call, document, attributes, call.name)
    number(new["metadata"].get("resourceVersion") or "")
    if not new["metadata"].get("name") and new["metadata"].get("generateName"):
        raise status.internal("metadata.name was not generated")
    return await admitted(verbs, call, new, attributes, call.name)


async def mutated(verbs: Verbs, call: Call, document: Document, attributes: Attributes, place: str = "") -> Document:
    """Run the mutating half of a create: mutating plug-ins, system metadata, Endpoint.prepare.

    ``place`` is the name in the URL of an apply or a PUT, empty for a POST. For an apply or a PUT, the system metadata
    that the client sent is deleted after admission (upstream: Store.Update). A POST deletes it before.
    """
    owned = document
    document = await verbs.admission.mutate(attributes, document)
    call.size = max(call.size, attributes.size)
    if document is not owned:
        identity.settle_namespace(call, document)
    ownership.check_admitted(call, owned, document)
    if verbs.policy is not None:
        await escalation.check(verbs, verbs.policy, call, document, None)
    warn_of_owners(call, document)
    if place:
        metadata.wipe(document)
    metadata.fill_on_create(document, verbs.clock())
    if call.endpoint.sign is not None:
        user = call.user
        call.endpoint.sign(document, user.name, user.uid, user.groups, dict(user.extra))
    return call.endpoint.prepared(document, None, attributes.dry_run)


async def admitted(verbs: Verbs, call: Call, new: Document, attributes: Attributes, place: str = "") -> Decision:
    """Run the validating half of a create, and return the decision to store the object.

    ``place`` is the name under which the object is stored, even if admission renames the object (upstream:
    Store.Update). If ``place`` is empty, the object's own name is used.
    """
    if call.resource.definition.terminating:
        raise status.forbidden(call.served.names.group_resource, new["metadata"].get("name", ""), TERMINATING)
    await threads.run(call, validation.validate, call, new, None)
    escalation.may_create(verbs, call)
    attributes.new, attributes.name = new, call.name or str(new["metadata"].get("name", ""))
    await verbs.admission.review(attributes)
    if call.verb == "patch":
        new = await threads.run(call, accepted, call, new)
    key = new["metadata"].get("namespace", ""), place or new["metadata"]["name"]
    if attributes.dry_run:
        return await _previewed(verbs, call, new, key)
    if not place and is_revision(new["metadata"].get("resourceVersion") or ""):
        raise status.unknown("resourceVersion should not be set on objects to be created")
    new["metadata"].pop("resourceVersion", None)
    raw = await threads.encoded(call, new)
    guards = guards_of(verbs, call.resource, attributes.traces.premises)
    return Put(
        key, 0, raw, guards, _created, None if call.verb == "patch" else partial(without_managed_fields, call, new)
    )


def _created(entry: Entry) -> Outcome:
    return Outcome(201, entry=entry)


async def _previewed(verbs: Verbs, call: Call, new: Document, key: tuple[str, str]) -> Unconfirmed:
    """Return the decision of a dry run; raise KeyExists if an object with this name exists."""
    with translated():
        try:
            existing = await verbs.store.current(collection_of(verbs, call), *key)
        # A stored object that cannot be decoded is a conflict here, with and without dry run (DIF-070).
        # upstream: reports no conflict here, although a create without dry run has a conflict
        except Malformed as error:
            existing = Entry(*key, error.revision, b"")
    if existing is not None:
        raise KeyExists(existing)
    revision = new["metadata"].get("resourceVersion")
    return Unconfirmed(Outcome(201, document=await threads.run(call, read_back, call, new, revision)))


def _taken(call: Call, current: Entry, *, prefixed: bool) -> status.StatusError:
    """Return the 409 for a name in use; ``prefixed`` is true if the object has a generateName."""
    if prefixed:  # upstream: reports the group in which the object is stored
        stored = GroupResource(call.served.names.stored_resource.group, call.served.names.resource)
        error = status.generate_name_conflict(stored, current.name)
    else:
        error = status.already_exists(call.served.names.group_resource, current.name)
    metadata = viewing.parse(current.raw).get("metadata") if current.raw else None
    if isinstance(metadata, dict) and metadata.get(
        "deletionTimestamp"
    ):  # another program may have stored metadata of another type
        error.message = f"object is being deleted: {error.message}"  # WRI-022
    return error
