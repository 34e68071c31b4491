"""Get and list: choose the source, the revision and the part to read (RV-… in BEHAVIOUR.md)."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from apiext.meta import status
from apiext.meta.options import ListOptions
from apiext.storage import continuation, readplan
from apiext.storage.collection import Collection
from apiext.storage.keys import relative
from apiext.storage.readplan import ListQuery, ReadPlan
from apiext.storage.snapshot import Slice
from apiext.storage.store import Compacted, Entry, FutureRevision
from apiext.text.quotes import go_quote
from apiext.verbs import converting, identity, threads
from apiext.verbs.call import Call, Page, Verbs
from apiext.verbs.errors import translated
from apiext.verbs.objects import collection_of
from apiext.verbs.selection import Selection, selected

CONTINUE_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


async def get(verbs: Verbs, call: Call, resource_version: str) -> Entry:
    """Return the newest state of an object, or a state not older than ``resource_version``.

    For ``0``, the state may be older than the store. See RV-002. Raise a 404 if the object does not exist, and a 500
    for a ``resource_version`` that is not a number.
    """
    collection = collection_of(verbs, call)
    identity.check_segment(call.name)
    with translated():
        if not collection.state.ready or call.served.work.cold():
            await _prepare(call, collection)
        if resource_version == "" or (resource_version == "0" and not call.resource.cached):
            await verbs.store.fresh(collection)
        elif resource_version != "0":
            revision = parse_revision(resource_version)
            if not call.resource.cached:
                await refuse_future(verbs, collection, revision)
            await verbs.store.at_least(revision, collection)
        found = collection.state.get(call.namespace or "", call.name, stale=resource_version == "0")
    if found is None:
        raise status.not_found(call.served.names.group_resource, call.name)
    return await converting.shown_one(verbs, call, found) if call.served.codec.converts else found


def parse_revision(text: str) -> int:
    """Return a resourceVersion as a number.

    As kube-apiserver, raise a 500 if it is not a number.
    """
    try:
        return readplan.parse_revision(text)
    except ValueError as error:
        raise status.unknown(bad_revision(text, error)) from error


def bad_revision(text: str, error: Exception) -> str:
    """Return the error text of a resourceVersion that is not a number."""
    return f"resourceVersion: Invalid value: {go_quote(text)}: {error}"


async def refuse_future(verbs: Verbs, collection: Collection, revision: int, retry_after: int = 0) -> None:
    """Raise FutureRevision immediately for a revision that the store has not reached.

    ``retry_after`` is the retry delay of FutureRevision.
    """
    if revision > verbs.store.revision and revision > (current := await verbs.store.fresh(collection)):
        raise FutureRevision(revision, current, retry_after)


async def list_page(verbs: Verbs, call: Call, options: ListOptions) -> Page:
    """Return a page of a list: segments of the cache or entries.

    The page has a continue token if objects remain. Raise a 400 for invalid options.
    """
    selection = await selected(call.served, options, call.name)
    # A field selector with metadata.namespace restricts a list of all namespaces.
    if call.namespace is None and call.served.names.namespaced and selection.namespace:
        call = replace(call, namespace=selection.namespace)  # upstream: this is a list of that namespace
    collection = collection_of(verbs, call)
    # upstream: a limit has an effect on a list of one object by name only with a continue token
    # On other lists it makes pages, and makes resourceVersion an exact revision.
    limit = 0 if _of_one(call, selection) and not options.continue_token else options.limit
    query = ListQuery(
        options.resource_version, options.resource_version_match, limit, options.continue_token, call.resource.cached
    )
    try:
        plan = readplan.plan(query)
    except readplan.BadRevision as error:
        text = f"invalid resource version: {bad_revision(options.resource_version, error)}"
        raise status.bad_request(text) from error
    except ValueError as error:
        raise status.bad_request(str(error)) from error
    with translated():
        if not collection.state.ready or call.served.work.cold():
            await _prepare(call, collection)
        if not call.resource.cached:
            await refuse_future(verbs, collection, plan.revision)
        return await SOURCES[plan.source](verbs, call, collection, plan, selection)


def _of_one(call: Call, selection: Selection) -> bool:
    return bool(selection.name) and (call.namespace is not None or not call.served.names.namespaced)


async def _prepare(call: Call, collection: Collection) -> None:
    """Wait until the collection is filled and its schema is compiled."""
    await collection.filled()
    await threads.prepare(call)


async def _fresh(verbs: Verbs, call: Call, collection: Collection, plan: ReadPlan, selection: Selection) -> Page:
    await verbs.store.fresh(collection)
    return await _cut(verbs, call, collection, plan, selection)


async def _at_least(verbs: Verbs, call: Call, collection: Collection, plan: ReadPlan, selection: Selection) -> Page:
    await verbs.store.at_least(plan.revision, collection)
    return await _cut(verbs, call, collection, plan, selection)


async def _exact(verbs: Verbs, call: Call, collection: Collection, plan: ReadPlan, selection: Selection) -> Page:
    """Read at one revision, from the store.

    With a selector, read from the cache if no object has changed since this revision.
    """
    try:
        part = None
        if selection.matches is not None and await verbs.store.unchanged(collection, plan.revision):
            part = await _selected(verbs, call, collection, plan, selection)
        if part is None or not collection.unchanged_since(plan.revision):
            part = await _read(verbs, call, collection, plan, selection)
    except Compacted as error:
        if not plan.start_key:
            raise
        raise _expired_continue(plan) from error
    # Upstream's cache lacks revisions from before the last change of the definition. For them, the token has the form
    # that upstream's store uses.
    cached = call.resource.cached and plan.revision >= call.resource.definition.guard_revision
    token = continuation.encode(part.next, plan.revision, cached=cached) if part.next else ""
    return Page(plan.revision, entries=part.entries, token=token, remaining=_shown(part.remaining, token, selection))


async def _read(verbs: Verbs, call: Call, collection: Collection, plan: ReadPlan, selection: Selection) -> Slice:
    """Read from the store, part by part until the limit is reached.

    Parts grow if few objects are selected.
    """
    found: list[Entry] = []
    start, wanted = plan.start_key, plan.limit
    while True:
        part = await verbs.store.at_revision(collection, call.namespace, plan.revision, after=start, limit=wanted)
        left = plan.limit - len(found)
        chosen = await converting.chosen(verbs, call, selection, part.entries, left if plan.limit else 0)
        if plan.limit and len(chosen) >= left:
            following = _following(chosen[left - 1], part.entries, call, collection) or part.next
            return Slice(found + chosen[:left], plan.revision, part.remaining, following)
        found += chosen
        start, wanted = part.next, readplan.next_part(wanted, part.entries)
        if not start:
            return Slice(found, plan.revision, 0, "")


def _expired_continue(plan: ReadPlan) -> status.StatusError:
    """Return the 410 with a token that continues at the newest revision (RV-007)."""
    error = status.expired(CONTINUE_EXPIRED)
    error.metadata = {"continue": continuation.encode(plan.start_key, -1, cached=False)}
    return error


def _shown(remaining: int, token: str, selection: Selection) -> int | None:
    return remaining if token and selection.matches is None else None


async def _cut(verbs: Verbs, call: Call, collection: Collection, plan: ReadPlan, selection: Selection) -> Page:
    """Return a page from the cache: segments if all objects are selected, else entries.

    If the request accepts old states and some objects are unreadable now, the page has their last readable states.
    """
    stale = plan.source == "cache"
    if (
        stale
        and collection.state.broken
        and (found := collection.state.with_last_states(call.namespace, plan.start_key)) is not None
    ):
        revision = collection.state.revision
        return Page(revision, entries=await converting.chosen(verbs, call, selection, found))
    if call.served.codec.converts:
        return await _cut_converted(verbs, call, collection, plan, selection)
    revision = collection.state.revision
    if selection.matches is None:
        part = collection.state.segments(call.served.codec.view, call.namespace, plan.start_key, plan.limit)
        token = continuation.encode(part.next, revision, cached=call.resource.cached) if part.next else ""
        return Page(revision, segments=part, token=token, remaining=_shown(part.remaining, token, selection))
    if _of_one(call, selection):
        one = collection.state.get(call.namespace or "", selection.name, listed=True, stale=stale)
        shown = one is not None and one.name >= plan.start_key and selection.matches(one)
        return Page(revision, entries=[one] if one is not None and shown else [])
    return _page_of(call, await _selected(verbs, call, collection, plan, selection))


def _page_of(call: Call, part: Slice) -> Page:
    token = continuation.encode(part.next, part.revision, cached=call.resource.cached) if part.next else ""
    return Page(part.revision, entries=part.entries, token=token)


async def _selected(verbs: Verbs, call: Call, collection: Collection, plan: ReadPlan, selection: Selection) -> Slice:
    """Select objects from the cache.

    Use the current state of the cache, or a newer state if an index must be updated first.
    """
    if not call.served.codec.converts:
        return await collection.state.select(selection.terms, call.namespace, plan.start_key, plan.limit)
    page = collection.state.page(call.namespace, plan.start_key, 0)
    found = await converting.chosen(verbs, call, selection, page.entries, plan.limit)
    if not plan.limit or len(found) < plan.limit:
        return Slice(found, page.revision, 0, "")
    following = _following(found[plan.limit - 1], page.entries, call, collection)
    return Slice(found[: plan.limit], page.revision, 0, following)


def _following(last: Entry, entries: Sequence[Entry], call: Call, collection: Collection) -> str:
    """Return the key after an entry for a continue token, or an empty string for the last entry."""
    if (last.namespace, last.name) == (entries[-1].namespace, entries[-1].name):
        return ""
    inside = call.namespace is not None or not collection.namespaced
    return f"{last.name}\0" if inside else f"{relative(last.namespace, last.name)}\0"


SOURCES = {
    "cache": _cut,
    "fresh": _fresh,
    "at_least": _at_least,
    "exact": _exact,
}


async def _cut_converted(
    verbs: Verbs, call: Call, collection: Collection, plan: ReadPlan, selection: Selection
) -> Page:
    """Return a page from the cache with objects that may need conversion.

    Selectors apply to converted objects.
    """
    revision = collection.state.revision
    if selection.matches is None:
        part = collection.state.segments(call.served.codec.view, call.namespace, plan.start_key, plan.limit)
        token = continuation.encode(part.next, revision, cached=call.resource.cached) if part.next else ""
        remaining = _shown(part.remaining, token, selection)
        convert = partial(converting.made, verbs, call) if verbs.converter is not None else None
        return Page(revision, None, part, token, remaining, convert)
    return _page_of(call, await _selected(verbs, call, collection, plan, selection))
