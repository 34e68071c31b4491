"""The controller of StorageVersionMigrations: rewrites every object of a resource in the storage version.

apiext.crd.migration has the rules, as for ``apiext migrate``; this module runs them inside the server. All state is in
the store, so a killed server continues at its next start, and several servers can share the work: the running
migration, the revision from which on every server writes in the storage version (status.resourceVersion: younger
objects are done), and the definition's generation at the beginning (its condition StorageMigrating). Each object is
written under the revision that was read, by the first server that comes to it.
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
from apiext.controllers.statuses import Statuses, say
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
_MANAGER, _RUNNER = "kube-controller-manager", "migration-runner-controller"  # as upstream's writers are called
_MARK = "StorageMigrating"  # the condition of a definition during its migration
_NEEDED = ("update", "patch", "list")
_UNHANDLED = "migration encountered unhandled error"
_MERGE = "application/merge-patch+json"


class _Asked(Struct, frozen=True):
    """A migration that is not over: as it was stored last."""

    entry: Entry
    created: str
    resource: GroupResource
    checkpoint: str
    holds: frozenset[str]  # the conditions that are True

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
    """One walk through the objects of a resource, and what went wrong so far: for good, and perhaps not."""

    asked: _Asked
    collection: Collection
    plan: Plan | None
    begins: bytes  # first bytes of values at the storage version
    failed: str = ""
    passing: list[str] = field(default_factory=list)
    unread: StoreError | None = None  # the outcome of a write is unknown

    @property
    def over(self) -> bool:
        return bool(self.failed) or self.unread is not None or len(self.passing) >= limits.MIGRATE_FAILURES

    def due(self, entry: Entry) -> bool:
        """Report whether an object may not be in the storage version yet, or not encrypted with the newest key.

        Younger objects need not be: the collector and deletions change metadata and leave the other bytes as they are
        stored. Bytes with another beginning are written again in vain.
        """
        return entry.revision <= int(self.asked.checkpoint) or not entry.raw.startswith(self.begins)


class Migrations:
    """Runs one migration of each resource at a time, the oldest first."""

    def __init__(self, verbs: Verbs, serving: Serving, collection: Collection, definitions: Collection) -> None:
        self._verbs = verbs
        self._serving = serving
        self._collection = collection
        self._definitions = definitions
        self._statuses = Statuses(verbs.store, verbs.catalog, collection, "v1", _MANAGER)
        self._marks = Statuses(verbs.store, verbs.catalog, definitions, "v1", _RUNNER)
        self._turns = Turns(limits.MIGRATE_RATE)  # of all migrations together
        self._loop = Loop("migrations", self._reconcile, width=5)
        self._asked: dict[str, dict[str, _Asked]] = {}  # by resource and name

    def start(self, group: asyncio.TaskGroup) -> None:
        """Follow all migrations."""
        self._collection.follow(self._changed)
        self._serving.listen(self._served)
        self._loop.start(group, lambda: list(self._asked))

    async def stop(self) -> None:
        """Cancel running work; the next start does the rest."""
        await self._loop.stop()

    def _changed(self, change: Change) -> None:
        self._take(change.entry, gone=change.kind == "DELETED")

    def _take(self, entry: Entry, *, gone: bool = False) -> None:
        for key, known in list(self._asked.items()):
            if known.pop(entry.name, None) is not None:
                self._loop.add(key)
                if not known:
                    del self._asked[key]
        asked = _asked(entry) if not gone else None
        if asked is not None and (asked.running or not asked.ended):
            self._asked.setdefault(asked.key, {})[asked.name] = asked
            self._loop.add(asked.key)

    def _served(self, definition: str) -> None:
        if definition in self._asked:
            self._loop.add(definition)

    # -- one step of a migration; its writes queue the next one

    async def _reconcile(self, key: str) -> None:
        await self._serving.wait_synced()
        await self._verbs.store.fresh()
        asked = _next(self._asked.get(key, {}).values())
        if asked is None:
            return
        if asked.ended:
            await self._finish(asked)
        elif not asked.running:
            await self._begin(asked)
        elif not asked.checkpoint:
            await self._date(asked)
        else:
            await self._run(asked)

    async def _begin(self, asked: _Asked) -> None:
        """Note in the definition with which generation the migration begins, and that it does."""

        def mark(document: Document) -> Document:
            return self._marked(document, "True", "MigrationRunning", _mark(asked))

        entry = self._definition(asked)
        if entry is None or await self._marks.amend(entry, mark) is not None:
            await self._set_condition(
                asked, condition("Running", "True", "MigrationRunning", "The migration is running")
            )
        else:
            self._again(asked)

    async def _date(self, asked: _Asked) -> None:
        """Note the revision from which on no server writes in another version: this server has the definition by then.

        The guard of the definition binds other servers.
        """
        group, resource = asked.resource.group, asked.resource.resource
        found = self._find(asked) and await self._serving.refresh(group, resource)
        if found is None:
            await self._missing(asked, "resource does not exist in discovery")
            return
        version = _version(found)
        if not set(_NEEDED) <= set(version.published.verbs):
            place = f'resource "{group}/{version.names.version}, Resource={resource}"'
            await self._fail(asked, f"{place} does not support discovery operations: [{' '.join(_NEEDED)}]")
            return
        revision = str(await self._verbs.store.fresh())
        await self._amend(asked, lambda document: with_status(document, resourceVersion=revision))

    async def _run(self, asked: _Asked) -> None:
        """Rewrite all objects that are older than the checkpoint."""
        store = self._verbs.store
        await store.at_least(int(asked.checkpoint))
        served = self._find(asked)  # no await before its cache is used: the resource may be a new one
        if served is None:
            await self._missing(asked, f"{_UNHANDLED}: unable to obtain GVR from discovery")
            return
        collection = store.add(served.stored_resource, served.namespaced, custom_object)
        await collection.wait_ready()
        entry = self._definition(asked)
        plan = plan_of(await asyncio.to_thread(self._marks.decode, entry)) if entry is not None else None
        begins = f'{{"apiVersion":"{plan.group}/{plan.storage}"'.encode() if plan is not None else b""
        work = _Pass(asked, collection, plan, begins)
        start, last = "", False
        while not (last or work.over) and self._wanted(asked):
            page = collection.state.page(None, start, limits.MIGRATE_PAGE)
            start, last = page.next, not page.next
            todo = [it for it in page.entries if work.due(it)]
            random.shuffle(todo)  # so that several servers share the work
            queue = iter(todo)
            async with asyncio.TaskGroup() as group:
                for _ in range(limits.MIGRATE_PARALLEL):
                    group.create_task(self._each(work, queue))
        await self._ended(work)

    async def _ended(self, work: _Pass) -> None:
        asked = work.asked
        if work.unread is not None:
            raise work.unread
        if work.failed:
            await self._fail(asked, f"{_UNHANDLED}: {work.failed}")
        elif work.passing:
            raise Unavailable(f"objects could not be written: {'; '.join(work.passing)}")
        elif self._find(asked) is None:
            self._again(asked)  # a later definition may have the version that was not found
        elif self._wanted(asked):
            await self._set_condition(asked, condition("Succeeded", "True", "StorageVersionMigrationSucceeded", ""))

    async def _finish(self, asked: _Asked) -> None:
        """Set the result in the definition; remove older versions after a success in one generation.

        The mark must still be that of this migration: another server may have finished it, and begun the next.
        """
        marked = False

        def settle(document: Document) -> Document | None:
            nonlocal marked
            mark = find((document.get("status") or {}).get("conditions"), _MARK)
            marked = mark is not None and mark["status"] == "True" and mark.get("message") == _mark(asked)
            if mark is None or not marked:
                return None
            if "Succeeded" not in asked.holds:
                return self._marked(document, "False", "MigrationFailed", "The migration has failed")
            begun = replace(plan_of(document), generation=mark.get("observedGeneration") or 0)
            stored = remaining(begun, document)
            text = "and the stored versions have been updated"
            if stored is None:
                text = "but the stored versions have not been updated due to a generation mismatch"
            else:
                document = with_status(document, storedVersions=stored)
            return self._marked(document, "False", "MigrationSucceeded", f"The migration has succeeded {text}")

        entry = self._definition(asked)
        if entry is None or await self._marks.amend(entry, settle) is not None or not marked:
            await self._set_condition(asked, condition("Running", "False", "MigrationCompleted", "Migration completed"))
        else:
            self._again(asked)

    # -- objects

    async def _each(self, work: _Pass, todo: Iterator[Entry]) -> None:
        try:
            await self._rewrite(work, todo)
        except StoreError as error:
            work.unread = error

    async def _rewrite(self, work: _Pass, todo: Iterator[Entry]) -> None:
        for found in todo:
            if work.over or not self._wanted(work.asked):
                return
            key = f"{found.namespace}/{found.name}" if found.namespace else found.name
            entry = work.collection.state.known(key)
            if entry is None or not work.due(entry):
                continue  # another server was faster
            await asyncio.sleep(self._turns.take(self._verbs.loop_time()))
            served = self._find(work.asked)
            if served is None:
                work.passing.append(f"{key}: it is not served")
                return
            version = _version(served)
            asked = {"fieldManager": [MIGRATOR]}
            call = Call(
                "patch",
                version,
                served,
                version.endpoints[""],
                entry.namespace or None,
                entry.name,
                asked,
                USER,
                size=len(entry.raw),
            )
            uid, gone = await threads.run(call, _losses, served, work.plan, entry)
            if gone and work.plan is not None:
                work.failed = f"{key}: apiext migrate: {loss_text(work.plan, gone, limits.MIGRATE_FAILURES)}"
                return
            code, message = await self._touch(call, uid, entry)
            said = outcome(code, "", "")
            now = await self._now(work, entry) if said in (GONE, CHANGED) else None
            if is_temporary(code) or (said == GONE and now is not None):
                work.passing.append(f"{key}: {message}")
            elif said == FAILED or (now is not None and now.revision == entry.revision):  # a webhook denied
                work.failed = message
            elif now is not None and work.due(now):
                work.passing.append(f"{key}: {message}")

    async def _touch(self, call: Call, uid: str, entry: Entry) -> tuple[int, str]:
        try:
            await api.patch(self._verbs, call, _MERGE, orjson.dumps(touch(uid, str(entry.revision))))
        except StatusError as error:
            return error.code, error.message
        return 200, ""

    async def _now(self, work: _Pass, entry: Entry) -> Entry | None:
        """Return an object as it is stored: that it is not found may mean that its definition was not served."""
        return await self._verbs.store.current(work.collection, entry.namespace, entry.name)

    # -- small parts

    def _find(self, asked: _Asked) -> ServedResource | None:
        found = self._verbs.catalog.current.resource(asked.resource.group, asked.resource.resource)
        return found if found is not None and found.versions else None

    def _definition(self, asked: _Asked) -> Entry | None:
        return self._definitions.state.get("", asked.key) if asked.resource.group else None

    def _wanted(self, asked: _Asked) -> bool:
        return self._asked.get(asked.key, {}).get(asked.name) is asked

    def _again(self, asked: _Asked) -> None:
        self._loop.add_after(asked.key, loop_module.RETRY_FIRST)

    def _marked(self, document: Document, status: str, reason: str, message: str) -> Document:
        generation = document["metadata"].get("generation", 0)
        told = {**condition(_MARK, status, reason, message), "observedGeneration": generation}
        return say(document, told, self._verbs.clock())

    async def _missing(self, asked: _Asked, message: str) -> None:
        """Fail a migration of a resource that is not served, unless its definition may still be on its way."""
        age = (time.parse(self._verbs.clock()) - time.parse(asked.created)).total_seconds()
        if age < limits.MIGRATE_WAIT:
            self._loop.add_after(asked.key, limits.MIGRATE_WAIT - max(age, 0.0))  # clocks go back
        else:
            await self._fail(asked, message)

    async def _fail(self, asked: _Asked, message: str) -> None:
        cut = message.encode()[: limits.MIGRATE_MESSAGE].decode(errors="ignore")
        await self._set_condition(asked, condition("Failed", "True", "StorageVersionMigrationFailed", cut))

    async def _set_condition(self, asked: _Asked, told: View) -> None:
        log.info("migration %s of %s: %s %s %s", asked.name, asked.key, told["type"], told["status"], told["message"])
        await self._amend(asked, lambda document: say(document, told, self._verbs.clock()))

    async def _amend(self, asked: _Asked, amendment: Amendment) -> None:
        if await self._statuses.amend(asked.entry, amendment) is None:
            self._again(asked)


def _asked(entry: Entry) -> _Asked | None:
    """Return the spec of a migration; None for an invalid one that another program stored."""
    document: Any = orjson.loads(entry.raw)
    try:
        status: View = document.get("status") or {}
        named: View = (document.get("spec") or {}).get("resource") or {}
        return _Asked(
            entry,
            document["metadata"].get("creationTimestamp") or "",
            GroupResource(named.get("group") or "", named.get("resource") or ""),
            status.get("resourceVersion") or "",
            frozenset(it["type"] for it in status.get("conditions") or () if it.get("status") == "True"),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as fault:
        log.warning("the stored migration %s cannot be read: %s", entry.name, fault)
        return None


def _next(asked: Iterable[_Asked]) -> _Asked | None:
    """Return the migration of a resource that is to be seen to: one to finish, the one that runs, else the oldest."""
    return min(asked, key=lambda it: (not (it.running and it.ended), not it.running, it.created, it.name), default=None)


def _mark(asked: _Asked) -> str:
    return f"Migration {asked.name} is running"


def _version(served: ServedResource) -> ServedVersion:
    """Return the version that objects are written through."""
    return served.storage or next(iter(served.versions.values()))


def _losses(served: ServedResource, plan: Plan | None, entry: Entry) -> tuple[str, list[str]]:
    """Return the uid of an object, and the paths of fields that the storage version would drop."""
    document: Any = orjson.loads(entry.raw)
    version = str(document.get("apiVersion", "")).rpartition("/")[2]
    uid = str((document.get("metadata") or {}).get("uid") or "")
    old, new = served.all_versions.get(version), served.all_versions.get(served.storage_version)
    if plan is None or version not in plan.compared or old is None or new is None:
        return uid, []
    return uid, lost_fields(old.codec.decode(entry.raw, entry.revision), new.codec.decode(entry.raw, entry.revision))
