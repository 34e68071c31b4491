"""The write loop: decide on a state of an object, and store the decision.

The decision is stored only if the object still has this state.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from msgspec import Struct

from apiext.meta.status import StatusError
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.store import (
    Entry,
    Guard,
    GuardChanged,
    KeyExists,
    Malformed,
    RevisionChanged,
    StoreError,
    TooLarge,
)
from apiext.verbs.call import Call, Outcome, Verbs
from apiext.verbs.errors import as_status, of_store, translated
from apiext.verbs.guarded import check_deadline
from apiext.verbs.objects import collection_of
from apiext.verbs.writers import Writer

Answer = Callable[[Entry], Outcome]
"""(stored object, or deleted object with the revision of its deletion) → the response; never raises."""


def written(entry: Entry) -> Outcome:
    """Return the response that contains a stored object."""
    return Outcome(200, entry=entry)


class Put(NamedTuple):
    """A write of bytes at a key (namespace, name).

    ``revision`` is that of the object to replace, or 0 for a new object. The keys in ``guards`` must be unchanged when
    the write commits. ``smaller()`` is called if the store rejects the bytes as too large. It returns the bytes without
    managedFields, or None if the object has no managedFields.
    """

    key: tuple[str, str]
    revision: int
    raw: bytes
    guards: tuple[Guard, ...] = ()
    answer: Answer = written
    smaller: Callable[[], Awaitable[bytes | None]] | None = None


class Remove(NamedTuple):
    """A deletion of the object at a key, if the object has this revision.

    ``unread`` is true if the value of the object cannot be decoded (KEP 3926).
    """

    key: tuple[str, str]
    revision: int
    answer: Answer = written
    unread: bool = False


class Unconfirmed(NamedTuple):
    """A response without a write: for a dry run, or if nothing changes.

    The response is based on a state that a read of the store must confirm.
    """

    outcome: Outcome


Decision = Put | Remove | Unconfirmed
Decide = Callable[[Entry | None], Awaitable[Decision]]
"""(state of the object, None if it does not exist) → the decision; raises StatusError to refuse the write."""
Renew = Callable[[GuardChanged | None], Awaitable[Decide | None]]
"""Reloads a changed definition or namespace, and returns the new Decide.

Called with None, it checks the definition, and returns None if the definition has not changed.
"""


class State(Struct):
    """The state of an object: its entry, or None if the object does not exist.

    ``confirmed`` is false for a cached state, which a read of the store must confirm.
    """

    entry: Entry | None = None
    confirmed: bool = True


Read = Callable[[], Awaitable[State]]
"""Returns the state of the object, for the first decision and after the turns of other writers."""


async def no_state() -> State:
    """Return the state for a create: there is no object."""
    return State()


async def cached_state(verbs: Verbs, call: Call, *, newest: bool = False) -> State:
    """Return the cached state of the call's object.

    Read the store if the object is not cached, or if ``newest``.
    """
    entry = None if newest else collection_of(verbs, call).state.cached(call.namespace or "", call.name)
    return State(entry, confirmed=False) if entry is not None else State(await _read(verbs, call))


async def commit(verbs: Verbs, call: Call, read: Read, decide: Decide, renew: Renew) -> Outcome:
    """Decide on the state of an object, and store the decision.

    Retry after a conflict, until the deadline. If a response or an error is based on cached state, a read of the store
    confirms the state before the client gets the response. An error of the store itself is final, since the store may
    have executed the write. After a conflict, the writers of one object take turns.
    """
    with Writer(verbs.queues, call) as writer:
        await writer.join()
        state = await read()
        while True:
            try:
                decision = await decide(state.entry)
                if not isinstance(decision, Unconfirmed):
                    return decision.answer(await attempt(verbs.store, collection_of(verbs, call), decision))
            except (KeyExists, RevisionChanged) as conflict:
                state = State(conflict.current)
                if await writer.turn():
                    state = _newer(state, await read())
            except GuardChanged as changed:
                decide = await renew(changed) or decide
            except StoreError as error:
                raise as_status(error) from error
            except StatusError as refusal:
                if of_store(refusal) or (renewed := await _reconsider(verbs, call, state, decide, renew)) is None:
                    raise
                decide = renewed
            else:
                if (renewed := await _reconsider(verbs, call, state, decide, renew)) is None:
                    return decision.outcome
                decide = renewed
            check_deadline(verbs, call)


def _newer(of_conflict: State, read: State) -> State:
    """Return the newer state: that of a conflict, or that read after the wait for a turn."""
    if (
        read.confirmed
        or of_conflict.entry is None
        or read.entry is None
        or read.entry.revision > of_conflict.entry.revision
    ):
        return read
    return of_conflict


async def attempt(store: CachedStore, collection: Collection, decision: Put | Remove) -> Entry:
    """Try once to store a decision, if the object and the guards are unchanged.

    Return the entry for `Answer`. Raise StoreError. If the store rejects the value as too large, store the result of
    ``smaller()`` instead: the object without managedFields (WRI-023).
    """
    if isinstance(decision, Remove):
        if decision.unread:
            return await _remove_unread(store, collection, decision)
        return await store.delete(collection, *decision.key, decision.revision)
    try:
        if decision.revision:
            return await store.update(collection, *decision.key, decision.raw, decision.revision, *decision.guards)
        return await store.create(collection, *decision.key, decision.raw, *decision.guards)
    except TooLarge:
        raw = await decision.smaller() if decision.smaller is not None else None
        if raw is None:
            raise
    return await attempt(store, collection, decision._replace(raw=raw, smaller=None))


async def _remove_unread(store: CachedStore, collection: Collection, decision: Remove) -> Entry:
    namespace, name = decision.key
    try:
        await store.delete_unread(collection, namespace, name, decision.revision)
    except Malformed as error:  # meanwhile, another value that cannot be decoded was stored
        raise RevisionChanged(None) from error
    return Entry(namespace, name, decision.revision, b"{}")


async def _reconsider(verbs: Verbs, call: Call, state: State, decide: Decide, renew: Renew) -> Decide | None:
    """Return None if the store still has the state and the definition of a decision.

    Else return the function for the next decision.
    """
    if not state.confirmed:
        before, state.entry, state.confirmed = state.entry, await _read(verbs, call), True
        if state.entry is None or before is None or state.entry.revision != before.revision:
            return decide
    return await renew(None)


async def _read(verbs: Verbs, call: Call) -> Entry | None:
    with translated():
        return await verbs.store.current(collection_of(verbs, call), call.namespace or "", call.name)
