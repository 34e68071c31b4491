"""Guards: an etcd key for each definition, with its uid, its generation and a state.

Every put of a custom object compares the revision of the guard in the same transaction. So a server that has validated
the object with an older definition cannot write it. The state is ``serving`` or ``terminating``. The deletion of a
definition begins with a change of the state to ``terminating``.
"""

import orjson
from msgspec import Struct

from apiext.controllers import limits
from apiext.controllers.definitions import Definitions, Facts
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.store import Guard, Malformed, RevisionChanged, Unavailable

GUARDS = GroupResource(".apiext", "guards")
SERVING = "serving"
TERMINATING = "terminating"


class Permit(Struct, frozen=True):
    """A stored guard: uid and generation of the definition, and the state.

    Each put of an object compares the ``revision`` of the guard.
    """

    uid: str
    state: str
    generation: int
    revision: int


class Guards:
    """The guards of all definitions, read from the cache and written by compare-and-swap."""

    def __init__(self, store: CachedStore, collection: Collection, definitions: Definitions) -> None:
        self.collection = collection
        self._store = store
        self._definitions = definitions
        # name of a definition whose deletion was abandoned (see ``abandon``) → revision of its guard
        self._abandoned: dict[str, int] = {}

    def key(self, name: str) -> str:
        """Return the etcd key of a definition's guard."""
        return self._store.keys.guard(name)

    def cached(self, name: str) -> Permit | None:
        """Return the cached guard of a definition; None if there is none, or it is unreadable."""
        try:
            entry = self.collection.state.get("", name)
        except Malformed:
            return None
        return parse(entry.raw, entry.revision) if entry is not None else None

    def matching(self, facts: Facts) -> Permit | None:
        """Return the cached guard of a definition if it matches ``facts``, else None.

        Facts are properties of the definition (definitions.py). The uid, the generation and the state must match.
        """
        found = self.cached(facts.name)
        return found if found is not None and self._fits(found, facts) else None

    def _fits(self, found: Permit, facts: Facts) -> bool:
        return (
            found.uid == facts.uid and found.generation == facts.generation and found.state == self._state(found, facts)
        )

    def _state(self, found: Permit | None, facts: Facts) -> str:
        """Return the state that a guard must have.

        ``terminating`` is final, unless the deletion was abandoned.
        """
        if facts.deleting:
            return TERMINATING
        if found is None or found.uid != facts.uid or found.state != TERMINATING:
            return SERVING
        return SERVING if self._abandoned.get(facts.name) == found.revision else TERMINATING

    def abandon(self, name: str, revision: int) -> None:
        """Allow the state ``serving`` again for a guard at this revision.

        Call this if no deletionTimestamp has followed the state ``terminating`` in time.
        """
        self._abandoned[name] = revision

    async def ensure(self, facts: Facts) -> Permit | None:
        """Return a guard that matches the facts, and write it if necessary.

        Return None if the definition has changed. Raises StoreErrors.
        """
        found = self.matching(facts)
        if found is not None:
            return found
        for _ in range(limits.GUARD_ATTEMPTS):
            # The definition is read after the guard, so that a guard is never compared with an older definition.
            stored = await self._stored(facts.name)
            entry = await self._store.current(self._definitions.collection, "", facts.name)
            now = self._definitions.of(entry) if entry is not None else None
            if now is None or (now.uid, now.generation, now.deleting) != (facts.uid, facts.generation, facts.deleting):
                return None
            if stored is not None and self._fits(stored, facts):
                return stored
            try:
                return await self._put(facts.name, facts.uid, self._state(stored, facts), facts.generation, stored)
            except RevisionChanged:
                continue
        raise Unavailable(f"the guard of {facts.name} keeps changing")

    async def terminate(self, name: str, uid: str) -> Guard:
        """Set the guard to terminating, and return it for the next write of the caller.

        Raise StoreErrors. If neither the guard nor the stored definition has this uid, leave the guard unchanged, and
        raise RevisionChanged.
        """
        for _ in range(limits.GUARD_ATTEMPTS):
            stored = await self._stored(name)
            if stored is not None and stored.uid == uid and stored.state == TERMINATING:
                return Guard(self.key(name), stored.revision)
            if stored is None or stored.uid != uid:
                await self._check_uid(name, uid)
            generation = stored.generation if stored is not None and stored.uid == uid else 0
            facts = self._definitions.get(name)
            if facts is not None and facts.uid == uid:
                generation = max(generation, facts.generation)
            try:
                permit = await self._put(name, uid, TERMINATING, generation, stored)
            except RevisionChanged:
                continue
            return Guard(self.key(name), permit.revision)
        raise Unavailable(f"the guard of {name} keeps changing")

    async def _check_uid(self, name: str, uid: str) -> None:
        """Raise RevisionChanged if the definition does not exist or has another uid.

        Call this after the guard was read.
        """
        entry = await self._store.current(self._definitions.collection, "", name)
        now = self._definitions.of(entry) if entry is not None else None
        if entry is None or (now is not None and now.uid != uid):
            raise RevisionChanged(entry)

    async def release(self, name: str) -> None:
        """Delete the guard of a deleted definition. Do nothing if a new definition has the name."""
        self._abandoned.pop(name, None)
        stored = await self._stored(name)
        if stored is None or await self._store.current(self._definitions.collection, "", name) is not None:
            return
        try:
            await self._store.delete_key(self.key(name), stored.revision)
        except RevisionChanged:
            return  # a new definition uses the guard, or another server has deleted it

    async def _stored(self, name: str) -> Permit | None:
        found = await self._store.get_key(self.key(name))
        return parse(*found) if found is not None else None

    async def _put(self, name: str, uid: str, state: str, generation: int, stored: Permit | None) -> Permit:
        value = orjson.dumps({"generation": generation, "state": state, "uid": uid})
        revision = await self._store.put_key(self.key(name), value, stored.revision if stored is not None else 0)
        # A catalog with this guard must also have all changes of definitions before this write, so the cache must have
        # them first.
        await self._store.at_least(revision, self._definitions.collection)
        return Permit(uid, state, generation, revision)


def parse(raw: bytes, revision: int) -> Permit:
    """Parse a stored guard.

    An invalid guard matches no definition, so the controller writes it again.
    """
    try:
        value = orjson.loads(raw)
        return Permit(str(value["uid"]), str(value["state"]), int(value.get("generation") or 0), revision)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Permit("", "", 0, revision)
