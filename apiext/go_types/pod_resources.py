"""Requests and limits of a whole pod (upstream: component-helpers/resource)."""

from collections.abc import Mapping
from typing import Any

from apiext.documents.document import View
from apiext.go_types.quantities import plus, value_of

Amounts = Mapping[str, str]
"""Resource → quantity."""

_OF_POD = ("cpu", "memory")
_HUGE_PAGES = "hugepages-"
_CONTAINERS = ("initContainers", "containers", "ephemeralContainers")


def requests_of(spec: View) -> Amounts:
    """Return the requests of a pod as LimitRanger computes them.

    LimitRanger ignores the overhead and pod-level huge pages.
    """
    return _sum(spec, "requests", _OF_POD)


def limits_of(spec: View) -> Amounts:
    """Return the limits of a pod as LimitRanger computes them.

    LimitRanger ignores the overhead and pod-level huge pages.
    """
    return _sum(spec, "limits", _OF_POD)


def all_requests_of(spec: View) -> Amounts:
    """Return the requests of a pod, including the overhead of its runtime class."""
    found = _sum(spec, "requests", (*_OF_POD, _HUGE_PAGES))
    for name, amount in (spec.get("overhead") or {}).items():
        found[name] = plus(found[name], amount) if name in found else amount
    return found


def all_limits_of(spec: View) -> Amounts:
    """Return the limits of a pod.

    The overhead of its runtime class is added to each limit that is not zero.
    """
    found = _sum(spec, "limits", (*_OF_POD, _HUGE_PAGES))
    for name, amount in (spec.get("overhead") or {}).items():
        if name in found and value_of(found[name]):
            found[name] = plus(found[name], amount)
    return found


def defaulted_resources(spec: View) -> dict[str, Any]:
    """Return the pod-level resources, with defaults from the resources of the containers.

    Upstream: DefaultPodLevelResources of api/pod. A pod without pod-level resources gets none. The default request for
    CPU or memory is the sum of the containers' requests, or the pod-level limit if no container has a request. If all
    containers have a limit for a requested resource, the default limit is the larger of the request and the sum of
    these limits. For huge pages without a request, the default limit is the sum of the containers' limits, and the
    default request is the limit.
    """
    resources: dict[str, Any] = dict(spec.get("resources") or {})
    if not resources.get("requests") and not resources.get("limits"):
        return resources
    requests, limits = dict(resources.get("requests") or {}), dict(resources.get("limits") or {})
    of_containers = _sum(spec, "limits", ())
    for name, amount in of_containers.items():
        if name.startswith(_HUGE_PAGES) and name not in requests:
            limits.setdefault(name, amount)
    for name, amount in _sum(spec, "requests", ()).items():
        if name in _OF_POD:
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if name.startswith((*_OF_POD, _HUGE_PAGES)):
            requests.setdefault(name, amount)
    containers = [one for field in _CONTAINERS for one in spec.get(field) or ()]
    for name, amount in requests.items():
        is_open = name.startswith((*_OF_POD, _HUGE_PAGES)) and name not in limits
        if is_open and containers and all(name in _amounts(container, "limits") for container in containers):
            limits[name] = max(of_containers[name], amount, key=value_of)
    return {
        **resources,
        **{
            field: dict(sorted(found.items())) for field, found in (("limits", limits), ("requests", requests)) if found
        },
    }


def _sum(spec: View, part: str, of_pod: tuple[str, ...]) -> dict[str, str]:
    """Return the requests or limits of a pod, from those of its containers.

    Sidecars are init containers with the restartPolicy Always. The amount of a resource is the sum of all containers
    and sidecars, or the need of the largest init container if this is more. The need of an init container includes the
    sidecars before it. A pod-level amount replaces this amount if the name of the resource begins with one of
    ``of_pod``.
    """
    total: dict[str, str] = {}
    for container in spec.get("containers") or ():
        _add(total, _amounts(container, part))
    restarted: dict[str, str] = {}
    largest: dict[str, str] = {}
    for container in spec.get("initContainers") or ():
        own = dict(_amounts(container, part))
        if container.get("restartPolicy") == "Always":
            _add(total, own)
            _add(restarted, own)
            own = dict(restarted)
        else:
            _add(own, restarted)
        _raise_to(largest, own)
    _raise_to(total, largest)
    own = {name: amount for name, amount in _amounts(spec, part).items() if of_pod and name.startswith(of_pod)}
    return {**total, **own}


def _amounts(holder: View, part: str) -> Amounts:
    found: Amounts = (holder.get("resources") or {}).get(part) or {}
    return found


def _add(total: dict[str, str], more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = plus(total[name], amount) if name in total else amount


def _raise_to(total: dict[str, str], least: Amounts) -> None:
    for name, amount in least.items():
        if name not in total or value_of(amount) > value_of(total[name]):
            total[name] = amount
