"""The controller of aggregated cluster roles.

Such a role has the rules of all roles that its selectors match.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson
from msgspec import Struct

from apiext.auth.authorization import Rule
from apiext.auth.rbac import document_of, iter_rules
from apiext.auth.roles import CLUSTER_ROLES
from apiext.auth.user import service_account
from apiext.config import AGGREGATION
from apiext.controllers.loop import Loop, retried_conflicts
from apiext.meta.selectors import LabelSelector, SelectorError
from apiext.scheduling.loop_budget import collect
from apiext.storage.history import Change
from apiext.storage.store import Entry
from apiext.verbs import api, ownership
from apiext.verbs.call import Call, Verbs

log = logging.getLogger(__name__)

USER = service_account("kube-system", AGGREGATION)


class _Role(Struct, frozen=True):
    """A cluster role, with the fields that aggregation needs."""

    entry: Entry
    uid: str
    labels: dict[str, str]
    selectors: tuple[LabelSelector, ...]

    async def rules(self) -> tuple[Rule, ...]:
        """Return the decoded rules. Yield to the event loop while decoding them."""
        return tuple(await collect(iter_rules(orjson.loads(self.entry.raw))))


def _role_of(entry: Entry) -> _Role:
    document: Any = orjson.loads(entry.raw)
    metadata = document["metadata"]
    chosen = (document.get("aggregationRule") or {}).get("clusterRoleSelectors") or ()
    try:
        selectors = tuple(map(LabelSelector.from_document, chosen))
    except SelectorError:
        selectors = ()  # another program stored the invalid selector, since no client can create it
    return _Role(entry, metadata.get("uid", ""), metadata.get("labels") or {}, selectors)


class Aggregation:
    """The controller that updates the rules of aggregated cluster roles, with server-side apply.

    ``may_write()`` waits until the default roles exist, since they permit the writes of this controller.
    """

    def __init__(self, verbs: Verbs, may_write: Callable[[], Awaitable[None]]) -> None:
        self._verbs = verbs
        self._may_write = may_write
        self._loop = Loop("aggregation", self._reconcile, width=1)
        self._roles: dict[str, _Role] = {}
        self._aggregated: set[str] = set()

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the loop, and follow all cluster roles, if they are served."""
        collection = self._verbs.store.collection(CLUSTER_ROLES)
        if collection is None:
            return
        collection.follow(self._changed)
        self._loop.start(group, self._names)
        self._add_all()

    async def stop(self) -> None:
        """Cancel running work; the next start completes it."""
        await self._loop.stop()

    def _names(self) -> Iterable[str]:
        return list(self._aggregated)

    def _changed(self, change: Change) -> None:
        name = change.entry.name
        if change.kind == "DELETED":
            self._roles.pop(name, None)
            self._aggregated.discard(name)
        else:
            self._record(change.entry)
        self._add_all()

    def _add_all(self) -> None:
        # as upstream, each change queues all aggregated roles, since there is no index of selectors
        for name in self._aggregated:
            self._loop.add(name)

    def _record(self, entry: Entry) -> None:
        name = entry.name
        self._aggregated.discard(name)
        try:
            role = self._roles[name] = _role_of(entry)
        # another program stored an invalid object, which is ignored
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            log.warning("the stored cluster role %s cannot be read: %s", name, fault)
            self._roles.pop(name, None)
        else:
            if role.selectors:
                self._aggregated.add(name)

    async def _reconcile(self, name: str) -> None:
        await self._may_write()
        role = self._roles.get(name)
        if role is None or not role.selectors:
            return
        wanted = await self._selected_rules(name, role)
        if wanted != await role.rules():
            await self._apply(name, role.uid, wanted)

    async def _selected_rules(self, name: str, role: _Role) -> tuple[Rule, ...]:
        """Return the rules of all selected roles without duplicates.

        The rules are in the order of the selectors, then of the role names.
        """
        found: dict[Rule, None] = {}
        for selector in role.selectors:
            for other in sorted(self._roles):
                # None if the role was deleted in the meantime; the deletion starts another run
                one = self._roles.get(other)
                if one is not None and other != name and selector.matches(one.labels):
                    found |= dict.fromkeys(await one.rules())
        return tuple(found)

    async def _apply(self, name: str, uid: str, rules: Iterable[Rule]) -> None:
        catalog = self._verbs.catalog.current
        resource = catalog.resource(CLUSTER_ROLES.group, CLUSTER_ROLES.resource)
        served = catalog.lookup(CLUSTER_ROLES.group, "v1", CLUSTER_ROLES.resource)
        assert resource is not None
        assert served is not None
        wanted = {
            "apiVersion": served.names.api_version,
            "kind": served.names.kind,
            "metadata": {"name": name, "uid": uid},  # with the uid, apply does not create a deleted role again
            "rules": list(map(document_of, rules)),
        }
        query = {"fieldManager": [AGGREGATION], "force": ["true"]}
        call = Call("patch", served, resource, served.endpoints[""], None, name, query, USER, AGGREGATION)
        with retried_conflicts(404, 409):
            await api.patch(self._verbs, call, ownership.MEDIA_TYPE, orjson.dumps(wanted))
