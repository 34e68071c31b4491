"""Changes that the server makes to pods, workloads and other kinds before it stores them.

In upstream, the strategies of the registries make these changes.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction

from apiext.documents.document import Document, View, clone
from apiext.go_types.pod_resources import defaulted_resources
from apiext.go_types.quantities import value_of
from apiext.meta import time
from apiext.meta.uids import Uids

_CONTAINERS = ("containers", "initContainers")
_SUPPORTED = ("cpu", "memory")  # resources that determine the quality of service
_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_COUNT = re.compile("[0-9]{1,18}")
APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"  # followed by the name of a container
_APP_ARMOR_TYPES = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}
_LOCAL_PROFILE = "localhost/"
_MAX_PROFILE = 4095  # maximum length of a profile's name in bytes
_UID, _OLD_UID = "batch.kubernetes.io/controller-uid", "controller-uid"
_NAME, _OLD_NAME = "batch.kubernetes.io/job-name", "job-name"


# --- pods ---


def prepare_pod(new: Document, old: View | None) -> Document:
    """Set the status of a new pod, and fields derived from labels, annotations and resources.

    An update keeps the stored pod-level resources if it omits them.
    """
    if old is not None:
        _keep_resources(new, old)
        return new
    status: Document = {"phase": "Pending"}
    if new["spec"].get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": time.now(),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    _select_by_label_keys(new["spec"], new["metadata"].get("labels") or {})
    _copy_app_armor(new["spec"], new["metadata"].get("annotations") or {})
    if new["spec"].get("resources"):
        new["spec"]["resources"] = defaulted_resources(new["spec"])
    new["status"] = {**status, "qosClass": quality_of(new["spec"])}
    return new


def _keep_resources(new: Document, old: View) -> None:
    """Restore the stored pod-level resources if an update omits them.

    The client of such an update may not know this field.
    """
    if new["spec"].get("resources") is None and old["spec"].get("resources") is not None:
        new["spec"]["resources"] = clone(old["spec"]["resources"])


def _select_by_label_keys(spec: Document, labels: View) -> None:
    """Add requirements for matchLabelKeys and mismatchLabelKeys to label selectors of a pod.

    The label selectors are those of affinity terms and topology spread constraints. A key that the pod's labels lack is
    ignored. In a term without a label selector, all keys are ignored.
    """
    affinity = spec.get("affinity") or {}
    terms = list(spec.get("topologySpreadConstraints") or ())
    for name in ("podAffinity", "podAntiAffinity"):
        one = affinity.get(name) or {}
        terms += one.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        weighted = one.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += (term.get("podAffinityTerm") or {} for term in weighted)
    for term in terms:
        selector = term.get("labelSelector")
        found = [
            {"key": key, "operator": operator, "values": [labels[key]]}
            for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
            for key in term.get(field) or ()
            if key in labels
        ]
        if selector is not None and found:
            selector["matchExpressions"] = [*(selector.get("matchExpressions") or ()), *found]


def _copy_app_armor(spec: Document, annotations: View) -> None:
    """Set appArmorProfile of containers without this field from their deprecated annotations.

    The field stays unset if the annotation's profile equals that of the pod. Pods for Windows stay unchanged.
    """
    if (spec.get("os") or {}).get("name") == "windows":
        return
    whole = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container in (one for name in (*_CONTAINERS, "ephemeralContainers") for one in spec.get(name) or ()):
        given = container.get("securityContext") or {}
        text = annotations.get(APP_ARMOR + (container.get("name") or ""))
        profile = None if text is None or given.get("appArmorProfile") is not None else app_armor_profile(text)
        if profile is not None and profile != whole:
            container["securityContext"] = {**given, "appArmorProfile": profile}


def app_armor_profile(annotation: str) -> dict[str, str] | None:
    """Return the appArmorProfile for an annotation's value, None for an invalid value."""
    if annotation in _APP_ARMOR_TYPES:
        return {"type": _APP_ARMOR_TYPES[annotation]}
    profile = annotation.removeprefix(_LOCAL_PROFILE)
    if profile in ("", annotation) or profile != profile.strip() or len(profile.encode()) > _MAX_PROFILE:
        return None
    return {"type": "Localhost", "localhostProfile": profile}


