"""Defaults that depend on other fields (upstream: defaults.go).

A type in the data files names its function in the key ``fill``; its constant defaults are in the data file itself.
The function changes a decoded struct in place. It runs before the constant defaults of the struct and all defaults of
nested structs are set.
"""

import re
from collections.abc import Iterable, Mapping

from apiext.documents.document import Document, clone
from apiext.meta import time

CONTAINERS = ("containers", "initContainers")
_MAX_INT32 = 2**31 - 1

_HOST = "[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_DIGEST = "sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128}"
_IMAGE = re.compile(
    rf"(?P<name>(?:(?:{_HOST}(?:\.{_HOST})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/)?{_PART}(?:/{_PART})*)"
    rf"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}}))?(?:@(?P<digest>{_DIGEST}))?"
)
_ID = re.compile("[a-f0-9]{64}")
_MAX_REPOSITORY = 255
_MAX_IMAGE = 1_000  # characters; no valid reference is longer


# --- containers ---


def container(document: Document) -> None:
    """Set the default pull policy of a container, by the tag of its image."""
    if not document.get("imagePullPolicy"):
        document["imagePullPolicy"] = pull_policy(document.get("image") or "")


def image_volume(document: Document) -> None:
    """Set the default pull policy of an image volume, by the tag of its image."""
    if not document.get("pullPolicy"):
        document["pullPolicy"] = pull_policy(document.get("reference") or "")


def pull_policy(image: str) -> str:
    """Return the default pull policy of an image: Always or IfNotPresent.

    The default is Always for the tag ``latest`` and for an image without tag and digest. It is IfNotPresent for other
    images, and for an invalid image reference (upstream: github.com/distribution/reference).
    """
    first, slash, rest = image.partition("/")
    domain = slash and (first == "localhost" or any(one in ".:" or one.isupper() for one in first))
    remote = (rest if domain else image).partition(":")[0]
    found = (
        _IMAGE.fullmatch(image if domain else f"docker.io/{'' if slash else 'library/'}{image}")
        if len(image) < _MAX_IMAGE
        else None
    )
    if found is None or remote != remote.lower() or len(found["name"]) > _MAX_REPOSITORY or _ID.fullmatch(image):
        return "IfNotPresent"
    return "Always" if (found["tag"] or ("" if found["digest"] else "latest")) == "latest" else "IfNotPresent"


def volume(document: Document) -> None:
    """Make a volume without a source an emptyDir."""
    if not any(value is not None for name, value in document.items() if name != "name"):
        document["emptyDir"] = {}


def device_taint(document: Document) -> None:
    """Set a missing time of a taint to the current time."""
    if document.get("timeAdded") is None:
        document["timeAdded"] = time.now()


# --- pods ---


def pod_spec(document: Document) -> None:
    """Set serviceAccountName and serviceAccount to the same name.

    If they differ, serviceAccountName has precedence.
    """
    account = document.get("serviceAccountName") or document.get("serviceAccount")
    if account:
        document["serviceAccountName"] = document["serviceAccount"] = account


def pod(document: Document) -> None:
    """Set defaults that apply to pods, but not to pod templates."""
    spec = document["spec"]
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    for container in _containers(spec, CONTAINERS):
        _request_limits(container.get("resources") or {})
    spec.setdefault("enableServiceLinks", True)
    if spec.get("hostNetwork"):
        for container in _containers(spec, CONTAINERS):
            for port in container.get("ports") or ():
                if not port.get("hostPort") and port.get("containerPort"):
                    port["hostPort"] = port["containerPort"]


def _containers(spec: Document, fields: Iterable[str]) -> list[Document]:
    return [container for name in fields for container in spec.get(name) or ()]


def _request_limits(resources: Document) -> None:
    """Set the request of each resource that has only a limit to this limit."""
    limits: Mapping[str, str] = resources.get("limits") or {}
    if limits:
        resources["requests"] = {**limits, **(resources.get("requests") or {})}


def pod_status(document: Document) -> None:
    """Copy the first IP address between podIP and podIPs; podIP has precedence if they differ."""
    address, listed = document.get("podIP"), document.get("podIPs") or []
    if address and (not listed or listed[0].get("ip") != address):
        document["podIPs"] = [{"ip": address}]
    elif not address and listed and listed[0].get("ip"):
        document["podIP"] = listed[0]["ip"]


def replication_controller(document: Document) -> None:
    """Set a missing selector and missing labels to the labels of the pod template."""
    _labels_of_template(document, with_selector=True)


def _labels_of_template(document: Document, *, with_selector: bool = False) -> None:
    spec = document["spec"]
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if not labels:
        return
    if with_selector and not spec.get("selector"):
        spec["selector"] = dict(labels)
    if not document["metadata"].get("labels"):
        document["metadata"]["labels"] = labels  # not a copy: name_job (workloads.py) compares the two with ``is``


# --- storage, nodes, limits ---


