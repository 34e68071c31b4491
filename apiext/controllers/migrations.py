"""The controller of StorageVersionMigrations.

It rewrites the objects of a resource in the storage version. The rules are in apiext.crd.migration; the command
``apiext migrate`` uses them, too. All state is in the store, so that a restarted server continues, and several servers
share the work. The state is:

- the condition Running of the migration;
- the checkpoint in status.resourceVersion: after this revision, every request stores objects in the storage version;
- the condition StorageMigrating of the definition, with the generation of the definition at the start.

Each write compares the revision that the server has read, so only one server rewrites an object.
"""

import asyncio
import logging
import random
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from msgspec import Struct, field
from msgspec.structs import replace

from apiext.auth.user import service_account
from apiext.catalog.served import ServedResource, ServedVersion
from apiext.config import MIGRATOR
from apiext.controllers import limits
from apiext.controllers import loop as loop_module
from apiext.controllers.loop import Loop
from apiext.controllers.serving import Serving
from apiext.controllers.statuses import Statuses, set_condition
from apiext.crd.conditions import condition, find, with_status
from apiext.crd.migration import (
    CHANGED,
    FAILED,
    GONE,
    Plan,
    Turns,
    is_temporary,
    loss_text,
    lost_fields,
    outcome,
    plan_of,
    remaining,
    touch,
)
from apiext.documents.document import Document, View
from apiext.meta import time
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry, StoreError, Unavailable
from apiext.storage.values import custom_object
from apiext.verbs import api, threads
from apiext.verbs.amendments import Amendment
from apiext.verbs.call import Call, Verbs

log = logging.getLogger(__name__)

MIGRATIONS = GroupResource("storagemigration.k8s.io", "storageversionmigrations")
USER = service_account("kube-system", MIGRATOR)
_MANAGER, _RUNNER = "kube-controller-manager", "migration-runner-controller"  # upstream's field managers
_MARK = "StorageMigrating"  # the condition of a definition during a migration of its objects
_NEEDED = ("update", "patch", "list")
_UNHANDLED = "migration encountered unhandled error"
_MERGE = "application/merge-patch+json"


class _Migration(Struct, frozen=True):
    """The stored state of a StorageVersionMigration."""

    entry: Entry
    created: str
    resource: GroupResource
    checkpoint: str
    holds: frozenset[str]  # types of the conditions with status True

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def key(self) -> str:
        return str(self.resource)

    @property
    def running(self) -> bool:
        return "Running" in self.holds

    @property
    def ended(self) -> bool:
        return bool(self.holds & {"Succeeded", "Failed"})


class _Pass(Struct):
    """One pass over the objects of a resource.

    ``failed`` is an error that ends the migration. ``temporary`` are errors after which another pass may succeed.
    """

    migration: _Migration
    collection: Collection
    plan: Plan | None
    prefix: bytes  # the first bytes of objects in the storage version
    failed: str = ""
    temporary: list[str] = field(default_factory=list)
    # an error of the store, after which the outcome of a write may be unknown
    unknown_outcome: StoreError | None = None

    @property
    def is_stopped(self) -> bool:
        return bool(self.failed) or self.unknown_outcome is not None or len(self.temporary) >= limits.MIGRATE_FAILURES

    def due(self, entry: Entry) -> bool:
        """Report whether an object may have an old version or an old encryption key.

        Even an object that is newer than the checkpoint may have an old version, since the garbage collector and
        deletions edit only metadata. An object of another program, whose bytes do not begin with the apiVersion, is
        always rewritten.
        """
        return entry.revision <= int(self.migration.checkpoint) or not entry.raw.startswith(self.prefix)


