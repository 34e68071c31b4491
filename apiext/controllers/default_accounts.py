"""The controller of the service account ``default`` in each namespace.

Upstream: serviceaccounts_controller.go.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import orjson

from apiext.auth.user import service_account
from apiext.config import DEFAULT_ACCOUNTS
from apiext.controllers import limits
from apiext.controllers.loop import Loop, retried_conflicts
from apiext.documents.document import Document
from apiext.meta.status import StatusError
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import StoreError
from apiext.verbs import api
from apiext.verbs.call import Body, Call, Verbs
from apiext.verbs.reviews import ACCOUNTS

USER = service_account("kube-system", "service-account-controller")
NAME = "default"
_ALL = ""  # the key of the run at the start, which queues all stored namespaces


class DefaultAccounts:
    """The controller.

    It creates the account in each namespace that is not being deleted, and again if the account is deleted.
    """

    def __init__(self, verbs: Verbs, namespaces: Collection, accounts: Collection) -> None:
        self._verbs = verbs
        self._namespaces = namespaces
        self._accounts = accounts
        self._loop = Loop("default accounts", self._reconcile, width=4)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Subscribe to namespaces and accounts, and start the loop."""
        self._namespaces.feed.subscribe(self._namespace_changed)
        self._accounts.feed.subscribe(self._account_changed)
        self._loop.start(group, self._names)
        self._loop.add(_ALL)

    async def wait_for_account(self, namespace: str) -> None:
        """Wait until a new namespace has its account, at most ``limits.ACCOUNT_WAIT`` seconds.

        Return earlier if the first attempt to create the account fails.
        """
        with suppress(StoreError, StatusError, TimeoutError):  # the loop retries
            async with asyncio.timeout(limits.ACCOUNT_WAIT):
                await self._loop.run(namespace)

    async def stop(self) -> None:
        """Cancel running work; the next start completes it."""
        await self._loop.stop()

    def _names(self) -> Iterable[str]:
        return [entry.name for entry in self._namespaces.state.readable()]

    def _namespace_changed(self, change: Change) -> None:
        if change.kind != "DELETED":
            self._loop.add(change.entry.name)

    def _account_changed(self, change: Change) -> None:
        if change.kind == "DELETED" and change.entry.name == NAME:
            self._loop.add(change.entry.namespace)

    async def _reconcile(self, namespace: str) -> None:
        if namespace == _ALL:
            await self._namespaces.wait_ready()
            await self._accounts.wait_ready()
            for name in self._names():
                self._loop.add(name)
            return
        entry = self._namespaces.state.cached("", namespace)
        if entry is not None and _is_active(entry.raw) and self._accounts.state.cached(namespace, NAME) is None:
            await self._create(namespace)

    async def _create(self, namespace: str) -> None:
        resource = self._verbs.catalog.current.resource(ACCOUNTS.group, ACCOUNTS.resource)
        assert resource is not None
        served = resource.versions["v1"]
        model = served.model
        wanted: Document = {"apiVersion": model.api_version, "kind": model.kind, "metadata": {"name": NAME}}
        query = {"fieldManager": [DEFAULT_ACCOUNTS]}
        call = Call("create", served, resource, served.endpoints[""], namespace, "", query, USER, DEFAULT_ACCOUNTS)
        # a namespace that is terminating gives 403, a deleted namespace 404, and an existing account 409
        with retried_conflicts(403, 404, 409):
            await api.create(self._verbs, call, Body(wanted, [], "application/json", orjson.dumps(wanted)))


def _is_active(raw: bytes) -> bool:
    try:
        document: Any = orjson.loads(raw)
        return not document["metadata"].get("deletionTimestamp")
    except (AttributeError, KeyError, TypeError, ValueError):  # the stored object is invalid; reads report the error
        return False
