"""The configuration of a server: a Struct that contains one Struct for each subject.

The configuration is validated once.
"""

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
        "ValidatingAdmissionWebhook", "PodSecurity", "OwnerReferencesPermissionEnforcement", "TaintNodesByCondition",
        "Priority", "DefaultTolerationSeconds", "DefaultStorageClass", "PersistentVolumeClaimResize", "RuntimeClass",
        "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "DefaultIngressClass",
        "LimitRanger", "ServiceAccount", "StorageObjectInUseProtection", "ResourceQuota",
    )
)  # fmt: skip
OPTIONAL_PLUGINS = frozenset(("OwnerReferencesPermissionEnforcement",))
"""Plug-ins that run only if --enable-admission-plugins names them."""
FOREIGN_PLUGINS = frozenset(
    (
        "AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "ClusterTrustBundleAttest", "DenyServiceExternalIPs",
        "EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology",
        "NamespaceAutoProvision",
        "NamespaceExists", "NodeDeclaredFeatureValidator", "NodeRestriction", "PodGroupProtection",
        "PodNodeSelector", "PodResizeValidator", "PodTolerationRestriction", "PodTopologyLabels",
    )
)  # fmt: skip
"""Plug-ins of kube-apiserver 1.37 that apiext does not have."""
RESTRICTING_PLUGINS = frozenset(
    (
        "AlwaysDeny", "AlwaysPullImages", "DenyServiceExternalIPs", "EventRateLimit", "ImagePolicyWebhook",
        "LimitPodHardAntiAffinityTopology", "PodNodeSelector", "PodTolerationRestriction",
    )
)  # fmt: skip
"""Plug-ins of FOREIGN_PLUGINS that restrict clients; --enable-admission-plugins with their names ends the start."""
V1BETA1 = "apiextensions.k8s.io/v1beta1"
KUBERNETES_VERSION = "1.37.0"  # default of --kubernetes-version
STATUS_MANAGER = "kube-apiserver"  # default of --status-manager
ALL_APIS = "api/all"  # key of --runtime-config for all APIs that the flag does not name
GARBAGE_COLLECTOR = "garbage-collector-controller"
POLICY_STATUS = "validatingadmissionpolicy-status-controller"
AGGREGATION = "clusterrole-aggregation-controller"
ACCOUNT_TOKENS = "serviceaccount-token-controller"
DEFAULT_ACCOUNTS = "serviceaccount-controller"
MIGRATOR = "storage-version-migrator-controller"
NAMESPACE_CONTROLLER = "namespace-controller"
QUOTA_CONTROLLER = "resourcequota-controller"
CLAIM_PROTECTION = "persistentvolumeclaim-protection-controller"
VOLUME_PROTECTION = "persistentvolume-protection-controller"
CLASS_PROTECTION = "volumeattributesclass-protection-controller"
ALWAYS_ALLOW, ALWAYS_DENY, RBAC = "AlwaysAllow", "AlwaysDeny", "RBAC"  # values of --authorization-mode
CONTROLLERS = frozenset(
    (
        DEFAULT_ACCOUNTS,
        GARBAGE_COLLECTOR,
        NAMESPACE_CONTROLLER,
        POLICY_STATUS,
        AGGREGATION,
        MIGRATOR,
        ACCOUNT_TOKENS,
        QUOTA_CONTROLLER,
        CLAIM_PROTECTION,
        VOLUME_PROTECTION,
        CLASS_PROTECTION,
    )
)
"""Controllers of kube-controller-manager that --controllers can enable or disable."""
OLDER_NAMES = {
    "garbagecollector": GARBAGE_COLLECTOR,
    "clusterrole-aggregation": AGGREGATION,
    "namespace": NAMESPACE_CONTROLLER,
    "resourcequota": QUOTA_CONTROLLER,
    "pvc-protection": CLAIM_PROTECTION,
    "pv-protection": VOLUME_PROTECTION,
    "vac-protection": CLASS_PROTECTION,
    "svm": MIGRATOR,
    "serviceaccount": DEFAULT_ACCOUNTS,
    "serviceaccount-token": ACCOUNT_TOKENS,
}
"""Earlier name of a controller → its name."""