def quality_of(spec: View) -> str:
    """Return the quality of service class of a pod: Guaranteed, Burstable or BestEffort."""
    whole = spec.get("resources") or {}
    if whole.get("requests") or whole.get("limits"):
        return _quality(whole)
    found = {_quality(one.get("resources") or {}) for name in _CONTAINERS for one in spec.get(name) or ()}
    return found.pop() if len(found) == 1 else "Burstable" if found else "BestEffort"


def _quality(resources: View) -> str:
    """Return the quality of service class for the resources of one container or of the pod."""
    requests, limits = _asked(resources.get("requests")), _asked(resources.get("limits"))
    if not requests and not limits:
        return "BestEffort"
    return "Guaranteed" if limits.keys() == set(_SUPPORTED) and requests == limits else "Burstable"


def _asked(resources: Mapping[str, str] | None) -> dict[str, Fraction]:
    found = {name: value_of(text) for name, text in (resources or {}).items() if name in _SUPPORTED}
    return {name: value for name, value in found.items() if value > 0}


def prepare_pod_status(new: Document, old: View) -> Document:
    """Restore fields that a write of the status may not change, and fields that the write omits."""
    for name in ("deletionTimestamp", "ownerReferences"):
        new["metadata"].pop(name, None)
        if name in old["metadata"]:
            new["metadata"][name] = old["metadata"][name]
    before, status = old.get("status") or {}, new.setdefault("status", {})
    for name in ("qosClass", "resourceClaimStatuses", "extendedResourceClaimStatus"):
        if status.get(name) in (None, "") and before.get(name):
            status[name] = clone(before[name])
    return new


def prepare_ephemeral(new: Document, old: View) -> Document:
    """Return the stored pod with the ephemeral containers of the write."""
    spec = clone(old["spec"])
    spec.pop("ephemeralContainers", None)
    if (added := (new.get("spec") or {}).get("ephemeralContainers")) is not None:
        spec["ephemeralContainers"] = added
    return _part_of(new, old, spec)


def prepare_resize(new: Document, old: View) -> Document:
    """Return the stored pod with the resources and resize policies of the write.

    If the names of the written containers differ from the stored names, return the written pod: validation then denies
    it.
    """
    given, spec = new.get("spec") or {}, clone(old["spec"])
    if any(_names(given, field) != _names(spec, field) for field in _CONTAINERS):
        return new
    for field in _CONTAINERS:
        for one, wanted in zip(spec.get(field) or (), given.get(field) or (), strict=True):
            _take(one, wanted, "resources", "resizePolicy")
    if given.get("resources") is not None:
        spec["resources"] = given["resources"]
    return _part_of(new, old, spec)


def _names(spec: View, field: str) -> list[str | None]:
    return [one.get("name") for one in spec.get(field) or ()]


def _take(document: Document, given: View, *fields: str) -> None:
    for field in fields:
        document.pop(field, None)
        if field in given:
            document[field] = given[field]


def _part_of(new: Document, old: View, spec: Document) -> Document:
    """Return the stored pod with this spec and with the managedFields of the write."""
    metadata = clone(old["metadata"])
    _take(metadata, new["metadata"], "managedFields")
    return {**clone(old), "metadata": metadata, "spec": spec}


# --- workloads ---


def default_daemon_set(document: Document) -> None:
    """Add the annotation that counts template changes.

    Upstream's internal type has a field for this count.
    """
    annotations = document["metadata"].get("annotations") or {}
    if _TEMPLATE_GENERATION not in annotations:
        document["metadata"]["annotations"] = {**annotations, _TEMPLATE_GENERATION: "0"}


