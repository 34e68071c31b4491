"""Cells of the Tables of workloads, volumes and nodes.

Upstream: printers/internalversion/printers.go.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from apiext.catalog.builtin.selector_texts import labels_text, selector_text
from apiext.documents.document import View
from apiext.meta.time import human_duration, seconds_between

NONE, UNSET, UNKNOWN = "<none>", "<unset>", "<unknown>"
Aged = tuple[str, str | None]
"""(text with ``{}`` for an age, time when the age begins); the time is None for a text without an age."""


def _spec(document: View) -> View:
    return document.get("spec") or {}


def _status(document: View) -> View:
    return document.get("status") or {}


def _true(conditions: Iterable[View], kind: str) -> bool:
    return any(one.get("type") == kind and one.get("status") == "True" for one in conditions or ())


# --- containers of a template ---


def _template(document: View) -> View:
    spec = _spec(document)
    template: View = document.get("template") or spec.get("template") or {}
    if "jobTemplate" in spec:
        template = _spec(spec["jobTemplate"]).get("template") or {}
    return template


def _of_containers(document: View, field: str) -> str:
    return ",".join(one.get(field) or "" for one in _spec(_template(document)).get("containers") or ())


def containers(document: View) -> str:
    """Return the names of the containers of a pod template, separated by commas."""
    return _of_containers(document, "name")


def images(document: View) -> str:
    """Return the images of the containers of a pod template, separated by commas."""
    return _of_containers(document, "image")


def template_labels(document: View) -> str:
    """Return the labels of a pod template."""
    return labels_text((_template(document).get("metadata") or {}).get("labels"))


def selector(document: View) -> str:
    """Return the label selector of a workload, ``<none>`` for an empty selector."""
    spec = _spec(document)
    if "jobTemplate" in spec:
        spec = _spec(spec["jobTemplate"])
    return selector_text(spec.get("selector")) or NONE


def deployment_selector(document: View) -> str:
    """Return the label selector of a deployment; empty for an empty selector."""
    return selector_text(_spec(document).get("selector"))


def label_selector(document: View) -> str:
    """Return a selector that is a map of labels; ``<none>`` for an empty map."""
    return labels_text(_spec(document).get("selector"))


def pod_selector(document: View) -> str:
    """Return the pod selector of a network policy; ``<none>`` for an empty selector."""
    return selector_text(_spec(document).get("podSelector")) or NONE


def node_selector(document: View) -> str:
    """Return the node selector of a pod template."""
    return labels_text(_spec(_template(document)).get("nodeSelector"))


# --- workloads ---


def ready(document: View) -> str:
    """Return the numbers of ready and desired replicas: ``1/3``."""
    return f"{_status(document).get('readyReplicas') or 0}/{_spec(document).get('replicas') or 0}"


def completions(document: View) -> str:
    """Return the numbers of succeeded and desired pods of a job: ``1/3``.

    Without ``spec.completions``, a job with two parallel pods has ``0/1 of 2``.
    """
    spec, done = _spec(document), _status(document).get("succeeded") or 0
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    parallel = spec.get("parallelism") or 0
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


_JOB = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def job_status(document: View) -> str:
    """Return the state of a job, such as Complete, Failed, Suspended or Running."""
    conditions = _status(document).get("conditions") or ()
    for kind in ("Complete", "Failed"):
        if _true(conditions, kind):
            return kind
    if document["metadata"].get("deletionTimestamp"):
        return "Terminating"
    return next((kind for kind in _JOB if _true(conditions, kind)), "Running")


def job_duration(document: View) -> Aged:
    """Return the duration of a job, from its start to its completion or until now.

    The duration is empty before the start.
    """
    started, ended = _status(document).get("startTime"), _status(document).get("completionTime")
    if started is None:
        return "", None
    return ("{}", started) if ended is None else (human_duration(seconds_between(started, ended)), None)


def suspended(document: View) -> str:
    """Return ``True`` if a cron job is suspended, else ``False``.

    Return ``<unset>`` if the field is absent.
    """
    value = _spec(document).get("suspend")
    return UNSET if value is None else "True" if value else "False"


def active(document: View) -> int:
    """Return the number of active jobs of a cron job."""
    return len(_status(document).get("active") or ())


def last_schedule(document: View) -> Aged:
    """Return the time at which a cron job last created a job; ``<none>`` if it never did."""
    last = _status(document).get("lastScheduleTime")
    return (NONE, None) if last is None else ("{}", last)


def time_zone(document: View) -> str:
    """Return the time zone of a cron job; ``<none>`` if the field is absent."""
    zone: str | None = _spec(document).get("timeZone")
    return NONE if zone is None else zone


# --- pods ---


def _restartable(container: View | None) -> bool:
    return container is not None and container.get("restartPolicy") == "Always"


class _Pod:
    """Summary of the containers of a pod: number of ready containers, pod state, restarts."""

    def __init__(self, document: View) -> None:
        spec, self._status = _spec(document), _status(document)
        self._document = document
        initial: Sequence[View] = spec.get("initContainers") or ()
        self._initial = {one.get("name"): one for one in initial}
        self._initializers = len(initial)
        self.containers = len(spec.get("containers") or ()) + sum(map(_restartable, initial))
        self.ready = 0
        self.restarts = 0
        self.restarted: str | None = None
        conditions = self._status.get("conditions") or ()
        self.reason: str = self._status.get("reason") or self._status.get("phase") or ""
        if any(one.get("type") == "PodScheduled" and one.get("reason") == "SchedulingGated" for one in conditions):
            self.reason = "SchedulingGated"
        sidecars = _Restarts()
        if not self._initialize(sidecars) or _true(conditions, "Initialized"):
            self.restarts, self.restarted = sidecars.count, sidecars.last
            self._run(conditions)
        self._end()

    def _initialize(self, sidecars: "_Restarts") -> bool:
        """Read the states of init containers; report whether the pod is still initializing."""
        every = _Restarts()
        for index, one in enumerate(self._status.get("initContainerStatuses") or ()):
            every.add(one)
            if _restartable(self._initial.get(one.get("name"))):
                sidecars.add(one)
            self.restarts, self.restarted = every.count, every.last
            state = one.get("state") or {}
            ended, waiting = state.get("terminated"), state.get("waiting")
            if ended is not None and not ended.get("exitCode"):
                continue
            if _restartable(self._initial.get(one.get("name"))) and one.get("started"):
                self.ready += bool(one.get("ready"))
                continue
            if ended is not None:
                self.reason = f"Init:{_ending(ended)}"
            elif waiting is not None and waiting.get("reason") not in (None, "", "PodInitializing"):
                self.reason = f"Init:{waiting['reason']}"
            else:
                self.reason = f"Init:{index}/{self._initializers}"
            return True
        return False

    def _run(self, conditions: Iterable[View]) -> None:
        """Read the states of the regular containers, beginning with the last container."""
        running, failure = False, ""
        every = _Restarts(self.restarts, self.restarted)
        for one in reversed(self._status.get("containerStatuses") or ()):
            every.add(one)
            state = one.get("state") or {}
            ended, waiting = state.get("terminated"), state.get("waiting")
            if waiting is not None and waiting.get("reason"):
                self.reason = waiting["reason"]
            elif ended is not None:
                self.reason = _ending(ended)
                failure = self.reason if ended.get("exitCode") else failure
            elif one.get("ready") and state.get("running") is not None:
                running = True
                self.ready += 1
        self.restarts, self.restarted = every.count, every.last
        if self.reason == "Completed":
            if running and _true(conditions, "Ready"):
                self.reason = "Running"
            elif failure:
                self.reason = failure
            elif running:
                self.reason = "NotReady"

    def _end(self) -> None:
        if self._document["metadata"].get("deletionTimestamp"):
            if self._status.get("reason") == "NodeLost":
                self.reason = "Unknown"
            elif self._status.get("phase") not in ("Succeeded", "Failed"):
                self.reason = "Terminating"


class _Restarts:
    """The number of restarts, and the time of the last restart."""

    def __init__(self, count: int = 0, last: str | None = None) -> None:
        self.count = count
        self.last = last

    def add(self, container: View) -> None:
        """Add the restarts of a container."""
        self.count += container.get("restartCount") or 0
        ended = (container.get("lastState") or {}).get("terminated")
        finished = ended.get("finishedAt") if ended is not None else None
        if finished and (self.last is None or self.last < finished):
            self.last = finished


def _ending(state: View) -> str:
    """Return the reason why a container has ended."""
    if state.get("reason"):
        return str(state["reason"])
    return f"Signal:{state['signal']}" if state.get("signal") else f"ExitCode:{state.get('exitCode') or 0}"


def pod_ready(document: View) -> str:
    """Return the numbers of ready containers and of all containers of a pod, such as ``1/2``.

    Sidecars count, other init containers do not.
    """
    pod = _Pod(document)
    return f"{pod.ready}/{pod.containers}"


def pod_status(document: View) -> str:
    """Return the state of a pod as kubectl shows it.

    Examples: ``Running``, ``Init:0/2``, ``CrashLoopBackOff``, ``Terminating``.
    """
    return _Pod(document).reason


def pod_restarts(document: View) -> Aged:
    """Return the number of restarts of a pod's containers, and the time of the last restart."""
    pod = _Pod(document)
    if pod.restarts and pod.restarted is not None:
        return f"{pod.restarts} ({{}} ago)", pod.restarted
    return str(pod.restarts), None