def node_status(document: Document) -> None:
    """Set missing allocatable resources of a node to its capacity."""
    if document.get("allocatable") is None and document.get("capacity") is not None:
        document["allocatable"] = dict(document["capacity"])


def limit_range_item(document: Document) -> None:
    """Set the default limits and requests of containers in a LimitRange item.

    The default limits come from ``max``, and the default requests from the limits and ``min``.
    """
    if document.get("type") != "Container":
        return
    limits = {**(document.get("max") or {}), **(document.get("default") or {})}
    requests = {**(document.get("min") or {}), **limits, **(document.get("defaultRequest") or {})}
    for name, found in (("default", limits), ("defaultRequest", requests)):
        if found:
            document[name] = found


# --- workloads ---


def deployment_strategy(document: Document) -> None:
    """Set the default strategy of a deployment, with the defaults of a rolling update."""
    if document.setdefault("type", "RollingUpdate") == "RollingUpdate":
        _fill(document, "rollingUpdate", {"maxUnavailable": "25%", "maxSurge": "25%"})


def daemon_set_strategy(document: Document) -> None:
    """Set the default update strategy of a daemon set, with the defaults of a rolling update."""
    if document.setdefault("type", "RollingUpdate") == "RollingUpdate":
        _fill(document, "rollingUpdate", {"maxUnavailable": 1, "maxSurge": 0})


def stateful_set_strategy(document: Document) -> None:
    """Set the default update strategy of a stateful set.

    With an explicit type, ``rollingUpdate`` may stay absent.
    """
    if not document.get("type"):
        document["type"] = "RollingUpdate"
        if document.get("rollingUpdate") is None:
            document["rollingUpdate"] = {}
    if document["type"] == "RollingUpdate" and document.get("rollingUpdate") is not None:
        _fill(document, "rollingUpdate", {"partition": 0, "maxUnavailable": 1})


def _fill(document: Document, name: str, values: Mapping[str, object]) -> None:
    found = document[name] if document.get(name) is not None else document.setdefault(name, {})
    if found is None:
        found = document[name] = {}
    for field, value in values.items():
        if found.get(field) is None:
            found[field] = value


def claim_template(document: Document) -> None:
    """Set the apiVersion and kind of the volume claim templates of a stateful set.

    As upstream, values in the body have no effect.
    """
    for claim in document["spec"].get("volumeClaimTemplates") or ():
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}


def job(document: Document) -> None:
    """Set the default counts, modes and labels of a job."""
    spec = document["spec"]
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 6 if spec.get("backoffLimitPerIndex") is None else _MAX_INT32
    for name, value in (("completionMode", "NonIndexed"), ("suspend", False), ("manualSelector", False)):
        if spec.get(name) is None:
            spec[name] = value
    if spec.get("podReplacementPolicy") is None:
        failing = spec.get("podFailurePolicy") is not None
        spec["podReplacementPolicy"] = "Failed" if failing else "TerminatingOrFailed"
    _labels_of_template(document)


# --- autoscaling ---

OLD_METRICS = "autoscaling.alpha.kubernetes.io/metrics"
"""Annotation of autoscaling/v1 that contains all metrics except CPU utilization."""
UTILIZATION = 80

_SCALING: Mapping[str, Mapping[str, object]] = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    },
    "scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
}


def autoscaler(document: Document) -> None:
    """Set the default metrics of an autoscaler, and the defaults of an explicit behavior."""
    spec = document["spec"]
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(UTILIZATION)]
    if spec.get("behavior") is not None:
        for name, rules in _SCALING.items():
            _fill(spec["behavior"], name, clone(rules))


def cpu_metric(utilization: int) -> Document:
    """Return the metric of autoscaling/v2 for a CPU utilization in percent."""
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def autoscaler_v1(document: Document) -> None:
    """Set the default target CPU utilization of an autoscaling/v1 autoscaler.

    An autoscaler with other metrics gets no default.
    """
    spec, annotations = document["spec"], document["metadata"].get("annotations") or {}
    if spec.get("targetCPUUtilizationPercentage") is None and OLD_METRICS not in annotations:
        spec["targetCPUUtilizationPercentage"] = UTILIZATION


# --- networks ---


def network_policy(document: Document) -> None:
    """Set the default policy types: Ingress, and Egress if the policy has egress rules."""
    spec = document["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


# --- devices ---


def device_request(document: Document) -> None:
    """Set the default allocation mode of a device request, and the default number of devices."""
    document["allocationMode"] = document.get("allocationMode") or "ExactCount"
    if document["allocationMode"] == "ExactCount" and not document.get("count"):
        document["count"] = 1


# --- priority and fairness ---


def flow_schema(document: Document) -> None:
    """Set the default matching precedence of a flow schema."""
    document["matchingPrecedence"] = document.get("matchingPrecedence") or 1000


def queuing(document: Document) -> None:
    """Set the default number of queues, hand size and queue length of a priority level."""
    for name, value in (("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)):
        document[name] = document.get(name) or value
