"""The command line of ``serve``: flags, environment and the --config file become a Config."""

import argparse
import ipaddress
import itertools
import json
import math
import os
import posixpath
import re
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from msgspec import Struct

from apiext import foreign_flags, limits, logs
from apiext.audit import flags as audit_flags
from apiext.catalog.builtin import service_flags
from apiext.config import (
    ALWAYS_ALLOW,
    ALWAYS_DENY,
    CONTROLLERS,
    FOREIGN_PLUGINS,
    GARBAGE_COLLECTOR,
    KUBERNETES_VERSION,
    OLDER_NAMES,
    OPTIONAL_PLUGINS,
    PLUGINS,
    RBAC,
    RESTRICTING_PLUGINS,
    STATUS_MANAGER,
    AdmissionConfig,
    ApiConfig,
    AuthConfig,
    Config,
    ConfigError,
    EtcdConfig,
    HeaderConfig,
    Listening,
    Network,
    Output,
    RequestConfig,
    StoreConfig,
    TlsConfig,
    TokenConfig,
    default_data_dir,
)
from apiext.flag_values import boolean, count, duration, integer, names
from apiext.http import header_flags
from apiext.meta import limits as meta_limits

Warn = Callable[[str], None]

EXIT_FAILURE, EXIT_USAGE, EXIT_PORT, EXIT_ETCD = 1, 2, 3, 4


class Flag(Struct, frozen=True):
    """A flag of ``serve``: its names, help and default, and how shells complete its value.

    ``daily`` is true if --help shows the flag; --help-all shows all flags.
    """

    name: str
    help: str
    default: str = ""
    metavar: str = ""
    switch: bool = False
    aliases: tuple[str, ...] = ()
    values: tuple[str, ...] = ()  # values that shells complete
    daily: bool = False

    @property
    def options(self) -> list[str]:
        """The forms of the flag on the command line, such as --v.

        A name of one letter also has the form -v, as in kube-apiserver.
        """
        names = (self.name, *self.aliases)
        return [f"-{name}" for name in names if len(name) == 1] + [f"--{name}" for name in names]


class Setting(NamedTuple):
    """A value of a flag, and its source.

    The source is "flag", "environment", "default" or the path of the file of --config.
    """

    value: str
    source: str