def pod_ip(document: View) -> str:
    """Return the first IP address of a pod, ``<none>`` without an address."""
    listed = _status(document).get("podIPs") or ()
    return (listed[0].get("ip") if listed else "") or NONE


def node_name(document: View) -> str:
    """Return the name of the node of a pod, ``<none>`` for a pod without a node."""
    return _spec(document).get("nodeName") or NONE


def nominated_node(document: View) -> str:
    """Return the nominated node of a pod, ``<none>`` without a nominated node."""
    return _status(document).get("nominatedNodeName") or NONE


def readiness_gates(document: View) -> str:
    """Return how many readiness gates of a pod have a true condition, such as ``1/2``.

    A pod without readiness gates has ``<none>``.
    """
    gates = _spec(document).get("readinessGates") or ()
    if not gates:
        return NONE
    found: dict[str, str] = {}
    for one in _status(document).get("conditions") or ():
        found.setdefault(one.get("type", ""), one.get("status", ""))
    holding = sum(found.get(gate.get("conditionType", "")) == "True" for gate in gates)
    return f"{holding}/{len(gates)}"


# --- disruption, scaling ---


def _given(field: str) -> Callable[[View], str]:
    def cell(document: View) -> str:
        value = _spec(document).get(field)
        return "N/A" if value is None else str(value)

    return cell