def default_data_dir(environment: Mapping[str, str]) -> str:
    """Return the default data directory of a user."""
    base = environment.get("XDG_DATA_HOME") or os.path.join(environment.get("HOME") or _home(), ".local", "share")
    return os.path.join(base, "apiext")


def _home() -> str:
    """Return the home directory of a user without $HOME.

    Return /var/lib if the user has no entry in /etc/passwd, such as the user of a container.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return "/var/lib"


def _is_loopback(address: str) -> bool:
    """Report whether an address can be reached from this machine only."""
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _is_endpoint(text: str) -> bool:
    """Report whether a string is an etcd URL: http, https or unix."""
    if text.startswith("unix:///"):
        return True
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class ConfigError(ValueError):
    """An invalid configuration; the message gives the reason, and mostly a remedy."""


STORES = (SQLITE, MEMORY) = ("sqlite", "memory")
"""Stores in the server's own process."""
ETCD = "etcd"


class EtcdConfig(Struct, frozen=True):
    """The etcd that stores objects. Without servers, the store in this process is used."""

    servers: tuple[str, ...] = ()
    prefix: str = "/registry"
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    user: str = ""
    password: str = ""
    wait: float = 60.0  # seconds to wait for etcd at the start

    def check(self) -> None:
        """Raise ConfigError with a remedy if these settings are invalid for an etcd client."""
        if any("@" in server.partition("://")[2].partition("/")[0] for server in self.servers):
            raise ConfigError("--etcd-servers: use --etcd-user for the user, since logs show these URLs")
        for server in self.servers:
            if not _is_endpoint(server):
                raise ConfigError(f"--etcd-servers {server}: use http://host:port, https://host:port or unix:///path")
        if bool(self.certfile) != bool(self.keyfile):
            raise ConfigError("--etcd-certfile and --etcd-keyfile must be used together")

    def __repr__(self) -> str:  # without the password
        return f"EtcdConfig({self.servers!r}, {self.prefix!r})"


class AuditDelivery(Struct, frozen=True):
    """Delivery of audit events to one backend: mode, batches and truncation."""

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
    """Audit policy and backends (AUD-001). Without a policy, no request is audited."""

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
    shared_lock: str = ""  # lock file for the processes that write the same log


class ProxyConfig(Struct, frozen=True):
    """Proxies that authenticate users and name them in headers (AUT-001).

    Without a CA no proxy is trusted.
    """

    ca_file: str = ""
    allowed_names: tuple[str, ...] = ()  # accepted common names of certificates; empty: all that the CA has signed
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


class HeaderConfig(Struct, frozen=True):
    """Response headers for browsers: allowed origins, Strict-Transport-Security (LIM-005)."""

    cors_origins: tuple[str, ...] = ()
    hsts: tuple[str, ...] = ()


NO_HEADERS = HeaderConfig()


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServiceRanges(Struct, frozen=True):
    """The ranges of the cluster addresses and node ports of services.

    There is at most one network for each IP family. The family of the first network is the default.
    """

    networks: tuple[Network, ...] = (
        ipaddress.IPv4Network("10.96.0.0/16"),
        ipaddress.IPv6Network("fd00:10:96::/112"),
    )
    ports: range = range(30_000, 32_768)


class Worker(Struct, frozen=True):
    """The number of this process among the workers behind one port (decisions/0024)."""

    number: int  # from 1
    of: int  # number of workers
    progress: int = -1  # file descriptor of the memory that the workers share


