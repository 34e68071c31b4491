"""Validation of security contexts of pods and containers (upstream: apis/core/validation)."""

import re
from collections.abc import Iterator, Sequence

from apiext.catalog.builtin.rules import type_errors
from apiext.documents.document import View
from apiext.meta import syntax
from apiext.meta.fields import (
    FieldError,
    child,
    duplicate,
    forbidden,
    invalid,
    item,
    not_supported,
    required,
    too_long,
)

_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")
_MAX_PROFILE = 4095
_MAX_SYSCTL = 253
_SYSCTL = r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_IS_SYSCTL = re.compile(_SYSCTL).fullmatch
_IPC_SYSCTLS = frozenset(
    f"kernel.{name}"
    for name in ("sem", "shmall", "shmmax", "shmmni", "shm_rmid_forced", "shm", "msgmax", "msgmnb", "msgmni", "msg")
)
_MAX_CREDENTIALS = 64 * 1024
_MAX_DOMAIN, _MAX_USER = 256, 104
_CONTROL = re.compile("[\x00-\x1f\x7f]").search
_IS_NETBIOS = re.compile(r"""[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}""").fullmatch
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_IS_DOMAIN = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*").fullmatch
_IN_USER = re.compile(r"""["/\\:;|=,+*?<>@\[\]]""").search
_IS_BLANK = re.compile("[. ]+").fullmatch
_LINUX_ONLY_OF_PODS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_LINUX_ONLY = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)
_NOT_ON_WINDOWS = "cannot be set for a windows pod"
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_POLICIES = (
    ("supplementalGroupsPolicy", ("Merge", "Strict")),
    ("seLinuxChangePolicy", ("MountOption", "Recursive")),
)


def every_container(spec: View, path: str) -> Iterator[tuple[View, str]]:
    """Yield each container of a pod with its path, in upstream's order."""
    for field in _CONTAINERS:
        for index, one in enumerate(spec.get(field) or ()):
            yield one, item(child(path, field), index)