min_available, max_unavailable = _given("minAvailable"), _given("maxUnavailable")


def scale_target(document: View) -> str:
    """Return the target of an autoscaler: ``Deployment/name``."""
    target = _spec(document).get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def min_pods(document: View) -> str:
    """Return the minimum number of replicas of an autoscaler.

    Return ``<unset>`` if the field is absent.
    """
    least = _spec(document).get("minReplicas")
    return UNSET if least is None else str(least)


_METRICS: Mapping[str, str] = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def targets(document: View) -> str:
    """Return current value and target of the first two metrics of an autoscaler.

    The number of further metrics follows. Return ``<none>`` without metrics.
    """
    metrics: Sequence[View] = _spec(document).get("metrics") or ()
    current: Sequence[View] = _status(document).get("currentMetrics") or ()
    if not metrics:
        return NONE
    shown = [_metric(one, current[index] if index < len(current) else {}) for index, one in enumerate(metrics)]
    return ", ".join(shown[:2]) + (f" + {len(shown) - 2} more..." if len(shown) > 2 else "")


def _metric(metric: View, status: View) -> str:
    kind = metric.get("type", "")
    if kind not in _METRICS:
        return "<unknown type>"
    source: View = metric.get(_METRICS[kind]) or {}
    measured: View | None = (status.get(_METRICS[kind]) or {}).get("current") if _METRICS[kind] in status else None
    target: View = source.get("target") or {}
    average = target.get("averageValue")
    if kind in ("Resource", "ContainerResource"):
        if average is not None:
            now = UNKNOWN if measured is None else measured.get("averageValue", "<nil>")
            return f"{source.get('name', '')}: {now}/{average}"
        used = None if measured is None else measured.get("averageUtilization")
        wanted = target.get("averageUtilization")
        now, then = (UNKNOWN if used is None else f"{used}%"), ("<auto>" if wanted is None else f"{wanted}%")
        return f"{source.get('name', '')}: {now}/{then}"
    if kind == "Pods" or average is not None:
        now = UNKNOWN if measured is None else measured.get("averageValue", UNKNOWN)
        return f"{now}/{average}" + (" (avg)" if kind != "Pods" else "")
    now = UNKNOWN if measured is None else measured.get("value", "<nil>")
    return f"{now}/{target.get('value', '<nil>')}"