class StoreConfig(Struct, frozen=True):
    """The store of objects, and its settings. Times are seconds, ``quota`` is bytes.

    ``named`` is the value of --store: sqlite, memory, or empty. ``kind`` is the effective store.
    """

    named: str = ""
    quota: int = 8 << 30
    etcd: EtcdConfig = EtcdConfig()
    compaction_interval: float = 300.0
    initialization_timeout: float = 60.0
    event_ttl: float = 3600.0
    encryption_config: str = ""
    encryption_reload: bool = False

    @property
    def kind(self) -> str:
        """The store: sqlite or memory in this process, or etcd."""
        return ETCD if self.etcd.servers else self.named or SQLITE

    @property
    def own_quota(self) -> int:
        """The quota of a store in this process; 0 for etcd, which has a quota of its own."""
        return 0 if self.kind == ETCD else self.quota

    def check(self, workers: int) -> None:
        """Raise ConfigError with a remedy for invalid settings.

        Raise it also if ``workers`` is more than 1, and the processes cannot share this store.
        """
        self.etcd.check()
        if self.named not in ("", *STORES):
            raise ConfigError(f"--store {self.named}: use {' or '.join(STORES)}, or --etcd-servers for an etcd")
        if self.named and self.etcd.servers:
            raise ConfigError(f"--store {self.named}: cannot be combined with --etcd-servers, since there is one store")
        if self.kind != ETCD and workers > 1:
            raise ConfigError(
                f"--workers {workers} needs --etcd-servers: several processes cannot share a store in one of them"
            )
        if self.quota < 1:
            raise ConfigError(f"--store-quota-bytes {self.quota}: it must be at least 1")
        if self.encryption_reload and not self.encryption_config:
            raise ConfigError(
                "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config"
            )


class Listening(Struct, frozen=True):
    """The address of the server, and the settings of all connections."""

    bind_address: str = "127.0.0.1"
    port: int = 6443
    insecure: bool = False
    shutdown_delay: float = 0.0  # seconds
    headers: HeaderConfig = NO_HEADERS

    def check(self) -> None:
        """Raise ConfigError with a remedy for an invalid or insecure address."""
        if not self.bind_address:
            raise ConfigError("--bind-address is empty: use an address of this machine, or 0.0.0.0 for all")
        if self.insecure and not _is_loopback(self.bind_address):
            raise ConfigError(
                f"--insecure serves plain http without authentication, so it listens on loopback addresses only, not "
                f"{self.bind_address}: omit --insecure, or use --bind-address 127.0.0.1"
            )
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"--port {self.port} is not a port: use 0 for a free one, or 1 to 65535")


