"""Update: PUT, every patch and apply as a change of what is stored."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from apiext.catalog.accessors import AccessorError
from apiext.catalog.stored import Unreadable
from apiext.documents.document import Document, View
from apiext.meta import fields, status
from apiext.meta.options import WriteOptions
from apiext.storage.store import Entry, GuardChanged, RevisionChanged
from apiext.verbs import converting, escalation, identity, judging, metadata, ownership, threads
from apiext.verbs.call import Call, Outcome, Verbs
from apiext.verbs.changes import Change
from apiext.verbs.commit import Decide, Decision, Put, Remove, Renew, Unconfirmed, commit, known
from apiext.verbs.converting import FailedConversion
from apiext.verbs.create import decide_at
from apiext.verbs.errors import Undecodable, invalid_object
from apiext.verbs.guarded import guards_of, renewed
from apiext.verbs.objects import (
    absent,
    accepted,
    attributes_of,
    collection_of,
    number,
    read_back,
    slimmer,
    warn_of_owners,
    with_hidden,
)


async def update(verbs: Verbs, call: Call, decide: Decide, renew: Renew) -> Outcome:
    """Commit what ``decide`` makes of the stored object, by default that in the cache."""
    identity.check_segment(call.name)
    try:
        return await commit(verbs, call, await known(verbs, call), decide, renew)
    except Undecodable as error:
        raise error.of_update() from error


@dataclass(slots=True)
class Update:
    """An update under way: PUT, patch or apply, of an object or of the part that an endpoint shows."""

    verbs: Verbs
    call: Call
    change: Change
    options: WriteOptions
    uid: str = ""  # precondition of a PUT
    unconditional: bool = False  # an empty resourceVersion is no error (scale)
    applied: bool = False  # the change settles who owns what
    creation: Callable[[], Document] | None = None  # makes the object of an apply or a PUT where there is none

    async def decide(self, entry: Entry | None) -> Decision:
        """Decide about the update of an object in this state, or about its create."""
        call, dry_run = self.call, self.options.dry_run
        if entry is None:
            return await self._create()
        call.size = max(call.size, len(entry.raw))
        new, raw = await _admitted(self.verbs, self, entry)
        if raw is None:  # the last finalizer is gone: delete instead of writing (WRI-009)
            removed = Outcome(200, document=_shown(call, new, entry.revision))
            key = entry.namespace, entry.name
            return Unconfirmed(removed) if dry_run else Remove(key, entry.revision, lambda _: removed)
        shown = await threads.run(call, read_back, call, new) if call.endpoint.kind or dry_run else new
        if raw == entry.raw and not collection_of(self.verbs, call).stale(entry):
            return Unconfirmed(_answer(call, entry, shown, dry_run))  # upstream: it keeps its resourceVersion
        if dry_run:
            return Unconfirmed(Outcome(200, document=_shown(call, shown, entry.revision)))
        return Put(
            (entry.namespace, entry.name),
            entry.revision,
            raw,
            guards_of(self.verbs, call.resource),
            lambda stored: _answer(call, stored, shown, dry_run=False),
            None if self.applied else partial(slimmer, call, new),
        )

    async def renew(self, changed: GuardChanged | None) -> Decide | None:
        """Load what changed: the change is made again by it. The body of a PUT is decoded again instead."""
        return self.decide if await renewed(self.verbs, self.call, changed) else None

    async def _create(self) -> Decision:
        call = self.call
        if self.creation is None:
            raise absent(call) from RevisionChanged(None)
        _check_uid(self.verbs, self, {"metadata": {}})
        return await decide_at(self.verbs, call, await threads.run(call, self.creation), self.options)


def _may_go(call: Call, new: View) -> bool:
    """A namespace stays until its own finalizers are gone, too (NSP-005)."""
    return not (call.served.typed and new.get("kind") == "Namespace" and (new.get("spec") or {}).get("finalizers"))


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


async def _admitted(verbs: Verbs, wanted: Update, entry: Entry) -> tuple[Document, bytes | None]:
    """Return the object to store and its bytes, None when it is to go instead."""
    call = wanted.call
    try:
        old, shown_before, owned = await threads.run(call, _asked, verbs, wanted, entry)
    except (Unreadable, FailedConversion) as error:
        raise converting.undecodable(verbs, call, (entry,), error) from error
    attributes = attributes_of(call, "UPDATE", wanted.options, owned, shown_before)
    shown = await verbs.admission.mutate(attributes, owned)
    call.size = max(call.size, attributes.size)
    ownership.check_admitted(call, owned, shown)
    if verbs.policy is not None:
        await escalation.judge(verbs, verbs.policy, call, shown, shown_before)
    new = await threads.run(call, _decided, wanted, old, shown, entry.revision)
    attributes.new = call.endpoint.project(new)
    if call.endpoint.kind:
        attributes.old = call.endpoint.project(old)  # upstream: only who may change a Scale sees its owners
    await verbs.admission.review(attributes)
    new, raw = await threads.run(call, _final, wanted, old, new, entry.raw)
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


def _final(wanted: Update, old: View, new: Document, raw: bytes) -> tuple[Document, bytes | None]:
    """Return the object to store and its bytes, None when it goes, as the last finalizer has gone (WRI-009)."""
    call = wanted.call
    # upstream: an untyped map takes fields that no read shows; they were judged and counted
    if wanted.applied or call.endpoint.kind:  # so does a scale
        new = accepted(call, new)
    gone = partial(ownership.given_up, call, wanted.options, old, new) if wanted.applied else dict
    new = with_hidden(call, raw, old, new, gone)
    new["metadata"].pop("resourceVersion", None)
    if old["metadata"].get("deletionTimestamp") and not metadata.finalizers(new) and _may_go(call, new):
        return new, None
    return new, call.served.to_store(new)


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
    new = call.endpoint.prepared(new, old, wanted.options.dry_run)
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
    known = number(given)
    if known == revision or (not known and (call.served.unconditional or (wanted.unconditional and not given))):
        return
    if not known:
        wrong = fields.invalid("metadata.resourceVersion", 0, "must be specified for an update")
        raise status.invalid(call.served.group_resource, call.name, [wrong])
    raise status.conflict(call.served.group_resource, call.name, status.MODIFIED)
