"""Delete objects and collections, with preconditions, finalizers and propagation.

If the finalizers or the kind of an object delay its deletion, a delete only marks the object: it sets the
deletionTimestamp. The marker of a kind is the function that marks its objects (``MARKERS``; for most kinds ``_mark``).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from apiext.admission.attributes import NAMESPACES
from apiext.auth.authorization import Attributes
from apiext.catalog.stored import Unreadable
from apiext.crd import conditions
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.store import Entry, Guard, GuardChanged, Malformed, RevisionChanged
from apiext.text.quotes import go_quote
from apiext.verbs import converting, identity, metadata, threads
from apiext.verbs.call import Call, Outcome, Verbs
from apiext.verbs.commit import Decide, Decision, Put, Remove, State, Unconfirmed, cached_state, commit, no_state
from apiext.verbs.converting import FailedConversion
from apiext.verbs.errors import Undecodable, invalid_object
from apiext.verbs.grace import PODS, Grace
from apiext.verbs.guarded import guards_of, refresh
from apiext.verbs.metadata import FOREGROUND, ORPHAN
from apiext.verbs.objects import absent, attributes_of, collection_of, with_hidden

log = logging.getLogger(__name__)

UNSAFE_VERB = "unsafe-delete-ignore-read-errors"
UNSAFE_DELETE = "apiserver.k8s.io/unsafe-delete-ignore-read-error"
DEFINITIONS = GroupResource("apiextensions.k8s.io", "customresourcedefinitions")
CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


async def delete(verbs: Verbs, call: Call, options: DeleteOptions) -> Outcome:
    """Delete an object, or only set its deletionTimestamp (WRI-016…019).

    Finalizers or the kind of the object can delay its deletion.
    """
    if options.ignore_store_read_error:
        return await _delete_undecodable(verbs, call, options)
    identity.check_segment(call.name)
    if call.served.model.typed and call.served.names.group_resource == JOBS and _has_no_propagation(options):
        call.warn([PRESERVED])
    deletion = Deletion(verbs, call, options)
    read = partial(cached_state, verbs, call, newest=deletion.marker is not _mark)
    outcome = await commit(verbs, call, read, deletion.decide, deletion.renew)
    if not deletion.ends:
        return outcome
    # The first commit has marked the pod with its deletionTimestamp; the second commit deletes the pod.
    try:  # upstream: watchers see the deletionTimestamp before the deletion; admission is called for both writes
        return await commit(verbs, call, deletion.marked_state, deletion.decide, deletion.renew)
    except status.StatusError as refusal:
        if refusal.code != 404:
            raise
        return outcome


class Deletion:
    """A delete in progress: its options, and the state of its last decision."""

    def __init__(self, verbs: Verbs, call: Call, options: DeleteOptions) -> None:
        """Begin the delete of the call's object."""
        self._grace = Grace() if call.served.model.typed and call.served.names.group_resource == PODS else None
        self.marker = MARKERS.get(call.served.names.group_resource, _mark) if call.served.model.typed else _mark
        self._verbs = verbs
        self._call = call
        self._options = options
        self._decided: Entry | None = None
        self._marked: Entry | None = None

    @property
    def ends(self) -> bool:
        """Return whether this request must delete a pod that it marked with a grace period of 0."""
        return self._marked is not None and self._grace is not None and self._grace.ends

    async def marked_state(self) -> State:
        """Return the object with its deletionTimestamp as the state for the delete that follows."""
        if self._decided is not None and self._marked is not None:
            self._decided = None  # this request itself has changed the object, which is no conflict
            if self._options.resource_version is not None:
                self._options = replace(self._options, resource_version=str(self._marked.revision))
        return State(self._marked, confirmed=False)

    async def decide(self, entry: Entry | None) -> Decision:
        """Decide on the delete of an object in this state.

        After a conflict, ``_pin`` checks the preconditions first. Raise a 404 if ``entry`` is None, a 409 if a
        precondition fails, and the errors of admission.
        """
        call, resource = self._call, self._call.served.names.group_resource
        if self._decided is not None and entry is not self._decided:
            await self._pin(self._decided, entry)
        if entry is None:
            raise absent(call) from RevisionChanged(None)
        old = self._metadata_only(entry) or await _decoded(self._verbs, call, entry)
        options, marks = self._options, self.marker is not _mark
        if not marks:
            check_preconditions(call, old, options)
        elif fault := _fault(old, options):
            text = f"p{fault[1:]}" if self.marker is _mark_definition else fault
            raise status.conflict(resource, call.name, text)
        code = 202 if options.orphan_dependents is False else 200
        if self.marker is _mark_namespace and _has_content(old):
            return Unconfirmed(Outcome(code, entry=entry))
        attributes = attributes_of(call, "DELETE", _pinned(old, options) if marks else options, None, old)
        if call.verb == "deletecollection":  # upstream: admission gets no names there
            attributes.name = ""
        await self._verbs.admission.review_delete(attributes)
        self._decided = entry
        if self._grace is not None and self._grace.is_pending(old, options):
            return Unconfirmed(Outcome(code, entry=entry))
        kept, guard = await self.marker(self._verbs, call, old, options)
        if self._grace is not None:
            kept = self._grace.marked(old, kept, options, self._verbs.clock())
            kept = None if options.dry_run and self._grace.ends else kept
        if kept is None:
            return self._removal(entry, old)
        kept = await threads.run(call, with_hidden, call, entry.raw, kept, kept)
        raw = await threads.encoded(call, kept)
        if raw == entry.raw:
            return Unconfirmed(Outcome(code, entry=entry))
        if options.dry_run:
            shown = await threads.run(call, call.served.codec.decode, raw, entry.revision)
            return Unconfirmed(Outcome(code, document=shown))
        guards = (guard,) if guard is not None else guards_of(self._verbs, call.resource)
        key = entry.namespace, entry.name

        def answer(stored: Entry) -> Outcome:
            self._marked = stored
            return Outcome(code, entry=stored)

        return Put(key, entry.revision, raw, guards, answer)

    async def renew(self, changed: GuardChanged | None) -> Decide | None:
        """Reload the changed definition, and return the Decide of a retry.

        If ``changed`` is None, return None, that is, no retry: no error of a delete depends on the definition.
        """
        if changed is None:
            return None
        await refresh(self._verbs, self._call)
        return self.decide

    async def _pin(self, decided_on: Entry, now: Entry | None) -> None:
        """Raise a 409 if, after a conflict, the object does not fit the preconditions (ERR-06).

        For definitions and namespaces, the uid of the object that admission reviewed becomes a precondition.
        """
        verbs, call = self._verbs, self._call
        self._decided = None
        if self.marker is not _mark:
            self._options = _pinned(await _decoded(verbs, call, decided_on), self._options)
        options = self._options
        if now is not None and (options.uid is not None or options.resource_version is not None):
            fault = _fault(await _decoded(verbs, call, now), options)
            if fault:
                key = verbs.store.keys.object(call.served.names.stored_resource, now.namespace, now.name)
                raise status.conflict(call.served.names.group_resource, call.name, invalid_object(key, fault))

    def _metadata_only(self, entry: Entry) -> Document | None:
        """Return only the metadata (without managedFields), or None if the delete needs more.

        The metadata is enough for a custom object whose metadata ``decode_metadata`` can read, if no admission plug-in
        applies, and the object has no finalizers after this delete.
        """
        served = self._call.served
        if self._verbs.admission.applies("DELETE", served.names.group_resource):
            return None
        if self._grace is not None:
            return None
        found = served.codec.decode_metadata(entry.raw, entry.revision)
        return None if found is None or _new_finalizers(self._call, found, self._options) else found

    def _removal(self, entry: Entry, old: View) -> Decision:
        """Return the decision to delete an object without finalizers."""
        call = self._call
        if self._options.dry_run:
            return Unconfirmed(_deleted_outcome(call, entry, old))
        return Remove(
            (entry.namespace, entry.name), entry.revision, lambda deleted: _deleted_outcome(call, deleted, old)
        )