# --- networks ---


def ingress_class(document: View) -> str:
    """Return the class of an ingress; ``<none>`` if the field is absent."""
    found: str | None = _spec(document).get("ingressClassName")
    return NONE if found is None else found


def hosts(document: View) -> str:
    """Return up to three hosts of an ingress, such as ``a,b,c + 2 more...``.

    The last number is the number of all rules minus three. Return ``*`` if no rule has a host.
    """
    rules = _spec(document).get("rules") or ()
    found: list[str] = []
    more = False
    for rule in rules:
        more = more or len(found) == 3
        if not more and rule.get("host"):
            found.append(rule["host"])
    if not found:
        return "*"
    return ",".join(found) + (f" + {len(rules) - 3} more..." if more else "")


def ingress_address(document: View) -> str:
    """Return the sorted addresses and host names of an ingress's load balancer."""
    points = (_status(document).get("loadBalancer") or {}).get("ingress") or ()
    return ",".join(sorted({point.get("ip") or point.get("hostname") or "" for point in points} - {""}))


def ingress_ports(document: View) -> str:
    """Return the ports of an ingress: 80, and 443 with TLS."""
    return "80, 443" if _spec(document).get("tls") else "80"


def class_name(document: View) -> str:
    """Return the name of an ingress class, with ``(default)`` for the default class."""
    metadata = document["metadata"]
    marked = (metadata.get("annotations") or {}).get("ingressclass.kubernetes.io/is-default-class") == "true"
    return f"{metadata.get('name', '')} (default)" if marked else str(metadata.get("name", ""))


def class_parameters(document: View) -> str:
    """Return the parameters of an ingress class: ``Kind.group/name``, or ``<none>``."""
    found = _spec(document).get("parameters")
    if found is None:
        return NONE
    group = "" if found.get("apiGroup") is None else f".{found['apiGroup']}"
    return f"{found.get('kind', '')}{group}/{found.get('name', '')}"


def _some(found: Sequence[str], count: int) -> str:
    return ",".join(found[:3]) + (f" + {count - 3} more..." if len(found) > 3 else "")


