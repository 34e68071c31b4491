"""Update an object by a PUT, a patch or an apply."""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from apiext.catalog.stored import Unreadable
from apiext.documents.document import Document, View
from apiext.meta import fields, status
from apiext.meta.options import WriteOptions
from apiext.storage.store import Entry, GuardChanged, RevisionChanged
from apiext.verbs import converting, escalation, identity, metadata, ownership, threads, validation
from apiext.verbs.call import Call, Outcome, Verbs
from apiext.verbs.changes import Change
from apiext.verbs.commit import Decide, Decision, Put, Remove, Renew, Unconfirmed, cached_state, commit
from apiext.verbs.converting import FailedConversion
from apiext.verbs.create import decide_at
from apiext.verbs.endpoint_part import EndpointPart, part_of
from apiext.verbs.errors import Undecodable, invalid_object
from apiext.verbs.guarded import guards_of, renewed
from apiext.verbs.objects import (
    absent,
    accepted,
    attributes_of,
    collection_of,
    number,
    read_back,
    warn_of_owners,
    with_hidden,
    without_managed_fields,
)


async def update(verbs: Verbs, call: Call, decide: Decide, renew: Renew) -> Outcome:
    """Commit the decision of ``decide``.

    The first decision is based on the cached state of the object.
    """
    identity.check_segment(call.name)
    try:
        return await commit(verbs, call, partial(cached_state, verbs, call), decide, renew)
    except Undecodable as error:
        raise error.of_update() from error