async def _delete_undecodable(verbs: Verbs, call: Call, options: DeleteOptions) -> Outcome:
    """Delete an object that cannot be decoded, without admission.

    Raise a 409 if it can be decoded. See KEP 3926.
    """
    call.annotations[UNSAFE_DELETE] = ""
    _authorize_unsafe(verbs, call)
    identity.check_segment(call.name)
    namespace, resource = call.namespace or "", call.served.names.group_resource
    key = verbs.store.keys.object(call.served.names.stored_resource, namespace, call.name)

    async def decide(_: Entry | None) -> Decision:
        try:
            entry = await verbs.store.current(collection_of(verbs, call), namespace, call.name)
        except Malformed as error:
            revision, reason = error.revision, error.reason
        else:
            if entry is None:
                raise absent(call)
            try:
                await _decoded(verbs, call, entry)
            except Undecodable as fault:
                revision, reason = entry.revision, fault.fault.reason
            else:
                text = "unsafe deletion is not allowed because the object is decodable from storage"
                raise status.conflict(resource, call.name, invalid_object(key, text))

        def deleted(_: object = None) -> Outcome:
            user = call.user.name
            log.warning("%s at revision %d was deleted by %s without reading it: %s", key, revision, user, reason)
            # upstream: the details have no group and no uid, since the object was not decoded
            details = {"name": call.name, "kind": call.served.names.kind}
            return Outcome(200, document={**status.success(details), "code": 200})

        if options.dry_run:
            return Unconfirmed(deleted())
        return Remove((namespace, call.name), revision, deleted, unread=True)

    async def renew(_: GuardChanged | None) -> None:
        """Return None: such a delete does not depend on a definition."""

    return await commit(verbs, call, no_state, decide, renew)


