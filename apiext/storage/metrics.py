"""Metrics of the store (MTR-001).

The metrics cover lists from etcd, fills, watches, unreadable objects and the store in this process.
"""

from time import perf_counter

from apiext.embedded.backend import Commit
from apiext.embedded.store import Store
from apiext.meta.names import GroupResource
from apiext.telemetry import Family, HistogramFamily

_RESOURCE = ("group", "resource")
_LABELS = (*_RESOURCE, "storage")
_ETCD, _NO_INDEX = "etcd", ""

# These families are global variables, since a process has only one store.
TOTAL = Family(
    "apiserver_storage_list_total", "counter", "Number of LIST requests served from storage", (*_LABELS, "index")
)
FETCHED = Family(
    "apiserver_storage_list_fetched_objects_total",
    "counter",
    "Number of objects read from storage in the course of serving a LIST request",
    (*_LABELS, "index"),
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
DURATION = HistogramFamily(
    "apiserver_storage_list_duration_seconds",
    "Latency of the storage layer GetList call in seconds, including object decode, split by whether etcd RangeStream"
    " was used.",
    ("streamed", *_RESOURCE),
    (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60),
)
INITIALIZATION = HistogramFamily(
    "apiserver_watch_cache_initialization_duration_seconds",
    "Histogram of watch cache initialization duration in seconds, broken by resource type.",
    _RESOURCE,
    (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 180, 600),
)
INITIALIZATION_ERRORS = Family(
    "apiserver_watch_cache_initialization_errors_total",
    "counter",
    "Counter of watch cache initialization errors broken by resource type.",
    _RESOURCE,
)
DISPATCH = HistogramFamily(
    "apiserver_watch_events_dispatch_duration_seconds",
    "Histogram of watch event dispatch latency broken by resource type and pipeline stage. The 'total' stage is the"
    " end-to-end latency of a delivered event.",
    (*_RESOURCE, "stage"),
    (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5),
)
SLOW_ENDED = Family(
    "apiserver_terminated_watchers_total",
    "counter",
    "Counter of watchers closed due to unresponsiveness broken by resource type.",
    _RESOURCE,
)
DECODE_ERRORS = Family(
    "apiserver_storage_decode_errors_total",
    "counter",
    "Number of stored object decode errors split by object type",
    _RESOURCE,
)
UNREADABLE = Family(
    "apiext_storage_unreadable_objects",
    "gauge",
    "Number of stored objects that cannot be decrypted or decoded, by resource.",
    _RESOURCE,
)
STORE_SIZE = Family("apiext_store_size_bytes", "gauge", "Bytes of the store in this process, used and free.")
STORE_IN_USE = Family("apiext_store_in_use_bytes", "gauge", "Bytes of the store in this process that are in use.")
STORE_QUOTA = Family("apiext_store_quota_bytes", "gauge", "Maximum bytes of the store in this process.")
STORE_COMMITS = Family("apiext_store_commits_total", "counter", "Number of commits of the store in this process.")
STORE_SYNC = HistogramFamily(
    "apiext_store_commit_duration_seconds",
    "Duration of commits of the store in this process in seconds, with their sync to the disk.",
    (),
    (0.0001, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1, 2, 4, 8),
)
STORE_GROUPS = HistogramFamily(
    "apiext_store_commit_transactions",
    "Number of changes in one commit of the store in this process.",
    (),
    (1, 2, 4, 8, 16, 32, 64, 128, 256),
)
FAMILIES = (
    *(TOTAL, FETCHED, EVALUATED, RETURNED, DURATION, INITIALIZATION, INITIALIZATION_ERRORS, DISPATCH),
    *(SLOW_ENDED, DECODE_ERRORS, UNREADABLE),
    *(STORE_SIZE, STORE_IN_USE, STORE_QUOTA, STORE_COMMITS, STORE_SYNC, STORE_GROUPS),
)


def listed(resource: GroupResource, began: float, objects: int, broken: int = 0) -> None:
    """Count a list that was read from etcd. The read began at ``began`` (perf_counter).

    Selectors are evaluated later, so each readable object counts as returned.
    """
    DURATION.observe(perf_counter() - began, "false", resource.group, resource.resource)
    labels = (resource.group, resource.resource, _ETCD)
    TOTAL.slot(*labels, _NO_INDEX).value += 1
    FETCHED.slot(*labels, _NO_INDEX).value += objects + broken
    EVALUATED.slot(*labels).value += objects
    RETURNED.slot(*labels).value += objects


def committed(commit: Commit, changes: int) -> None:
    """Count a commit of the store in this process, and the number of changes in it."""
    STORE_COMMITS.slot().value += 1
    STORE_SYNC.observe(commit.seconds)
    if changes:
        STORE_GROUPS.observe(changes)


def show_store(store: Store) -> None:
    """Set the metrics of the size of the store in this process."""
    size = store.backend.size
    STORE_SIZE.slot().value = size.total
    STORE_IN_USE.slot().value = size.in_use
    STORE_QUOTA.slot().value = store.quota