GROUPS: Mapping[str, tuple[Flag, ...]] = {
    "Server": (
        Flag("data-dir", "directory of the store, certificates and kubeconfig (default "
             "$XDG_DATA_HOME/apiext, else ~/.local/share/apiext)", metavar="DIR", daily=True),
        Flag("port", "port to serve on; 0 for a free one (default 6443, with --insecure 8080)", metavar="N",
             aliases=("secure-port",), daily=True),
        Flag("bind-address", "address to serve on", "127.0.0.1", "ADDRESS", daily=True),
        Flag("insecure", "plain http on a loopback address, no authentication", switch=True, daily=True),
        Flag("ready-file", "JSON file that the server writes when it is ready", metavar="FILE", daily=True),
        Flag("kubeconfig", "file of the admin kubeconfig (default DIR/admin.kubeconfig)", metavar="FILE", daily=True),
        Flag("workers", "number of processes behind one port; several need --etcd-servers; auto: one for each core",
             "1", "N", values=("auto",), daily=True),
        Flag("storage-initialization-timeout",
             "time after which the server is ready even if it has not read all stored objects", "1m", "DURATION"),
        Flag("kubernetes-version", "version that /version reports", KUBERNETES_VERSION, "X.Y.Z"),
        Flag("shutdown-delay-duration",
             "time for which a stopping server reports not ready, but still accepts connections", "0s", "DURATION"),
        Flag("ignore-unsupported-flags", "start even with flags that restrict access and that apiext does not support",
             switch=True),
    ),
    "Log": (
        Flag("logging-format", "log format: text or json (default text on a terminal, else json)", metavar="FORM",
             values=logs.FORMS, daily=True),
        Flag("v", "verbosity of the log: 0 start, stop, definitions and problems; 2 each request, and CEL errors "
             "that no client sees; 4 retries, too", "0", "N", daily=True),
        Flag("quiet", "log warnings and errors only, without the ready line", switch=True, daily=True),
    ),
    "Store": (
        Flag("store", "store in this process: sqlite (a file in the data directory), or memory (lost when the server "
             "ends) (default sqlite, without --etcd-servers)", metavar="KIND", values=("sqlite", "memory"), daily=True),
        Flag("store-quota-bytes", "size of the store in this process in bytes, above which it accepts only deletions",
             str(8 << 30), "N"),
        Flag("etcd-servers", "etcd endpoints: http, https or unix:///path; empty: use --store", metavar="URL[,URL]",
             daily=True),
        Flag("etcd-prefix", "prefix of all keys in the store", "/registry", "PREFIX"),
        Flag("etcd-cafile", "CA bundle that signed etcd's certificate", metavar="FILE"),
        Flag("etcd-certfile", "client certificate for etcd", metavar="FILE"),
        Flag("etcd-keyfile", "key of the client certificate for etcd", metavar="FILE"),
        Flag("etcd-user", "etcd user as NAME:PASSWORD", metavar="USER"),
        Flag("etcd-wait", "seconds to wait for etcd at the start", "60", "SECONDS"),
        Flag("etcd-compaction-interval", "time between compactions, 0 for none", "5m", "DURATION"),
        Flag("encryption-provider-config", "EncryptionConfiguration: the keys that encrypt resources in the store",
             metavar="FILE"),
        Flag("encryption-provider-config-automatic-reload",
             "reload the file of --encryption-provider-config when it changes", switch=True),
    ),
    "Users and rights": (
        Flag("authorization-mode", "AlwaysAllow, RBAC, or AlwaysDeny for all but system:masters", "AlwaysAllow", "A,B",
             values=(ALWAYS_ALLOW, RBAC, ALWAYS_DENY), daily=True),
        Flag("authorization-config", "AuthorizationConfiguration, in place of --authorization-mode", metavar="FILE"),
        Flag("anonymous-auth", "serve requests without credentials as system:anonymous", "false", switch=True),
        Flag("client-ca-file", "CA of client certificates: CN is the user, O the groups", metavar="FILE"),
        Flag("token-auth-file", "static tokens: token,user,uid,\"group,group\"", metavar="FILE"),
        Flag("token", "bearer token of the admin (default: generated, in the data directory)", metavar="TOKEN"),
        Flag("service-account-issuer", "issuer of service account tokens", "https://kubernetes.default.svc", "URL"),
        Flag("service-account-signing-key-file",
             "key that signs service account tokens (default: generated at its first use)", metavar="FILE"),
        Flag("service-account-key-file", "further keys that verify service account tokens", metavar="FILE"),
        Flag("service-account-max-token-expiration", "longest life of a requested token, 1h or more; 0: no limit", "0s",
             "DURATION"),
        Flag("service-account-jwks-uri",
             "published URL of the keys of service account tokens (default: a path of this server)", metavar="URL"),
        Flag("api-audiences", "audiences of service account tokens (default: the issuer)", metavar="A,B"),
    ),
    "TLS": (
        Flag("cert-dir", "directory of apiserver.crt and apiserver.key", metavar="DIR"),
        Flag("tls-cert-file", "serving certificate", metavar="FILE"),
        Flag("tls-private-key-file", "key of the serving certificate", metavar="FILE"),
        Flag("tls-min-version", "oldest TLS version: VersionTLS12 or VersionTLS13", "VersionTLS12", "VERSION",
             values=("VersionTLS12", "VersionTLS13")),
        Flag("tls-san", "further names of the generated serving certificate", metavar="NAME[,NAME]"),
    ),
    "APIs and admission": (
        Flag("runtime-config", "APIs to enable or disable: group/version=false, or api/all=false", metavar="K=V,…",
             values=("apiextensions.k8s.io/v1beta1=false", "api/all=false")),
        Flag("disable-admission-plugins",
             f"admission plug-ins to disable, of {', '.join(sorted(PLUGINS - OPTIONAL_PLUGINS))}", metavar="A,B",
             values=tuple(sorted(PLUGINS - OPTIONAL_PLUGINS)), daily=True),
        Flag("enable-admission-plugins", f"admission plug-ins to enable, of {', '.join(sorted(OPTIONAL_PLUGINS))}",
             metavar="A,B", values=tuple(sorted(OPTIONAL_PLUGINS))),
        Flag("admission-control-config-file",
             "AdmissionConfiguration: names the kubeconfigs with credentials for admission webhooks", metavar="FILE"),
        Flag("service-resolver",
             "YAML file that maps services of webhooks to addresses, such as hook.default:443: localhost:9443",
             metavar="FILE", daily=True),
        Flag("webhook-deny-cidrs", "networks in which the server calls no webhooks, such as 127.0.0.0/8,::1/128",
             metavar="A/N,B/M"),
        Flag("controllers",
             f"controllers to run; * is all, -NAME disables one: {', '.join(sorted(CONTROLLERS))}", "*", "A,B",
             values=tuple(f"*,-{name}" for name in sorted(CONTROLLERS))),
        Flag("enable-garbage-collector", "delete the dependents of deleted owners; false is the same as "
             "--controllers=*,-garbage-collector-controller", "true", switch=True),
        Flag("event-ttl", "time after which events are deleted", "1h", "DURATION"),
        Flag("status-manager", "field manager of the server's own writes of statuses", STATUS_MANAGER, "NAME"),
        *(Flag(*row) for row in service_flags.FLAGS),
    ),
    "Requests": (
        Flag("max-requests-inflight", "limit of concurrent reads, 0 for no limit", "400", "N"),
        Flag("max-mutating-requests-inflight", "limit of concurrent writes, 0 for no limit", "200", "N"),
        Flag("request-timeout", "time limit of requests other than watches", "60s", "DURATION"),
        Flag("min-request-timeout", "shortest time of a watch without timeoutSeconds", "1800", "SECONDS"),
        Flag("watch-cache", "accepted without effect: the cache is always on", "true", switch=True),
        *(Flag(*row) for row in header_flags.FLAGS),
    ),
    "Audit": tuple(
        Flag(*row, switch=row[0] in audit_flags.SWITCHES, values=audit_flags.CHOICES.get(row[0], ()))
        for row in audit_flags.FLAGS
    ),
}  # fmt: skip
"""Heading in --help-all → flags of ``serve``; --help shows the daily flags."""
FLAGS = tuple(flag for group in GROUPS.values() for flag in group)


