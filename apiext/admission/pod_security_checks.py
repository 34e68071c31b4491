"""The checks of the Pod Security Standards, as tables: name of a check → its versions.

Upstream: k8s.io/pod-security-admission/policy. ``violations`` evaluates a pod at one level and version.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from apiext.documents.document import View
from apiext.text.quotes import go_quote

PRIVILEGED, BASELINE, RESTRICTED = "privileged", "baseline", "restricted"
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")
_NONE: View = {}


class Violation(NamedTuple):
    """A failed check: its reason, and a detail that names the bad values and their containers."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})"


Check = Callable[[View, View], Violation | None]
"""Metadata and spec of a pod → the violation, or None."""


class Since(NamedTuple):
    """A check that applies from a minor version on.

    At the level restricted, the check replaces the baseline check that ``overrides`` names.
    """

    minor: int
    check: Check
    overrides: str = ""


def violations(level: str, minor: int | None, metadata: View, spec: View) -> list[Violation]:
    """Return the violations of a pod.

    ``minor`` is the minor version of the level, None for the latest.
    """
    newest = _NEWEST if minor is None else min(minor, _NEWEST)
    return [found for check in _checks(level, newest) if (found := check(metadata, spec)) is not None]


def describe(found: Iterable[Violation]) -> str:
    """Return all violations with their details, separated by commas."""
    return ", ".join(map(str, found))


def reasons(found: Iterable[Violation]) -> str:
    """Return the reasons of all violations, separated by commas."""
    return ", ".join(one.reason for one in found)


@cache
def _checks(level: str, minor: int) -> Sequence[Check]:
    if level == PRIVILEGED:
        return ()
    of_level = {name: found for name, versions in _BASELINE.items() if (found := _at(versions, minor))}
    if level == RESTRICTED:
        own = {name: found for name, versions in _RESTRICTED.items() if (found := _at(versions, minor))}
        for found in own.values():
            of_level.pop(found.overrides, None)
        return [*(found.check for found in of_level.values()), *(found.check for found in own.values())]
    return [found.check for found in of_level.values()]


def _at(versions: Sequence[Since], minor: int) -> Since | None:
    return next((one for one in reversed(versions) if one.minor <= minor), None)


# --- parts of a pod ---


def _containers(spec: View) -> Iterator[View]:
    for field in _CONTAINERS:
        yield from spec.get(field) or ()


def _security(holder: View) -> View:
    found: View = holder.get("securityContext") or _NONE
    return found


def _in_user_namespace(spec: View) -> bool:
    return spec.get("hostUsers") is False


def _is_windows(spec: View) -> bool:
    return (spec.get("os") or _NONE).get("name") == "windows"


def _quoted(items: Iterable[str]) -> str:
    return ", ".join(f'"{item}"' for item in items)


def _plural(word: str, items: Iterable[Any], many: str = "") -> str:
    return word if len(list(items)) == 1 else many or f"{word}s"


def _named(containers: Sequence[str]) -> str:
    return f"{_plural('container', containers)} {_quoted(containers)}"


def _setters(pod: bool, containers: Sequence[str]) -> str:
    """Return the text that names the objects with a bad value.

    These are the pod, some containers, or both.
    """
    return " and ".join([*(["pod"] if pod else []), *([_named(containers)] if containers else [])])


def _name(container: View) -> str:
    name: str = container.get("name") or ""
    return name


# --- baseline ---


def _app_armor(metadata: View, spec: View) -> Violation | None:
    values = set()

    def is_bad(holder: View) -> bool:
        profile = _security(holder).get("appArmorProfile")
        if profile is None or profile.get("type") in ("RuntimeDefault", "Localhost"):
            return False
        values.add(profile.get("type") or "")
        return True

    pod, containers = is_bad(spec), [_name(one) for one in _containers(spec) if is_bad(one)]
    prefix = "container.apparmor.security.beta.kubernetes.io/"
    annotations = sorted(
        f"{key}={go_quote(value)}"
        for key, value in (metadata.get("annotations") or {}).items()
        if key.startswith(prefix) and value and value != "runtime/default" and not value.startswith("localhost/")
    )
    if not (pod or containers or annotations):
        return None
    holders = [text for text in (_setters(pod, containers),) if text]
    if annotations:
        holders.append(_plural("annotation", annotations))
    bad = [*sorted(values), *annotations]
    reason = _plural("forbidden AppArmor profile", bad)
    return Violation(reason, f"{' and '.join(holders)} must not set AppArmor profile type to {_quoted(bad)}")


