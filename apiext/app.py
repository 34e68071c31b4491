"""The composition root: it connects all parts, and starts and stops them in order."""

import asyncio
import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import uvloop

from apiext import cli, edge, launch, limits
from apiext.admission.chain import Chain
from apiext.admission.plugin_services import Poster
from apiext.audit import auditor
from apiext.auth.authorization import Authorizer, authorizer_of
from apiext.auth.bound_objects import BOUND, Find, Record
from apiext.auth.roles import Roles
from apiext.catalog.builtin.resources import api_versions, builtin_resources
from apiext.catalog.served import Catalog, LiveCatalog, ServedResource
from apiext.config import (
    ACCOUNT_TOKENS,
    ALL_APIS,
    DEFAULT_ACCOUNTS,
    ETCD,
    GARBAGE_COLLECTOR,
    MIGRATOR,
    POLICY_STATUS,
    QUOTA_CONTROLLER,
    V1BETA1,
    Config,
    ConfigError,
    EtcdConfig,
)
from apiext.controllers import gc_tuning, startup
from apiext.controllers.first_objects import NAME, FirstObjects
from apiext.controllers.loop_lag import LoopLag
from apiext.conversion.webhook import Converter
from apiext.embedded.connection import dialer
from apiext.embedded.faults import StoreFault, StoreInUse
from apiext.embedded.opening import open_store
from apiext.embedded.store import Store
from apiext.etcd.client import Etcd, prefix_end
from apiext.etcd.errors import AuthError, EtcdError
from apiext.http.protobuf import stored_json
from apiext.http.server import HttpServer
from apiext.meta.names import GroupResource
from apiext.meta.time import now
from apiext.storage import metrics
from apiext.storage.cached_store import CachedStore
from apiext.storage.encryption import NoEncryption
from apiext.storage.keys import Keys
from apiext.storage.store import Entry, StoreError
from apiext.system.worker_progress import WorkerProgress
from apiext.telemetry import Telemetry
from apiext.verbs import admission_plugins
from apiext.verbs.address_pool import Addresses
from apiext.verbs.addresses import allocate
from apiext.verbs.call import Verbs
from apiext.webhooks import proxy
from apiext.webhooks.client import Authenticated, Client
from apiext.webhooks.credentials import users_of
from apiext.webhooks.resolver import Resolver

if TYPE_CHECKING:
    from apiext.controllers.encryption_reload import EncryptionReload
    from apiext.storage.encryption_config import Loaded

# Seconds that a thread runs before another thread may run.
SWITCH_INTERVAL = 0.0002
# Seconds between log lines about an etcd that does not respond.
RETRY_LINE = 5.0
# Seconds that a server waits for its first objects, such as its service, before it is ready.
FIRST_OBJECTS_WAIT = 1.0
# Shortest time limit of one attempt to reach etcd, in seconds.
SHORTEST_TRY = 1.0


class EtcdUnreachableError(Exception):
    """The error of a start without a usable etcd.

    It is raised after --etcd-wait, or if a signal ended the start before etcd was usable.
    """


HOOKS = (
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/max-in-flight-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
)
"""Upstream's health checks that pass in this server if every stored definition is served."""

RELOAD_CHECK, KMS_CHECK = "poststarthook/start-encryption-provider-config-automatic-reload", "kms-providers"
"""Upstream's health checks of encryption.

The server has the first check if it reloads the configuration. This check always passes: after an invalid file, the
last valid file stays in use. The server has the second check if the configuration has ``kms`` providers, or if a reload
may add them.
"""

ROLES_HOOK = "poststarthook/rbac/bootstrap-roles"
STORAGE_HOOK = "poststarthook/storage-readiness"

EXITS: launch.Exits = (
    (EtcdUnreachableError, cli.EXIT_ETCD),
    (launch.StoppedError, cli.EXIT_FAILURE),
    (launch.PortInUseError, cli.EXIT_PORT),
    (StoreInUse, cli.EXIT_FAILURE),
    (StoreFault, cli.EXIT_ETCD),
    (ConfigError, cli.EXIT_USAGE),
    (OSError, cli.EXIT_FAILURE),
)

YAML = "apiext.documents.yaml_text"
"""Module that a thread imports once the server is ready, since requests may contain YAML (decision 36)."""

Announce = Callable[[Config, launch.Ready], None]
"""A function that is called as soon as the server is ready."""


