"""PodSecurity: evaluate pods at the levels that the labels of their namespace set.

Upstream: k8s.io/pod-security-admission. The plug-in denies a pod that violates the level of ``enforce``. Violations of
``audit`` become audit annotations, and violations of ``warn`` become warnings. For ``audit`` and ``warn``, the plug-in
also evaluates templates of pods.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apiext.admission import limits
from apiext.admission.attributes import NAMESPACES, Attributes
from apiext.admission.object_lookup import PODS, ObjectLookup
from apiext.admission.plugin_services import FindNamespace
from apiext.documents.document import View
from apiext.meta import status
from apiext.meta.fields import FieldError, invalid
from apiext.meta.names import GroupKind, GroupResource
from apiext.scheduling.loop_budget import LoopBudget

_PRIVILEGED, _RESTRICTED = "privileged", "restricted"
_LEVELS = (_PRIVILEGED, "baseline", _RESTRICTED)
_VERSION = re.compile(r"latest|v1\.([0-9]|[1-9][0-9]{0,17})")
_PREFIX = "pod-security.kubernetes.io/"
_KIND = GroupKind("", "Namespace")
_TEMPLATE = ("spec", "template")
_TEMPLATES: Mapping[GroupResource, tuple[str, ...]] = {
    GroupResource("", "replicationcontrollers"): _TEMPLATE,
    GroupResource("", "podtemplates"): ("template",),
    GroupResource("apps", "replicasets"): _TEMPLATE,
    GroupResource("apps", "deployments"): _TEMPLATE,
    GroupResource("apps", "statefulsets"): _TEMPLATE,
    GroupResource("apps", "daemonsets"): _TEMPLATE,
    GroupResource("batch", "jobs"): _TEMPLATE,
    GroupResource("batch", "cronjobs"): ("spec", "jobTemplate", *_TEMPLATE),
}
"""Resource → the path of the pod template in its objects."""
_APPLIES = frozenset((NAMESPACES, PODS, *_TEMPLATES))
_IGNORED = frozenset(("exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"))
"""Subresources of pods that the plug-in does not evaluate, since they do not change the containers of a pod."""


class Level(NamedTuple):
    """A level and its version, such as ``baseline:latest``."""

    level: str = _PRIVILEGED
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    @property
    def minor(self) -> int | None:
        """The minor version, None for the latest version."""
        return None if self.version == "latest" else int(self.version.removeprefix("v1."))


class Policy(NamedTuple):
    """The levels of a namespace, and the errors of its pod security labels."""

    enforce: Level
    audit: Level
    warn: Level
    errors: Sequence[FieldError]


class PodSecurity:
    """The plug-in PodSecurity."""

    __slots__ = ("_find", "_lookup")
    name = "PodSecurity"

    def __init__(self, find: FindNamespace, lookup: ObjectLookup) -> None:
        self._find = find
        self._lookup = lookup

    def applies(self, operation: str, resource: GroupResource) -> bool:
        """Report whether a namespace, a pod, or an object with a pod template is created or updated."""
        return operation in ("CREATE", "UPDATE") and resource in _APPLIES

    async def review(self, attributes: Attributes) -> None:
        """Validate the labels of a namespace; evaluate a pod or a pod template."""
        if attributes.resource == NAMESPACES:
            if not attributes.subresource:
                await self._review_namespace(attributes)
        elif attributes.subresource not in _IGNORED if attributes.resource == PODS else not attributes.subresource:
            await self._review_pod(attributes)

    async def _review_namespace(self, attributes: Attributes) -> None:
        """Raise 422 for new errors in the labels; warn about existing pods that violate a new level.

        There is no warning if the new level of ``enforce`` is certainly not stricter than the old level (_is_relaxed).
        """
        new = policy_of(attributes.new)
        before = None if attributes.old is None else policy_of(attributes.old)
        if new.errors and (before is None or new.errors != before.errors):
            raise status.invalid(_KIND, attributes.name or attributes.name_for_denial, new.errors)
        if before is None or _is_relaxed(before.enforce, new.enforce):
            return
        for text in await self._warnings(attributes, new.enforce):
            attributes.traces.warn(text)

    async def _review_pod(self, attributes: Attributes) -> None:
        namespace = await self._find(attributes.namespace or "")
        if namespace is None:
            if attributes.resource == PODS:
                text = f'Internal error occurred: failed to lookup namespace "{attributes.namespace}"'
                raise status.StatusError(500, "InternalError", text)
            return
        policy, enforces = policy_of(namespace), attributes.resource == PODS
        levels = {policy.audit.level, policy.warn.level, *((policy.enforce.level,) if enforces else ())}
        if levels == {_PRIVILEGED} and not policy.errors:
            if enforces:
                attributes.traces.annotations[f"{_PREFIX}enforce-policy"] = str(Level())
            return
        new = attributes.new or {}
        pod = new if enforces else _template(new, _TEMPLATES[attributes.resource])
        if pod is None or (enforces and attributes.old is not None and not _is_significant(new, attributes.old)):
            return
        _evaluate(attributes, policy, pod, enforces=enforces)

    async def _warnings(self, attributes: Attributes, level: Level) -> list[str]:
        """Return warnings about the pods that violate the new level of their namespace.

        Pods with the same reasons share one warning.
        """
        from apiext.admission.pod_security_checks import reasons, violations  # imported at the first use of a level

        pods = _most_different(await self._lookup.every(PODS, attributes.name))
        until, loop_budget, names = time.monotonic() + limits.PODS_CHECKED_WAIT, LoopBudget(), dict[str, list[str]]()
        checked = 0
        for pod in pods[: limits.PODS_CHECKED]:
            found = violations(level.level, level.minor, pod["metadata"], pod.get("spec") or {})
            if found:
                names.setdefault(reasons(found), []).append(pod["metadata"]["name"])
            checked += 1
            if time.monotonic() > until:
                break
            await loop_budget.pause()
        texts = []
        if checked < len(pods):
            texts.append(
                f"new PodSecurity enforce level only checked against the first {checked} of {len(pods)} existing pods"
            )
        if names:
            texts.append(
                f'existing pods in namespace "{attributes.name}" violate the new PodSecurity enforce level "{level}"'
            )
        return texts + sorted(f"{_first_of(found)}: {reason}" for reason, found in names.items())


def policy_of(namespace: View | None) -> Policy:
    """Return the levels in a namespace's labels.

    An invalid level counts as restricted for enforce, and as privileged for audit and warn. Without a label for warn,
    a valid level of enforce also counts for warn.
    """
    labels: Mapping[str, Any] = ((namespace or {}).get("metadata") or {}).get("labels") or {}
    errors = list(_label_errors(labels))
    levels = {}
    for mode in ("enforce", "audit", "warn"):
        level = labels.get(_PREFIX + mode, _PRIVILEGED)
        if level not in _LEVELS:
            level = _RESTRICTED if mode == "enforce" else _PRIVILEGED
        version = labels.get(f"{_PREFIX}{mode}-version", "latest")
        levels[mode] = Level(level, version if _VERSION.fullmatch(version) else "latest")
    enforce, warn = levels["enforce"], levels["warn"]
    is_valid = labels.get(f"{_PREFIX}enforce") in _LEVELS
    if f"{_PREFIX}warn" not in labels and is_valid and enforce.level != _PRIVILEGED:
        warn = Level(enforce.level, warn.version if f"{_PREFIX}warn-version" in labels else enforce.version)
    return Policy(enforce, levels["audit"], warn, errors)


def _label_errors(labels: Mapping[str, Any]) -> Iterator[FieldError]:
    for mode in ("enforce", "audit", "warn"):
        level, version = labels.get(_PREFIX + mode), labels.get(f"{_PREFIX}{mode}-version")
        if level is not None and level not in _LEVELS:
            yield invalid(_path(mode), level, f"must be one of {', '.join(_LEVELS)}")
        if version is not None and not _VERSION.fullmatch(version):
            yield invalid(_path(f"{mode}-version"), version, 'must be "latest" or "v1.x"')


def _path(label: str) -> str:
    return f"metadata.labels[{_PREFIX}{label}]"


def _is_relaxed(before: Level, now: Level) -> bool:
    """Report whether pods that satisfy the old level certainly satisfy the new level.

    The result is False if the versions differ, unless the new level is privileged.
    """
    if now == before or now.level == _PRIVILEGED:
        return True
    return now.version == before.version and _LEVELS.index(now.level) <= _LEVELS.index(before.level)


def _evaluate(attributes: Attributes, policy: Policy, pod: View, *, enforces: bool) -> None:
    """Raise 403 for a pod that violates the enforced level.

    Report violations of ``audit`` and ``warn``.
    """
    from apiext.admission.pod_security_checks import Violation, describe, violations  # imported here as in _warnings

    known: dict[Level, list[Violation]] = {}
    annotations = attributes.traces.annotations

    def found_at(level: Level) -> list[Violation]:
        if level not in known:
            metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
            known[level] = violations(level.level, level.minor, metadata, spec)
        return known[level]

    if policy.errors:
        texts = list(dict.fromkeys(f"{error.field}: {error.body}" for error in policy.errors))
        text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        annotations[f"{_PREFIX}error"] = f"Failed to parse policy: {text}"
    if enforces:
        annotations[f"{_PREFIX}enforce-policy"] = str(policy.enforce)
    if found := found_at(policy.audit):
        text = f'would violate PodSecurity "{policy.audit}": {describe(found)}'
        annotations[f"{_PREFIX}audit-violations"] = text
    if enforces and (found := found_at(policy.enforce)):
        text = f'violates PodSecurity "{policy.enforce}": {describe(found)}'
        raise status.forbidden(attributes.resource, attributes.name, text)
    if found := found_at(policy.warn):
        attributes.traces.warn(f'would violate PodSecurity "{policy.warn}": {describe(found)}')


def _template(document: View, path: Sequence[str]) -> View | None:
    """Return the pod template of an object, None if it has none."""
    found: Any = document
    for field in path:
        found = found.get(field)
        if found is None:
            return None
    template: View = found
    return template


def _is_significant(new: View, old: View) -> bool:
    """Report whether an update of a pod changes an image, or adds or removes a container."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for field in ("containers", "initContainers"):
        if [one.get("image") for one in spec.get(field) or ()] != [one.get("image") for one in before.get(field) or ()]:
            return True
    known = {one.get("name"): one.get("image") for one in before.get("ephemeralContainers") or ()}
    return any(
        one.get("name") not in known or one.get("image") != known[one.get("name")]
        for one in spec.get("ephemeralContainers") or ()
    )


def _most_different(pods: Sequence[View]) -> list[View]:
    """Return one pod of each controller and all pods without a controller, then the other pods."""
    first, more, seen = list[View](), list[View](), set[str]()
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences") or ()
        uid = next((owner.get("uid") for owner in owners if owner.get("controller")), None)
        if uid is None or uid not in seen:
            first.append(pod)
        else:
            more.append(pod)
        if uid is not None:
            seen.add(uid)
    return first + more


def _first_of(names: Sequence[str]) -> str:
    """Return the alphabetically first name, and count the rest: ``a (and 2 other pods)``."""
    others = len(names) - 1
    if not others:
        return names[0]
    return f"{min(names)} (and {others} other pod{'s' if others > 1 else ''})"
