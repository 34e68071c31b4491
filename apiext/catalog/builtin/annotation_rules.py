"""Validation of the annotations that Kubernetes interprets, on pods and nodes.

Upstream: apis/core/validation.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from apiext.catalog.builtin.node_selectors import taint_errors, toleration_errors
from apiext.catalog.builtin.security_contexts import every_container
from apiext.catalog.builtin.workloads import APP_ARMOR
from apiext.documents.document import View
from apiext.documents.encoding import decode_json
from apiext.documents.errors import DecodeError
from apiext.go_types import typed
from apiext.go_types.tables import types_of
from apiext.go_types.typed import List
from apiext.meta import syntax
from apiext.meta.fields import FieldError, child, forbidden, invalid, item, required
from apiext.text.quotes import go_quote

_MAX_INT32 = 2**31 - 1
_IS_INT32 = re.compile("0|-?[1-9][0-9]{0,9}").fullmatch
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_MIRROR = "kubernetes.io/config.mirror"
_TOLERATIONS = "scheduler.alpha.kubernetes.io/tolerations"
_TAINTS = "scheduler.alpha.kubernetes.io/taints"
_AVOID_PODS = "scheduler.alpha.kubernetes.io/preferAvoidPods"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
_LOCAL = "localhost/"
_SECCOMP = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default", "docker/default")}
_APP_ARMOR = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default",)}
"""Type of a profile in a field → the values that the annotation of this profile may have."""


def pod_annotation_errors(annotations: Mapping[str, str], spec: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the annotations of a pod or a pod template."""
    if _MIRROR in annotations and not spec.get("nodeName"):
        text = "must set spec.nodeName if mirror pod annotation is set"
        yield invalid(item(path, _MIRROR), annotations[_MIRROR], text)
    yield from _listed(annotations, _TOLERATIONS, ("pods", "Toleration"), toleration_errors, path)
    cost = annotations.get(_DELETION_COST)
    if cost is not None and (not _IS_INT32(cost) or not -_MAX_INT32 - 1 <= int(cost) <= _MAX_INT32):
        yield invalid(item(path, _DELETION_COST), cost, "must be a 32bit integer")
    for name, value in annotations.items():
        if name == _SECCOMP_POD or name.startswith(_SECCOMP_CONTAINER):
            yield from _seccomp(value, child(path, name))
    for name, value in annotations.items():
        if name.startswith(APP_ARMOR):
            container = name.removeprefix(APP_ARMOR)
            if all((one.get("name") or "") != container for one, _ in every_container(spec, "spec")):
                yield invalid(item(path, name), container, "container not found")
            if value not in ("", "runtime/default", "unconfined") and not value.startswith(_LOCAL):
                yield invalid(item(path, name), value, f"invalid AppArmor profile name: {go_quote(value)}")


def _seccomp(value: str, path: str) -> Iterator[FieldError]:
    if value in ("runtime/default", "docker/default", "unconfined"):
        return
    if value.startswith(_LOCAL):
        profile = value.removeprefix(_LOCAL)
        yield from (invalid(path, profile, fault) for fault in syntax.descending_path(profile))
    else:
        yield invalid(path, value, "must be a valid seccomp profile")


def changed_annotation_errors(new: Mapping[str, str], old: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield an error for each immutable annotation of a pod that an update changes.

    An update may neither add, change nor remove such an annotation.
    """
    for name in (*old, *(name for name in new if name not in old)):
        if new.get(name) != old.get(name):
            verb = "remove or update" if name in old else "add"
            if name.startswith(APP_ARMOR):
                yield forbidden(item(path, name), f"may not {verb} AppArmor annotations")
            if name == _MIRROR:
                yield forbidden(item(path, name), f"may not {verb} mirror pod annotation")


def profile_errors(annotations: Mapping[str, str], spec: View, path: str) -> Iterator[FieldError]:
    """Yield an error for each seccomp or AppArmor profile that differs from its annotation.

    The profiles are those of a new pod or template.
    """
    if not any(name.startswith((_SECCOMP_POD, _SECCOMP_CONTAINER, APP_ARMOR)) for name in annotations):
        return
    whole: View = spec.get("securityContext") or {}
    at = child(path, "securityContext")
    profile = whole.get("seccompProfile")
    yield from _match(annotations.get(_SECCOMP_POD), profile, "seccomp", _SECCOMP, child(at, "seccompProfile"))
    for one, place in every_container(spec, path):
        context: View = one.get("securityContext") or {}
        text, at = annotations.get(_SECCOMP_CONTAINER + (one.get("name") or "")), child(place, "securityContext")
        profile = context.get("seccompProfile")
        yield from _match(text, profile, "seccomp", _SECCOMP, child(at, "seccompProfile"))
    if (spec.get("os") or {}).get("name") == "windows":
        return
    for one, place in every_container(spec, path):
        context = one.get("securityContext") or {}
        text, at = annotations.get(APP_ARMOR + (one.get("name") or "")), child(place, "securityContext")
        profile = context.get("appArmorProfile") or whole.get("appArmorProfile")
        yield from _match(text, profile, "apparmor", _APP_ARMOR, child(at, "appArmorProfile"))


def _match(
    text: str | None, profile: View | None, name: str, values: Mapping[str, Sequence[str]], path: str
) -> Iterator[FieldError]:
    if text is None or profile is None:
        return
    kind = profile.get("type") or ""
    if kind == "Localhost":
        if not text.startswith(_LOCAL):
            yield forbidden(child(path, "type"), f"{name} type in annotation and field must match")
        elif text.removeprefix(_LOCAL) != profile.get("localhostProfile"):
            yield forbidden(child(path, "localhostProfile"), f"{name} profile in annotation and field must match")
    elif kind in values and text not in values[kind]:
        yield forbidden(child(path, "type"), f"{name} type in annotation and field must match")


def node_annotation_errors(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the annotations of a node."""
    yield from _listed(annotations, _TAINTS, ("cluster", "Taint"), taint_errors, path)
    text = annotations.get(_AVOID_PODS)
    if not text:
        return
    try:
        avoided, _ = decode_json(text.encode())
    except DecodeError as error:
        yield invalid(child(path, "AvoidPods"), _AVOID_PODS, str(error))
        return
    entries = avoided.get("preferAvoidPods") if isinstance(avoided, Mapping) else ()
    for index, entry in enumerate(entries if isinstance(entries, list) else ()):
        signature = (entry.get("podSignature") if isinstance(entry, Mapping) else None) or {}
        owner = signature.get("podController") if isinstance(signature, Mapping) else None
        at = child(item(child(path, _AVOID_PODS), index), "PodSignature")
        if owner is None:
            yield required(at)
        elif not (isinstance(owner, Mapping) and owner.get("controller")):
            yield invalid(child(child(at, "PodController"), "Controller"), False, "must point to a controller")


def _listed(
    annotations: Mapping[str, str],
    name: str,
    kind: tuple[str, str],
    errors: Callable[[Sequence[Any], str], Iterator[FieldError]],
    path: str,
) -> Iterator[FieldError]:
    """Yield the errors of a list that an annotation contains as JSON.

    ``kind`` is (file of types, type of an item).
    """
    if not annotations.get(name):
        return
    file, item_type = kind
    try:
        value, _ = decode_json(annotations[name].encode())
        found, _ = typed.decode(List(types_of(file).struct(item_type), f"[]core.{item_type}"), value)
    except DecodeError as error:
        yield invalid(path, name, str(error))
        return
    yield from errors(found or (), child(path, name))
