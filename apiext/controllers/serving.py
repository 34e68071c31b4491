"""Build the catalog from stored definitions. No other module sets ``LiveCatalog.current``.

``Facts`` (definitions.py) are the fields of a stored definition that controllers need. The guard of a definition is a
key of the store. Each transaction that stores an object of the definition compares the revision of this key. A
``Permit`` (guards.py) is the content of a guard.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from msgspec.structs import replace

from apiext.catalog.compile import compile_definition
from apiext.catalog.served import TERMINATING_VERBS, LiveCatalog, ServedResource, ServedVersion
from apiext.catalog.stored import Unreadable
from apiext.controllers import limits
from apiext.controllers.definitions import Definitions, Facts, shape, streams, trusted
from apiext.controllers.guards import TERMINATING, Guards, Permit
from apiext.controllers.loop import Loop
from apiext.controllers.peers import Peers
from apiext.documents.document import View
from apiext.meta.names import GroupResource
from apiext.storage import limits as storage_limits
from apiext.storage.cached_store import CachedStore
from apiext.storage.history import Change
from apiext.storage.store import Entry, Guard, NotReady, StoreError, Unavailable
from apiext.storage.values import custom_object

log = logging.getLogger(__name__)


class Recent:
    """A cache of the last decoded definition that has several versions.

    The server usually needs the schemas of these versions one after the other, and each needs the decoded definition.

    The cache is thread-safe: at worst, two threads decode the same definition.
    """

    __slots__ = ("_cached", "_loop", "_scheduled", "_used")

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._cached: tuple[bytes, View] | None = None
        self._used = self._scheduled = False

    def start(self) -> None:
        """Start to cache definitions.

        A definition that is not used for limits.DECODED_KEPT seconds is evicted.
        """
        self._loop = asyncio.get_running_loop()

    def decoded(self, raw: bytes, read: Callable[[bytes, int], View]) -> View:
        """Return the definition in its v1 form. ``read`` decodes it if it is not cached."""
        kept = self._cached
        if kept is not None and kept[0] == raw:
            self._used = True
            return kept[1]
        document = read(raw, 0)
        if self._loop is not None and len((document.get("spec") or {}).get("versions") or ()) > 1:
            self._cache(self._loop, raw, document)
        return document

    def _cache(self, loop: asyncio.AbstractEventLoop, raw: bytes, document: View) -> None:
        self._cached, self._used = (raw, document), True
        try:
            loop.call_soon_threadsafe(self._schedule_expiry, loop)
        except RuntimeError:  # the event loop is closed, since the server has ended
            self._cached = None

    def _schedule_expiry(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._scheduled:
            self._scheduled = True
            loop.call_later(limits.DECODED_KEPT, self._expire, loop)

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._used:
            self._used = False
            loop.call_later(limits.DECODED_KEPT, self._expire, loop)
        else:
            self._cached, self._scheduled = None, False


class _Source:
    """The stored bytes of a compiled definition.

    A call of the instance decodes them, unless they are cached.
    """

    __slots__ = ("_read", "_recent", "raw")

    def __init__(self, raw: bytes, read: Callable[[bytes, int], View], recent: Recent) -> None:
        self.raw = raw
        self._read = read
        self._recent = recent

    def __call__(self) -> View:
        """Return the definition in its v1 form."""
        return self._recent.decoded(self.raw, self._read)


class _Compiled:
    """A compiled definition: the digest of its content, its source, and its resource."""

    def __init__(self, digest: bytes, source: _Source, resource: ServedResource) -> None:
        self.digest = digest
        self.source = source
        self.resource = resource
        self._terminating: Mapping[str, ServedVersion] | None = None

    def versions(self, terminating: bool) -> Mapping[str, ServedVersion]:
        """Return the served versions by name.

        They have fewer verbs while the definition is terminating (DEL-004).
        """
        if not terminating:
            return self.resource.versions
        if self._terminating is None:
            self._terminating = {
                name: replace(version, published=replace(version.published, verbs=TERMINATING_VERBS))
                for name, version in self.resource.versions.items()
            }
        return self._terminating


class Serving:
    """The controller that updates the catalog after each change of a definition or guard."""

    def __init__(self, store: CachedStore, live: LiveCatalog, definitions: Definitions, guards: Guards) -> None:
        self._store = store
        self._live = live
        self._definitions = definitions
        self._guards = guards
        self._compiled: dict[str, _Compiled] = {}
        self._recent = Recent()
        self._builtin: set[tuple[str, str]] = set()  # (group, version) of built-in kinds
        self._loop = Loop("serving", self.reconcile, width=8)
        self._pending: set[str] = set()  # names of definitions that were not processed since the start
        self._synced = asyncio.Event()
        # definitions with a terminating guard, but without a deletionTimestamp: name → revision of the guard
        self._awaited_deletions: dict[str, int] = {}
        self._listeners: list[Callable[[str], None]] = []
        self.peers: Peers | None = None

    def serve_builtin(self, resources: Iterable[ServedResource]) -> None:
        """Add built-in resources to the catalog, unless the catalog has them already."""
        for served in resources:
            self._builtin.update((served.group, version) for version in served.versions)
            if self._live.current.resource(served.group, served.resource) is None:
                self._live.current = self._live.current.with_resource(served)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Subscribe to definitions and guards, and serve all stored definitions.

        Both collections must be up to date.
        """
        self._recent.start()
        self._pending = set(self._definitions.names())
        self._definitions.collection.feed.subscribe(self._changed)
        self._guards.collection.feed.subscribe(self._changed)
        self._loop.start(group, self._everything)
        for name in self._everything():
            self._loop.add(name)
        self._mark_processed("")

    async def stop(self) -> None:
        """Stop the controller. The catalog stays unchanged."""
        await self._loop.stop()

    def listen(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the name of a definition after each change of its served resource."""
        self._listeners.append(listener)

    def synced(self) -> bool:
        """Report whether all definitions that were readable at the start are now served or refused.

        See HLT-003.
        """
        return self._synced.is_set()

    async def wait_synced(self) -> None:
        """Wait until ``synced()`` is True."""
        await self._synced.wait()

    async def refresh(self, group: str, resource: str) -> ServedResource | None:
        """Update the catalog with the newest definition and guard, and return the resource.

        Return None if the resource is not served. A caller whose write failed with GuardChanged validates again with
        the result. Raises StoreError.
        """
        found = self._live.current.resource(group, resource)
        if found is not None and found.builtin:
            return found
        await self.fresh()
        name = f"{resource}.{group}"
        try:
            await self._loop.run(name)
        except StoreError:
            if self._definitions.get(name) is not None:
                raise
        return self._live.current.resource(group, resource)

    def holds(self, resource: ServedResource) -> bool:
        """Report whether the guard in the cache still has the guard revision of this resource."""
        found = self._guards.cached(f"{resource.resource}.{resource.group}")
        return found is not None and found.revision == resource.definition.guard_revision

    async def fresh(self) -> int:
        """Wait until the cache has the newest definitions, and return its revision.

        Do not wait for other resources.
        """
        return await self._store.fresh(self._definitions.collection)

    async def seen(self, revision: int) -> None:
        """Wait until the catalog has every change of definitions up to the revision.

        Raise FutureRevision if the cache does not reach the revision in time.

        If the compilation takes longer than ``storage_limits.FRESH_WAIT`` seconds, log a warning and return.
        """
        await self._store.at_least(revision, self._definitions.collection)
        try:
            async with asyncio.timeout(storage_limits.FRESH_WAIT):
                await self._loop.settled()
        except TimeoutError:
            log.warning("the definitions of revision %d are not all served yet", revision)

    async def settled(self) -> None:
        """Wait until each cached definition is in the catalog, or its compilation has failed."""
        await self._loop.settled()

    async def complete(self) -> None:
        """Wait until the catalog has all stored definitions.

        Raises NotReady while a definition cannot be decrypted, since its resource is unknown.
        """
        await self.wait_synced()
        definitions = self._definitions.collection
        await self.fresh()
        await self.settled()
        names = [name for name, broken in definitions.state.broken.items() if broken.undecryptable]
        if names:
            raise NotReady(f"no key decrypts {', '.join(names)}, so the served resources are unknown")

    @property
    def has_peers(self) -> bool:
        """True if other workers serve the same port."""
        return self.peers is not None

    async def everywhere(self, written: GroupResource | None = None) -> None:
        """Wait until all workers use the same configuration as this worker.

        Wait at most storage_limits.FRESH_WAIT seconds. Definitions, roles and webhooks, for example, are configuration.
        ``written`` is the resource of the written object. If it is not configuration, do not wait.
        """
        if self.peers is not None:
            await self.peers.everywhere(written)

    async def begin_deletion(self, name: str, uid: str) -> Guard:
        """Set the guard of a definition to terminating.

        The caller then writes the deletionTimestamp (DEL-004). The write of the caller must compare the returned guard,
        so that it fails if the deletion was abandoned in the meantime. Raises RevisionChanged if the definition was
        deleted, or a new definition has the name.
        """
        return await self._guards.terminate(name, uid)

    async def reconcile(self, name: str) -> None:
        """Serve the current state of a definition, or stop serving it."""
        try:
            await self._follow(name)
        except StoreError:
            raise
        except Unreadable as error:  # a retry cannot help before the definition changes
            log.warning("the stored definition %s cannot be served: %s", name, error)
        except Exception:
            # a definition that cannot be compiled must not keep the server from becoming ready
            self._mark_processed(name)
            raise
        self._mark_processed(name)

    async def _follow(self, name: str) -> None:
        for _ in range(limits.COMPILE_ATTEMPTS):
            facts = self._definitions.get(name)
            if facts is None:
                if self._definitions.missing(name):
                    await self._remove(name)
                return
            if facts.served and not self._is_compiled(facts) and not self._is_builtin(facts):
                await self._compile(facts)
            if await self._guards.ensure(facts) is None:
                await self.fresh()
            elif facts is self._definitions.get(name) and self._settle(facts):
                return
        raise Unavailable(f"the definition {name} keeps changing")

    async def _compile(self, facts: Facts) -> None:
        entry = self._definitions.entry(facts.name)
        if entry is None or entry.revision != facts.revision:
            return
        before = self._compiled.get(facts.name)
        if facts.size <= limits.COMPILE_INLINE or not self.synced():
            compiled = self._build(entry, facts, before)
        else:
            compiled = await asyncio.to_thread(self._build, entry, facts, before)
        self._compiled[facts.name] = compiled

    def _compile_at_once(self, facts: Facts) -> None:
        """Compile a small definition at once.

        So this server serves it when clients see that it is Established.
        """
        entry = self._definitions.entry(facts.name)
        if entry is None or facts.size > limits.COMPILE_AT_ONCE or self._is_compiled(facts) or self._is_builtin(facts):
            return
        self._compiled[facts.name] = self._build(entry, facts, self._compiled.get(facts.name))

    def _build(self, entry: Entry, facts: Facts, before: _Compiled | None) -> _Compiled:
        """Compile a stored definition. A thread may call this method.

        A version whose digest by ``streams`` (definitions.py) is unchanged keeps its identity, so its watches continue.
        """
        resource = self._definitions.collection.resource
        served = self._live.current.lookup(resource.group, "v1", resource.resource)
        assert served is not None
        source = _Source(entry.raw, served.codec.decode, self._recent)
        # A server writes a matching guard only after it has decoded the definition, so ``trusted`` may skip the checks.
        known = not self.synced() and self._guards.matching(facts) is not None
        document = (known and trusted(entry.raw)) or source()
        identity, kept = facts.digest.hex(), {}
        if before is not None:
            if shape(before.source.raw) == shape(entry.raw):
                identity = before.resource.definition.identity
            was, had = streams(before.source.raw), before.resource.all_versions
            kept = {
                name: had[name].identity
                for name, text in streams(entry.raw).items()
                if name in had and was.get(name) == text
            }
        compiled = compile_definition(document, shape=identity, streams=kept, again=source)
        own = {name: it for name, it in compiled.versions.items() if (compiled.group, name) not in self._builtin}
        definition = replace(compiled.definition, content=facts.digest.hex())
        return _Compiled(facts.digest, source, replace(compiled, definition=definition, versions=own))

    def _settle(self, facts: Facts) -> bool:
        """Update the catalog at once.

        Return False if the matching guard or the compiled definition is missing.
        """
        if not facts.served or self._is_builtin(facts):
            self._withdraw(facts.name)
            return True
        permit = self._guards.matching(facts)
        if permit is None or not self._is_compiled(facts):
            return False
        self._serve(facts, permit)
        if permit.state == TERMINATING and not facts.deleting:
            self._await_deletion(facts.name, permit.revision)
        return True

    def _serve(self, facts: Facts, permit: Permit) -> None:
        compiled = self._compiled[facts.name]
        entry = self._definitions.entry(facts.name)
        if entry is not None:
            compiled.source.raw = entry.raw  # the bytes in the cache, so that the bytes of older revisions are freed
        terminating = facts.deleting or permit.state == TERMINATING
        before = self._resource(facts.resource)
        after = replace(
            compiled.resource,
            versions=compiled.versions(terminating),
            definition=replace(
                compiled.resource.definition,
                uid=facts.uid,
                generation=facts.generation,
                established=facts.established,
                terminating=terminating,
                guard_key=self._guards.key(facts.name),
                guard_revision=permit.revision,
            ),
        )
        had, has = before.definition if before is not None else None, after.definition
        if has.unusable and (had is None or not had.unusable):
            log.warning(
                "the CA bundle of the conversion webhook of %s cannot be read: requests for its objects fail with 500",
                facts.name,
            )
        if before is None or had is None or not _is_same_for_discovery(before, after):
            self._store.add(after.group_resource, after.namespaced, custom_object).feed.on_replaced = [after.evict]
            self._live.current = self._live.current.with_resource(after)
        elif (had.guard_revision, had.generation) != (has.guard_revision, has.generation):
            self._live.current = self._live.current.with_state(after)  # this change has no effect on discovery
        else:
            return
        if before is not None:
            self._end_watches(before, after)
        self._notify(facts.name)

    def _await_deletion(self, name: str, revision: int) -> None:
        """Abandon the deletion if no deletionTimestamp follows in time.

        The time is limits.DELETION_ABANDONED seconds.
        """
        if self._awaited_deletions.get(name) == revision:
            return
        self._awaited_deletions[name] = revision
        asyncio.get_running_loop().call_later(limits.DELETION_ABANDONED, self._abandon_guard, name, revision)

    def _abandon_guard(self, name: str, revision: int) -> None:
        if self._awaited_deletions.get(name) == revision:
            del self._awaited_deletions[name]
            self._guards.abandon(name, revision)
            self._loop.add(name)

    async def _remove(self, name: str) -> None:
        """Remove the resource, cache and guard of a deleted definition (DEL-005)."""
        self._awaited_deletions.pop(name, None)
        resource = _resource_of(name)
        collection = self._store.collection(resource)
        served = self._remove_from_catalog(name)
        if served is not None and collection is not None:
            # watches must send the DELETED events of the last objects before they end
            await collection.feed.watches_served(limits.LAST_EVENTS)
            # ``drop`` would end the watches, too, but is not called if a new definition uses the collection already
            self._end_watches(served, None)
        if self._resource(resource) is None:
            self._store.drop(resource)
        await self._guards.release(name)

    def _withdraw(self, name: str) -> None:
        """Stop serving the resource of a definition, and end its watches."""
        served = self._remove_from_catalog(name)
        if served is not None:
            self._end_watches(served, None)

    def _remove_from_catalog(self, name: str) -> ServedResource | None:
        """Remove the resource of a definition from the catalog.

        Return it, or None if the catalog had no such resource.
        """
        self._compiled.pop(name, None)
        resource = _resource_of(name)
        served = self._resource(resource)
        if served is None or served.builtin:
            return None
        self._live.current = self._live.current.without_resource(resource.group, resource.resource)
        self._notify(name)
        return served

    def _end_watches(self, before: ServedResource, after: ServedResource | None) -> None:
        """End the watches of versions that are no longer served or have another identity (SRV-015)."""
        remaining = {} if after is None else {name: version.identity for name, version in after.versions.items()}
        ended = {name for name, version in before.versions.items() if remaining.get(name) != version.identity}
        collection = self._store.collection(before.group_resource)
        if ended and collection is not None:
            collection.feed.end_watches(versions=ended)

    def _changed(self, change: Change) -> None:
        """Update the catalog after a change of a definition or guard.

        Do this at once if possible, else in the loop.
        """
        name = change.entry.name
        facts = self._definitions.get(name)
        settled = False
        try:
            if facts is not None and facts.served and self._guards.matching(facts) is not None:
                self._compile_at_once(facts)
                settled = self._settle(facts)
        except Unreadable:
            pass  # ``reconcile`` logs the error
        finally:
            if not settled:
                self._loop.add(name)

    def _mark_processed(self, name: str) -> None:
        self._pending.discard(name)
        if not self._pending:
            self._synced.set()

    def _is_compiled(self, facts: Facts) -> bool:
        compiled = self._compiled.get(facts.name)
        return compiled is not None and compiled.digest == facts.digest

    def _is_builtin(self, facts: Facts) -> bool:
        found = self._resource(facts.resource)
        return found is not None and found.builtin

    def _resource(self, resource: GroupResource) -> ServedResource | None:
        return self._live.current.resource(resource.group, resource.resource)

    def _everything(self) -> list[str]:
        guarded = (entry.name for entry in self._guards.collection.state.readable())
        return list(dict.fromkeys((*self._definitions.names(), *guarded)))

    def _notify(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)


def _resource_of(name: str) -> GroupResource:
    plural, _, group = name.partition(".")
    return GroupResource(group, plural)


def _is_same_for_discovery(before: ServedResource, after: ServedResource) -> bool:
    had, has = before.definition, after.definition
    return (
        before.versions is after.versions
        and had.uid == has.uid
        and had.established == has.established
        and had.terminating == has.terminating
    )