_LISTS = frozenset(("A,B", "CIDR[,CIDR]", "K=V,…", "URL[,URL]", "NAME[,NAME]"))
_ADDED = frozenset(flag.name for flag in FLAGS if flag.metavar in _LISTS) | {
    "service-account-issuer",
    "service-account-key-file",
}
"""Flags whose repeated values are joined by commas, as with kube-apiserver; of other flags, the last value counts."""


CPU_BOUND = Path("/sys/fs/cgroup/cpu.max")
"""File with the quota and the period of the control group's processor time, in microseconds."""
_SECRET = frozenset(("token", "etcd-user"))
_REMOVED = {
    "etcd-transport": "apiext has one etcd client: omit the flag, --etcd-servers is enough",
    "etcd-binary": "apiext does not start etcd: use the store in its process (--store), or a running etcd "
    "(--etcd-servers)",
}
"""Flags of earlier releases, with a remedy."""


def environment_name(flag: str) -> str:
    """Return the environment variable of a flag."""
    return "APIEXT_" + flag.upper().replace("-", "_")


def _from_environment(flag: Flag, environment: Mapping[str, str]) -> str | None:
    found = (environment.get(environment_name(name)) for name in (flag.name, *flag.aliases))
    return next((value for value in found if value is not None), None)


class _Parser(argparse.ArgumentParser):
    """A parser that raises ConfigError, as the validation of values does."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(message)


class _HelpAll(argparse.Action):
    """Prints the help of all flags."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        serve_parser(whole=True).print_help()
        parser.exit()