_DEFAULT_CAPABILITIES = frozenset((
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
    "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
))  # fmt: skip


def _added(container: View, allowed: frozenset[str]) -> set[str]:
    """Return the capabilities that a container adds and that are not allowed."""
    return set((_security(container).get("capabilities") or _NONE).get("add") or ()) - allowed


def _must_not_add(containers: Sequence[View], allowed: frozenset[str]) -> str:
    names = [_name(one) for one in containers if _added(one, allowed)]
    if not names:
        return ""
    added = sorted(set().union(*(_added(one, allowed) for one in containers)))
    return f"{_named(names)} must not include {_quoted(added)} in securityContext.capabilities.add"


def _default_capabilities(_: View, spec: View) -> Violation | None:
    text = _must_not_add(list(_containers(spec)), _DEFAULT_CAPABILITIES)
    return Violation("non-default capabilities", text) if text else None


def _host_namespaces(_: View, spec: View) -> Violation | None:
    found = [f"{field}=true" for field in ("hostNetwork", "hostPID", "hostIPC") if spec.get(field)]
    return Violation("host namespaces", ", ".join(found)) if found else None


def _host_paths(_: View, spec: View) -> Violation | None:
    names = [_name(volume) for volume in spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", f"{_plural('volume', names)} {_quoted(names)}") if names else None


def _host_ports(_: View, spec: View) -> Violation | None:
    used = {
        id(one): [str(port["hostPort"]) for port in one.get("ports") or () if port.get("hostPort")]
        for one in _containers(spec)
    }
    names = [_name(one) for one in _containers(spec) if used[id(one)]]
    if not names:
        return None
    ports = sorted({port for found in used.values() for port in found})
    text = f"{_named(names)} {_plural('uses', names, 'use')} {_plural('hostPort', ports)} {', '.join(ports)}"
    return Violation("hostPort", text)


def _hosts(container: View) -> set[str]:
    """Return the hosts of a container's probes and lifecycle handlers."""
    lifecycle = container.get("lifecycle") or _NONE
    handlers = [container.get(field) for field in ("livenessProbe", "readinessProbe", "startupProbe")]
    handlers += [lifecycle.get("postStart"), lifecycle.get("preStop")]
    found = {
        ((handler or _NONE).get(action) or _NONE).get("host") for handler in handlers for action in _NETWORK_ACTIONS
    }
    return {host for host in found if host}


_NETWORK_ACTIONS = ("httpGet", "tcpSocket")


def _probe_hosts(_: View, spec: View) -> Violation | None:
    names = sorted({_name(one) for one in _containers(spec) if _hosts(one)})
    if not names:
        return None
    hosts = sorted(set().union(*(_hosts(one) for one in _containers(spec))))
    uses = _plural("uses", names, "use")
    text = f"{_named(names)} {uses} {_plural('probe or lifecycle host', hosts)} {_quoted(hosts)}"
    return Violation("probe or lifecycle host", text)


def _privileged(_: View, spec: View) -> Violation | None:
    names = [_name(one) for one in _containers(spec) if _security(one).get("privileged")]
    return Violation("privileged", f"{_named(names)} must not set securityContext.privileged=true") if names else None


def _proc_mount(_: View, spec: View) -> Violation | None:
    bad = [one for one in _containers(spec) if _security(one).get("procMount") not in (None, "Default")]
    if not bad:
        return None
    values = sorted({_security(one)["procMount"] for one in bad})
    names = [_name(one) for one in bad]
    return Violation("procMount", f"{_named(names)} must not set securityContext.procMount to {_quoted(values)}")


_SELINUX_TYPES = frozenset((None, "", "container_t", "container_init_t", "container_kvm_t"))


def _selinux(_: View, spec: View, types: frozenset[str | None] = _SELINUX_TYPES) -> Violation | None:
    bad_types, fields = set(), set()

    def is_bad(holder: View) -> bool:
        options = _security(holder).get("seLinuxOptions") or _NONE
        found = {field for field in ("user", "role") if options.get(field)}
        fields.update(found)
        if options.get("type") not in types:
            bad_types.add(options["type"])
            return True
        return bool(found)

    pod, containers = is_bad(spec), [_name(one) for one in _containers(spec) if is_bad(one)]
    if not (pod or containers):
        return None
    data = [f"{_plural('type', bad_types)} {_quoted(sorted(bad_types))}"] if bad_types else []
    data += [f"{field} may not be set" for field in ("user", "role") if field in fields]
    text = f"{_setters(pod, containers)} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}"
    return Violation("seLinuxOptions", text)


_SECCOMP = "seccomp.security.alpha.kubernetes.io/"


def _seccomp_annotations(metadata: View, spec: View) -> Violation | None:
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    keys = [f"{_SECCOMP}pod", *(f"container.{_SECCOMP}{_name(one)}" for one in _containers(spec))]
    bad = sorted(
        {
            f"{key}={go_quote(annotations[key])}"
            for key in keys
            if key in annotations
            and annotations[key] not in ("runtime/default", "docker/default")
            and not annotations[key].startswith("localhost/")
        }
    )
    return Violation("seccompProfile", f"forbidden {_plural('annotation', bad)} {', '.join(bad)}") if bad else None


def _profile_type(holder: View) -> str | None:
    """Return the type of a seccomp profile, None without a profile."""
    profile = _security(holder).get("seccompProfile")
    return None if profile is None else profile.get("type") or ""


_SECCOMP_TYPES = ("Localhost", "RuntimeDefault")


def _seccomp(_: View, spec: View) -> Violation | None:
    allowed = (None, *_SECCOMP_TYPES)
    pod = _profile_type(spec) not in allowed
    bad = [one for one in _containers(spec) if _profile_type(one) not in allowed]
    if not (pod or bad):
        return None
    values = sorted({_profile_type(one) or "" for one in [*([spec] if pod else []), *bad]})
    holders = _setters(pod, [_name(one) for one in bad])
    text = f"{holders} must not set securityContext.seccompProfile.type to {_quoted(values)}"
    return Violation("seccompProfile", text)


_SYSCTLS = frozenset((
    "kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
))  # fmt: skip
_SYSCTLS_27 = _SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_29 = _SYSCTLS_27 | {
    f"net.ipv4.tcp_{name}" for name in ("keepalive_time", "fin_timeout", "keepalive_intvl", "keepalive_probes")
}
_SYSCTLS_32 = _SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}
_SYSCTLS_37 = _SYSCTLS_32 | {"net.ipv4.tcp_slow_start_after_idle", "net.ipv4.tcp_notsent_lowat"}