class Update(Struct):
    """A PUT, patch or apply in progress, of an object or of the part that an endpoint returns."""

    verbs: Verbs
    call: Call
    change: Change
    options: WriteOptions
    uid: str = ""  # the uid in the body of a PUT, which the object must have
    unconditional: bool = False  # an empty resourceVersion is allowed
    applied: bool = False  # the change sets managedFields itself
    creation: Callable[[], Document] | None = None  # returns the object that an apply or a PUT creates

    async def decide(self, entry: Entry | None) -> Decision:
        """Decide on the update of the object that is stored as ``entry``.

        If ``entry`` is None, decide on the create of the object, or raise a 404 if ``creation`` is None.
        """
        call, part, dry_run = self.call, part_of(self.call), self.options.dry_run
        if entry is None:
            return await self._create()
        call.size = max(call.size, len(entry.raw))
        new, raw = await self._admitted(part, entry)
        key = entry.namespace, entry.name
        if raw is None:  # the last finalizer was removed: delete the object (WRI-009)
            removed = Outcome(200, document=_at(call.endpoint.project(new), entry.revision))
            return Unconfirmed(removed) if dry_run else Remove(key, entry.revision, lambda _: removed)
        shown: View | None = None
        if dry_run or part.partial:
            shown = call.endpoint.project(await threads.run(call, read_back, call, new))

        def answer(stored: Entry) -> Outcome:
            return Outcome(200, stored) if shown is None else Outcome(200, document=_at(shown, stored.revision))

        # upstream: a write without a change keeps the resourceVersion
        # Such a write stores nothing, unless the stored value is stale: then it must be encrypted with the newest key.
        if dry_run or (raw == entry.raw and not collection_of(self.verbs, call).values.stale(entry)):
            return Unconfirmed(answer(entry))
        smaller = None if self.applied else partial(without_managed_fields, call, new)
        return Put(key, entry.revision, raw, guards_of(self.verbs, call.resource), answer, smaller)

    async def renew(self, changed: GuardChanged | None) -> Decide | None:
        """Reload the changed definition or namespace, and return the Decide of a retry.

        Return None if ``changed`` is None and the definition has not changed. For a PUT, ``verbs/api.py`` uses another
        function, which also decodes the body again.
        """
        return self.decide if await renewed(self.verbs, self.call, changed) else None

    async def _create(self) -> Decision:
        call = self.call
        if self.creation is None:
            raise absent(call) from RevisionChanged(None)
        self._check_uid({"metadata": {}})
        return await decide_at(self.verbs, call, await threads.run(call, self.creation), self.options)

    async def _admitted(self, part: EndpointPart, entry: Entry) -> tuple[Document, bytes | None]:
        """Return the object to store and its bytes.

        The bytes are None if the object must be deleted instead.
        """
        verbs, call = self.verbs, self.call
        try:
            old, shown_before, owned = await threads.run(call, self._changed, part, entry)
        except (Unreadable, FailedConversion) as error:
            raise converting.undecodable(verbs, call, (entry,), error) from error
        attributes = attributes_of(call, "UPDATE", self.options, owned, shown_before)
        shown = await verbs.admission.mutate(attributes, owned)
        call.size = max(call.size, attributes.size)
        ownership.check_admitted(call, owned, shown)
        if verbs.policy is not None:
            await escalation.check(verbs, verbs.policy, call, shown, shown_before)
        new = await threads.run(call, self._validated, part, old, shown, entry.revision)
        attributes.new, attributes.old = call.endpoint.project(new), part.review(call, old, shown_before)
        await verbs.admission.review(attributes)
        new, raw = await threads.run(call, self._final, part, old, new, entry.raw)
        # This raises if the webhook cannot convert the object, so that such an object is not stored.
        if call.served.codec.converts and raw is not None:
            await threads.run(call, call.served.codec.view, raw, 0)
        return new, raw

    def _changed(self, part: EndpointPart, entry: Entry) -> tuple[Document, View, Document]:
        """Return (stored object, its part that the endpoint shows, this part after the change).

        The changed part has its new managedFields.
        """
        call, raw = self.call, entry.raw
        old = call.served.codec.decode(raw, entry.revision)
        shown = part.show(call, old, raw)
        self._check_uid(old)
        requested = self.change(shown)
        if not self.applied:
            ownership.track(call, shown, requested, self.options, self.verbs.clock())
        return old, shown, requested

    def _validated(self, part: EndpointPart, old: View, shown: Document, revision: int) -> Document:
        """Return the complete validated object.

        This function may run twice, since long work is repeated in a thread; it has the same result then.
        """
        call = self.call
        warn_of_owners(call, shown)  # as upstream, this precedes the validation of owners
        new = part.embed(call, old, shown)  # before the comparison of revisions: a Scale may lack its replicas
        self._check_revision(shown, revision)
        part.settle(call, new)
        new = self._whole_object(part, old, shown, new)
        validation.validate(call, new, old)  # upstream: a change by a Scale is validated before defaults are set
        # So ``complete`` sets these defaults afterwards.
        return part.complete(call, new)

    def _final(self, part: EndpointPart, old: View, new: Document, raw: bytes) -> tuple[Document, bytes | None]:
        """Return the object to store and its bytes.

        The bytes are None if the last finalizer was removed. See WRI-009.
        """
        call = self.call
        # The result of an apply, or of a write of a Scale, is pruned only here, after its validation.
        # upstream: an apply may set fields that pruning removes; they are validated, and count as a change
        new = accepted(call, new) if self.applied else part.accept(call, new)
        removed_paths = partial(ownership.removed_by_apply, call, self.options, old, new) if self.applied else dict
        new = with_hidden(call, raw, old, new, removed_paths)
        new["metadata"].pop("resourceVersion", None)
        if _waits_only_for_finalizers(old) and not metadata.finalizers(new) and _may_be_deleted(call, new):
            return new, None
        return new, call.served.codec.to_store(new)

    def _whole_object(self, part: EndpointPart, old: View, shown: Document, new: Document) -> Document:
        """Return the complete object with the fields that the server sets.

        ``shown`` is the changed part, ``new`` is the complete object with this part.
        """
        call = self.call
        metadata.fill_on_update(new, old)
        part.own(call, old, shown, new)
        new = call.endpoint.prepared(new, old, self.options.dry_run)
        if call.endpoint.stamp is not None:
            call.endpoint.stamp(new, old, self.verbs.clock())
        ownership.settle(call.served, new, old)
        # Rules may compare the resourceVersions of the new and the old object.
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        return new

    def _check_uid(self, old: View) -> None:
        """Raise a 409 if a PUT has a uid, but the object has another uid or does not exist (ERR-06)."""
        call, keys, uid = self.call, self.verbs.store.keys, old["metadata"].get("uid", "")
        if not self.uid or self.uid == uid:
            return
        key = keys.object(call.served.names.stored_resource, call.namespace or "", call.name)
        if self.options.dry_run:
            key = f"/{key.removeprefix(keys.root)}"  # upstream: errors of a dry run show the key without its prefix
        fault = f"Precondition failed: UID in precondition: {self.uid}, UID in object meta: {uid}"
        raise status.conflict(call.served.names.group_resource, call.name, invalid_object(key, fault))

    def _check_revision(self, shown: View, revision: int) -> None:
        """Raise a 409 if the given resourceVersion is not that of the object (WRI-005, UPD-004).

        Raise a 500 if it is not a number, and a 422 if it is missing or 0, but required.
        """
        call = self.call
        given = shown["metadata"].get("resourceVersion") or ""
        if given == str(revision):
            return
        known = number(given)
        if known == revision:
            return
        if not known and (call.served.traits.unconditional or (self.unconditional and not given)):
            return
        if not known:
            wrong = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise status.invalid(call.served.names.group_resource, call.name, [wrong])
        raise status.conflict(call.served.names.group_resource, call.name, status.MODIFIED)


def _waits_only_for_finalizers(old: View) -> bool:
    """Return whether only finalizers delay the deletion of an object.

    A pod may also have a grace period.
    """
    before = old["metadata"]
    return bool(before.get("deletionTimestamp")) and not before.get("deletionGracePeriodSeconds")


def _may_be_deleted(call: Call, new: View) -> bool:
    """Return whether an object may be deleted.

    A namespace must also have empty spec.finalizers (NSP-005).
    """
    is_namespace = call.served.model.typed and new.get("kind") == "Namespace"
    return not (is_namespace and (new.get("spec") or {}).get("finalizers"))


def _at(shown: View, revision: int) -> Document:
    return {**shown, "metadata": {**shown["metadata"], "resourceVersion": str(revision)}}
