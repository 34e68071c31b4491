"""Migrate storage: rewrite objects in the storage version, then prune storedVersions.

All writes use the API, like those of any client. A patch with only uid and resourceVersion makes the server store an
object again, in the storage version (VER-002). A run keeps no state outside the server: after a killed run, the next
run finds objects that are already rewritten. So a crash costs time, but never correctness.
"""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Struct, field

from apiext.catalog.compile import storage_version_hash
from apiext.controllers import limits as controllers_limits
from apiext.crd.migration import (
    ALREADY,
    CHANGED,
    FAILED,
    GONE,
    REWRITTEN,
    MigrationError,
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
from apiext.tools import limits
from apiext.tools.api import Answer, Api
from apiext.tools.progress import Report

# Seconds of the pause after the first temporary failure; later pauses are multiples of it.
MIGRATE_PAUSE = 0.2

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_PAUSE = 0.05  # seconds between reads of discovery while the server compiles a definition


class Settings(Struct, frozen=True):
    """Settings of a migration.

    ``rate`` is the rate limit (see Pace), ``parallel`` the number of threads. If ``allow_loss`` is true, objects may
    lose fields that the storage version lacks. If ``rewrite`` is true, rewrite objects even if all are in the storage
    version, to encrypt them with another key.
    """

    rate: float
    parallel: int
    allow_loss: bool
    rewrite: bool = False


class Tally(Struct):
    """The number of objects for each outcome, and (object, message) of each failure."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)


def path_of(plan: Plan, version: str, namespace: str = "", name: str = "") -> str:
    """Return the path of an object, or without a name the path of its collection."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/{plan.group}/{version}{inside}/{plan.plural}" + (f"/{name}" if name else "")


class Migration:
    """The migration of one definition."""

    def __init__(self, api: Api, settings: Settings, report: Report) -> None:
        self._api = api
        self._settings = settings
        self._report = report
        self._pace = Pace(settings.rate)

    def run(self, name: str) -> bool:
        """Migrate a definition's objects; return False if some objects failed.

        Raise MigrationError if the definition cannot be migrated, and Unreachable if the server does not respond.
        """
        for _ in range(limits.MIGRATE_RESTARTS):
            plan = plan_of(expect(self._api.get(f"{DEFINITIONS}/{name}"), name))
            if not plan.served:
                raise MigrationError(
                    f"{name} does not serve its storage version, so its objects cannot be rewritten: "
                    "serve the storage version during the migration"
                )
            if not plan.pending and not self._settings.rewrite:
                self._report.event("up to date", resource=name, storedVersions=list(plan.stored))
                return True
            self._wait_for_storage_version(plan)
            began = time.monotonic()
            self._report.event("started", resource=name, storedVersions=list(plan.stored), storage=plan.storage)
            tally = self._rewrite(plan)
            self._report.event(
                "rewritten",
                resource=name,
                seconds=round(time.monotonic() - began, 3),
                **{key: tally.counts[key] for key in (REWRITTEN, ALREADY, CHANGED, GONE, FAILED)},
            )
            if tally.failures:
                for name_of_object, message in tally.failures[: controllers_limits.MIGRATE_FAILURES]:
                    self._report.event("failed", resource=name, object=name_of_object, message=message)
                return False
            if self._prune(plan):
                self._report.event("migrated", resource=name, storedVersions=[plan.storage])
                return True
            self._report.event("restarted", resource=name, reason="the definition has changed")
        raise MigrationError(f"{name} keeps changing")

    def _wait_for_storage_version(self, plan: Plan) -> None:
        """Wait until discovery shows the hash of the plan's storage version.

        From then on, the server stores objects in this version.
        """
        wanted = storage_version_hash(plan.group, plan.storage, plan.kind)
        deadline = time.monotonic() + limits.TOOL_WAIT
        while True:
            listed = self._api.get(f"/apis/{plan.group}/{plan.storage}").document.get("resources") or ()
            found = next((it.get("storageVersionHash") for it in listed if it.get("name") == plan.plural), None)
            if found == wanted:
                return
            if time.monotonic() > deadline:
                raise MigrationError(f"{self._api.url} does not yet store {plan.name} in version {plan.storage}")
            time.sleep(_PAUSE)

    def _rewrite(self, plan: Plan) -> Tally:
        tally, done = Tally(), 0
        lock = threading.Lock()

        def one(metadata: Mapping[str, Any]) -> None:
            tries = limits.MIGRATE_TRIES if len(tally.failures) < controllers_limits.MIGRATE_FAILURES else 1
            outcome, message = self._rewritten(plan, metadata, tries)
            with lock:
                tally.counts[outcome] += 1
                if outcome == FAILED:
                    tally.failures.append((_name_of(metadata), message))

        pool = ThreadPoolExecutor(self._settings.parallel, "migrate")
        try:
            for page, remaining in pages(self._api, plan):
                total = done + len(page) + remaining
                for _ in pool.map(one, page):
                    done += 1
                    self._report.progress(plan.name, done, total)
                if len(tally.failures) >= limits.MIGRATE_HOPELESS:
                    break
        finally:
            pool.shutdown(cancel_futures=True)  # after an interrupt, do not start further objects of the page
        return tally

    def _rewritten(self, plan: Plan, metadata: Mapping[str, Any], tries: int) -> tuple[str, str]:
        """Make the server rewrite one object; repeat this after a write of another client.

        Return (outcome, message). The other client may have left the object in its old version. After a temporary
        failure, such as the failure of a webhook, the patch is repeated, up to ``tries`` patches for each revision.
        """
        path = (metadata.get("namespace", ""), metadata["name"])
        found, message = self._touch(plan, metadata, tries)
        for _ in range(limits.MIGRATE_RESTARTS):
            if found != CHANGED:
                return found, message
            self._pace.wait()
            answer = self._api.get(path_of(plan, plan.storage, *path), METADATA)
            if answer.code != 200:
                return (GONE, "") if answer.code == 404 else (FAILED, answer.message)
            found, message = self._touch(plan, answer.document["metadata"], tries)
        return (FAILED, "other clients keep changing the object") if found == CHANGED else (found, message)

    def _touch(self, plan: Plan, metadata: Mapping[str, Any], tries: int) -> tuple[str, str]:
        """Make the server rewrite an object at one revision. Return (outcome, message)."""
        path = (metadata.get("namespace", ""), metadata["name"])
        revision: str = metadata["resourceVersion"]
        if plan.compared and not self._settings.allow_loss:
            revision, message = self._compare(plan, path)
            if not revision:
                return (FAILED, message) if message else (GONE, "")
        body = touch(metadata["uid"], revision)
        for number in range(1, tries + 1):
            self._pace.wait()
            answer = self._api.patch(path_of(plan, plan.storage, *path), body, METADATA, fieldManager="apiext-migrate")
            if not is_temporary(answer.code) or number == tries:
                break
            time.sleep(number * MIGRATE_PAUSE)
        after = (answer.document.get("metadata") or {}).get("resourceVersion", "")
        found = outcome(answer.code, revision, after)
        if found in (GONE, CHANGED) and self._is_still(plan, path, revision):
            found = FAILED
        return found, answer.message if found == FAILED else ""

    def _is_still(self, plan: Plan, path: tuple[str, str], revision: str) -> bool:
        """Return False if an object was deleted or has another revision.

        Return True if it has this revision or is unreadable. This is needed since a webhook can deny a write with the
        code of a conflict (409) or of a deleted object (404).
        """
        self._pace.wait()
        found = self._api.get(path_of(plan, plan.storage, *path))
        return found.code != 404 and (found.document.get("metadata") or {}).get("resourceVersion", revision) == revision

    def _compare(self, plan: Plan, path: tuple[str, str]) -> tuple[str, str]:
        """Compare an object in its old versions with the storage version.

        Return (revision, "") if the object loses no field, ("", message) if it loses fields or cannot be read, and
        ("", "") if it was deleted.
        """
        while True:
            self._pace.wait()
            after = self._api.get(path_of(plan, plan.storage, *path))
            if after.code != 200:
                return "", "" if after.code == 404 else after.message
            revision: str = after.document["metadata"]["resourceVersion"]
            gone: list[str] = []
            for version in plan.compared:
                before = self._api.get(path_of(plan, version, *path))
                if before.code != 200:
                    return "", "" if before.code == 404 else before.message
                if before.document["metadata"]["resourceVersion"] != revision:
                    break
                gone += lost_fields(before.document, after.document)
            else:
                if not gone:
                    return revision, ""
                return "", loss_text(plan, gone, controllers_limits.MIGRATE_FAILURES)

    def _prune(self, plan: Plan) -> bool:
        """Reduce storedVersions to the storage version; return False if the definition has changed.

        The definition has changed if its uid (after a delete and a create) or its generation (after a change of the
        spec) differs from the plan's.
        """
        for _ in range(limits.MIGRATE_RESTARTS):
            definition = expect(self._api.get(f"{DEFINITIONS}/{plan.name}"), plan.name)
            stored = remaining(plan, definition)
            if stored is None:
                return False
            body = {
                "metadata": {"resourceVersion": definition["metadata"]["resourceVersion"]},
                "status": {"storedVersions": stored},
            }
            answer = self._api.patch(f"{DEFINITIONS}/{plan.name}/status", body, fieldManager="apiext-migrate")
            if answer.code != 409:
                expect(answer, plan.name)
                return True
        raise MigrationError(f"the status of {plan.name} keeps changing")


class Pace:
    """A common rate limit for all threads: ``rate`` turns per second, 0 for no limit.

    Each patch takes a turn. Most reads of an object take one, too.
    """

    def __init__(self, rate: float) -> None:
        self._turns = Turns(rate)
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait for the next turn."""
        with self._lock:
            seconds = self._turns.take(time.monotonic())
        if seconds:
            time.sleep(seconds)


def pages(api: Api, plan: Plan) -> Iterator[tuple[list[Mapping[str, Any]], int]]:
    """Yield (metadata of the objects of a page, number of remaining objects).

    Raise MigrationError if a page cannot be read. If a continue token expires, the listing continues at a later
    revision. Objects that were created in between are already in the storage version.
    """
    token = ""
    while True:
        query = {"limit": controllers_limits.MIGRATE_PAGE} | ({"continue": token} if token else {})
        answer = api.get(path_of(plan, plan.storage), METADATA_LIST, **query)
        metadata = answer.document.get("metadata") or {}
        if answer.code == 410:
            token = metadata.get("continue") or ""
            continue
        if answer.code != 200:
            raise MigrationError(f"{plan.name} cannot be listed: {answer.message}")
        found = [item["metadata"] for item in answer.document.get("items") or ()]
        token = metadata.get("continue") or ""
        yield found, int(metadata.get("remainingItemCount") or 0)
        if not token:
            return


def _name_of(metadata: Mapping[str, Any]) -> str:
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def expect(answer: Answer, name: str) -> Any:
    """Return the document of a response with the status 200.

    For any other status, raise MigrationError, whose text begins with the name.
    """
    if answer.code != 200:
        raise MigrationError(f"{name}: {answer.message}")
    return answer.document