def _sysctls(_: View, spec: View, allowed: frozenset[str] = _SYSCTLS) -> Violation | None:
    names = [_name(one) for one in _security(spec).get("sysctls") or ()]
    forbidden = [name for name in names if name not in allowed]
    return Violation("forbidden sysctls", ", ".join(forbidden)) if forbidden else None


def _host_process(_: View, spec: View) -> Violation | None:
    def is_bad(holder: View) -> bool:
        return bool((_security(holder).get("windowsOptions") or _NONE).get("hostProcess"))

    pod, containers = is_bad(spec), [_name(one) for one in _containers(spec) if is_bad(one)]
    if not (pod or containers):
        return None
    text = f"{_setters(pod, containers)} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", text)


# --- restricted ---


def _escalation(_: View, spec: View) -> Violation | None:
    names = [_name(one) for one in _containers(spec) if _security(one).get("allowPrivilegeEscalation") is not False]
    if not names:
        return None
    text = f"{_named(names)} must set securityContext.allowPrivilegeEscalation=false"
    return Violation("allowPrivilegeEscalation != false", text)


def _dropped_capabilities(_: View, spec: View) -> Violation | None:
    containers = list(_containers(spec))
    missing = [
        _name(one)
        for one in containers
        if "ALL" not in ((_security(one).get("capabilities") or _NONE).get("drop") or ())
    ]
    texts = [f'{_named(missing)} must set securityContext.capabilities.drop=["ALL"]'] if missing else []
    if added := _must_not_add(containers, frozenset(("NET_BIND_SERVICE",))):
        texts.append(added)
    return Violation("unrestricted capabilities", "; ".join(texts)) if texts else None


_VOLUMES = frozenset((
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret",
))  # fmt: skip
_OTHER_VOLUMES = (
    "hostPath", "gcePersistentDisk", "awsElasticBlockStore", "gitRepo", "nfs", "iscsi", "glusterfs", "rbd",
    "flexVolume", "cinder", "cephfs", "flocker", "fc", "azureFile", "vsphereVolume", "quobyte", "azureDisk",
    "photonPersistentDisk", "portworxVolume", "scaleIO", "storageos",
)  # fmt: skip