def serve_parser(typed: Sequence[str] | None = None, *, whole: bool = False) -> argparse.ArgumentParser:
    """Return the parser of ``apiext serve``.

    Its help shows the daily flags, or all flags if ``whole``. The parser for a command line (``typed``) without --help
    has only the flags in this line and those with one letter, since adding all flags takes 10 ms.
    """
    wanted = None if typed is None or _asks_for_help(typed) else {word.partition("=")[0] for word in typed}
    more = "" if whole else "--help-all shows every flag. "
    parser = _Parser(
        prog="apiext serve",
        usage="%(prog)s [-h] [FLAG …]",
        description="Serve CustomResourceDefinitions and custom objects.",
        allow_abbrev=False,
        epilog=f"{more}The environment variable of a flag is APIEXT_<NAME>. Order: flag, environment, --config FILE, "
        f"default. Exit codes: 0 stopped by a signal, {EXIT_FAILURE} failed, {EXIT_USAGE} a flag or file is invalid, "
        f"{EXIT_PORT} the port is in use, {EXIT_ETCD} the store or etcd is not available.",
    )
    parser.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every flag and exit")
    parser.add_argument(
        "--version",
        action="version",
        version=f"Kubernetes v{KUBERNETES_VERSION}",
        help="print the version of Kubernetes, as kube-apiserver does",
    )
    parser.add_argument("--config", metavar="FILE", help="YAML file of flags, with their names as keys")
    for title, flags in GROUPS.items():
        group = parser.add_argument_group(title)
        for flag in flags:
            if wanted is not None and len(flag.name) > 1 and wanted.isdisjoint(flag.options):
                continue
            text = flag.help + (f" (default {flag.default})" if flag.default else "")
            shown = text.replace("%", "%%") if whole or flag.daily else argparse.SUPPRESS
            options: dict[str, Any] = {"dest": flag.name, "default": None, "help": shown, "action": "append"}
            if flag.switch:
                options |= {"nargs": "?", "const": "true", "metavar": "BOOL"}
            else:
                options["metavar"] = flag.metavar
            group.add_argument(*flag.options, **options)
    return parser


def _asks_for_help(typed: Sequence[str]) -> bool:
    return any(word.startswith(("-h", "--help")) for word in typed)


def values() -> dict[str, tuple[str, ...]]:
    """Return the values that shells complete: ``{"--store": ("sqlite", "memory"), …}``."""
    found = {flag: flag.values or (("true", "false") if flag.switch else ()) for flag in FLAGS}
    return {option: offered for flag, offered in found.items() if offered for option in flag.options}


def parse_serve(arguments: Sequence[str], environment: Mapping[str, str], warn: Warn) -> Config:
    """Return the validated configuration; raises ConfigError."""
    given = settings(arguments, environment, warn)
    values = {flag.name: given[flag.name].value if flag.name in given else flag.default for flag in FLAGS}
    if values["authorization-config"] and values["authorization-mode"] != ALWAYS_ALLOW:
        raise ConfigError(
            "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags "
            "are defined"
        )
    try:
        config = _build(values, environment, warn).checked()
    except ConfigError as error:
        raise ConfigError(f"{error}{_source_of(str(error), given, environment)}") from error
    _warn_of_files(config, given, warn)
    return config


