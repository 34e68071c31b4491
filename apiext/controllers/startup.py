"""The start and the stop of all controllers, in the order of their dependencies."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from apiext.admission.configured import POLICIES
from apiext.admission.quotas import QUOTAS
from apiext.auth.tokens import Tokens
from apiext.catalog.served import LiveCatalog, ServedResource
from apiext.config import AGGREGATION, NAMESPACE_CONTROLLER, ApiConfig, StoreConfig, Worker
from apiext.controllers.account_tokens import AccountTokens
from apiext.controllers.aggregation import Aggregation
from apiext.controllers.compaction import Compaction
from apiext.controllers.default_accounts import DefaultAccounts
from apiext.controllers.default_roles import DefaultRoles
from apiext.controllers.definition_loops import DefinitionLoops
from apiext.controllers.definitions import DEFINITIONS, Definitions
from apiext.controllers.first_objects import FirstObjects
from apiext.controllers.garbage import Garbage
from apiext.controllers.guards import GUARDS, Guards
from apiext.controllers.late import PROTECTIONS, LateController
from apiext.controllers.loop import Loop
from apiext.controllers.migrations import MIGRATIONS, Migrations
from apiext.controllers.namespaces import NAMESPACES, Namespaces
from apiext.controllers.peers import Peers
from apiext.controllers.policies import Policies
from apiext.controllers.serving import Serving
from apiext.controllers.token_uses import TokenUses
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Decoder
from apiext.storage.compaction import Compactor
from apiext.storage.history import Change
from apiext.storage.store import StoreError
from apiext.verbs.address_pool import Addresses
from apiext.verbs.call import Verbs
from apiext.verbs.reviews import ACCOUNTS, SECRETS

log = logging.getLogger(__name__)

SERVICES = GroupResource("", "services")


class Client(Protocol):
    """A controller that writes through the API, like a client."""

    async def stop(self) -> None:
        """Stop the controller. The next start of the server completes its work."""


class _Starting(Client, Protocol):
    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the controller in tasks of the group."""