def _volumes(_: View, spec: View) -> Violation | None:
    bad = [one for one in spec.get("volumes") or () if not any(one.get(field) is not None for field in _VOLUMES)]
    if not bad:
        return None
    types = sorted({next((field for field in _OTHER_VOLUMES if one.get(field) is not None), "unknown") for one in bad})
    names = [_name(one) for one in bad]
    text = (
        f"{_plural('volume', names)} {_quoted(names)} {_plural('uses', names, 'use')}"
        f" {_plural('restricted volume type', types)} {_quoted(types)}"
    )
    return Violation("restricted volume types", text)


def _non_root(_: View, spec: View) -> Violation | None:
    def run_as_non_root(holder: View) -> bool | None:
        found: bool | None = _security(holder).get("runAsNonRoot")
        return found

    pod, explicit = run_as_non_root(spec), [_name(one) for one in _containers(spec) if run_as_non_root(one) is False]
    reason = "runAsNonRoot != true"
    if pod is False or explicit:
        return Violation(reason, f"{_setters(pod is False, explicit)} must not set securityContext.runAsNonRoot=false")
    implicit = [_name(one) for one in _containers(spec) if run_as_non_root(one) is None]
    if pod or not implicit:
        return None
    return Violation(reason, f"pod or {_named(implicit)} must set securityContext.runAsNonRoot=true")


def _root_user(_: View, spec: View) -> Violation | None:
    pod = _security(spec).get("runAsUser") == 0
    names = [_name(one) for one in _containers(spec) if _security(one).get("runAsUser") == 0]
    return Violation("runAsUser=0", f"{_setters(pod, names)} must not set runAsUser=0") if pod or names else None


def _seccomp_required(metadata: View, spec: View) -> Violation | None:
    if (found := _seccomp(metadata, spec)) is not None or _profile_type(spec) is not None:
        return found
    names = [_name(one) for one in _containers(spec) if _profile_type(one) is None]
    if not names:
        return None
    text = f'pod or {_named(names)} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", text)


def _unless(exempt: Callable[[View], bool], check: Check) -> Check:
    return lambda metadata, spec: None if exempt(spec) else check(metadata, spec)


_BASELINE: Mapping[str, Sequence[Since]] = {
    "appArmorProfile": [Since(0, _app_armor)],
    "capabilities_baseline": [Since(0, _default_capabilities)],
    "hostNamespaces": [Since(0, _host_namespaces)],
    "hostPathVolumes": [Since(0, _host_paths)],
    "hostPorts": [Since(0, _host_ports)],
    "hostProbesAndHostLifecycle": [Since(34, _probe_hosts)],
    "privileged": [Since(0, _privileged)],
    "procMount": [Since(0, _proc_mount), Since(35, _unless(_in_user_namespace, _proc_mount))],
    "seLinuxOptions": [Since(0, _selinux), Since(31, partial(_selinux, types=_SELINUX_TYPES | {"container_engine_t"}))],
    "seccompProfile_baseline": [Since(0, _seccomp_annotations), Since(19, _seccomp)],
    "sysctls": [
        Since(0, _sysctls),
        Since(27, partial(_sysctls, allowed=_SYSCTLS_27)),
        Since(29, partial(_sysctls, allowed=_SYSCTLS_29)),
        Since(32, partial(_sysctls, allowed=_SYSCTLS_32)),
        Since(37, partial(_sysctls, allowed=_SYSCTLS_37)),
    ],
    "windowsHostProcess": [Since(0, _host_process)],
}
"""Name of a check of the level baseline → its versions, in the order of the violations in a message."""

_RESTRICTED: Mapping[str, Sequence[Since]] = {
    "allowPrivilegeEscalation": [Since(8, _escalation), Since(25, _unless(_is_windows, _escalation))],
    "capabilities_restricted": [
        Since(22, _dropped_capabilities, "capabilities_baseline"),
        Since(25, _unless(_is_windows, _dropped_capabilities), "capabilities_baseline"),
    ],
    "procMount_restricted": [Since(35, _proc_mount, "procMount")],
    "restrictedVolumes": [Since(0, _volumes, "hostPathVolumes")],
    "runAsNonRoot": [Since(0, _non_root), Since(35, _unless(_in_user_namespace, _non_root))],
    "runAsUser": [Since(23, _root_user), Since(35, _unless(_in_user_namespace, _root_user))],
    "seccompProfile_restricted": [
        Since(19, _seccomp_required, "seccompProfile_baseline"),
        Since(25, _unless(_is_windows, _seccomp_required), "seccompProfile_baseline"),
    ],
}
"""Name of a check that only the level restricted has → its versions."""

_NEWEST = max(one.minor for table in (_BASELINE, _RESTRICTED) for versions in table.values() for one in versions)