def run(config: Config, warn: cli.Warn, announce: Announce = launch.announce) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    launch.open_log(config)
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc_tuning.collect_new_only()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.get_loop().set_exception_handler(launch.caught)
        try:
            runner.run(Application(config, warn, announce).serve())
        except launch.StoppedError as stopped:
            # the supervisor logs the reason once for all workers
            return _end(cli.EXIT_FAILURE if config.worker is not None else launch.explain(stopped, EXITS))
        except Exception as error:  # the outermost handler logs every failure and returns an exit code
            return _end(launch.explain(error, EXITS))
        return launch.ended(config, _end(0))


def _end(code: int) -> int:
    """Return the exit code, and end the process after at most limits.THREADS_END seconds.

    The process does not wait longer for threads that still compute for requests that timed out.
    """
    last = threading.Timer(limits.THREADS_END, os._exit, (code,))
    last.daemon = True
    last.start()
    return code


class Application:
    """A server: ``serve`` starts its parts in order, and stops them in reverse order."""

    def __init__(self, config: Config, warn: cli.Warn, announce: Announce) -> None:
        self._config = config
        self._warn = warn
        self._announce = announce
        self._stop = asyncio.Event()
        self._starting: asyncio.Timeout | None = None
        self._store: Store | None = None  # the store in this process; None with etcd
        with launch.file_of("service-resolver", config.admission.service_resolver):
            self._services = Resolver(config.admission.service_resolver)
        admission = config.admission.config_file
        with launch.file_of("admission-control-config-file", admission):
            self._users = users_of(admission) if admission else {}

        if config.first and (fault := proxy.fault(os.environ)):
            warn(fault)
        self._encryption = _encryption(config.store.encryption_config)
        self._auditor = auditor.build(config.audit, Client(self._services), warn)

    async def serve(self) -> None:
        """Start everything, wait for a signal, stop everything."""
        launch.prepare(self._config)
        self._catch_signals()
        # few threads: the GIL lets only one run at a time, and each has a heap of its own
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(limits.THREADS, "work"))
        async with contextlib.AsyncExitStack() as stack:
            await self._open_store(stack)
            # from now on, no other server can use the file of this store
            launch.remove_earlier_ready_file(self._config)
            etcd = await (self._connect() if self._store is None else self._client_of(self._store))
            stack.push_async_callback(etcd.close)
            starting = self._starting = asyncio.timeout(0 if self._stop.is_set() else None)
            try:
                async with starting:
                    await self._serve_on(etcd)
            except TimeoutError as stopped:
                if not starting.expired():
                    raise
                if etcd.connected and etcd.answering:
                    raise launch.StoppedError from stopped
                where = ", ".join(self._config.store.etcd.servers)
                raise self._stopped(f"etcd at {where} was read") from stopped

    def _stopped(self, missing: str) -> Exception:
        """Return the error of a start that a signal has ended.

        A further worker does not report etcd, since etcd has responded: the first worker serves already.
        """
        return EtcdUnreachableError(f"stopped before {missing}") if self._config.first else launch.StoppedError()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in launch.ending_signals():
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if self._stop.is_set():
            if self._config.worker is None:  # the second signal ends the process immediately
                os._exit(cli.EXIT_FAILURE)
            return  # the supervisor ends immediately, which kills its workers
        self._stop.set()
        if self._starting is not None:
            with contextlib.suppress(RuntimeError):  # the timeout has ended already
                self._starting.reschedule(asyncio.get_running_loop().time())

    async def _open_store(self, stack: contextlib.AsyncExitStack) -> None:
        """Open the store of this process, unless the server uses etcd."""
        config = self._config
        if config.store.kind != ETCD:
            store = self._store = await open_store(
                config.store_file, config.store.quota, metrics.committed, self._warn, self._stop.is_set
            )
            stack.push_async_callback(store.close)

    async def _client_of(self, store: Store) -> Etcd:
        """Return a client of the store in this process."""
        prefix = self._config.store.etcd.prefix
        etcd = Etcd(["unix:///store"], transport=dialer(store), probe=Keys(prefix).absent.encode())
        etcd.stuck = lambda: store.stuck
        await etcd.start()
        return etcd

    async def _connect(self) -> Etcd:
        """Connect to etcd within --etcd-wait; warn every few seconds that etcd does not respond."""
        settings = self._config.store.etcd
        endpoints, where = settings.servers, ", ".join(settings.servers)
        tls = edge.etcd_tls(settings)
        deadline = time.monotonic() + settings.wait
        while True:
            etcd = Etcd(
                endpoints,
                tls=tls,
                user=settings.user,
                password=settings.password,
                probe=Keys(settings.prefix).absent.encode(),
            )
            tried = time.monotonic()
            try:
                async with asyncio.timeout(None) as self._starting:
                    await etcd.start(max(deadline - tried, SHORTEST_TRY))
            except TimeoutError as stopped:
                raise self._stopped(f"etcd at {where} answered") from stopped
            except EtcdError as error:
                if time.monotonic() > deadline - SHORTEST_TRY or self._stop.is_set():
                    raise EtcdUnreachableError(_unreachable(settings, where, error)) from error
                self._warn(f"etcd at {where} does not answer yet: {error.message}")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), max(0.0, tried + RETRY_LINE - time.monotonic()))
            else:
                if not etcd.progress_requests_ok:
                    self._warn(
                        f"etcd at {where} {_is(etcd.version)}; before 3.4.31 and 3.5.13, watches can "
                        "lose events during a compaction: use a newer version for data that matters"
                    )
                if self._config.first:
                    await self._warn_of_prefix(etcd)
                return etcd

    async def _warn_of_prefix(self, etcd: Etcd) -> None:
        """Warn of a prefix without keys in an etcd that has other keys: it may be the wrong prefix."""
        root = Keys(self._config.store.etcd.prefix).root.encode()
        with contextlib.suppress(EtcdError):  # the user may have access to the prefix only
            if (await etcd.range(root, prefix_end(root), limit=1, keys_only=True)).kvs:
                return
            others = (await etcd.range(b"\0", b"\0", limit=1, keys_only=True)).kvs
            if others:
                self._warn(
                    f"etcd has no keys under {root.decode()} yet, but others, such as "
                    f"{others[0].key.decode('utf-8', 'replace')}: check --etcd-prefix"
                )

    async def _serve_on(self, etcd: Etcd) -> None:
        config = self._config
        telemetry = Telemetry()
        lag = LoopLag()
        lag.start()
        telemetry.add(lag.family)
        if (own := self._store) is not None:
            telemetry.on_scrape.append(lambda _: metrics.show_store(own))
        keys, encryption = Keys(config.store.etcd.prefix), self._encryption
        encryptions = encryption.encryptions if encryption is not None else NoEncryption()
        store = CachedStore(etcd, keys, telemetry.etcd_seconds, encryptions)
        live = LiveCatalog(Catalog())
        encryption_reload = _encryption_reload(config, encryption, store)
        async with asyncio.TaskGroup() as group:
            if encryption_reload is None:
                await store.start(group)
            else:
                await encryption_reload.start(group, store.start, follow_file=config.store.encryption_reload)
            store_watch = group.create_task(self._watch_store(etcd))
            addresses = Addresses(config.apis.service_ranges)
            builtin = self._builtin(addresses)
            startup.add_collections(store, builtin, stored_json)
            control = startup.Controllers(store, live, now, config.apis, config.store, config.worker)
            await control.start(group, builtin)
            await startup.follow_services(store, addresses)
            webhooks = Client(self._services, denied=config.admission.denied_networks)
            converter = Converter(webhooks)
            converter.start(group)
            identity = edge.identity(config, _find_in(store))
            roles = await self._roles(store)
            control.add_settled(roles.settled)
            authorizer = authorizer_of(config.auth.modes, roles.policy)
            verbs = Verbs(
                live,
                store,
                self._chain(live, store, webhooks, converter, authorizer),
                control.serving,
                now,
                asyncio.get_running_loop().time,
                converter,
                authorizer,
                identity.authenticator,
                identity.accounts,
                roles.policy if config.auth.rbac else None,
            )
            self._run(control, group, verbs, identity)
            await control.join(group)  # until this returns, only the other workers handle requests
            server = await self._listen(
                group, verbs, identity, self._checks(store, control, encryption_reload), telemetry
            )
            self._starting = None  # from now on a signal ends the server in order
            kubeconfig = edge.write_kubeconfig(config, identity, server.url)
            edge.follow_certificate(config, identity, server.url)
            await self._or_stop(group, self._settle(group, control, store, addresses, server.url, identity))
            gc_tuning.exempt_existing()  # schemas and catalog exist as long as the server
            collecting = group.create_task(gc_tuning.collect_loop())
            if not self._stop.is_set():
                self._announce(config, launch.Ready(server.url, str(kubeconfig)))
                group.create_task(asyncio.to_thread(import_module, YAML))
            await self._stop.wait()
            launch.retract(config)
            lag.stop()
            collecting.cancel()
            store_watch.cancel()
            await server.wait_closed()
            if self._auditor is not None:
                await self._auditor.stop()
            await control.stop()
            await converter.stop()
            await webhooks.close()
            if encryption_reload is not None:
                await encryption_reload.stop()
            await store.stop()

    async def _watch_store(self, etcd: Etcd) -> None:
        """Raise an error once the store can no longer be used.

        This is so after the store in this process has failed permanently, or a bug has closed the etcd client.
        """
        if self._store is None:
            await etcd.wait_closed()
        else:
            reason = await asyncio.shield(self._store.failed)
            raise StoreFault(f"the store has failed ({reason}): check its disk, then start again")

    async def _or_stop(self, group: asyncio.TaskGroup, waiting: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine until it ends or a signal stops the server."""
        stop, work = group.create_task(self._stop.wait()), group.create_task(waiting)
        try:
            await asyncio.wait((stop, work), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()
            work.cancel()

    def _run(
        self, control: startup.Controllers, group: asyncio.TaskGroup, verbs: Verbs, identity: edge.Identity
    ) -> None:
        """Start the controllers that write as clients do.

        The controllers of token uses and default roles run in each worker. ``--controllers`` enables the other
        controllers; of several workers, only the first runs them.
        """
        config = self._config
        control.start_token_uses(group, verbs, identity.accounts)
        control.start_roles(group, verbs, needed=config.auth.rbac)
        if config.apis.runs(GARBAGE_COLLECTOR):
            control.start_garbage_collector(group, verbs)
        if config.apis.runs(ACCOUNT_TOKENS):
            control.start_account_tokens(group, verbs, identity.accounts, lambda: identity.ca)
        if config.apis.runs(DEFAULT_ACCOUNTS):
            control.start_default_accounts(group, verbs)
        control.start_protections(group, verbs)
        if config.apis.runs(QUOTA_CONTROLLER):
            control.start_quotas(group, verbs)
        if config.apis.runs(POLICY_STATUS):
            control.start_policies(group, verbs.store, verbs.catalog, f"v{config.apis.kubernetes_version}")
        if config.apis.runs(MIGRATOR):
            control.start_migrations(group, verbs)

    async def _settle(
        self,
        group: asyncio.TaskGroup,
        control: startup.Controllers,
        store: CachedStore,
        addresses: Addresses,
        url: str,
        identity: edge.Identity,
    ) -> None:
        """Wait until the server may be ready; create its first objects, unless another worker does."""
        config, port, created = self._config, urlsplit(url).port, set[asyncio.Task[None]]()
        if config.first and port is not None:
            first, endpoint = partial(addresses.first, NAME), edge.endpoint(config.listening.bind_address)
            trust = partial(edge.trust_of, config.auth, identity)
            made = FirstObjects(store, now, config.apis.status_manager, first, port, endpoint, trust)
            if identity.certificate is not None:
                identity.certificate.changed.append(lambda _: made.renew())
            created.add(group.create_task(made.create()))
            control.start_first_objects(group, made)
        await control.wait_synced()
        if created:
            await asyncio.wait(created, timeout=FIRST_OBJECTS_WAIT)

    async def _listen(
        self,
        group: asyncio.TaskGroup,
        verbs: Verbs,
        identity: edge.Identity,
        checks: dict[str, Callable[[], str]],
        telemetry: Telemetry,
    ) -> HttpServer:
        identity.accounts.fresh = lambda: _follow_accounts(verbs.store)
        if self._auditor is not None:
            self._auditor.start(group)
        return await edge.listen(self._config, verbs, identity, checks, telemetry, self._auditor)

    async def _roles(self, store: CachedStore) -> Roles:
        """Return the RBAC roles, which follow the store if RBAC authorizes requests."""
        roles = Roles()
        if self._config.auth.rbac:
            roles.follow(store)
            await roles.wait_ready()
        return roles

    def _chain(
        self,
        live: LiveCatalog,
        store: CachedStore,
        webhooks: Client,
        converter: Converter,
        authorizer: Authorizer,
    ) -> Chain:
        posters, config = self._posters(webhooks), self._config.admission
        several = self._config.worker is not None
        return admission_plugins.chain(live, store, posters, converter, authorizer, config, several=several)

    def _posters(self, client: Client) -> Callable[[str], Poster]:
        """Return a function that returns the webhook client of an admission plug-in."""
        identity: dict[str, Poster] = {plugin: Authenticated(client, users) for plugin, users in self._users.items()}
        return lambda plugin: identity.get(plugin, client)

    def _builtin(self, addresses: Addresses) -> list[ServedResource]:
        """Return the enabled built-in resources; warn of unknown names in --runtime-config."""
        config = self._config
        unknown = sorted(dict(config.apis.runtime_config).keys() - {V1BETA1, ALL_APIS, *api_versions()})
        if unknown:
            self._warn(f"--runtime-config: {', '.join(unknown)} has no effect here")
        return builtin_resources(
            v1beta1=config.apis.enabled(V1BETA1, default=True),
            enabled=config.apis.enabled,
            event_ttl=round(config.store.event_ttl),
            allocate=lambda new, old, dry_run: allocate(new, old, addresses, dry_run=dry_run),
        )

    def _checks(
        self, store: CachedStore, control: startup.Controllers, encryption_reload: "EncryptionReload | None"
    ) -> dict[str, Callable[[], str]]:
        """Return name of a health check → function that returns its error.

        An empty error means that the check passes. See HLT-002.
        """

        def etcd() -> str:
            return "" if store.connected else "etcd does not answer"

        def synced() -> str:
            return "" if control.synced() else "not every stored definition is served yet"

        progress = WorkerProgress(worker.progress, worker.of) if (worker := self._config.worker) is not None else None

        def together() -> str:
            return "not every worker serves yet" if progress is not None and not progress.all_serve else synced()

        def bootstrapped() -> str:
            return "" if control.has_roles() else "the default cluster roles are not created yet"

        def filled() -> str:
            return "" if control.filled() else "stored objects are still being read"

        checks = {"etcd": etcd, "etcd-readiness": etcd}
        if encryption_reload is not None and encryption_reload.uses_plugins:
            checks[KMS_CHECK] = encryption_reload.fault
        checks |= {"informer-sync": together} | dict.fromkeys(HOOKS, synced) | {STORAGE_HOOK: filled}
        if self._config.store.encryption_reload:
            checks[RELOAD_CHECK] = lambda: ""
        return checks | ({ROLES_HOOK: bootstrapped} if self._config.auth.rbac else {})


def _is(version: str) -> str:
    return f"is {version}" if version else "does not report its version"


def _unreachable(settings: EtcdConfig, servers: str, error: EtcdError) -> str:
    """Return the error text and the remedy for an etcd that cannot be used."""
    where = f"etcd at {servers}"
    if isinstance(error, AuthError) or "user name is empty" in error.message:
        return f"{where} refuses the user ({error.message}): check --etcd-user"
    if any(server.startswith("https:") for server in settings.servers):
        remedy = "start it, or check --etcd-cafile, --etcd-certfile and --etcd-keyfile"
    else:
        remedy = "start it, or omit --etcd-servers to use a store in this process"
    return f"{where} does not answer ({error.message}): {remedy}"


def _encryption(path: str) -> "Loaded | None":
    """Load the file of --encryption-provider-config; return None if the flag is not set.

    Raises ConfigError.
    """
    if not path:
        return None
    from apiext.storage import encryption_config  # imports ciphers and KMS plug-ins: 60 ms

    try:
        return encryption_config.load(path)
    except encryption_config.ConfigurationError as error:
        raise ConfigError(f"--encryption-provider-config {path}: {error}") from error


def _encryption_reload(config: Config, encryption: "Loaded | None", store: CachedStore) -> "EncryptionReload | None":
    """Return the controller that reloads the encryption configuration.

    Return None without a configuration.
    """
    if encryption is None:
        return None
    from apiext.controllers.encryption_reload import EncryptionReload

    return EncryptionReload(config.store.encryption_config, encryption, store.switch_encryption)


async def _follow_accounts(store: CachedStore) -> None:
    """Refresh the cached objects to which tokens are bound.

    Keep the cache if the store does not respond.
    """
    with contextlib.suppress(StoreError):
        for resource in ("serviceaccounts", *BOUND.values()):
            await store.fresh(store.collection(GroupResource("", resource)))


def _find_in(store: CachedStore) -> Find:
    """Return a function that finds the objects to which tokens are bound.

    The function caches the records of these objects.
    """
    seen: dict[tuple[str, str, str], tuple[Entry, Record]] = {}  # (resource, namespace, name) → (entry, record)

    def find(resource: str, namespace: str, name: str) -> Record | None:
        collection = store.collection(GroupResource("", resource))
        entry = collection.state.get(namespace, name) if collection is not None else None
        if entry is None:
            return None
        last = seen.get((resource, namespace, name))
        if last is None or last[0] is not entry:
            if len(seen) >= limits.BOUND_OBJECTS:
                seen.clear()
            last = seen[resource, namespace, name] = (entry, Record.of(json.loads(entry.raw)))
        return last[1]

    return find