def _authorize_unsafe(verbs: Verbs, call: Call) -> None:
    """Raise a 403 if the user may not delete an object that cannot be decoded."""
    names = call.served.names
    place = (names.group, names.version, names.resource, "", call.namespace or "", call.name)
    decision = verbs.authorizer(Attributes(call.user, UNSAFE_VERB, "", *place))
    if not decision.allowed:
        text = f"not permitted to do {go_quote(UNSAFE_VERB)}, reason: {decision.reason}"
        raise status.forbidden(names.group_resource, call.name, text)


async def _decoded(verbs: Verbs, call: Call, entry: Entry) -> Document:
    """Return the object of an entry in the version of the call."""
    call.size = max(call.size, len(entry.raw))
    try:
        return await threads.run(call, call.served.codec.decode, entry.raw, entry.revision)
    except (Unreadable, FailedConversion) as error:
        raise converting.undecodable(verbs, call, (entry,), error) from error


def _pinned(old: View, options: DeleteOptions) -> DeleteOptions:
    """Return the options with the uid of this object as a precondition, unless they have a uid."""
    # upstream: definitions and namespaces are deleted with the uid of the object that was read
    return options if options.uid is not None else replace(options, uid=old["metadata"].get("uid", ""))


def _deleted_outcome(call: Call, entry: Entry, old: View) -> Outcome:
    """Return the response to a delete that removes the object."""
    if call.served.traits.returns_deleted and call.served.names.group_resource == PODS:
        marked = {**old["metadata"], "resourceVersion": str(entry.revision)}
        return Outcome(200, document={**old, "metadata": marked})
    if call.served.traits.returns_deleted:
        return Outcome(200, entry=entry)
    resource = call.served.names.group_resource
    details = {
        # Admission can rename an object, so its name may differ from the name in the URL.
        # upstream: the Status of a delete has the name in the object, not the name in the URL
        "name": old["metadata"].get("name"),
        "group": resource.group,
        "kind": resource.resource,
        "uid": old["metadata"].get("uid"),
    }
    return Outcome(200, document=status.success({key: value for key, value in details.items() if value}))


def check_preconditions(call: Call, old: View, options: DeleteOptions) -> None:
    """Raise a 409 if a precondition of the client fails for the object (WRI-019)."""
    if options.uid is None and options.resource_version is None:
        return
    uid, revision = old["metadata"].get("uid", ""), old["metadata"].get("resourceVersion", "")
    kind = GroupResource(call.served.names.stored_resource.group, call.served.names.kind)
    if options.uid is not None and options.uid != uid:
        text = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({uid}). "
            "The object might have been deleted and then recreated"
        )
        raise status.conflict(kind, call.name, text)
    if options.resource_version is not None and options.resource_version != revision:
        text = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
            f"ResourceVersion in record ({revision}). The object might have been modified"
        )
        raise status.conflict(kind, call.name, text)


def _fault(old: View, options: DeleteOptions) -> str:
    """Return the error text of a failed precondition, or an empty string (DEL-002).

    Upstream has this text for namespaces, for definitions, and in its store. For definitions it begins with a small
    letter, which the caller writes.
    """
    uid, revision = old["metadata"].get("uid", ""), old["metadata"].get("resourceVersion", "")
    if options.uid is not None and options.uid != uid:
        return f"Precondition failed: UID in precondition: {options.uid}, UID in object meta: {uid}"
    if options.resource_version is not None and options.resource_version != revision:
        return (
            f"Precondition failed: ResourceVersion in precondition: {options.resource_version}, "
            f"ResourceVersion in object meta: {revision}"
        )
    return ""


Marked = tuple[Document | None, Guard | None]
Marker = Callable[[Verbs, Call, Document, DeleteOptions], Awaitable[Marked]]
"""Returns a pair: the object with its deletionTimestamp, or None to delete it now; and the guard of the write.

If the guard is None, the write has the usual guards (``guards_of``).
"""


