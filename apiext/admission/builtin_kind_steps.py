"""Plug-in functions that mutate and validate pods, nodes, volumes and other built-in kinds.

The table ``builtin_kind_plugins.ROWS`` names them. Upstream: plugin/pkg/admission.
"""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any

from apiext.admission.attributes import Attributes
from apiext.admission.object_lookup import (
    ATTRIBUTES_CLASSES,
    CLAIMS,
    INGRESS_CLASSES,
    PODS,
    PRIORITY_CLASSES,
    REQUESTS,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    VOLUMES,
    ObjectLookup,
    forbidden,
)
from apiext.documents.document import Document, View
from apiext.documents.equality import same
from apiext.go_types.quantities import value_of

_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED_SECONDS = 300
_CLIENT_SIGNER = "kubernetes.io/kube-apiserver-client"
_FINALIZERS = {
    CLAIMS: "kubernetes.io/pvc-protection",
    VOLUMES: "kubernetes.io/pv-protection",
    ATTRIBUTES_CLASSES: "kubernetes.io/vac-protection",
}


# --- pods and nodes ---


async def set_priority(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Set the priority and the preemption policy of a new pod from its priority class.

    A pod without a class gets the default class, or upstream's default values if there is none. Deny a pod that sets
    other values than its class, or whose class does not exist. An update without one of these fields gets the stored
    value of the field.
    """
    if attributes.resource != PODS:
        return
    spec = new["spec"]
    if attributes.operation != "CREATE":
        before = (attributes.old or {}).get("spec") or {}
        for field in ("priority", "preemptionPolicy"):
            if spec.get(field) is None and before.get(field) is not None:
                spec[field] = before[field]
        return
    name = spec.get("priorityClassName") or ""
    found = await lookup.find(PRIORITY_CLASSES, name) if name else await _default_priority(lookup)
    if found is None:
        raise forbidden(attributes, f"no PriorityClass with name {name} was found")
    if not name and found.get("metadata"):
        spec["priorityClassName"] = found["metadata"]["name"]
    for field, value, called in (
        ("priority", found.get("value") or 0, "integer value of priority"),
        ("preemptionPolicy", found.get("preemptionPolicy"), "string value of PreemptionPolicy"),
    ):
        given = spec.get(field)
        if value is not None and given is not None and given != value:
            text = (
                f"the {called} ({given}) must not be provided in pod spec; priority admission controller"
                f" computed {value} from the given PriorityClass name"
            )
            raise forbidden(attributes, text)
        if value is not None:
            spec[field] = value


async def _default_priority(lookup: ObjectLookup) -> View:
    """Return the default class with the lowest value.

    Without a default class, return upstream's default priority.
    """
    classes = [one for one in await lookup.every(PRIORITY_CLASSES) if one.get("globalDefault")]
    if classes:
        return min(classes, key=lambda one: one.get("value") or 0)
    return {"value": 0, "preemptionPolicy": "PreemptLowerPriority"}


async def check_one_default(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Deny a second default priority class."""
    if attributes.resource != PRIORITY_CLASSES or not new.get("globalDefault"):
        return
    for one in await lookup.every(PRIORITY_CLASSES):
        name = one["metadata"]["name"]
        if one.get("globalDefault") and name != attributes.name:
            text = f"PriorityClass {name} is already marked as default. Only one default can exist"
            raise forbidden(attributes, text)


async def set_tolerations(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Add missing tolerations for nodes that are unreachable or not ready.

    The pod then stays on such a node for _TOLERATED_SECONDS.
    """
    tolerations = new["spec"].get("tolerations") or []
    missing = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATED_SECONDS}
        for key in _TAINTS
        if not any(
            one.get("key") in (key, "", None) and one.get("effect") in ("NoExecute", "", None) for one in tolerations
        )
    ]
    if missing:
        new["spec"]["tolerations"] = [*tolerations, *missing]


async def taint_not_ready(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Taint a new node as not ready."""
    spec = new["spec"] if new.get("spec") is not None else new.setdefault("spec", {})
    taints = spec.get("taints") or []
    wanted = {"key": _TAINTS[0], "effect": "NoSchedule"}
    if not any(all(one.get(field) == value for field, value in wanted.items()) for one in taints):
        spec["taints"] = [*taints, wanted]


async def set_runtime_class(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Set the overhead, the node selector and the tolerations of a pod from its runtime class.

    Deny a pod whose class does not exist, or whose overhead or node selector conflicts with the class.
    """
    spec = new["spec"]
    found = await _runtime_class_of(attributes, spec, lookup)
    if found is None:
        return
    overhead, scheduling = found.get("overhead"), found.get("scheduling")
    if overhead is not None:
        fixed = overhead.get("podFixed") or {}
        if spec.get("overhead") and not _equal(spec["overhead"], fixed):
            raise forbidden(attributes, _OTHER_OVERHEAD)
        spec["overhead"] = dict(fixed)
    if scheduling is None:
        return
    selector = dict(spec.get("nodeSelector") or {})
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if selector.setdefault(key, value) != value:
            text = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {selector[key]}"
            )
            raise forbidden(attributes, text)
    if selector:
        spec["nodeSelector"] = selector
    tolerations = list(spec.get("tolerations") or ())
    tolerations += [one for one in scheduling.get("tolerations") or () if one not in tolerations]
    if tolerations:
        spec["tolerations"] = tolerations


_OTHER_OVERHEAD = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"


async def _runtime_class_of(attributes: Attributes, spec: View, lookup: ObjectLookup) -> View | None:
    name = spec.get("runtimeClassName")
    if name is None:
        return None
    found = await lookup.find(RUNTIME_CLASSES, name)
    if found is None:
        raise forbidden(attributes, f'pod rejected: RuntimeClass "{name}" not found')
    return found


async def check_overhead(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Deny a pod whose overhead differs from the overhead of its runtime class.

    A pod whose class has no overhead, or which has no class, must have no overhead.
    """
    spec = new.get("spec") or {}
    found = await _runtime_class_of(attributes, spec, lookup)
    overhead = (found or {}).get("overhead")
    if overhead is not None:
        if not _equal(spec.get("overhead") or {}, overhead.get("podFixed") or {}):
            raise forbidden(attributes, _OTHER_OVERHEAD)
    elif spec.get("overhead") is not None:
        text = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
        raise forbidden(attributes, text)


def _equal(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return one.keys() == other.keys() and all(value_of(one[name]) == value_of(other[name]) for name in one)


# --- volumes ---


_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_STORAGE = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
_DEFAULT_INGRESS = ("ingressclass.kubernetes.io/is-default-class",)


async def set_storage_class(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Set the default storage class in a claim without a class."""
    spec = new["spec"]
    if spec.get("storageClassName") is not None or _CLASS_ANNOTATION in (new["metadata"].get("annotations") or {}):
        return
    if name := _newest_default(await lookup.every(STORAGE_CLASSES), _DEFAULT_STORAGE):
        spec["storageClassName"] = name


async def set_ingress_class(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Set the default ingress class in an ingress without a class."""
    spec = new["spec"] if new.get("spec") is not None else new.setdefault("spec", {})
    old_style = "kubernetes.io/ingress.class" in (new["metadata"].get("annotations") or {})
    if spec.get("ingressClassName") is not None or old_style:
        return
    if name := _newest_default(await lookup.every(INGRESS_CLASSES), _DEFAULT_INGRESS):
        spec["ingressClassName"] = name


def _newest_default(classes: list[View], annotations: tuple[str, ...]) -> str:
    """Return the name of the newest class with a true default annotation.

    The result is empty if there is none.
    """
    defaults = [
        one["metadata"]
        for one in classes
        if any((one["metadata"].get("annotations") or {}).get(name) == "true" for name in annotations)
    ]
    defaults.sort(key=lambda metadata: metadata["name"])
    defaults.sort(key=lambda metadata: metadata.get("creationTimestamp") or "", reverse=True)
    return defaults[0]["name"] if defaults else ""


async def protect(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Add the finalizer that protects a volume, claim or volume attributes class in use."""
    metadata, finalizer = new["metadata"], _FINALIZERS[attributes.resource]
    if finalizer not in (metadata.get("finalizers") or ()):
        metadata["finalizers"] = [*(metadata.get("finalizers") or ()), finalizer]


async def check_growth(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Deny the expansion of a claim that is not bound or whose storage class does not allow it.

    Also deny it if the storage class of the claim changes.
    """
    old = attributes.old or {}
    if _size(new) <= _size(old):
        return
    if (old.get("status") or {}).get("phase") != "Bound":
        raise forbidden(attributes, "Only bound persistent volume claims can be expanded")
    name = _class_of(new)
    found = await lookup.find(STORAGE_CLASSES, name) if name and name == _class_of(old) else None
    if found is None or not found.get("allowVolumeExpansion"):
        text = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support"
            " resize"
        )
        raise forbidden(attributes, text)


def _size(claim: View) -> Any:
    requests = ((claim.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return value_of(requests.get("storage") or "0")


def _class_of(claim: View) -> str:
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    return annotations.get(_CLASS_ANNOTATION) or (claim.get("spec") or {}).get("storageClassName") or ""


# --- certificates ---


async def check_approval(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Deny a write of /approval by a user without permission to approve requests of the signer."""
    signer = ((attributes.old or {}).get("spec") or {}).get("signerName") or ""
    if not _may(attributes, lookup, "approve", signer):
        raise forbidden(attributes, f'user not permitted to approve requests with signerName "{signer}"')


async def check_signing(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Deny a change of the certificate or the conditions by a user without permission to sign.

    The user needs the permission ``sign`` for the signer of the certificate request.
    """
    old = attributes.old or {}
    signer = (old.get("spec") or {}).get("signerName") or ""
    now, before = new.get("status") or {}, old.get("status") or {}
    if same(now.get("certificate"), before.get("certificate")) and same(
        now.get("conditions"), before.get("conditions")
    ):
        return
    if not _may(attributes, lookup, "sign", signer):
        raise forbidden(attributes, f'user not permitted to sign requests with signerName "{signer}"')


async def check_subject(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Deny requests for client certificates of the group system:masters.

    No authorizer can restrict this group. Also deny a request for a client certificate that cannot be parsed.
    """
    spec = new.get("spec") or {}
    if spec.get("signerName") != _CLIENT_SIGNER:
        return
    try:
        found = await asyncio.to_thread(_organizations, spec.get("request") or "")
    except ValueError as error:
        raise forbidden(attributes, f"failed to parse CSR: {error}") from error
    if "system:masters" in found:
        raise forbidden(attributes, f"use of {_CLIENT_SIGNER} signer with system:masters group is not allowed")


def _organizations(request: str) -> list[str | bytes]:
    """Return the organizations of a certificate request; they become the groups of its user.

    Raises ValueError.
    """
    from cryptography import x509  # the import takes 40 ms, and only requests to this signer need it

    subject = x509.load_pem_x509_csr(base64.b64decode(request)).subject
    return [one.value for one in subject.get_attributes_for_oid(x509.oid.NameOID.ORGANIZATION_NAME)]


def _may(attributes: Attributes, lookup: ObjectLookup, verb: str, signer: str) -> bool:
    from apiext.cel.library.authorization import Question  # the import loads CEL, which most servers do not use

    domain = signer.partition("/")[0]
    questions = (
        Question(verb=verb, group=REQUESTS.group, resource="signers", name=name) for name in (signer, f"{domain}/*")
    )
    return any(lookup.authorize(attributes.user, question)[0] for question in questions)