class Migrations:
    """Runs one migration at a time for each resource, the oldest first."""

    def __init__(self, verbs: Verbs, serving: Serving, collection: Collection, definitions: Collection) -> None:
        self._verbs = verbs
        self._serving = serving
        self._collection = collection
        self._definitions = definitions
        self._statuses = Statuses(verbs.store, verbs.catalog, collection, "v1", _MANAGER)
        self._marks = Statuses(verbs.store, verbs.catalog, definitions, "v1", _RUNNER)
        self._turns = Turns(limits.MIGRATE_RATE)  # all migrations share this rate limit
        self._loop = Loop("migrations", self._reconcile, width=5)
        self._migrations: dict[str, dict[str, _Migration]] = {}  # str(resource) → name of the migration → migration

    def start(self, group: asyncio.TaskGroup) -> None:
        """Subscribe to migrations and to served definitions, and start the loop."""
        self._collection.follow(self._changed)
        self._serving.listen(self._served)
        self._loop.start(group, lambda: list(self._migrations))

    async def stop(self) -> None:
        """Cancel running work; the next start completes it."""
        await self._loop.stop()

    def _changed(self, change: Change) -> None:
        self._record(change.entry, gone=change.kind == "DELETED")

    def _record(self, entry: Entry, *, gone: bool = False) -> None:
        for key, known in list(self._migrations.items()):
            if known.pop(entry.name, None) is not None:
                self._loop.add(key)
                if not known:
                    del self._migrations[key]
        migration = _read_migration(entry) if not gone else None
        if migration is not None and (migration.running or not migration.ended):
            self._migrations.setdefault(migration.key, {})[migration.name] = migration
            self._loop.add(migration.key)

    def _served(self, definition: str) -> None:
        if definition in self._migrations:
            self._loop.add(definition)

    # -- the steps of a migration; the write of a step queues the next step

    async def _reconcile(self, key: str) -> None:
        await self._serving.wait_synced()
        await self._verbs.store.fresh()
        migration = _next(self._migrations.get(key, {}).values())
        if migration is None:
            return
        if migration.ended:
            await self._record_result(migration)
        elif not migration.running:
            await self._begin(migration)
        elif not migration.checkpoint:
            await self._set_checkpoint(migration)
        else:
            await self._run(migration)

    async def _begin(self, migration: _Migration) -> None:
        """Set the condition StorageMigrating of the definition, with the definition's generation.

        Then set the condition Running of the migration.
        """

        def mark(document: Document) -> Document:
            return self._marked(document, "True", "MigrationRunning", _mark(migration))

        entry = self._definition(migration)
        if entry is None or await self._marks.amend(entry, mark) is not None:
            await self._set_condition(
                migration, condition("Running", "True", "MigrationRunning", "The migration is running")
            )
        else:
            self._run_again(migration)

    async def _set_checkpoint(self, migration: _Migration) -> None:
        """Set the checkpoint: the revision after which no server writes another version.

        At this revision, this server has the current definition. Other servers must use this definition, too, since
        each write compares the guard key of the definition (verbs/guarded.py).
        """
        group, resource = migration.resource.group, migration.resource.resource
        found = self._find(migration) and await self._serving.refresh(group, resource)
        if found is None:
            await self._fail_if_old(migration, "resource does not exist in discovery")
            return
        version = _version(found)
        if not set(_NEEDED) <= set(version.published.verbs):
            place = f'resource "{group}/{version.names.version}, Resource={resource}"'
            await self._fail(migration, f"{place} does not support discovery operations: [{' '.join(_NEEDED)}]")
            return
        revision = str(await self._verbs.store.fresh())
        await self._amend(migration, lambda document: with_status(document, resourceVersion=revision))

    async def _run(self, migration: _Migration) -> None:
        """Rewrite all objects for which ``_Pass.due`` returns True."""
        store = self._verbs.store
        await store.at_least(int(migration.checkpoint))
        # there must be no await between here and store.add, since the definition could be replaced in the meantime
        served = self._find(migration)
        if served is None:
            await self._fail_if_old(migration, f"{_UNHANDLED}: unable to obtain GVR from discovery")
            return
        collection = store.add(served.stored_resource, served.namespaced, custom_object)
        await collection.wait_ready()
        entry = self._definition(migration)
        plan = plan_of(await asyncio.to_thread(self._marks.decode, entry)) if entry is not None else None
        prefix = f'{{"apiVersion":"{plan.group}/{plan.storage}"'.encode() if plan is not None else b""
        work = _Pass(migration, collection, plan, prefix)
        start, last = "", False
        while not (last or work.is_stopped) and self._is_current(migration):
            page = collection.state.page(None, start, limits.MIGRATE_PAGE)
            start, last = page.next, not page.next
            todo = [it for it in page.entries if work.due(it)]
            random.shuffle(todo)  # several servers then begin with different objects
            queue = iter(todo)
            async with asyncio.TaskGroup() as group:
                for _ in range(limits.MIGRATE_PARALLEL):
                    group.create_task(self._each(work, queue))
        await self._finish_pass(work)

    async def _finish_pass(self, work: _Pass) -> None:
        migration = work.migration
        if work.unknown_outcome is not None:
            raise work.unknown_outcome
        if work.failed:
            await self._fail(migration, f"{_UNHANDLED}: {work.failed}")
        elif work.temporary:
            raise Unavailable(f"objects could not be written: {'; '.join(work.temporary)}")
        elif self._find(migration) is None:
            self._run_again(migration)  # the resource is not served now, but may be served later
        elif self._is_current(migration):
            await self._set_condition(migration, condition("Succeeded", "True", "StorageVersionMigrationSucceeded", ""))

    async def _record_result(self, migration: _Migration) -> None:
        """Write the result of a migration into the condition of the definition.

        Then set the condition Running of the migration to False. After a success, remove old versions from
        storedVersions, unless the generation of the definition has changed. If the condition belongs to another
        migration, do not change the definition, since another server may have completed this migration and begun the
        next.
        """
        marked = False

        def settle(document: Document) -> Document | None:
            nonlocal marked
            mark = find((document.get("status") or {}).get("conditions"), _MARK)
            marked = mark is not None and mark["status"] == "True" and mark.get("message") == _mark(migration)
            if mark is None or not marked:
                return None
            if "Succeeded" not in migration.holds:
                return self._marked(document, "False", "MigrationFailed", "The migration has failed")
            begun = replace(plan_of(document), generation=mark.get("observedGeneration") or 0)
            stored = remaining(begun, document)
            text = "and the stored versions have been updated"
            if stored is None:
                text = "but the stored versions have not been updated due to a generation mismatch"
            else:
                document = with_status(document, storedVersions=stored)
            return self._marked(document, "False", "MigrationSucceeded", f"The migration has succeeded {text}")

        entry = self._definition(migration)
        if entry is None or await self._marks.amend(entry, settle) is not None or not marked:
            completed = condition("Running", "False", "MigrationCompleted", "Migration completed")
            await self._set_condition(migration, completed)
        else:
            self._run_again(migration)

    # -- objects

    async def _each(self, work: _Pass, todo: Iterator[Entry]) -> None:
        try:
            await self._rewrite(work, todo)
        except StoreError as error:
            work.unknown_outcome = error

    async def _rewrite(self, work: _Pass, todo: Iterator[Entry]) -> None:
        for found in todo:
            if work.is_stopped or not self._is_current(work.migration):
                return
            key = f"{found.namespace}/{found.name}" if found.namespace else found.name
            entry = work.collection.state.by_key(key)
            if entry is None or not work.due(entry):
                continue  # another server has rewritten or deleted the object
            await asyncio.sleep(self._turns.take(self._verbs.loop_time()))
            served = self._find(work.migration)
            if served is None:
                work.temporary.append(f"{key}: it is not served")
                return
            version = _version(served)
            query = {"fieldManager": [MIGRATOR]}
            call = Call(
                "patch",
                version,
                served,
                version.endpoints[""],
                entry.namespace or None,
                entry.name,
                query,
                USER,
                size=len(entry.raw),
            )
            uid, gone = await threads.run(call, _losses, served, work.plan, entry)
            if gone and work.plan is not None:
                work.failed = f"{key}: apiext migrate: {loss_text(work.plan, gone, limits.MIGRATE_FAILURES)}"
                return
            code, message = await self._touch(call, uid, entry)
            result = outcome(code, "", "")
            now = await self._read_current(work, entry) if result in (GONE, CHANGED) else None
            if is_temporary(code) or (result == GONE and now is not None):
                work.temporary.append(f"{key}: {message}")
            # the server or a webhook has refused the write of an unchanged object, so a retry would fail, too
            elif result == FAILED or (now is not None and now.revision == entry.revision):
                work.failed = message
            elif now is not None and work.due(now):
                work.temporary.append(f"{key}: {message}")

    async def _touch(self, call: Call, uid: str, entry: Entry) -> tuple[int, str]:
        try:
            await api.patch(self._verbs, call, _MERGE, orjson.dumps(touch(uid, str(entry.revision))))
        except StatusError as error:
            return error.code, error.message
        return 200, ""

    async def _read_current(self, work: _Pass, entry: Entry) -> Entry | None:
        """Read an object from the store after a failed request; return None if it is deleted.

        A 404 does not prove a deletion, since the resource may not have been served.
        """
        return await self._verbs.store.current(work.collection, entry.namespace, entry.name)

    # -- helpers

    def _find(self, migration: _Migration) -> ServedResource | None:
        found = self._verbs.catalog.current.resource(migration.resource.group, migration.resource.resource)
        return found if found is not None and found.versions else None

    def _definition(self, migration: _Migration) -> Entry | None:
        return self._definitions.state.get("", migration.key) if migration.resource.group else None

    def _is_current(self, migration: _Migration) -> bool:
        return self._migrations.get(migration.key, {}).get(migration.name) is migration

    def _run_again(self, migration: _Migration) -> None:
        self._loop.add_after(migration.key, loop_module.RETRY_FIRST)

    def _marked(self, document: Document, status: str, reason: str, message: str) -> Document:
        generation = document["metadata"].get("generation", 0)
        wanted = {**condition(_MARK, status, reason, message), "observedGeneration": generation}
        return set_condition(document, wanted, self._verbs.clock())

    async def _fail_if_old(self, migration: _Migration, message: str) -> None:
        """Fail a migration of an unserved resource after limits.MIGRATE_WAIT seconds.

        Retry a younger migration when it has this age.
        """
        age = (time.parse(self._verbs.clock()) - time.parse(migration.created)).total_seconds()
        if age < limits.MIGRATE_WAIT:
            # the age is negative if the clock was set back
            self._loop.add_after(migration.key, limits.MIGRATE_WAIT - max(age, 0.0))
        else:
            await self._fail(migration, message)

    async def _fail(self, migration: _Migration, message: str) -> None:
        cut = message.encode()[: limits.MIGRATE_MESSAGE].decode(errors="ignore")
        await self._set_condition(migration, condition("Failed", "True", "StorageVersionMigrationFailed", cut))

    async def _set_condition(self, migration: _Migration, wanted: View) -> None:
        kind, status, message = wanted["type"], wanted["status"], wanted["message"]
        log.info("migration %s of %s: %s %s %s", migration.name, migration.key, kind, status, message)
        await self._amend(migration, lambda document: set_condition(document, wanted, self._verbs.clock()))

    async def _amend(self, migration: _Migration, amendment: Amendment) -> None:
        if await self._statuses.amend(migration.entry, amendment) is None:
            self._run_again(migration)