async def _mark(verbs: Verbs, call: Call, document: Document, options: DeleteOptions) -> Marked:
    """Set the deletionTimestamp; return (None, None) if no finalizer remains (WRI-017, WRI-018)."""
    wanted = _new_finalizers(call, document, options)
    if not wanted:
        return None, None
    if list(metadata.finalizers(document)) != wanted:
        metadata.set_finalizers(document, wanted)
    metadata.mark_as_deleting(document, verbs.clock())
    document["metadata"].pop("resourceVersion", None)
    return document, None


def _new_finalizers(call: Call, document: View, options: DeleteOptions) -> list[str]:
    """Return the finalizers of an object after this delete.

    Without finalizers, the object is deleted.
    """
    now = metadata.finalizers(document)
    if call.served.traits.uncollected:
        return list(now)
    if (
        _has_no_propagation(options)
        and call.served.names.group_resource in ORPHANING
        and not {ORPHAN, FOREGROUND} & set(now)
    ):
        options = replace(options, propagation_policy="Orphan")
    return _remaining_finalizers(now, options)


def _has_no_propagation(options: DeleteOptions) -> bool:
    """Return whether the delete has no option about dependents.

    If so, the default of the kind applies.
    """
    return not options.propagation_policy and options.orphan_dependents is None


JOBS = GroupResource("batch", "jobs")
ORPHANING = frozenset((JOBS, GroupResource("", "replicationcontrollers")))
"""Kinds whose dependents are orphaned by default."""
PRESERVED = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def _remaining_finalizers(now: Sequence[str], options: DeleteOptions) -> list[str]:
    """Return the finalizers after a delete with these options."""
    return metadata.propagation_finalizers(now, options.propagation_policy or "", options.orphan_dependents)


async def _mark_definition(verbs: Verbs, call: Call, document: Document, options: DeleteOptions) -> Marked:
    """Set the deletionTimestamp of a definition, which stays until its objects are deleted.

    See DEL-001. Before the first mark, change the guard key of the definition, unless the delete is a dry run.
    """
    if document["metadata"].get("deletionTimestamp"):
        return await _mark(verbs, call, document, options)
    guard = None
    if not options.dry_run:
        guard = await verbs.definitions.begin_deletion(call.name, document["metadata"].get("uid", ""))
    document["metadata"].pop("resourceVersion", None)
    document["metadata"]["deletionTimestamp"] = verbs.clock()
    now = metadata.finalizers(document)
    if CLEANUP not in now:
        metadata.set_finalizers(document, [*now, CLEANUP])
    return set_terminating(document, verbs.clock()), guard


def set_terminating(document: Document, now: str) -> Document:
    """Set the condition Terminating at the first delete of a definition (CND-009)."""
    terminating = conditions.condition(
        "Terminating",
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    )
    known = (document.get("status") or {}).get("conditions")
    return conditions.with_status(document, conditions=conditions.with_condition(known, terminating, now))


def _has_content(namespace: View) -> bool:
    """Return whether a terminating namespace has spec.finalizers.

    They stay until its content is deleted. Another delete of such a namespace calls no admission plug-in.
    """
    return bool(namespace["metadata"].get("deletionTimestamp") and (namespace.get("spec") or {}).get("finalizers"))


async def _mark_namespace(verbs: Verbs, call: Call, document: Document, options: DeleteOptions) -> Marked:
    """Set the deletionTimestamp of a namespace, which stays until its content is deleted.

    Without the namespace controller, it stays until a client deletes its spec.finalizers (NSP-005).
    """
    if document["metadata"].get("deletionTimestamp"):
        return await _mark(verbs, call, document, options)
    document["metadata"]["deletionTimestamp"] = verbs.clock()
    metadata.set_finalizers(document, _remaining_finalizers(metadata.finalizers(document), options))
    document["status"] = {**(document.get("status") or {}), "phase": "Terminating"}
    document["metadata"].pop("resourceVersion", None)
    return document, None


MARKERS: Mapping[GroupResource, Marker] = {DEFINITIONS: _mark_definition, NAMESPACES: _mark_namespace}


async def delete_each(verbs: Verbs, call: Call, names: Sequence[tuple[str, str]], options: DeleteOptions) -> None:
    """Delete objects by (namespace, name), one by one; skip objects that were deleted meanwhile.

    See WRI-021.
    """
    loop_budget = LoopBudget()
    for namespace, name in names:
        await loop_budget.pause()  # a dry run may have no other await
        one = Call(
            "deletecollection", call.served, call.resource, call.endpoint, namespace or None, name,
            call.query, call.user, call.manager, call.deadline, call.warnings, call.trail,
        )  # fmt: skip
        converting.enable(verbs, one)
        try:
            await delete(verbs, one, options)
        except status.StatusError as error:
            if error.code != 404:  # upstream: a deletecollection may list objects that were deleted meanwhile
                raise
