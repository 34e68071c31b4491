"""The configuration of a server: one frozen value, checked once."""

import ipaddress
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

PLUGINS = frozenset(
    (
        "NamespaceLifecycle", "MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy",
        "ValidatingAdmissionWebhook", "PodSecurity", "OwnerReferencesPermissionEnforcement",
    )
)  # fmt: skip
OPTIONAL_PLUGINS = frozenset(("OwnerReferencesPermissionEnforcement",))
"""Those that are on where --enable-admission-plugins names them."""
FOREIGN_PLUGINS = frozenset(
    (
        "AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "CertificateApproval", "CertificateSigning",
        "CertificateSubjectRestriction", "ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass",
        "DefaultTolerationSeconds", "DenyServiceExternalIPs", "EventRateLimit", "ExtendedResourceToleration",
        "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "LimitRanger", "NamespaceAutoProvision",
        "NamespaceExists", "NodeDeclaredFeatureValidator", "NodeRestriction", "PersistentVolumeClaimResize",
        "PodGroupProtection", "PodNodeSelector", "PodResizeValidator", "PodTolerationRestriction", "PodTopologyLabels",
        "Priority", "ResourceQuota", "RuntimeClass", "ServiceAccount", "StorageObjectInUseProtection",
        "TaintNodesByCondition",
    )
)  # fmt: skip
"""Plug-ins of kube-apiserver 1.37 that apiext does not have."""
V1BETA1 = "apiextensions.k8s.io/v1beta1"
KUBERNETES_VERSION = "1.37.0"  # what /version reports unless told otherwise
STATUS_MANAGER = "kube-apiserver"  # the manager of what the server itself writes into statuses
ALL_APIS = "api/all"  # what --runtime-config calls every API that it does not name
GARBAGE_COLLECTOR = "garbage-collector-controller"
POLICY_STATUS = "validatingadmissionpolicy-status-controller"
AGGREGATION = "clusterrole-aggregation-controller"
ACCOUNT_TOKENS = "serviceaccount-token-controller"
DEFAULT_ACCOUNTS = "serviceaccount-controller"
MIGRATOR = "storage-version-migrator-controller"
NAMESPACE_CONTROLLER = "namespace-controller"
ALWAYS_ALLOW, ALWAYS_DENY, RBAC = "AlwaysAllow", "AlwaysDeny", "RBAC"  # values of --authorization-mode
ON_REQUEST = frozenset((DEFAULT_ACCOUNTS,))  # controllers that run where --controllers names them
CONTROLLERS = ON_REQUEST | {
    GARBAGE_COLLECTOR,
    NAMESPACE_CONTROLLER,
    POLICY_STATUS,
    AGGREGATION,
    MIGRATOR,
    ACCOUNT_TOKENS,
}
"""Controllers of kube-controller-manager that --controllers turns on or off."""
OLDER_NAMES = {
    "garbagecollector": GARBAGE_COLLECTOR,
    "clusterrole-aggregation": AGGREGATION,
    "namespace": NAMESPACE_CONTROLLER,
    "svm": MIGRATOR,
    "serviceaccount": DEFAULT_ACCOUNTS,
    "serviceaccount-token": ACCOUNT_TOKENS,
}
"""Older name of a controller → its name."""


def default_data_dir(environment: Mapping[str, str]) -> str:
    """Return the data directory of a user who names none."""
    base = environment.get("XDG_DATA_HOME") or os.path.join(environment.get("HOME") or _home(), ".local", "share")
    return os.path.join(base, "apiext")


def _home() -> str:
    """Return the home of the user of a service without the variable; a container's user may be a mere number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/var/lib"


def _is_loopback(address: str) -> bool:
    """Tell whether nobody but this machine reaches an address."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_endpoint(text: str) -> bool:
    """Tell whether a text is where an etcd may be."""
    if text.startswith("unix:///"):
        return True
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class ConfigError(ValueError):
    """A configuration that cannot be served; the text says what to change."""


STORES = (SQLITE, MEMORY) = ("sqlite", "memory")
"""Stores in the server's own process."""
ETCD = "etcd"