def prepare_daemon_set(new: Document, old: View | None) -> Document:
    """Count a change of the template in an annotation."""
    annotations: dict[str, str] = dict(new["metadata"].get("annotations") or {})
    before: Mapping[str, str] = {} if old is None else old["metadata"].get("annotations") or {}
    given = before.get(_TEMPLATE_GENERATION) if old is not None else annotations.get(_TEMPLATE_GENERATION)
    count = int(given) if given and _COUNT.fullmatch(given) else 0
    if old is None:
        count = max(count, 1)
    elif new["spec"].get("template") != (old.get("spec") or {}).get("template"):
        count += 1
    new["metadata"]["annotations"] = {**annotations, _TEMPLATE_GENERATION: str(count)}
    return new


def prepare_deployment_status(new: Document, old: View) -> Document:
    """Restore the labels, which a write of the status may not change."""
    new["metadata"].pop("labels", None)
    if "labels" in old["metadata"]:
        new["metadata"]["labels"] = old["metadata"]["labels"]
    return new


def prepare_job(new: Document, old: View | None) -> Document:
    """Set the selector of a new job, and the labels of its pods.

    If the server generates the name of the job, ``name_job`` does this after the generation.
    """
    metadata = new["metadata"]
    return new if old is not None or (metadata.get("generateName") and not metadata.get("name")) else name_job(new)


def name_job(new: Document) -> Document:
    """Set the selector of a new job and the labels of its pods.

    A job whose labels are a default also gets the labels of its pods. A job with ``manualSelector`` stays unchanged.
    The server calls this again if the first generated name already exists.
    """
    spec = new["spec"]
    if spec.get("manualSelector"):
        return new
    uid, name = new["metadata"].get("uid", ""), new["metadata"].get("name", "")
    metadata = spec["template"].setdefault("metadata", {})
    own = new["metadata"].get("labels")
    is_default = own is metadata.get("labels")  # defaulting gives a job without labels the same dict as its template
    labels = metadata["labels"] = dict(metadata.get("labels") or {})
    names = {_OLD_NAME: name, _NAME: name}
    for earlier in (labels, new["metadata"].get("labels") or {}):
        if earlier.get(_UID) == uid:  # an earlier call of this function set these labels, with another name
            earlier.update(names)
    for key, value in ({_OLD_UID: uid, _UID: uid} | names).items():
        labels.setdefault(key, value)
    if own and is_default:
        new["metadata"]["labels"] = dict(labels)
    selector = spec["selector"] = dict(spec.get("selector") or {})
    selector["matchLabels"] = {_UID: uid, **(selector.get("matchLabels") or {})}
    return new


def stored_job(document: Document) -> Document:
    """Return the stored form of a job: one without labels has the labels of its pods.

    Upstream sets these labels only when it reads the job from etcd, so they are not validated in a create.
    """
    labels = ((document["spec"].get("template") or {}).get("metadata") or {}).get("labels")
    metadata = document["metadata"]
    if metadata.get("labels") or not labels:
        return document
    return {**document, "metadata": {**metadata, "labels": dict(labels)}}


def prepare_endpoint_slice(new: Document, old: View | None) -> Document:
    """Drop ``deprecatedTopology`` of all endpoints of a new or changed slice.

    Upstream does this in v1. An update that does not change the endpoints keeps it.
    """
    if old is None or new.get("endpoints") != old.get("endpoints"):
        for endpoint in new.get("endpoints") or ():
            endpoint.pop("deprecatedTopology", None)
    return new


# --- volumes ---


def prepare_volume(new: Document, old: View | None) -> Document:
    """Set the phase of a new volume, and the time of its last phase change."""
    if old is None:
        new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": new["metadata"].get("creationTimestamp")}
    return new


def time_phase(new: Document, old: View, now: str) -> None:
    """Set the time of the last phase change if the phase of a volume changes.

    A new time in the write is kept. If the phase does not change and the write omits the time, restore the stored time.
    """
    before, status = old.get("status") or {}, new.setdefault("status", {})
    field = "lastPhaseTransitionTime"
    if before.get("phase") == status.get("phase"):
        if status.get(field) is None and before.get(field) is not None:
            status[field] = before[field]
    elif status.get(field) in (None, before.get(field)):
        status[field] = now