def _warn_of_files(config: Config, given: Mapping[str, Setting], warn: Warn) -> None:
    """Warn if a flag allows more concurrent requests than the processes may open files.

    Each connection needs a file.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = {
        "max-requests-inflight": config.requests.max_inflight,
        "max-mutating-requests-inflight": config.requests.max_mutating,
    }
    for name, number in wanted.items():
        if name in given and number > hard * config.workers:
            warn(
                f"--{name} {number}: the process may open {hard} files only; raise that limit (ulimit -n, LimitNOFILE)"
            )


def _source_of(text: str, given: Mapping[str, Setting], environment: Mapping[str, str]) -> str:
    """Return the source of an invalid value, empty for the command line and for a default.

    Users may not know the source: for a service named apiext, Kubernetes itself sets APIEXT_PORT.
    """
    flag = next((flag for flag in FLAGS if text.startswith((f"--{flag.name} ", f"--{flag.name}:"))), None)
    if flag is None or flag.name not in given or given[flag.name].source == "flag":
        return ""
    if given[flag.name].source != "environment":
        return f" (from {given[flag.name].source})"
    twins = map(environment_name, (flag.name, *flag.aliases))
    return f" (from {next(twin for twin in twins if twin in environment)} in the environment)"


def settings(arguments: Sequence[str], environment: Mapping[str, str], warn: Warn) -> dict[str, Setting]:
    """Return name → setting of each given flag.

    The command line overrides the environment, and the environment overrides the file.
    """
    typed = _joined(arguments)
    parser = serve_parser(typed)
    for name, remedy in _REMOVED.items():
        if environment_name(name) in environment:
            raise ConfigError(f"{environment_name(name)}: there is no --{name} any more; {remedy}")
    known, extra = parser.parse_known_args(typed)
    given: dict[str, Setting] = {}
    for flag in FLAGS:
        if (found := getattr(known, flag.name, None)) is not None:
            given[flag.name] = Setting(",".join(found) if flag.name in _ADDED else found[-1], "flag")
        elif (value := _from_environment(flag, environment)) is not None:
            given[flag.name] = Setting(value, "environment")
    path = known.config or environment.get("APIEXT_CONFIG") or ""
    names = {name: flag.name for flag in FLAGS for name in (flag.name, *flag.aliases)}
    switches = frozenset(flag.name for flag in FLAGS if flag.switch)
    if path:
        from apiext import config_file  # imported only if there is a file, since it imports YAML (decision 36)

        for name, value in config_file.read(path, names, switches).items():
            given.setdefault(name, Setting(value, path))
    ignore = given.get("ignore-unsupported-flags", Setting("false", "default")).value
    foreign_flags.accept(
        extra,
        lambda word: parser.error(_unknown(word)),
        warn,
        ignore_unsupported=boolean("ignore-unsupported-flags", ignore),
    )
    return given


def _joined(arguments: Sequence[str]) -> list[str]:
    """Join a flag with its value by ``=`` if argparse would parse the value as a flag.

    In Go, the argument after a flag is its value, even if it begins with a dash. But a boolean flag does not take the
    next argument. So if a flag with two dashes follows a boolean flag, this function appends ``=true`` to the boolean
    flag. Without this, argparse would parse a following flag that contains a blank, such as
    ``--feature-gates=A=true, B=true``, as the value of the boolean flag.
    """
    takes = {"--config", *(option for flag in FLAGS if not flag.switch for option in flag.options)}
    switches = {option for flag in FLAGS if flag.switch for option in flag.options}
    words, joined = iter(arguments), list[str]()
    for word in words:
        value = next(words, None) if word in takes else None
        if joined and joined[-1] in switches and word.startswith("--"):
            joined[-1] += "=true"
        if value is None:
            joined.append(word)
        elif value.startswith("-"):
            joined.append(f"{word}={value}")
        else:
            joined += [word, value]
    return joined


def shown(arguments: Sequence[str], environment: Mapping[str, str], warn: Warn) -> str:
    """Return the configuration of ``serve`` as a file for --config, without secrets.

    The file names the source of each value.
    """
    config = parse_serve(arguments, environment, warn)
    effective = {"port": str(config.listening.port), "data-dir": str(config.data_dir)}
    given = settings(arguments, environment, lambda _: None)
    lines = []
    for flag in FLAGS:
        value, source = given.get(flag.name, Setting(effective.get(flag.name, flag.default), "default"))
        if flag.name in _SECRET and value:
            lines.append(f"# {flag.name}: not shown  # {source}")
        else:
            lines.append(f"{flag.name}: {json.dumps(value, ensure_ascii=False)}  # {source}")
    return "\n".join(lines)


def _unknown(word: str) -> str:
    """Return the error of an unknown argument.

    The error has the remedy of a removed flag, or a flag with a similar name.
    """
    import difflib  # imported only for an error

    name = word.partition("=")[0].lstrip("-")
    if name in _REMOVED:
        return f"there is no --{name} any more; {_REMOVED[name]}"
    known = [each for flag in FLAGS for each in (flag.name, *flag.aliases)]
    near = difflib.get_close_matches(name, known, 1, 0.75)
    return f"unrecognized argument: {word}" + (f"; did you mean --{near[0]}?" if near else "")


def _build(values: Mapping[str, str], environment: Mapping[str, str], warn: Warn) -> Config:
    boolean("watch-cache", values["watch-cache"])  # this flag has no effect, but its value must be valid
    admission, apis, modes = _admission(values, warn), _apis(values, warn), _authorization_modes(values, warn)
    anonymous = _anonymous(values["anonymous-auth"], modes, warn)
    headers, proxy = header_flags.read(values, warn)
    return Config(
        data_dir=_absolute(values["data-dir"] or default_data_dir(environment)),
        store=_store(values),
        listening=_listening(values, headers),
        tls=_tls(values),
        auth=AuthConfig(
            client_ca_file=values["client-ca-file"],
            token_file=values["token-auth-file"],
            token=values["token"],
            anonymous=anonymous,
            proxy=proxy,
            modes=modes,
        ),
        tokens=_tokens(values),
        admission=admission,
        apis=apis,
        requests=RequestConfig(
            max_inflight=count("max-requests-inflight", values["max-requests-inflight"]),
            max_mutating=count("max-mutating-requests-inflight", values["max-mutating-requests-inflight"]),
            timeout=duration("request-timeout", values["request-timeout"]),
            min_watch_timeout=count("min-request-timeout", values["min-request-timeout"]),
        ),
        audit=audit_flags.read(values),
        output=Output(
            ready_file=values["ready-file"],
            kubeconfig=values["kubeconfig"],
            verbosity=count("v", values["v"]),
            logging_format=_logging_format(values["logging-format"]),
            quiet=boolean("quiet", values["quiet"]),
        ),
        workers=_workers(values["workers"], shared=bool(values["etcd-servers"])),
    )


def _store(values: Mapping[str, str]) -> StoreConfig:
    reload = "encryption-provider-config-automatic-reload"
    return StoreConfig(
        named=values["store"],
        quota=count("store-quota-bytes", values["store-quota-bytes"]),
        etcd=_etcd(values),
        compaction_interval=duration("etcd-compaction-interval", values["etcd-compaction-interval"]),
        initialization_timeout=duration("storage-initialization-timeout", values["storage-initialization-timeout"]),
        event_ttl=duration("event-ttl", values["event-ttl"]),
        encryption_config=values["encryption-provider-config"],
        encryption_reload=boolean(reload, values[reload]),
    )


def _listening(values: Mapping[str, str], headers: HeaderConfig) -> Listening:
    insecure = boolean("insecure", values["insecure"])
    return Listening(
        bind_address=values["bind-address"],
        port=integer("port", values["port"] or ("8080" if insecure else "6443")),
        insecure=insecure,
        shutdown_delay=duration("shutdown-delay-duration", values["shutdown-delay-duration"]),
        headers=headers,
    )


def _tls(values: Mapping[str, str]) -> TlsConfig:
    return TlsConfig(
        cert_dir=values["cert-dir"],
        cert_file=values["tls-cert-file"],
        key_file=values["tls-private-key-file"],
        minor=_tls_minor(values["tls-min-version"]),
        sans=names(values["tls-san"]),
    )


def _tokens(values: Mapping[str, str]) -> TokenConfig:
    return TokenConfig(
        issuers=names(values["service-account-issuer"]),
        audiences=names(values["api-audiences"]),
        signing_key_file=values["service-account-signing-key-file"],
        key_files=names(values["service-account-key-file"]),
        keys_url=values["service-account-jwks-uri"],
        longest=_longest_token(values["service-account-max-token-expiration"]),
    )


def _admission(values: Mapping[str, str], warn: Warn) -> AdmissionConfig:
    disabled, enabled = _plugins(values, warn)
    return AdmissionConfig(
        disabled=disabled,
        enabled=enabled,
        config_file=values["admission-control-config-file"],
        service_resolver=values["service-resolver"],
        denied_networks=_networks("webhook-deny-cidrs", values["webhook-deny-cidrs"]),
    )


def _apis(values: Mapping[str, str], warn: Warn) -> ApiConfig:
    return ApiConfig(
        runtime_config=_runtime_config(values["runtime-config"]),
        controllers=_controllers_of(values, warn),
        kubernetes_version=_version(values["kubernetes-version"]),
        status_manager=_manager(values["status-manager"]),
        service_ranges=service_flags.read(values),
    )


def _logging_format(text: str) -> str:
    if text not in ("", *logs.FORMS):
        raise ConfigError(f"--logging-format {text}: use {' or '.join(logs.FORMS)}")
    return text


def logging_format(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return the log format of the flag or the environment, before all flags are parsed.

    The flag takes precedence. Return "" if there is no format, or the format is invalid.
    """
    given = environment.get(environment_name("logging-format"), "")
    for word, following in itertools.pairwise((*arguments, "")):
        name, equals, value = word.partition("=")
        if name == "--logging-format":
            given = value if equals else following
    return given if given in logs.FORMS else ""


