"""All controllers together: their subscriptions to changes, and the order of start and stop."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from apiext.admission.configured import POLICIES
from apiext.auth.tokens import Tokens
from apiext.catalog.served import LiveCatalog, ServedResource
from apiext.config import AGGREGATION, NAMESPACE_CONTROLLER, ApiConfig, StoreConfig, Worker
from apiext.controllers.account_tokens import AccountTokens
from apiext.controllers.aggregation import Aggregation
from apiext.controllers.approval import Approval
from apiext.controllers.compaction import Compaction
from apiext.controllers.default_accounts import DefaultAccounts
from apiext.controllers.default_roles import DefaultRoles
from apiext.controllers.definitions import DEFINITIONS, Definitions, group_of
from apiext.controllers.establishing import Establishing
from apiext.controllers.finalizing import Finalizing
from apiext.controllers.garbage import Garbage
from apiext.controllers.guards import GUARDS, Guards
from apiext.controllers.loop import Loop
from apiext.controllers.migrations import MIGRATIONS, Migrations
from apiext.controllers.namespaces import NAMESPACES, Namespaces
from apiext.controllers.naming import Naming
from apiext.controllers.nonstructural import NonStructural
from apiext.controllers.peers import Peers
from apiext.controllers.policies import Policies
from apiext.controllers.serving import Serving
from apiext.controllers.statuses import Statuses
from apiext.controllers.token_uses import TokenUses
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Decoder
from apiext.storage.history import Change
from apiext.storage.store import StoreError
from apiext.verbs.address_pool import Addresses
from apiext.verbs.call import Verbs
from apiext.verbs.reviews import ACCOUNTS, SECRETS

log = logging.getLogger(__name__)

SERVICES = GroupResource("", "services")


class Controllers:
    """The running controllers; ``serving`` answers questions of verbs about definitions.

    ``clock()`` is the time in the form of metadata.
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
        manager = apis.status_manager
        self._apis = apis
        definitions = Definitions(store.add(DEFINITIONS, namespaced=False))
        guards = Guards(store, store.add(GUARDS, namespaced=False), definitions)
        statuses = Statuses(store, live, definitions.collection, "v1", manager)
        self._store, self._initialization_timeout = store, settings.initialization_timeout
        self._definitions = definitions
        self._guards = guards
        self.serving = Serving(store, live, definitions, guards)
        self._namespaces = Namespaces(
            store, live, store.add(NAMESPACES, namespaced=False), clock, manager, self.serving.complete
        )
        if worker is not None:
            self.serving.peers = Peers(worker, store, self.serving.settled)
        self._establishing = Establishing(live, definitions, statuses, clock, self.serving.everywhere)
        self._finalizing = Finalizing(store, live, definitions, guards, statuses, clock)
        self._approval = Approval(definitions, statuses, clock)
        self._naming = Naming(definitions, statuses, clock)
        self._nonstructural = NonStructural(definitions, statuses, clock)
        self._loops = {
            "naming": Loop("naming", self._naming.reconcile, width=8),
            "establishing": Loop("establishing", self._establishing.reconcile, width=16),
            "approval": Loop("approval", self._approval.reconcile, width=2),
            "nonstructural": Loop("nonstructural", self._nonstructural.reconcile, width=1),
            "finalizing": Loop("finalizing", self._finalizing.reconcile, width=4),
        }
        if apis.runs(NAMESPACE_CONTROLLER):
            self._loops["namespaces"] = Loop("namespaces", self._namespaces.reconcile, width=4)
        self._first = Loop("first namespaces", lambda _: self._namespaces.create_missing(), width=1)
        self._compaction = Compaction(store, settings.compaction_interval)
        self._garbage: Garbage | None = None
        self._tokens: AccountTokens | None = None
        self._uses: TokenUses | None = None
        self._accounts: DefaultAccounts | None = None
        self._policies: Policies | None = None
        self._aggregation: Aggregation | None = None
        self._migrations: Migrations | None = None
        self._defaults: DefaultRoles | None = None

    async def start(self, group: asyncio.TaskGroup, builtin: Sequence[ServedResource]) -> None:
        """Serve built-in kinds, wait for the stored definitions, then start everything; raise store errors.

        The store has started, and has the collections of the built-in kinds (``add_collections``). ``wait_synced``
        waits until all stored definitions are served.
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
        self._finalizing.wake = self._loops["finalizing"].add
        self._finalizing.wake_after = self._loops["finalizing"].add_after
        self._definitions.collection.following.subscribe(lambda change: self._defined(change.entry.name))
        if emptying := self._loops.get("namespaces"):
            self._namespaces.wake = emptying.add
            self._namespaces.wake_after = emptying.add_after
            self._namespaces.collection.following.subscribe(self._namespace_changed)
            for name in self._namespaces.terminating():
                emptying.add(name)
        for name, loop in self._loops.items():
            loop.start(group, self._keys(name))
        for name in self._definitions.names():
            self._defined(name)
        self._first.start(group)
        try:
            await self._first.run("")
        except StoreError as error:
            log.warning("the first namespaces are not there yet: %s", error)  # the loop goes on trying
        self._compaction.start(group)

    def await_too(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Make the other workers wait also for ``settled()``."""
        if self.serving.peers is not None:
            self.serving.peers.await_too(settled)

    async def join(self, group: asyncio.TaskGroup) -> None:
        """Wait until this worker has the configuration of its peers, if it has any."""
        if self.serving.peers is not None:
            await self.wait_synced()
            await self.serving.peers.join(group)

    def collect_garbage(self, group: asyncio.TaskGroup, verbs: Verbs) -> None:
        """Start the garbage collector; called after ``start``."""
        self._garbage = Garbage(verbs, self.serving)
        self._garbage.start(group)

    def keep_tokens(
        self, group: asyncio.TaskGroup, verbs: Verbs, tokens: Tokens, authority: Callable[[], bytes]
    ) -> None:
        """Start the controller of tokens in secrets; ``authority()`` returns the CAs that clients trust."""
        secrets, accounts = verbs.store.collection(SECRETS), verbs.store.collection(ACCOUNTS)
        if secrets is not None and accounts is not None:
            self._tokens = AccountTokens(verbs, secrets, accounts, tokens, authority)
            self._tokens.start(group)

    def note_uses(self, group: asyncio.TaskGroup, verbs: Verbs, tokens: Tokens) -> None:
        """Start the controller that records the use of tokens in their secrets."""
        if verbs.store.collection(SECRETS) is not None:
            self._uses = TokenUses(verbs, tokens)
            self._uses.start(group)

    def make_accounts(self, group: asyncio.TaskGroup, verbs: Verbs) -> None:
        """Start the controller that creates a default service account in each namespace; called after ``start``."""
        accounts = verbs.store.collection(ACCOUNTS)
        if accounts is not None:
            self._accounts = DefaultAccounts(verbs, self._namespaces.collection, accounts)
            self._accounts.start(group)

    def check_policies(self, group: asyncio.TaskGroup, store: CachedStore, live: LiveCatalog, version: str) -> None:
        """Start the controller that checks the types of policies; ``version`` is that of OpenAPI documents."""
        collection = store.collection(POLICIES)
        if collection is not None:
            self._policies = Policies(store, live, collection, version)
            self._policies.start(group)

    def migrate(self, group: asyncio.TaskGroup, verbs: Verbs) -> None:
        """Start the storage migrator, if its kind is served; ``start`` has returned."""
        collection = verbs.store.collection(MIGRATIONS)
        if collection is not None:
            self._migrations = Migrations(verbs, self.serving, collection, self._definitions.collection)
            self._migrations.start(group)

    def keep_roles(self, group: asyncio.TaskGroup, verbs: Verbs, *, needed: bool) -> None:
        """Aggregate cluster roles from now on; create the default roles if requests need them."""
        self._defaults = DefaultRoles(verbs)
        self._defaults.start(group, needed=needed)
        if self._apis.runs(AGGREGATION):
            self._aggregation = Aggregation(verbs, self._defaults.wait_done)
            self._aggregation.start(group)

    def has_roles(self) -> bool:
        """Report whether the default cluster roles exist, or are not needed."""
        return self._defaults is not None and self._defaults.done

    def synced(self) -> bool:
        """Report whether all stored definitions are served: the server may be ready (HLT-003).

        Definitions that wait for a KMS plug-in are not.
        """
        return self.serving.synced() and not self._definitions.collection.state.lacking()

    def filled(self) -> bool:
        """Report whether the cache has the objects of all collections of the start, or the time for that has passed."""
        return self._store.filled

    async def wait_synced(self) -> None:
        """Wait until ``synced()``, ``has_roles()`` and ``filled()``."""
        await self.serving.wait_synced()
        if not self._store.filled:
            await self._store.wait_filled(self._initialization_timeout)
        if self._defaults is not None:
            await self._defaults.wait_done()

    async def stop(self) -> None:
        """Stop all controllers, those that write first; the next start does the rest of their work."""
        parts = (self._garbage, self._tokens, self._accounts, self._migrations, self._policies, self._aggregation)
        for part in (*parts, self._uses, self._defaults):
            if part is not None:
                await part.stop()
        for loop in (self._first, *self._loops.values()):
            await loop.stop()
        if self.serving.peers is not None:
            await self.serving.peers.stop()
        await self.serving.stop()
        await self._compaction.stop()

    def _keys(self, loop: str) -> Callable[[], Iterable[str]]:
        if loop == "namespaces":
            return self._namespaces.terminating
        return self._naming.everything if loop == "naming" else self._definitions.names

    def _defined(self, name: str) -> None:
        """A definition came, changed or went."""
        loops = self._loops
        self._naming.notice(name)
        loops["naming"].add(group_of(name))
        self._served(name)
        for kind, controller in (
            ("finalizing", self._finalizing),
            ("approval", self._approval),
            ("nonstructural", self._nonstructural),
        ):
            if controller.wanted(name):
                loops[kind].add(name)

    def _served(self, name: str) -> None:
        """The served versions of a definition may have changed."""
        if self._establishing.wanted(name):
            self._loops["establishing"].add(name)
        for namespace in self._namespaces.emptying():
            self._loops["namespaces"].add(namespace)

    def _namespace_changed(self, change: Change) -> None:
        if self._namespaces.wanted(change.entry.name):
            self._loops["namespaces"].add(change.entry.name)


def add_collections(store: CachedStore, builtin: Sequence[ServedResource], decoder: Decoder | None = None) -> None:
    """Add the collections of built-in kinds; ``decoder`` decodes objects that kube-apiserver stored in protobuf."""
    for served in builtin:
        if served.review:
            continue
        collection = store.add(served.stored_resource, served.namespaced, decoder)
        collection.ttl = collection.ttl or served.ttl
        collection.following.on_replaced.append(served.evict)


async def follow_services(store: CachedStore, addresses: Addresses) -> None:
    """Record the addresses of services; return once the stored services are recorded."""
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