def prepare_claim(new: Document, old: View | None) -> Document:
    """Set the phase of a new claim; copy its data source between dataSource and dataSourceRef.

    Drop the data sources that upstream drops: a dataSourceRef with a namespace; without a dataSourceRef, a dataSource
    whose kind is not in _SOURCES. An update drops a dataSourceRef only if the stored claim has none, and a dataSource
    only if the stored claim has neither field.
    """
    if old is None:
        new["status"] = {"phase": "Pending"}
    spec, before = new["spec"], {} if old is None else old["spec"]
    if before.get("dataSourceRef") is None and (spec.get("dataSourceRef") or {}).get("namespace"):
        del spec["dataSourceRef"]  # the feature CrossNamespaceVolumeDataSource is disabled
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    unused = before.get("dataSource") is None and before.get("dataSourceRef") is None
    if source is not None and reference is None and unused and _source_kind(source) not in _SOURCES:
        del spec["dataSource"]
    elif source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif source is None and reference and not reference.get("namespace") and _source_kind(reference) in _SOURCES:
        spec["dataSource"] = {key: value for key, value in reference.items() if key != "namespace"}
    return new


def _source_kind(reference: View) -> tuple[str, str]:
    return reference.get("apiGroup") or "", reference.get("kind") or ""


_SOURCES = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


# --- limits ---


def prepare_limit_range(new: Document, old: View | None) -> Document:
    """Set a UUID as the name of a limit range that has neither name nor generateName."""
    metadata = new["metadata"]
    if not metadata.get("name") and not metadata.get("generateName"):
        metadata["name"] = _UIDS.next()
    return new


_UIDS = Uids()


# --- certificates ---


def prepare_request(new: Document, old: View | None) -> Document:
    """Restore the stored spec of a certificate request: an update cannot change it."""
    if old is not None and "spec" in old:
        new["spec"] = clone(old["spec"])
    return new


def prepare_request_status(new: Document, old: View) -> Document:
    """Restore the conditions Approved and Denied, which only the approval endpoint may change.

    Validation denies a write that adds or removes such a condition.
    """
    for kind in DECISIONS:
        kept = [one for one in _conditions(old) if one.get("type") == kind]
        places = [index for index, one in enumerate(_conditions(new)) if one.get("type") == kind]
        if len(kept) == len(places):
            for index, one in zip(places, kept, strict=True):
                new["status"]["conditions"][index] = clone(one)
    return new


DECISIONS = ("Approved", "Denied")


def _conditions(document: View) -> list[Document]:
    return list((document.get("status") or {}).get("conditions") or ())


def time_conditions(new: Document, old: View, now: str) -> None:
    """Set missing times of conditions.

    A missing lastTransitionTime becomes the stored one if the status has not changed, else ``now``.
    """
    before = {one.get("type"): one for one in _conditions(old)}
    for one in _conditions(new):
        if one.get("lastUpdateTime") is None:
            one["lastUpdateTime"] = now
        if one.get("lastTransitionTime") is None:
            was = before.get(one.get("type")) or {}
            kept = was.get("lastTransitionTime") if was.get("status") == one.get("status") else None
            one["lastTransitionTime"] = kept or now


def sign_request(document: Document, name: str, uid: str, groups: Sequence[str], extra: View) -> None:
    """Write the requesting user into a certificate request."""
    given = {"username": name, "uid": uid, "groups": list(groups), "extra": {key: list(extra[key]) for key in extra}}
    for field, value in given.items():
        document["spec"].pop(field, None)
        if value:
            document["spec"][field] = value


def default_node(document: Document) -> None:
    """Copy the pod CIDR between podCIDR and podCIDRs, as upstream's conversion does."""
    spec = document["spec"]
    first, every = spec.get("podCIDR"), spec.get("podCIDRs") or []
    if first and (not every or every[0] != first):
        spec["podCIDRs"] = [first]
    elif every and not first:
        spec["podCIDR"] = every[0]
