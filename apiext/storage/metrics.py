"""How many lists etcd was asked for, and how many objects came, under upstream's names (MTR-001)."""

from apiext.meta.names import GroupResource
from apiext.telemetry import Family

_LABELS = ("group", "resource")

# of the process, as there is one store in it
TOTAL = Family("apiserver_storage_list_total", "counter", "Number of LIST requests served from storage", _LABELS)
FETCHED = Family(
    "apiserver_storage_list_fetched_objects_total",
    "counter",
    "Number of objects read from storage in the course of serving a LIST request",
    _LABELS,
)
EVALUATED = Family(
    "apiserver_storage_list_evaluated_objects_total",
    "counter",
    "Number of objects tested in the course of serving a LIST request from storage",
    _LABELS,
)
RETURNED = Family(
    "apiserver_storage_list_returned_objects_total",
    "counter",
    "Number of objects returned for a LIST request from storage",
    _LABELS,
)
FAMILIES = (TOTAL, FETCHED, EVALUATED, RETURNED)


def listed(resource: GroupResource, objects: int, broken: int = 0) -> None:
    """Count a list that etcd was asked for; selectors are judged later, so every readable object was returned."""
    labels = (resource.group, resource.resource)
    TOTAL.slot(*labels).value += 1
    FETCHED.slot(*labels).value += objects + broken
    EVALUATED.slot(*labels).value += objects
    RETURNED.slot(*labels).value += objects