class EtcdConfig(Struct, frozen=True):
    """An etcd in which objects live. No servers: they live in a store of this process."""

    servers: tuple[str, ...] = ()
    prefix: str = "/registry"
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    user: str = ""
    password: str = ""
    wait: float = 60.0  # seconds to wait for etcd at the start

    def __repr__(self) -> str:  # without the password
        return f"EtcdConfig({self.servers!r}, {self.prefix!r})"


class AuditDelivery(Struct, frozen=True):
    """How events get to one place: mode, batches, and what is cut."""

    mode: str = "blocking"
    buffer_size: int = 10_000
    max_batch: int = 1
    max_wait: float = 0.0
    throttled: bool = False
    throttle_qps: float = 0.0
    throttle_burst: int = 0
    truncated: bool = False
    max_event_bytes: int = 100 * 1024
    max_batch_bytes: int = 10 * 1024 * 1024


class AuditConfig(Struct, frozen=True):
    """What is audited, and where it is told (AUD-001). No policy: nothing is."""

    policy_file: str = ""
    log_path: str = ""
    log_format: str = "json"
    max_age: int = 366
    max_backups: int = 100
    max_megabytes: int = 100
    compress: bool = False
    log: AuditDelivery = AuditDelivery()
    webhook_file: str = ""
    initial_backoff: float = 10.0
    webhook: AuditDelivery = AuditDelivery(mode="batch")
    shared_lock: str = ""  # file by which several processes take turns at the log


class ProxyConfig(Struct, frozen=True):
    """Who may tell in headers whose requests they are (AUT-001). No CA: nobody."""

    ca_file: str = ""
    allowed_names: tuple[str, ...] = ()  # none: every certificate of the CA
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


class HeaderConfig(Struct, frozen=True):
    """What headers of answers say to browsers (LIM-005), and what those of requests say."""

    cors_origins: tuple[str, ...] = ()
    hsts: tuple[str, ...] = ()
    proxy: ProxyConfig = ProxyConfig()


NO_HEADERS = HeaderConfig()


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServiceRanges(Struct, frozen=True):
    """What services are given: addresses of one network of a family, the first one's first, and ports of nodes."""

    networks: tuple[Network, ...] = (
        ipaddress.IPv4Network("10.96.0.0/16"),
        ipaddress.IPv6Network("fd00:10:96::/112"),
    )
    ports: range = range(30_000, 32_768)


class Worker(Struct, frozen=True):
    """Which of the processes behind one port this one is, and what they share (decisions/0024)."""

    number: int  # from 1
    of: int
    board: int = -1  # descriptor of what workers tell each other