class Controllers:
    """All controllers of a server.

    ``clock()`` returns the current time in the format of metadata.
    """

    def __init__(
        self,
        store: CachedStore,
        live: LiveCatalog,
        clock: Callable[[], str],
        apis: ApiConfig,
        settings: StoreConfig,
        worker: Worker | None = None,
    ) -> None:
        self._store, self._apis = store, apis
        self._initialization_timeout = settings.initialization_timeout
        self._definitions = Definitions(store.add(DEFINITIONS, namespaced=False))
        self._guards = Guards(store, store.add(GUARDS, namespaced=False), self._definitions)
        self.serving = Serving(store, live, self._definitions, self._guards)
        manager = apis.status_manager
        self._namespaces = Namespaces(
            store, live, store.add(NAMESPACES, namespaced=False), clock, manager, self.serving.complete
        )
        if worker is not None:
            self.serving.peers = Peers(worker, store, self.serving.settled)
        self._loops = DefinitionLoops(store, live, self._definitions, self._guards, self.serving, clock, manager)
        self._emptying = Loop("namespaces", self._namespaces.reconcile, width=4)
        self._first = Loop("first namespaces", lambda _: self._namespaces.create_missing(), width=1)
        self._compaction = Compaction(Compactor(store.etcd, settings.own_quota), settings.compaction_interval)
        self._clients: list[Client] = []
        self._default_roles: DefaultRoles | None = None

    async def start(self, group: asyncio.TaskGroup, builtin: Sequence[ServedResource]) -> None:
        """Serve built-in kinds, wait for the stored definitions, then start the controllers.

        Raise StoreErrors. Call this method after ``add_collections`` and after the start of the store. Then call
        ``wait_synced`` to wait until all stored definitions are processed.
        """
        self.serving.serve_builtin(builtin)
        for collection in (self._definitions.collection, self._guards.collection, self._namespaces.collection):
            await collection.wait_ready()
        await self._store.fresh()
        self._definitions.start()
        if self.serving.peers is not None:
            self.serving.peers.follow()
        self.serving.listen(self._served)
        self.serving.start(group)
        self._loops.follow()
        if self._apis.runs(NAMESPACE_CONTROLLER):
            self._empty_namespaces(group)
        self._loops.start(group)
        self._first.start(group)
        try:
            await self._first.run("")
        except StoreError as error:
            log.warning("the first namespaces could not be created yet: %s", error)  # the loop retries
        self._compaction.start(group)

    def _empty_namespaces(self, group: asyncio.TaskGroup) -> None:
        """Start the loop that empties terminating namespaces."""
        self._namespaces.wake = self._emptying.add
        self._namespaces.wake_after = self._emptying.add_after
        self._namespaces.collection.feed.subscribe(self._namespace_changed)
        for name in self._namespaces.terminating():
            self._emptying.add(name)
        self._emptying.start(group, self._namespaces.terminating)

    def add_settled(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Wait also for ``settled()`` each time before this worker publishes its revision.

        See worker_progress.py. Do nothing if this server is not a worker.
        """
        if self.serving.peers is not None:
            self.serving.peers.add_settled(settled)

    async def join(self, group: asyncio.TaskGroup) -> None:
        """Wait until this worker uses all configuration that was stored before this call.

        Configuration means the objects of the resources in peers.CONFIGURATION. Return at once if this server is not a
        worker.
        """
        if self.serving.peers is not None:
            await self.wait_synced()
            await self.serving.peers.join(group)

    def start_garbage_collector(self, group: asyncio.TaskGroup, verbs: Verbs) -> None:
        """Start the garbage collector. Call this after ``start``."""
        self._start(Garbage(verbs, self.serving), group)

    def start_account_tokens(
        self, group: asyncio.TaskGroup, verbs: Verbs, tokens: Tokens, authority: Callable[[], bytes]
    ) -> None:
        """Start the controller of token secrets.

        ``authority()`` returns the CA certificates that clients trust.
        """
        secrets, accounts = verbs.store.collection(SECRETS), verbs.store.collection(ACCOUNTS)
        if secrets is not None and accounts is not None:
            self._start(AccountTokens(verbs, secrets, accounts, tokens, authority), group)

    def start_token_uses(self, group: asyncio.TaskGroup, verbs: Verbs, tokens: Tokens) -> None:
        """Start the controller that records the last use of tokens in their secrets."""
        if verbs.store.collection(SECRETS) is not None:
            self._start(TokenUses(verbs, tokens), group)

    def start_default_accounts(self, group: asyncio.TaskGroup, verbs: Verbs) -> None:
        """Start the controller that creates a default service account in each namespace.

        Call this after ``start``.
        """
        accounts = verbs.store.collection(ACCOUNTS)
        if accounts is not None:
            controller = DefaultAccounts(verbs, self._namespaces.collection, accounts)
            self._start(controller, group)
            verbs.wait_for_account = controller.wait_for_account

    def start_protections(self, group: asyncio.TaskGroup, verbs: Verbs) -> None:
        """Start the controllers that protect volumes, claims and classes in use from deletion."""
        for name, resource in PROTECTIONS.items():
            if self._apis.runs(name):
                self._start(LateController(verbs, resource, "protection", "Protection", name), group)

    def start_quotas(self, group: asyncio.TaskGroup, verbs: Verbs) -> None:
        """Start the controller of the status of quotas. Call this after ``start``."""
        self._start(LateController(verbs, QUOTAS, "quotas", "Quotas"), group)

    def start_policies(self, group: asyncio.TaskGroup, store: CachedStore, live: LiveCatalog, version: str) -> None:
        """Start the controller that checks the types in policies.

        ``version`` is the version in OpenAPI documents.
        """
        collection = store.collection(POLICIES)
        if collection is not None:
            self._start(Policies(store, live, collection, version), group)

    def start_migrations(self, group: asyncio.TaskGroup, verbs: Verbs) -> None:
        """Start the storage migrator, if its kind is served. Call this after ``start``."""
        collection = verbs.store.collection(MIGRATIONS)
        if collection is not None:
            self._start(Migrations(verbs, self.serving, collection, self._definitions.collection), group)

    def start_roles(self, group: asyncio.TaskGroup, verbs: Verbs, *, needed: bool) -> None:
        """Start the aggregation of cluster roles, if it is enabled.

        Create the default roles if ``needed``.
        """
        roles = self._default_roles = DefaultRoles(verbs)
        roles.start(group, needed=needed)
        self._clients.append(roles)
        if self._apis.runs(AGGREGATION):
            self._start(Aggregation(verbs, roles.wait_done), group)

    def start_first_objects(self, group: asyncio.TaskGroup, objects: FirstObjects) -> None:
        """Start the controller of objects that kube-apiserver creates, such as default/kubernetes."""
        self._start(objects, group)

    def has_roles(self) -> bool:
        """Report whether the default cluster roles exist or are not needed.

        Return False before ``start_roles``.
        """
        return self._default_roles is not None and self._default_roles.done

    def synced(self) -> bool:
        """Report whether the server has compiled the definitions of the start (HLT-003).

        Readiness requires this. Return False while definitions wait for a KMS plug-in.
        """
        return self.serving.synced() and not self._definitions.collection.state.lacking()

    def filled(self) -> bool:
        """Report whether initial collections are filled, or the initialization timeout has passed."""
        return self._store.fills.complete

    async def wait_synced(self) -> None:
        """Wait until ``Serving.synced()`` and ``filled()`` return True.

        After ``start_roles``, wait also until the default roles exist or are not needed.
        """
        await self.serving.wait_synced()
        if not self._store.fills.complete:
            await self._store.fills.wait(self._initialization_timeout)
        if self._default_roles is not None:
            await self._default_roles.wait_done()

    async def stop(self) -> None:
        """Stop all controllers, first the controllers in ``_clients``.

        The next start of the server completes their work.
        """
        for client in reversed(self._clients):
            await client.stop()
        for loop in (self._first, self._loops, self._emptying):
            await loop.stop()
        if self.serving.peers is not None:
            await self.serving.peers.stop()
        await self.serving.stop()
        await self._compaction.stop()

    def _start(self, client: "_Starting", group: asyncio.TaskGroup) -> None:
        client.start(group)
        self._clients.append(client)

    def _served(self, name: str) -> None:
        """Queue work that depends on the served versions of a definition."""
        self._loops.served(name)
        for namespace in self._namespaces.emptying():
            self._emptying.add(namespace)

    def _namespace_changed(self, change: Change) -> None:
        if self._namespaces.wanted(change.entry.name):
            self._emptying.add(change.entry.name)


def add_collections(store: CachedStore, builtin: Sequence[ServedResource], decoder: Decoder | None = None) -> None:
    """Add the collections of built-in kinds to the store.

    ``decoder`` decodes objects that are stored in protobuf.
    """
    for served in builtin:
        if served.review:
            continue
        collection = store.add(served.stored_resource, served.namespaced, decoder)
        collection.ttl = collection.ttl or served.ttl
        collection.feed.on_replaced.append(served.evict)


async def follow_services(store: CachedStore, addresses: Addresses) -> None:
    """Record the addresses of all services from now on.

    Return when the stored services are recorded.
    """
    collection = store.collection(SERVICES)
    if collection is None:
        return

    def changed(change: Change) -> None:
        entry = change.entry
        key = f"{entry.namespace}/{entry.name}"
        if change.kind == "DELETED":
            addresses.drop(key)
        else:
            addresses.put(key, entry.raw)

    collection.follow(changed)
    await collection.wait_ready()
