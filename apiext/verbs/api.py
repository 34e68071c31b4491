"""Execute each verb for ``apiext.http``: return the result of a Call and its body."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from sys import maxsize
from typing import Any, TypeVar, TypeVarTuple

from msgspec.structs import replace

from apiext import limits as server_limits
from apiext.admission.attributes import NAMESPACES
from apiext.documents.document import Document
from apiext.meta import status
from apiext.meta.fields import FieldError
from apiext.meta.names import GroupKind
from apiext.meta.options import DeleteOptions, ListOptions, OptionsError, WriteOptions, first
from apiext.storage import limits as storage_limits
from apiext.storage.fanout import Watcher
from apiext.storage.store import Entry, GuardChanged, StoreError
from apiext.storage.watching import Sink
from apiext.verbs import changes, converting, decoding, identity, limits, ownership, read, reviews, threads, write
from apiext.verbs import delete as deletes
from apiext.verbs import watch as watches
from apiext.verbs.call import Body, Call, Outcome, Page, Verbs
from apiext.verbs.commit import Decide, commit, no_state
from apiext.verbs.create import Creation
from apiext.verbs.endpoint_part import part_of
from apiext.verbs.errors import of_store
from apiext.verbs.guarded import renewed
from apiext.verbs.objects import warn_of_owners
from apiext.verbs.selection import parsed, select

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_JSON, _YAML = "application/json", "application/yaml"


async def settle(verbs: Verbs) -> None:
    """Wait until the catalog has every definition that is stored now.

    Called before a 404 for an unknown resource. If the store does not respond, return without an error.
    """
    try:
        await verbs.definitions.seen(await verbs.definitions.fresh())
    except StoreError:
        return


async def catch_up(verbs: Verbs) -> None:
    """Wait until the catalog has every definition that another worker may already serve.

    Wait at most storage_limits.FRESH_WAIT seconds. Without a connection to the store, do not wait, since no worker gets
    newer revisions then.
    """
    if verbs.store.connected:
        with suppress(TimeoutError):
            async with asyncio.timeout(storage_limits.FRESH_WAIT):
                await settle(verbs)


async def _served(verbs: Verbs, call: Call, outcome: Outcome) -> Outcome:
    """Prepare the response of a write, and wait until the server uses the written object.

    After a write of a definition, wait until this server serves it. After the create of a namespace, wait for its
    default service account, if a controller creates it. After a write of a built-in kind that configures the server,
    wait until all workers of the port use it. A thread encodes large objects of built-in kinds.
    """
    entry, outcome.served = outcome.entry, call.served
    if call.served.codec.converts and entry is not None:
        outcome.entry = await converting.shown_one(verbs, call, entry)
    if not call.served.model.typed:
        return outcome
    if entry is not None and len(entry.raw) >= server_limits.WORK_INLINE:
        call.size = max(call.size, len(entry.raw))
        view = call.served.codec.view
        entry.cache_view(view, await threads.run(call, view, entry.raw, entry.revision))
    if entry is not None and call.served.names.group_resource == deletes.DEFINITIONS:
        with suppress(StoreError):
            await verbs.definitions.seen(entry.revision)
    if (
        verbs.wait_for_account is not None
        and entry is not None
        and outcome.code == 201
        and call.served.names.group_resource == NAMESPACES
    ):
        await verbs.wait_for_account(entry.name)
    await verbs.definitions.everywhere(call.served.names.group_resource)
    return outcome


def get(verbs: Verbs, call: Call) -> Coroutine[Any, Any, Entry]:
    """Return one object; raise a 404 if it does not exist."""
    return read.get(verbs, call, first(call.query, "resourceVersion"))


def list_objects(verbs: Verbs, call: Call) -> Coroutine[Any, Any, Page]:
    """Return a page of a collection."""
    return read.list_page(verbs, call, list_options(call))


async def open_watch(verbs: Verbs, call: Call, frames: watches.Frames, sink: Sink) -> Watcher:
    """Start a watch of a collection that sends its events to ``sink``."""
    return await watches.open_watch(verbs, call, list_options(call), frames, sink)


def validate_list(call: Call) -> ListOptions:
    """Return the options of a list or watch.

    Raise a 400 or 422 for invalid options or selectors.
    """
    options = list_options(call)
    select(call.served, options, call.name)
    return options


def validate_watch(call: Call) -> None:
    """Raise the error of a watch with invalid options or selectors.

    It is a 400 or 422, or a 500 for a resourceVersion that is not a number.
    """
    read.parse_revision(validate_list(call).resource_version)


class _RequestBody:
    """The body of a create or a PUT, which is decoded again after each change of the definition.

    See decisions/0010. ``begin(document)`` returns the function ``decide`` for a decoded body, which ``commit`` calls
    (commit.Decide).
    """

    def __init__(
        self, verbs: Verbs, call: Call, body: Body, validation: str, begin: Callable[[Document], Decide]
    ) -> None:
        self._verbs = verbs
        self._call = call
        self._body = body
        self._decoded = False  # decoding changes the body's document, so each further decoding needs ``Body.again``
        self._validation = validation
        self._begin = begin
        self._warnings_before = len(call.warnings)

    async def decided(self) -> Decide:
        """Decode the body, and return its ``decide``.

        If the body is invalid, raise the errors by the newest definition.
        """
        while True:
            body = await asyncio.to_thread(self._body.again) if self._decoded else self._body
            self._decoded = True
            try:
                document = await decoding.normalize_body(self._call, body, self._validation)
                break
            except status.StatusError as refusal:
                if of_store(refusal) or not await renewed(self._verbs, self._call, None):
                    raise
            del self._call.warnings[self._warnings_before :]
        if self._call.trail is not None:
            self._call.trail.requested(document)
        return self._begin(document)

    async def renew(self, changed: GuardChanged | None) -> Decide | None:
        """Reload the definition or namespace, decode the body again, return the new ``decide``.

        Return None if ``changed`` is None and the definition has not changed.
        """
        if not await renewed(self._verbs, self._call, changed):
            return None
        del self._call.warnings[self._warnings_before :]
        return await self.decided()


async def create(verbs: Verbs, call: Call, body: Body) -> Outcome:
    """Create the object in a body; the response has the status 201 (WRI-001)."""
    converting.enable(verbs, call)
    wanted = write_options(call, "CreateOptions")
    if call.endpoint.review:
        return await reviews.answer(verbs, call, body, wanted)

    def begin(document: Document) -> Decide:
        return Creation(verbs, call, document, wanted).decide

    sent = _RequestBody(verbs, call, body, decoding.mode(wanted), begin)
    return await _served(verbs, call, await commit(verbs, call, no_state, await sent.decided(), sent.renew))


async def update(verbs: Verbs, call: Call, body: Body) -> Outcome:
    """Replace the object, or the part of the object that the endpoint returns.

    See WRI-004, WRI-005.
    """
    converting.enable(verbs, call)
    wanted = write_options(call, "UpdateOptions")

    def begin(document: Document) -> Decide:
        identity.settle_names(call, document)
        warn_of_owners(call, document, admitted=False)
        uid = str(document["metadata"].get("uid") or "")
        change = write.Update(
            verbs, call, changes.replace(call, document), wanted, uid, unconditional=_unconditional(call)
        )
        if call.served.traits.upserts and not call.endpoint.name:
            change.creation = lambda: ownership.created(call, document, wanted, verbs.clock())
        return change.decide

    sent = _RequestBody(verbs, call, body, decoding.mode(wanted), begin)
    return await _served(verbs, call, await write.update(verbs, call, await sent.decided(), sent.renew))


async def patch(verbs: Verbs, call: Call, media_type: str, raw: bytes) -> Outcome:
    """Patch the object, or the part of the object that the endpoint returns.

    ``media_type`` is a media type that the resource supports.
    """
    converting.enable(verbs, call)
    if media_type == ownership.MEDIA_TYPE:
        return await _apply(verbs, call, raw)
    wanted = write_options(call, "PatchOptions")
    call.size = len(raw)
    made = await _make(_JSON, changes.from_patch, call, raw, media_type, decoding.mode(wanted))
    if call.trail is not None:
        call.trail.patched(raw)
    change = write.Update(verbs, call, made, wanted, unconditional=_unconditional(call))
    return await _served(verbs, call, await write.update(verbs, call, change.decide, change.renew))


async def _apply(verbs: Verbs, call: Call, raw: bytes) -> Outcome:
    """Apply a configuration. Only the main endpoint creates a missing object (SSA-001)."""
    wanted = write_options(call, "PatchOptions", apply=True)
    call.size = len(raw)
    application = await _make(_YAML, ownership.Application, call, raw, wanted, verbs.clock)
    if call.trail is not None:
        call.trail.patched(raw)
    change = write.Update(verbs, call, application.change, wanted, unconditional=_unconditional(call), applied=True)
    if not call.endpoint.name:
        change.creation = application.creation
    return await _served(verbs, call, await write.update(verbs, call, change.decide, change.renew))


async def _make(encoding: str, make: Callable[[Call, bytes, *Ts], T], call: Call, raw: bytes, *more: *Ts) -> T:
    """Return the result of ``make`` for a body; in a thread if decoding the body takes long."""
    if len(raw) < limits.DECODE_INLINE[encoding]:
        return make(call, raw, *more)
    return await asyncio.to_thread(make, call, raw, *more)


async def delete(verbs: Verbs, call: Call, document: Document | None) -> Outcome:
    """Delete one object.

    ``document`` contains the DeleteOptions of the body, None without a body (WRI-020).
    """
    converting.enable(verbs, call)
    return await _served(verbs, call, await deletes.delete(verbs, call, delete_options(call, document)))


async def begin_collection_delete(verbs: Verbs, call: Call, document: Document | None) -> tuple[Page, DeleteOptions]:
    """Return the page of objects to delete, and the options for their deletion (WRI-021).

    The page is that of a list with the same options, and it is the response. The caller encodes it before the first
    deletion, for two reasons: an object that cannot be decoded must prevent all deletions, and the objects of a large
    collection need not stay in memory until the last deletion.
    """
    options = list_options(call)
    parsed(options)
    wanted = delete_options(call, document)
    # upstream: the list of a deletecollection always has a limit, which makes its resourceVersion an exact revision
    # Here, a request without a limit gets the largest possible limit, with the same effect.
    return await read.list_page(verbs, call, replace(options, limit=options.limit or maxsize)), wanted


async def delete_listed(verbs: Verbs, call: Call, names: Sequence[tuple[str, str]], options: DeleteOptions) -> None:
    """Delete the objects of a page, by namespace and name."""
    await deletes.delete_each(verbs, call, names, options)
    if call.served.model.typed:
        await verbs.definitions.everywhere(call.served.names.group_resource)


def list_options(call: Call) -> ListOptions:
    """Return the options of a list or watch; raise a 400 or 422 for invalid options (RV-004)."""
    try:
        found = ListOptions.parse(call.query)
    except OptionsError as error:
        raise status.bad_request(str(error)) from error
    errors = found.errors()
    if errors:
        parsed(found)  # upstream: selectors are parsed before any option is validated
        _refuse(found.kind, errors)
    return found


def write_options(call: Call, name: str, *, apply: bool = False) -> WriteOptions:
    """Return the options of a write; raise a 422 for invalid options (WRI-011)."""
    if not call.query and not apply:
        return _DEFAULT[name]
    found = WriteOptions.parse(name, call.query)
    _refuse(found.kind, found.errors(apply=apply))
    return found


_DEFAULT = {name: WriteOptions(name) for name in ("CreateOptions", "UpdateOptions", "PatchOptions")}
_DEFAULT_DELETE = DeleteOptions()


def delete_options(call: Call, document: Document | None) -> DeleteOptions:
    """Return the options of a delete: those of the body, else of the query (WRI-018, WRI-020).

    Raise a 400 or 422 for invalid options.
    """
    if document is None and not call.query:
        return _DEFAULT_DELETE
    fault = identity.options_fault(document or {}, "DeleteOptions")
    if fault:
        raise status.bad_request(fault)
    try:
        found = DeleteOptions.parse(call.query) if document is None else DeleteOptions.from_document(document)
    except OptionsError as error:
        raise status.bad_request(str(error)) from error
    if call.trail is not None and document is not None:
        call.trail.options(document)
    _refuse(found.kind, found.errors(collection=call.verb == "deletecollection"))
    return found


def validate_delete_fields(members: Sequence[tuple[str, Any]]) -> None:
    """Raise a 400 for DeleteOptions with a field that cannot be decoded.

    This includes a field that a duplicate key replaces, since upstream decodes both.
    """
    _, fault = identity.read_type(members)
    if fault:
        raise status.bad_request(fault)
    try:
        for name, value in members:
            DeleteOptions.from_document({name: value})
    except OptionsError as error:
        raise status.bad_request(str(error)) from error


def _refuse(kind: GroupKind, errors: list[FieldError]) -> None:
    if errors:
        raise status.invalid(kind, "", errors)


def _unconditional(call: Call) -> bool:
    """Return whether a write without a resourceVersion is allowed (UPD-004)."""
    return part_of(call).partial or call.served.traits.unconditional