def _networks(flag: str, text: str) -> tuple[Network, ...]:
    try:
        return tuple(ipaddress.ip_network(one) for one in names(text))
    except ValueError as error:
        raise ConfigError(f"--{flag}: {error}") from error


def _manager(text: str) -> str:
    if not 0 < len(text.encode(errors="replace")) <= meta_limits.MAX_MANAGER:
        raise ConfigError(f"--status-manager: a field manager has 1 to {meta_limits.MAX_MANAGER} bytes")
    return text


def _etcd(values: Mapping[str, str]) -> EtcdConfig:
    user, _, password = values["etcd-user"].partition(":")
    return EtcdConfig(
        servers=names(values["etcd-servers"]),
        prefix=posixpath.normpath("/" + values["etcd-prefix"].lstrip("/")),  # kube-apiserver normalises the prefix, too
        cafile=values["etcd-cafile"],
        certfile=values["etcd-certfile"],
        keyfile=values["etcd-keyfile"],
        user=user,
        password=password,
        wait=duration("etcd-wait", values["etcd-wait"]),
    )


def _absolute(directory: str) -> Path:
    try:
        return Path(directory).absolute()
    except OSError as error:
        raise ConfigError(f"--data-dir {directory}: the current directory is deleted: use an absolute path") from error


def _workers(text: str, *, shared: bool) -> int:
    """Return the number of processes that share the port.

    Only Linux spreads connections among them. ``shared`` is true if the server uses an etcd, which several processes
    can share.
    """
    if text == "auto":
        return min(_cores(), limits.WORKERS) if sys.platform == "linux" and shared else 1
    workers = integer("workers", text)
    if not 1 <= workers <= limits.WORKERS:
        raise ConfigError(f"--workers {text}: use 1 to {limits.WORKERS}, or auto for one for each core")
    if workers > 1 and sys.platform != "linux":
        raise ConfigError("--workers over 1 needs Linux: run one server per port with the same etcd instead")
    return workers


