"""Guards: a put commits only if the definition and namespaces that it read are unchanged.

See decisions/0010.
"""

import asyncio
from collections.abc import Mapping
from functools import lru_cache

from apiext.admission.attributes import NAMESPACES
from apiext.catalog.served import ServedResource
from apiext.meta import limits as meta_limits
from apiext.meta import status
from apiext.storage.keys import Keys
from apiext.storage.store import Guard, GuardChanged
from apiext.verbs import threads
from apiext.verbs.call import Call, Verbs
from apiext.verbs.errors import translated

_NO_PREMISES: Mapping[str, int] = {}


def guards_of(verbs: Verbs, resource: ServedResource, premises: Mapping[str, int] = _NO_PREMISES) -> tuple[Guard, ...]:
    """Return the guards of a put: the definition, and the namespaces that admission read.

    See NSP-004. A guard is a key and its revision. The store rejects the put if the key has another revision. The guard
    key of a definition is a key of its own, whose revision changes with the spec of the definition, and when its
    deletion begins. ``premises`` maps the name of a namespace to its revision.
    """
    definition = resource.definition
    own = (Guard(definition.guard_key, definition.guard_revision),) if definition.guard_key else ()
    return own + tuple(_namespace_guard(verbs.store.keys, name, revision) for name, revision in premises.items())


@lru_cache(meta_limits.NAMESPACES_SEEN)
def _namespace_guard(keys: Keys, name: str, revision: int) -> Guard:
    return Guard(keys.object(NAMESPACES, "", name), revision)


async def refresh(verbs: Verbs, call: Call) -> None:
    """Reload the definition after a change of its guard.

    Raise a 404 if the definition was deleted, or does not serve the path of the request any more. Raise a 504 at the
    deadline of the request.
    """
    resource = await verbs.definitions.refresh(call.served.names.group, call.served.names.resource)
    served = resource.versions.get(call.served.names.version) if resource is not None else None
    if resource is None or served is None or resource.namespaced is (call.namespace is None):
        raise status.resource_not_found()
    endpoint = served.endpoints.get(call.endpoint.name)
    if endpoint is None:
        raise status.resource_not_found()
    call.resource, call.served, call.endpoint = resource, served, endpoint
    await asyncio.sleep(0)  # a guard that keeps changing must not block the event loop
    check_deadline(verbs, call)


def check_deadline(verbs: Verbs, call: Call) -> None:
    """Raise a 504 if a write has reached the deadline of its request (WRI-024)."""
    if call.deadline and verbs.loop_time() > call.deadline:
        raise status.timeout(threads.DEADLINE_EXCEEDED)


async def holds(verbs: Verbs, call: Call) -> bool:
    """Return whether the definition of the call is still the newest one."""
    if not call.resource.definition.guard_key:
        return True
    with translated():
        await verbs.definitions.fresh()
    return verbs.definitions.holds(call.resource)


async def renewed(verbs: Verbs, call: Call, changed: GuardChanged | None) -> bool:
    """Reload the definition or namespace whose guard is ``changed``, and return True.

    If ``changed`` is None and the definition is still the newest, reload nothing and return False. Raise the errors of
    ``refresh``.
    """
    if changed is None and await holds(verbs, call):
        return False
    if changed is None or changed.key == call.resource.definition.guard_key:
        await refresh(verbs, call)
    else:
        with translated():
            await verbs.store.fresh(verbs.store.collection(NAMESPACES))
        check_deadline(verbs, call)
    return True