def pod_context_errors(spec: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the security context of a pod."""
    context, at = spec.get("securityContext"), child(path, "securityContext")
    if context is None:
        return
    yield from type_errors("PodSecurityContext", context, at)
    yield from _sysctls(context.get("sysctls") or (), spec, child(at, "sysctls"))
    policy, supported_values = context.get("fsGroupChangePolicy"), ("Always", "OnRootMismatch")
    if policy is not None and policy not in supported_values:
        yield not_supported(child(at, "fsGroupChangePolicy"), policy, supported_values)
    yield from _seccomp(context.get("seccompProfile"), child(at, "seccompProfile"))
    yield from _windows(context.get("windowsOptions"), child(at, "windowsOptions"))
    yield from _app_armor(context.get("appArmorProfile"), child(at, "appArmorProfile"))
    for field, supported in _POLICIES:
        if context.get(field) not in (None, *supported):
            yield not_supported(child(at, field), context[field], supported)


def context_errors(context: View | None, path: str, *, host_users: bool) -> Iterator[FieldError]:
    """Yield the validation errors of the security context of a container."""
    if context is None:
        return
    yield from type_errors("SecurityContext", context, path)
    mount, at = context.get("procMount"), child(path, "procMount")
    if mount is not None and mount not in ("Default", "Unmasked"):
        yield not_supported(at, mount, ("Default", "Unmasked"))
    if host_users and mount == "Unmasked":
        yield invalid(at, mount, "`hostUsers` must be false to use `Unmasked`")
    yield from _seccomp(context.get("seccompProfile"), child(path, "seccompProfile"))
    if context.get("allowPrivilegeEscalation") is False:
        text = "cannot set `allowPrivilegeEscalation` to false and `{}"
        if context.get("privileged"):
            yield invalid(path, context, text.format("privileged` to true"))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            yield invalid(path, context, text.format("capabilities.Add` CAP_SYS_ADMIN"))
    yield from _windows(context.get("windowsOptions"), child(path, "windowsOptions"))
    yield from _app_armor(context.get("appArmorProfile"), child(path, "appArmorProfile"))


def _seccomp(profile: View | None, path: str) -> Iterator[FieldError]:
    if profile is None:
        return
    yield from type_errors("SeccompProfile", profile, path)
    name, at = profile.get("localhostProfile"), child(path, "localhostProfile")
    if profile.get("type") != "Localhost":
        if name is not None:
            yield invalid(at, profile, "can only be set when seccomp type is Localhost")
    elif name is None:
        yield required(at, "must be set when seccomp type is Localhost")
    else:
        yield from (invalid(at, name, fault) for fault in syntax.descending_path(name))


def _app_armor(profile: View | None, path: str) -> Iterator[FieldError]:
    if profile is None:
        return
    kind, name, at = profile.get("type") or "", profile.get("localhostProfile"), child(path, "localhostProfile")
    if kind == "Localhost":
        if name is None:
            yield required(at, "must be set when AppArmor type is Localhost")
            return
        if name.strip() != name:
            yield invalid(at, name, "must not be padded with whitespace")
        elif not name:
            yield required(at, "must be set when AppArmor type is Localhost")
        if len(name.encode()) > _MAX_PROFILE:
            yield too_long(at, _MAX_PROFILE)
    elif kind in _PROFILES:
        if name is not None:
            yield invalid(at, name, "can only be set when AppArmor type is Localhost")
    elif not kind:
        yield required(child(path, "type"), "type is required when appArmorProfile is set")
    else:
        yield not_supported(child(path, "type"), kind, _PROFILES)


def _sysctls(sysctls: Sequence[View], spec: View, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, one in enumerate(sysctls):
        at, name = child(item(path, index), "name"), one.get("name") or ""
        if not name:
            yield required(at)
        elif len(name) > _MAX_SYSCTL or not _IS_SYSCTL(name):
            yield invalid(at, name, f"must have at most {_MAX_SYSCTL} characters and match regex ^{_SYSCTL}$")
        elif name in seen:
            yield duplicate(at, name)
        seen.add(name)
        dotted = name.replace("/", ".") if "/" in name.partition(".")[0] else name
        if spec.get("hostNetwork") and dotted.startswith("net."):
            yield invalid(at, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and (dotted in _IPC_SYSCTLS or dotted.startswith("fs.mqueue.")):
            yield invalid(at, name, "may not be specified when 'hostIPC' is true")


# --- Windows ---


def _windows(options: View | None, path: str) -> Iterator[FieldError]:
    if options is None:
        return
    name, credentials = options.get("gmsaCredentialSpecName"), options.get("gmsaCredentialSpec")
    if name is not None:
        at = child(path, "gmsaCredentialSpecName")
        yield from (invalid(at, name, fault) for fault in syntax.dns1123_subdomain(name))
    if credentials == "":
        yield invalid(child(path, "gmsaCredentialSpec"), "", "gmsaCredentialSpec cannot be an empty string")
    elif credentials is not None and len(credentials.encode()) > _MAX_CREDENTIALS:
        text = "gmsaCredentialSpec size must be under 64 KiB"
        yield invalid(child(path, "gmsaCredentialSpec"), credentials, text)
    name = options.get("runAsUserName")
    if name is not None:
        yield from (invalid(child(path, "runAsUserName"), name, f"runAsUserName{fault}") for fault in _user_name(name))


def _user_name(name: str) -> Iterator[str]:
    if not name:
        yield " cannot be an empty string"
        return
    if _CONTROL(name):
        yield " cannot contain control characters"
        return
    if name.count("\\") > 1:
        yield " cannot contain more than one backslash"
        return
    domain, slash, user = name.rpartition("\\")
    if len(domain) >= _MAX_DOMAIN:
        yield f"'s Domain length must be under {_MAX_DOMAIN} characters"
    if slash and not (_IS_NETBIOS(domain) or _IS_DOMAIN(domain)):
        yield "'s Domain doesn't match the NetBios nor the DNS format"
    if not user:
        yield "'s User cannot be empty"
    elif len(user) > _MAX_USER:
        yield f"'s User length must not be longer than {_MAX_USER} characters"
    if _IS_BLANK(user):
        yield "'s User cannot contain only periods or spaces"
    if _IN_USER(user):
        yield "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]"


def host_process_errors(spec: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of HostProcess containers (processes on a Windows node)."""
    of_pod = ((spec.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
    count = processes = 0
    for container, at in every_container(spec, path):
        own = ((container.get("securityContext") or {}).get("windowsOptions") or {}).get("hostProcess")
        if of_pod is not None and own is not None and of_pod != own:
            shown = "true" if of_pod else "false"
            text = f"pod hostProcess value must be identical if both are specified, was {shown}"
            yield invalid(child(at, "securityContext.windowsOptions.hostProcess"), own, text)
        count += 1
        processes += bool(of_pod if own is None else own)
    if not processes:
        return
    if processes != count:
        text = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid(path, "", text)
    if not spec.get("hostNetwork"):
        text = "hostNetwork must be true if pod contains any hostProcess containers"
        yield invalid(child(path, "hostNetwork"), False, text)


def system_errors(spec: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of a pod with ``spec.os``.

    The name of the system must be known, and the pod must not have fields that only the other system supports.
    """
    system = spec.get("os")
    if system is None:
        return
    name, at = system.get("name") or "", child(path, "os")
    if not name:
        yield required(child(at, "name"))
    elif name == "linux":
        yield from _on_linux(spec, path)
    elif name == "windows":
        yield from _on_windows(spec, path)
    else:
        yield not_supported(at, name, ("linux", "windows"))


def _on_linux(spec: View, path: str) -> Iterator[FieldError]:
    text = "windows options cannot be set for a linux pod"
    for holder, at in ((spec, path), *every_container(spec, path)):
        if (holder.get("securityContext") or {}).get("windowsOptions") is not None:
            yield forbidden(child(at, "securityContext.windowsOptions"), text)


def _on_windows(spec: View, path: str) -> Iterator[FieldError]:
    yield from _present(spec.get("securityContext"), _LINUX_ONLY_OF_PODS, child(path, "securityContext"))
    for field in ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"):
        value = spec.get(field)
        if value or (value is not None and field in ("hostUsers", "shareProcessNamespace")):
            yield forbidden(child(path, field), _NOT_ON_WINDOWS)
    for container, at in every_container(spec, path):
        yield from _present(container.get("securityContext"), _LINUX_ONLY, child(at, "securityContext"))


def _present(context: View | None, fields: Sequence[str], path: str) -> Iterator[FieldError]:
    for field in fields:
        if (context or {}).get(field) is not None:
            yield forbidden(child(path, field), _NOT_ON_WINDOWS)