def _cores() -> int:
    """Return the number of cores for this process.

    The number is that of the scheduler, or that of the control group if it is smaller.
    """
    found = len(os.sched_getaffinity(0))
    try:
        quota, period = CPU_BOUND.read_text().split()
        return max(1, min(found, math.ceil(int(quota) / int(period))))
    except (OSError, ValueError):  # the process has no control group, or the group has no CPU limit
        return found


def _version(text: str) -> str:
    """Return a version of Kubernetes without ``v``, with patch version 0 if it has none."""
    found = re.fullmatch(r"v?([0-9]{1,9}\.[0-9]{1,9})(\.[0-9]{1,9}(?:[-+][0-9A-Za-z.+-]+)?)?", text)
    if found is None:
        raise ConfigError(f"--kubernetes-version {text}: expected a version such as {KUBERNETES_VERSION}")
    return found[1] + (found[2] or ".0")


def _plugins(values: Mapping[str, str], warn: Warn) -> tuple[frozenset[str], frozenset[str]]:
    """Return the disabled and the enabled plug-ins.

    Plug-ins that apiext does not have cause a warning. Raise ConfigError without --ignore-unsupported-flags if an
    enabled plug-in of these would restrict clients.
    """
    off, on = (frozenset(names(values[f"{verb}-admission-plugins"])) for verb in ("disable", "enable"))
    if both := sorted(off & on):
        text = f"[{' '.join(both)}] in enable-admission-plugins and disable-admission-plugins overlapped"
        raise ConfigError(text)
    for verb, named in (("disable", off), ("enable", on)):
        for name in sorted(named - PLUGINS - FOREIGN_PLUGINS):
            raise ConfigError(f'{verb}-admission-plugins plugin "{name}" is unknown')
        refused = sorted(named & RESTRICTING_PLUGINS) if verb == "enable" else []
        if refused and not boolean("ignore-unsupported-flags", values["ignore-unsupported-flags"]):
            raise ConfigError(
                f"--enable-admission-plugins: apiext does not have {', '.join(refused)}, which would restrict clients; "
                "omit it, or add --ignore-unsupported-flags to start without it"
            )
        if foreign := sorted(named & FOREIGN_PLUGINS):
            warn(f"--{verb}-admission-plugins: apiext does not have {', '.join(foreign)}")
    return off & PLUGINS, on & PLUGINS