def endpoint_addresses(document: View) -> str:
    """Return the first three addresses of Endpoints, with their ports.

    The number of further addresses follows. Return ``<none>`` without subsets.
    """
    subsets = document.get("subsets") or ()
    if not subsets:
        return NONE
    found: list[str] = []
    for subset in subsets:
        addresses = [one.get("ip", "") for one in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        found += [_joined(one, port.get("port", 0)) for port in ports for one in addresses] if ports else addresses
    return _some(found, len(found))


def _joined(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def slice_ports(document: View) -> str:
    """Return the first three ports of an EndpointSlice, and the number of further ports.

    Return ``<unset>`` without ports.
    """
    found = []
    for port in document.get("ports") or ():
        number = port.get("port")
        found.append(str(number) if number is not None else port.get("name", "*"))
    return _some(found, len(found)) if found else UNSET


def slice_endpoints(document: View) -> str:
    """Return the first three addresses of an EndpointSlice, and the number of further addresses.

    Return ``<unset>`` without addresses.
    """
    found = [one for endpoint in document.get("endpoints") or () for one in endpoint.get("addresses") or ()]
    return _some(found, len(found)) if found else UNSET


# --- volumes, quotas ---

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(given: Iterable[str]) -> str:
    found = set(given or ())
    return ",".join(short for mode, short in _MODES.items() if mode in found)


def _phase(document: View) -> str:
    deleting = document["metadata"].get("deletionTimestamp")
    return "Terminating" if deleting else str(_status(document).get("phase") or "")


def phase(document: View) -> str:
    """Return the phase of a volume or a claim; ``Terminating`` during its deletion."""
    return _phase(document)


def volume_capacity(document: View) -> str:
    """Return the storage size of a volume."""
    return str((_spec(document).get("capacity") or {}).get("storage", "0"))


def volume_modes(document: View) -> str:
    """Return the access modes of a volume, such as ``RWO,ROX``."""
    return _modes(_spec(document).get("accessModes") or ())


def volume_claim(document: View) -> str:
    """Return the claim to which a volume is bound: ``namespace/name``.

    The result is empty for an unbound volume.
    """
    reference = _spec(document).get("claimRef")
    return f"{reference.get('namespace', '')}/{reference.get('name', '')}" if reference is not None else ""


def storage_class(document: View) -> str:
    """Return the storage class of a volume or a claim.

    The old annotation has precedence over the field.
    """
    annotations = document["metadata"].get("annotations") or {}
    old: str | None = annotations.get("volume.beta.kubernetes.io/storage-class")
    return old if old is not None else _spec(document).get("storageClassName") or ""


def attributes_class(document: View) -> str:
    """Return the VolumeAttributesClass of a volume or a claim.

    Return ``<unset>`` if the field is absent.
    """
    found: str | None = _spec(document).get("volumeAttributesClassName")
    return UNSET if found is None else found


def volume_mode(document: View) -> str:
    """Return the volume mode, Filesystem or Block; ``<unset>`` if the field is absent."""
    found: str | None = _spec(document).get("volumeMode")
    return UNSET if found is None else found


def claim_capacity(document: View) -> str:
    """Return the size of the volume of a claim; empty for a claim without a volume."""
    if not _spec(document).get("volumeName"):
        return ""
    return str((_status(document).get("capacity") or {}).get("storage", "0"))


def claim_modes(document: View) -> str:
    """Return the access modes of the volume of a claim; empty for a claim without a volume."""
    return _modes(_status(document).get("accessModes") or ()) if _spec(document).get("volumeName") else ""


def _quota(document: View, *, limits: bool) -> str:
    status = _status(document)
    hard: Mapping[str, str] = status.get("hard") or {}
    used: Mapping[str, str] = status.get("used") or {}
    names = (name for name in sorted(hard) if name.startswith("limits.") is limits)
    return ", ".join(f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names)


def quota_requests(document: View) -> str:
    """Return the used and hard amounts of a quota, except those of limits.

    Example: ``pods: 1/2, requests.cpu: 0/1``.
    """
    return _quota(document, limits=False)


def quota_limits(document: View) -> str:
    """Return used and hard amounts of a quota for limits: ``limits.cpu: 1/2``."""
    return _quota(document, limits=True)


def expands(document: View) -> bool:
    """Return whether a storage class allows the expansion of its volumes."""
    return bool(document.get("allowVolumeExpansion"))


def attached(document: View) -> bool:
    """Return whether a volume is attached."""
    return bool(_status(document).get("attached"))


def is_default(document: View) -> bool:
    """Return whether a priority class is the default."""
    return bool(document.get("globalDefault"))


# --- nodes ---

_ROLE = "node-role.kubernetes.io/"


def node_status(document: View) -> str:
    """Return whether a node is ready and schedulable, such as ``Ready,SchedulingDisabled``."""
    found = [one for one in _status(document).get("conditions") or () if one.get("type") == "Ready"]
    shown = ("Ready" if found[-1].get("status") == "True" else "NotReady") if found else "Unknown"
    return f"{shown},SchedulingDisabled" if _spec(document).get("unschedulable") else shown


def node_roles(document: View) -> str:
    """Return the roles of a node from its labels; ``<none>`` without roles."""
    labels: Mapping[str, str] = document["metadata"].get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    return ",".join(sorted((roles | {labels.get("kubernetes.io/role", "")}) - {""})) or NONE


def _address(kind: str) -> Callable[[View], str]:
    def cell(document: View) -> str:
        every = _status(document).get("addresses") or ()
        return next((str(one.get("address", "")) for one in every if one.get("type") == kind), NONE)

    return cell


internal_ip, external_ip = _address("InternalIP"), _address("ExternalIP")


def _info(document: View, field: str) -> str:
    return (_status(document).get("nodeInfo") or {}).get(field) or UNKNOWN


def os_image(document: View) -> str:
    """Return the operating system image of a node."""
    return _info(document, "osImage")


def kernel(document: View) -> str:
    """Return the kernel version of a node, and its architecture."""
    architecture = _info(document, "architecture")
    return _info(document, "kernelVersion") + (f" ({architecture})" if architecture != UNKNOWN else "")


def runtime(document: View) -> str:
    """Return the container runtime of a node."""
    return _info(document, "containerRuntimeVersion")


# --- certificates, revisions, drivers ---


def signer(document: View) -> str:
    """Return the signer of a certificate request."""
    return _spec(document).get("signerName") or NONE


def requested_duration(document: View) -> str:
    """Return the requested validity period of a certificate; ``<none>`` if the field is absent."""
    seconds = _spec(document).get("expirationSeconds")
    return NONE if seconds is None else human_duration(seconds)


def certificate_condition(document: View) -> str:
    """Return the state of a certificate request, such as ``Approved,Issued``."""
    status = _status(document)
    kinds = {one.get("type") for one in status.get("conditions") or ()}
    shown = "Denied" if "Denied" in kinds else "Approved" if "Approved" in kinds else "Pending"
    return shown + (",Failed" if "Failed" in kinds else "") + (",Issued" if status.get("certificate") else "")


def controller(document: View) -> str:
    """Return the owner that controls a controller revision, such as ``deployment.apps/name``.

    Return ``<none>`` if there is no such owner.
    """
    owners = document["metadata"].get("ownerReferences") or ()
    owner: View | None = next((one for one in owners if one.get("controller")), None)
    if owner is None:
        return NONE
    group = owner.get("apiVersion", "").rpartition("/")[0]
    kind = str(owner.get("kind", "")).lower()
    return f"{kind}{'.' + group if group else ''}/{owner.get('name', '')}"


def drivers(document: View) -> int:
    """Return the number of CSI drivers on a node."""
    return len(_spec(document).get("drivers") or ())


def driver_flag(field: str) -> Callable[[View], bool]:
    """Return the cell function of a boolean field of a CSI driver."""
    return lambda document: bool(_spec(document).get(field))


attach_required, pod_info = driver_flag("attachRequired"), driver_flag("podInfoOnMount")
storage_capacity, republishes = driver_flag("storageCapacity"), driver_flag("requiresRepublish")


def token_audiences(document: View) -> str:
    """Return the audiences of the tokens that a CSI driver requests.

    Return ``<unset>`` if the field is absent.
    """
    requests = _spec(document).get("tokenRequests")
    return UNSET if requests is None else ",".join(one.get("audience", "") for one in requests)


def lifecycle_modes(document: View) -> str:
    """Return the volume lifecycle modes of a CSI driver; ``<none>`` without modes."""
    return ",".join(_spec(document).get("volumeLifecycleModes") or ()) or NONE


def free_capacity(document: View) -> Any:
    """Return the capacity of a CSIStorageCapacity; ``<unset>`` if the field is absent."""
    return document.get("capacity", UNSET)


def api_service(document: View) -> str:
    """Return the service of an APIService: ``namespace/name``; ``Local`` without a service."""
    service = _spec(document).get("service")
    return "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"


def api_available(document: View) -> str:
    """Return the Available condition of an APIService, with its reason if it is not True."""
    for one in _status(document).get("conditions") or ():
        if one.get("type") == "Available":
            shown = str(one.get("status", ""))
            return f"{shown} ({one['reason']})" if shown != "True" and one.get("reason") else shown
    return "Unknown"


def _number(part: str, field: str) -> Callable[[View], int]:
    return lambda document: (document.get(part) or {}).get(field) or 0


updated, available = _number("status", "updatedReplicas"), _number("status", "availableReplicas")
max_pods, current_replicas = _number("spec", "maxReplicas"), _number("status", "currentReplicas")


def revision(document: View) -> int:
    """Return the revision number of a controller revision."""
    return document.get("revision") or 0


# --- devices ---


def claim_state(document: View) -> str:
    """Return the state of a resource claim, such as ``allocated,reserved`` or ``pending``."""
    status = _status(document)
    deleted = "deletionTimestamp" in (document.get("metadata") or {})
    states = ["deleted"] if deleted else []
    if status.get("allocation") is not None:
        states += ["allocated", "reserved"] if status.get("reservedFor") else ["allocated"]
    elif not deleted:
        states.append("pending")
    return ",".join(states)


def taint_added(document: View) -> Aged:
    """Return the time at which a DeviceTaintRule added its taint, to show the age of the taint."""
    added = (_spec(document).get("taint") or {}).get("timeAdded")
    return ("{}", added) if added else ("", None)


# --- priority and fairness ---


def precedence(document: View) -> int:
    """Return the matching precedence of a flow schema."""
    return _spec(document).get("matchingPrecedence") or 0


def distinguisher(document: View) -> str:
    """Return the distinguisher method of a flow schema."""
    method = _spec(document).get("distinguisherMethod")
    return NONE if method is None else method.get("type") or ""


def missing_level(document: View) -> str:
    """Return the status of the condition Dangling of a flow schema.

    Return ``?`` if the schema does not have this condition. ``True`` means that its priority level does not exist.
    """
    found = (one for one in _status(document).get("conditions") or () if one.get("type") == "Dangling")
    return next((one.get("status") or "" for one in found), "?")


def concurrency_shares(document: View) -> int | str:
    """Return the concurrency shares of a priority level; ``<none>`` for an exempt level."""
    return _setting(_spec(document).get("limited"), "nominalConcurrencyShares")


def _setting(part: View | None, field: str) -> int | str:
    return NONE if part is None else part.get(field) or 0


def _queuing(document: View) -> View | None:
    limited = _spec(document).get("limited") or {}
    queuing: View | None = (limited.get("limitResponse") or {}).get("queuing")
    return queuing


def queues(document: View) -> int | str:
    """Return the number of queues of a priority level; ``<none>`` without queuing."""
    return _setting(_queuing(document), "queues")


def hand_size(document: View) -> int | str:
    """Return the hand size of a priority level, the number of queues for one flow.

    Return ``<none>`` without queuing.
    """
    return _setting(_queuing(document), "handSize")


def queue_limit(document: View) -> int | str:
    """Return the maximum number of requests in one queue of a priority level.

    Return ``<none>`` without queuing.
    """
    return _setting(_queuing(document), "queueLengthLimit")


# --- addresses ---


def address_parent(document: View) -> str:
    """Return the object that uses an IP address: ``resource.group/namespace/name``."""
    parent = _spec(document).get("parentRef")
    if parent is None:
        return NONE
    group = parent.get("group") or ""
    resource = f"{parent.get('resource') or ''}.{group}" if group else parent.get("resource") or ""
    return "/".join(
        part for part in (resource.lower(), parent.get("namespace"), parent.get("name") or "") if part is not None
    )


def cidrs(document: View) -> str:
    """Return the CIDRs of a ServiceCIDR, separated by commas."""
    return ",".join(_spec(document).get("cidrs") or ())


# --- certificates ---


def bundle_signer(document: View) -> str:
    """Return the signer of a ClusterTrustBundle; ``<none>`` without a signer."""
    return _spec(document).get("signerName") or NONE


def pod_certificate_state(document: View) -> str:
    """Return the state of a PodCertificateRequest: Issued, Denied, Failed or Pending.

    The state is the last of the conditions Issued, Denied and Failed, or Pending without any of them.
    """
    states = [one.get("type") for one in _status(document).get("conditions") or ()]
    return next((state for state in reversed(states) if state in ("Issued", "Denied", "Failed")), "Pending")


def user_annotations(document: View) -> str:
    """Return the unverified user annotations of a PodCertificateRequest."""
    return labels_text(_spec(document).get("unverifiedUserAnnotations"))
