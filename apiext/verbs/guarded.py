"""Under which definition a write is decided: it is stored only while that one holds (decisions/0010)."""

import asyncio
from collections.abc import Mapping
from functools import lru_cache

from apiext import limits
from apiext.admission.attributes import NAMESPACES
from apiext.catalog.served import ServedResource
from apiext.meta import status
from apiext.storage.keys import Keys
from apiext.storage.store import Guard
from apiext.verbs import threads
from apiext.verbs.call import Call, Verbs
from apiext.verbs.errors import of_store, translated


class OutdatedError(Exception):
    """A body was judged by a definition or in a namespace that has changed; the call knows the new one by now."""


def guard_of(resource: ServedResource) -> Guard | None:
    """Return what a put must compare besides its own key; None for built-in resources."""
    return Guard(resource.guard_key, resource.guard_revision) if resource.guard_key else None


def premise(verbs: Verbs, premises: Mapping[str, int]) -> Guard | None:
    """Return what else must hold when a create commits: its namespace is as it was judged (NSP-004)."""
    for name, revision in premises.items():
        return _namespace_guard(verbs.store.keys, name, revision)
    return None


@lru_cache(limits.NAMESPACES_SEEN)
def _namespace_guard(keys: Keys, name: str, revision: int) -> Guard:
    return Guard(keys.object(NAMESPACES, "", name), revision)


async def refresh(verbs: Verbs, call: Call) -> None:
    """Look at the definition again after its guard changed; 404 when it is gone, or serves another path now."""
    resource = await verbs.definitions.refresh(call.served.group, call.served.resource)
    served = resource.versions.get(call.served.version) if resource is not None else None
    if resource is None or served is None or resource.namespaced is (call.namespace is None):
        raise status.resource_not_found()
    endpoint = served.endpoints.get(call.endpoint.name)
    if endpoint is None:
        raise status.resource_not_found()
    call.resource, call.served, call.endpoint = resource, served, endpoint
    await asyncio.sleep(0)  # a guard that keeps changing must not hold the loop
    check_deadline(verbs, call)


def check_deadline(verbs: Verbs, call: Call) -> None:
    """504 when a write has tried for longer than a request may take (WRI-024)."""
    if call.deadline and verbs.loop_time() > call.deadline:
        raise status.timeout(threads.OVER)


async def holds(verbs: Verbs, call: Call) -> bool:
    """Tell whether a decision that no transaction compares rests on the newest definition."""
    if not call.resource.guard_key:
        return True
    with translated():
        await verbs.definitions.fresh()
    return verbs.definitions.holds(call.resource)


async def reconsider(verbs: Verbs, call: Call, fault: OutdatedError | status.StatusError) -> bool:
    """Have the newest definition for another try, if an older one refused what was asked; False if the fault stands.

    It is the caller's to raise: raised here it would hold its own frame, and the object with it, until a collection.
    """
    if isinstance(fault, OutdatedError):
        return True
    if of_store(fault) or await holds(verbs, call):
        return False
    await refresh(verbs, call)
    return True