class Config(Struct, frozen=True):
    """Everything that a server is told at its start."""

    data_dir: Path
    etcd: EtcdConfig = EtcdConfig()
    store: str = ""  # as --store says it; see ``kind``
    store_quota: int = 8 << 30  # bytes that it may have
    bind_address: str = "127.0.0.1"
    port: int = 6443
    insecure: bool = False
    ready_file: str = ""
    kubeconfig: str = ""
    disabled_plugins: frozenset[str] = frozenset()
    enabled_plugins: frozenset[str] = frozenset()  # those that --enable-admission-plugins names
    runtime_config: tuple[tuple[str, bool], ...] = ()
    controllers: tuple[str, ...] = ("*",)
    cert_dir: str = ""
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    tls_minor: int = 2  # the oldest TLS version is 1.x
    tls_sans: tuple[str, ...] = ()
    client_ca_file: str = ""
    token_auth_file: str = ""
    token: str = ""
    authorization_modes: tuple[str, ...] = (ALWAYS_ALLOW,)
    service_account_issuers: tuple[str, ...] = ("https://kubernetes.default.svc",)
    service_account_signing_key_file: str = ""
    service_account_key_files: tuple[str, ...] = ()
    longest_token: float = 0.0  # seconds that a requested token may live; 0: no bound
    service_account_keys_url: str = ""
    api_audiences: tuple[str, ...] = ()
    event_ttl: float = 3600.0
    anonymous_auth: bool = False
    service_resolver: str = ""
    webhook_denied: tuple[Network, ...] = ()
    service_ranges: ServiceRanges = ServiceRanges()
    encryption_config: str = ""
    encryption_reload: bool = False
    headers: HeaderConfig = NO_HEADERS
    admission_control_config_file: str = ""
    kubernetes_version: str = KUBERNETES_VERSION
    status_manager: str = STATUS_MANAGER
    max_inflight: int = 400
    max_mutating_inflight: int = 200
    request_timeout: float = 60.0
    min_request_timeout: int = 1800
    compaction_interval: float = 300.0
    initialization_timeout: float = 60.0
    shutdown_delay: float = 0.0
    verbosity: int = 0
    logging_format: str = ""  # text or json; empty: text on a terminal, else json
    quiet: bool = False
    audit: AuditConfig = AuditConfig()
    workers: int = 1
    worker: Worker | None = None  # None: the only process, or the supervisor of the workers

    def __repr__(self) -> str:  # without the token
        return f"Config({str(self.data_dir)!r}, {self.bind_address!r}, {self.port})"

    def checked(self) -> "Config":
        """Return the configuration, or raise ConfigError with a remedy."""
        if not self.bind_address:
            raise ConfigError("--bind-address is empty: name an address of this machine, or 0.0.0.0 for all")
        if self.insecure and not _is_loopback(self.bind_address):
            raise ConfigError(
                f"--insecure serves plain http without authentication, so it binds loopback addresses only, not "
                f"{self.bind_address}: drop --insecure or bind 127.0.0.1"
            )
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port {self.port} is no port: use 0 for a free one, or 1 to 65535")
        if any("@" in server.partition("://")[2].partition("/")[0] for server in self.etcd.servers):
            raise ConfigError("--etcd-servers: say who we are by --etcd-user, since logs show these URLs")
        for server in self.etcd.servers:
            if not _is_endpoint(server):
                raise ConfigError(f"--etcd-servers {server}: use http://host:port, https://host:port or unix:///path")
        self._check_store()
        if self.encryption_reload and not self.encryption_config:
            raise ConfigError(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
            )
        if self.token and self.token.split() != [self.token]:
            raise ConfigError("--token: a token has no white space, since no header could bring it")
        if not self.service_account_issuers:
            raise ConfigError("--service-account-issuer is empty: tokens need one")
        if self.service_account_keys_url and not self.service_account_keys_url.startswith("https://"):
            raise ConfigError(
                f"--service-account-jwks-uri requires https scheme, parsed as: {self.service_account_keys_url}"
            )
        if bool(self.etcd.certfile) != bool(self.etcd.keyfile):
            raise ConfigError("--etcd-certfile and --etcd-keyfile go together")
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            raise ConfigError("--tls-cert-file and --tls-private-key-file go together")
        return self

    def _check_store(self) -> None:
        if self.store not in ("", *STORES):
            raise ConfigError(f"--store {self.store}: use {' or '.join(STORES)}, or --etcd-servers for an etcd")
        if self.store and self.etcd.servers:
            raise ConfigError(
                f"--store {self.store}: not together with --etcd-servers, since objects are kept in one place"
            )
        if self.kind != ETCD and self.workers > 1:
            raise ConfigError(
                f"--workers {self.workers} needs --etcd-servers: a store in one process cannot be shared by several"
            )
        if self.store_quota < 1:
            raise ConfigError(f"--store-quota-bytes {self.store_quota}: the store needs room")

    @property
    def kind(self) -> str:
        """What keeps objects: sqlite or memory in this process, or etcd."""
        return ETCD if self.etcd.servers else self.store or SQLITE

    @property
    def store_file(self) -> Path | None:
        """The file of the store in this process; None for a store in memory, and for etcd."""
        return self.data_dir / "store.db" if self.kind == SQLITE else None

    @property
    def first(self) -> bool:
        """Whether this process does what only one of a server's may do."""
        return self.worker is None or self.worker.number == 1

    def enabled(self, api: str, default: bool) -> bool:
        """Return whether --runtime-config turns an API on: by its name, else with all others."""
        told = dict(self.runtime_config)
        return told.get(api, told.get(ALL_APIS, default))

    def admits(self, plugin: str) -> bool:
        """Return whether an admission plug-in runs."""
        if plugin in OPTIONAL_PLUGINS:
            return plugin in self.enabled_plugins
        return plugin not in self.disabled_plugins

    def runs(self, controller: str) -> bool:
        """Return whether --controllers has a controller run: named, or not named with a minus and all are to run."""
        if controller in self.controllers or controller in ON_REQUEST:
            return controller in self.controllers
        return f"-{controller}" not in self.controllers and "*" in self.controllers