def _read_migration(entry: Entry) -> _Migration | None:
    """Parse a migration; return None if it is invalid. Another program may have stored it."""
    document: Any = orjson.loads(entry.raw)
    try:
        status: View = document.get("status") or {}
        named: View = (document.get("spec") or {}).get("resource") or {}
        return _Migration(
            entry,
            document["metadata"].get("creationTimestamp") or "",
            GroupResource(named.get("group") or "", named.get("resource") or ""),
            status.get("resourceVersion") or "",
            frozenset(it["type"] for it in status.get("conditions") or () if it.get("status") == "True"),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        log.warning("the stored migration %s cannot be read: %s", entry.name, fault)
        return None


def _next(migrations: Iterable[_Migration]) -> _Migration | None:
    """Return the migration to process next.

    This is a migration with a result to record, else a running migration, else the oldest migration.
    """

    def order(migration: _Migration) -> tuple[bool, bool, str, str]:
        has_result = migration.running and migration.ended
        return not has_result, not migration.running, migration.created, migration.name

    return min(migrations, key=order, default=None)


def _mark(migration: _Migration) -> str:
    return f"Migration {migration.name} is running"


def _version(served: ServedResource) -> ServedVersion:
    """Return the version for requests that rewrite objects."""
    return served.storage or next(iter(served.versions.values()))


def _losses(served: ServedResource, plan: Plan | None, entry: Entry) -> tuple[str, list[str]]:
    """Return the uid of an object, and the paths of fields that the storage version would prune.

    Return no paths for an object in a version that is not in ``plan.compared``.
    """
    document: Any = orjson.loads(entry.raw)
    version = str(document.get("apiVersion", "")).rpartition("/")[2]
    uid = str((document.get("metadata") or {}).get("uid") or "")
    old, new = served.all_versions.get(version), served.all_versions.get(served.storage_version)
    if plan is None or version not in plan.compared or old is None or new is None:
        return uid, []
    return uid, lost_fields(old.codec.decode(entry.raw, entry.revision), new.codec.decode(entry.raw, entry.revision))