def _controllers(text: str, warn: Warn) -> tuple[str, ...]:
    found = []
    for given in names(text):
        bare = given.removeprefix("-")
        name = OLDER_NAMES.get(bare, bare)
        if name != "*" and name not in CONTROLLERS:
            warn(f"--controllers: apiext has no controller {bare} that can be enabled or disabled")
        found.append(given.removesuffix(bare) + name)
    return tuple(found)


def _authorization_modes(values: Mapping[str, str], warn: Warn) -> tuple[str, ...]:
    """Return the modes in order, without those that apiext does not have.

    Node causes a warning, since there are no nodes to authorize. ABAC and Webhook raise ConfigError without
    --ignore-unsupported-flags, since the server would allow more or fewer requests than with these modes. If no mode
    remains, AlwaysDeny is used, so that a mistake gives no access.
    """
    file = values["authorization-config"]
    flag = f"--authorization-config {file}" if file else f"--authorization-mode {values['authorization-mode']}"
    if file:
        from apiext import authorization_file  # imported only if there is a file, since it imports YAML (decision 36)

        named = authorization_file.read(file)
    else:
        named = names(values["authorization-mode"])
    if not named:
        raise ConfigError("--authorization-mode: at least one authorization-mode must be passed")
    for mode in named:
        if mode not in (ALWAYS_ALLOW, ALWAYS_DENY, RBAC, "Node", "ABAC", "Webhook"):
            raise ConfigError(f"{flag}: unknown mode {mode}")
    if not file and len(set(named)) != len(named):
        raise ConfigError(f"{flag}: name each mode once")
    unsupported = [mode for mode in ("ABAC", "Webhook") if mode in named]
    if unsupported and not boolean("ignore-unsupported-flags", values["ignore-unsupported-flags"]):
        raise ConfigError(
            f"{flag}: apiext does not have the mode {' and '.join(unsupported)}; use RBAC, or add "
            "--ignore-unsupported-flags to start without it"
        )
    modes = tuple(mode for mode in named if mode in (ALWAYS_ALLOW, ALWAYS_DENY, RBAC)) or (ALWAYS_DENY,)
    if dropped := [mode for mode in named if mode not in modes]:
        warn(f"{flag}: apiext does not have {', '.join(dropped)}, requests are authorized by {', '.join(modes)}")
    return modes


def _controllers_of(values: Mapping[str, str], warn: Warn) -> tuple[str, ...]:
    """Return the controllers of --controllers.

    Leave out the garbage collector if --enable-garbage-collector is false.
    """
    named = _controllers(values["controllers"], warn)
    if boolean("enable-garbage-collector", values["enable-garbage-collector"]):
        return named
    return (*(each for each in named if each != GARBAGE_COLLECTOR), f"-{GARBAGE_COLLECTOR}")


_HOUR = 3600.0


def _longest_token(text: str) -> float:
    """Return the longest life of a requested token in seconds, 0 for no limit.

    Upstream: Authentication.Validate.
    """
    seconds = duration("service-account-max-token-expiration", text)
    if seconds and not _HOUR <= seconds <= 1 << 32:
        raise ConfigError("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds")
    return seconds


_TLS_VERSIONS = {"": 2, "VersionTLS10": 2, "VersionTLS11": 2, "VersionTLS12": 2, "VersionTLS13": 3}
"""Value of --tls-min-version → minor number of TLS 1.x; the oldest version that apiext supports is 1.2."""


def _tls_minor(text: str) -> int:
    if text not in _TLS_VERSIONS:
        raise ConfigError(f'--tls-min-version: unknown tls version "{text}"')
    return _TLS_VERSIONS[text]


def _anonymous(text: str, modes: tuple[str, ...], warn: Warn) -> bool:
    """Report whether the server handles anonymous requests.

    Warn if the authorization mode allows them everything.
    """
    wanted = boolean("anonymous-auth", text)
    if wanted and ALWAYS_ALLOW in modes:
        warn("--anonymous-auth with the mode AlwaysAllow: anonymous users may do all (see --authorization-mode=RBAC)")
    return wanted


def _runtime_config(text: str) -> tuple[tuple[str, bool], ...]:
    pairs = (pair.partition("=") for pair in names(text))
    return tuple((name, boolean("runtime-config", value or "true")) for name, _, value in pairs)