class TlsConfig(Struct, frozen=True):
    """The serving certificate: configured files, or a generated certificate.

    ``sans`` are further names in a generated certificate.
    """

    cert_dir: str = ""
    cert_file: str = ""
    key_file: str = ""
    minor: int = 2  # the oldest accepted version is TLS 1.minor
    sans: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise ConfigError if only one of two files is given."""
        if bool(self.cert_file) != bool(self.key_file):
            raise ConfigError("--tls-cert-file and --tls-private-key-file must be used together")


class AuthConfig(Struct, frozen=True):
    """Authentication and authorization of requests."""

    client_ca_file: str = ""
    token_file: str = ""
    token: str = ""
    anonymous: bool = False
    proxy: ProxyConfig = ProxyConfig()
    modes: tuple[str, ...] = (ALWAYS_ALLOW,)

    @property
    def rbac(self) -> bool:
        """Report whether roles authorize requests."""
        return RBAC in self.modes

    def check(self) -> None:
        """Raise ConfigError for a token that clients cannot send in a header."""
        if self.token and self.token.split() != [self.token]:
            raise ConfigError("--token: a token must not contain white space, which headers cannot transport")

    def __repr__(self) -> str:  # without the token
        return f"AuthConfig({self.modes!r})"


class TokenConfig(Struct, frozen=True):
    """The tokens of service accounts."""

    issuers: tuple[str, ...] = ("https://kubernetes.default.svc",)
    audiences: tuple[str, ...] = ()
    signing_key_file: str = ""
    key_files: tuple[str, ...] = ()
    keys_url: str = ""
    longest: float = 0.0  # longest life of a requested token in seconds; 0: no limit

    def check(self) -> None:
        """Raise ConfigError if there is no issuer, or if the URL of the keys is not an https URL."""
        if not self.issuers:
            raise ConfigError("--service-account-issuer is empty: tokens need an issuer")
        if self.keys_url and not self.keys_url.startswith("https://"):
            raise ConfigError(f"--service-account-jwks-uri requires https scheme, parsed as: {self.keys_url}")


class AdmissionConfig(Struct, frozen=True):
    """The enabled admission plug-ins, and the settings of webhooks.

    The settings are addresses, credentials and denied networks.
    """

    disabled: frozenset[str] = frozenset()
    enabled: frozenset[str] = frozenset()
    config_file: str = ""
    service_resolver: str = ""
    denied_networks: tuple[Network, ...] = ()

    def admits(self, plugin: str) -> bool:
        """Report whether an admission plug-in is enabled."""
        if plugin in OPTIONAL_PLUGINS:
            return plugin in self.enabled
        return plugin not in self.disabled


class ApiConfig(Struct, frozen=True):
    """The served APIs, and the enabled controllers."""

    runtime_config: tuple[tuple[str, bool], ...] = ()
    controllers: tuple[str, ...] = ("*",)
    kubernetes_version: str = KUBERNETES_VERSION
    status_manager: str = STATUS_MANAGER
    service_ranges: ServiceRanges = ServiceRanges()

    def enabled(self, api: str, default: bool) -> bool:
        """Return the value of --runtime-config for this API, else for all APIs, else ``default``."""
        given = dict(self.runtime_config)
        return given.get(api, given.get(ALL_APIS, default))

    def runs(self, controller: str) -> bool:
        """Report whether --controllers names a controller, or names all and does not exclude it."""
        if controller in self.controllers:
            return True
        return f"-{controller}" not in self.controllers and "*" in self.controllers


class RequestConfig(Struct, frozen=True):
    """Limits of concurrent requests (0: no limit), and of their duration in seconds."""

    max_inflight: int = 400
    max_mutating: int = 200
    timeout: float = 60.0
    min_watch_timeout: float = 1800


class Output(Struct, frozen=True):
    """The log, and the files that the server writes for users."""

    ready_file: str = ""
    kubeconfig: str = ""
    verbosity: int = 0
    logging_format: str = ""  # text or json; empty: text on a terminal, else json
    quiet: bool = False


class Config(Struct, frozen=True):
    """The configuration of a server.

    ``worker`` is None in the only process of a server, and in the supervisor of several workers.
    """

    data_dir: Path
    store: StoreConfig = StoreConfig()
    listening: Listening = Listening()
    tls: TlsConfig = TlsConfig()
    auth: AuthConfig = AuthConfig()
    tokens: TokenConfig = TokenConfig()
    admission: AdmissionConfig = AdmissionConfig()
    apis: ApiConfig = ApiConfig()
    requests: RequestConfig = RequestConfig()
    audit: AuditConfig = AuditConfig()
    output: Output = Output()
    workers: int = 1
    worker: Worker | None = None

    def __repr__(self) -> str:  # without the token
        return f"Config({str(self.data_dir)!r}, {self.listening.bind_address!r}, {self.listening.port})"

    def checked(self) -> "Config":
        """Validate the configuration and return it; raise ConfigError with a remedy."""
        self.listening.check()
        self.store.check(self.workers)
        self.auth.check()
        self.tokens.check()
        self.tls.check()
        return self

    @property
    def store_file(self) -> Path | None:
        """The file of the SQLite store; None for other stores."""
        return self.data_dir / "store.db" if self.store.kind == SQLITE else None

    @property
    def first(self) -> bool:
        """Report whether this process does the work that only one worker may do."""
        return self.worker is None or self.worker.number == 1
