"""Metrics: counters, gauges and histograms, and their Prometheus text (MTR-001)."""

import os
import resource
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Labels = tuple[str, ...]

IsDeleted = Callable[[str, str], bool]
"""Reports whether the metrics of a group and resource may be dropped."""

Lasting = Callable[[], Callable[[Labels], bool]]
"""Returns a function: label set → whether the object with these names exists now."""

STRETCH = 1_000  # label sets checked between two yields to the event loop

REQUEST_SECONDS = (
    0.005,
    0.025,
    0.05,
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1.0,
    1.25,
    1.5,
    2.0,
    3.0,
    4.0,
    5.0,
    6.0,
    8.0,
    10.0,
    15.0,
    20.0,
    30.0,
    45.0,
    60.0,
)
"""Upper bounds of the buckets for durations of requests and of etcd calls, in seconds."""

SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)
"""Upper bounds of the buckets for response sizes, in bytes."""

BODY_SIZES = tuple(50_000.0 + 100_000.0 * step for step in range(31))
"""Upper bounds of the buckets for sizes of request bodies, in bytes."""

EVENT_SIZES = tuple(1024.0 * 2**power for power in range(8))
"""Upper bounds of the buckets for sizes of watch events, in bytes."""


class Slot:
    """The value of a counter or gauge; callers on the hot path change ``value``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0

    def add(self, amount: float) -> None:
        """Add to the value, for callers that need a function."""
        self.value += amount


class Distribution:
    """A histogram: a count for each bucket, and the sum."""

    __slots__ = ("bounds", "buckets", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.buckets[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of observed values."""
        return sum(self.buckets)


class _Expiring:
    """Label set → value; the values of deleted resources are dropped.

    ``lasting`` is set for families whose labels name an object instead of a group and resource. Their values are
    dropped if two consecutive checks do not find the object, so that a scraper can read the last value.
    """

    labels: Labels
    _slots: dict[Labels, Any]

    def __init__(self) -> None:
        self.lasting: Lasting | None = None
        self._missed: set[Labels] = set()

    def drop_deleted(self, is_deleted: IsDeleted) -> Iterator[None]:
        """Drop the values of deleted resources, in steps.

        The caller can yield to the event loop after each step.
        """
        return (
            _drop_deleted(self._slots, self.labels, is_deleted)
            if self.lasting is None
            else self._drop_missing(self.lasting())
        )

    def _drop_missing(self, exists: Callable[[Labels], bool]) -> Iterator[None]:
        missed = {values for values in self._slots if not exists(values)}
        for values in missed & self._missed:
            del self._slots[values]
        self._missed = missed
        yield


class Family(_Expiring):
    """A counter or gauge with labels; ``slot`` returns the value of a label set."""

    def __init__(self, name: str, kind: str, text: str, labels: Sequence[str] = ()) -> None:
        super().__init__()
        self.name = name
        self.kind = kind
        self.text = text
        self.labels = tuple(labels)
        self._slots: dict[Labels, Slot] = {}

    def slot(self, *values: str) -> Slot:
        """Return the value of a label set; create it at the first call."""
        found = self._slots.get(values)
        if found is None:
            found = self._slots[values] = Slot()
        return found

    def clear(self) -> None:
        """Drop all label sets, before the values of a gauge are set anew."""
        self._slots.clear()

    def lines(self) -> Iterable[str]:
        """Yield the sample lines."""
        for values, slot in sorted(self._slots.items()):
            yield f"{self.name}{_labels(self.labels, values)} {_number(slot.value)}"


class HistogramFamily(_Expiring):
    """A histogram with labels; ``slot`` returns the distribution of a label set."""

    kind = "histogram"

    def __init__(self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__()
        self.name = name
        self.text = text
        self.labels = tuple(labels)
        self._bounds = tuple(bounds)
        self._slots: dict[Labels, Distribution] = {}

    def slot(self, *values: str) -> Distribution:
        """Return the distribution of a label set; create it at the first call."""
        found = self._slots.get(values)
        if found is None:
            found = self._slots[values] = Distribution(self._bounds)
        return found

    def share(self, distribution: Distribution, *values: str) -> None:
        """Show a distribution of another family under these label values.

        It is shown with the buckets of this family only.
        """
        self._slots[values] = distribution

    def observe(self, value: float, *labels: str) -> None:
        """Count a value of a label set."""
        found = self._slots.get(labels) or self.slot(*labels)
        # inlined Distribution.observe, which would be one more call for each request
        found.buckets[bisect_left(found.bounds, value)] += 1
        found.sum += value

    def lines(self) -> Iterable[str]:
        """Yield the sample lines: cumulative buckets, sum and count."""
        for values, slot in sorted(self._slots.items()):
            total = 0
            for bound, count in zip((*slot.bounds, None), slot.buckets, strict=True):
                total += count
                if bound is not None and bound not in self._bounds:
                    continue
                le = "+Inf" if bound is None else f"{bound:g}"
                yield f"{self.name}_bucket{_labels((*self.labels, 'le'), (*values, le))} {total}"
            yield f"{self.name}_sum{_labels(self.labels, values)} {_number(slot.sum)}"
            yield f"{self.name}_count{_labels(self.labels, values)} {total}"


def _drop_deleted(slots: dict[Labels, Any], names: Sequence[str], is_deleted: IsDeleted) -> Iterator[None]:
    """Drop label sets of deleted resources, named by group and resource or by their definition."""
    definition = next((names.index(name) for name in ("crd", "crd_name") if name in names), None)
    if "resource" in names and "group" not in names:
        definition = names.index("resource")
    if definition is None and not {"group", "resource"} <= {*names}:
        return
    group, resource = (names.index("group"), names.index("resource")) if definition is None else (0, 0)
    for number, values in enumerate(tuple(slots)):
        if definition is None:
            subject = values[group], values[resource]
        else:
            plural, _, of = values[definition].partition(".")
            subject = of, plural
        if is_deleted(*subject):
            slots.pop(values, None)
        if not (number + 1) % STRETCH:
            yield
    yield


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _labels(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True))
    return "{" + ",".join(pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


_RESOURCE = ("group", "version", "resource", "subresource")


class Telemetry:
    """The metric families of a server, most of them with upstream's names.

    ``on_scrape`` callbacks set gauges at a scrape, such as the number of cached objects.
    """

    def __init__(self) -> None:
        self.started = time.time()
        self.on_scrape: list[Callable[[Telemetry], None]] = []
        self._count_requests()
        self._count_state()

    def _count_requests(self) -> None:
        self.requests = Family(
            "apiserver_request_total",
            "counter",
            "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, "
            "component, and HTTP response code.",
            ("verb", "dry_run", *_RESOURCE, "scope", "component", "code"),
        )
        self.seconds = HistogramFamily(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, dry run value, group, version, resource, "
            "subresource, scope and component.",
            ("verb", "dry_run", *_RESOURCE, "scope", "component"),
            REQUEST_SECONDS,
        )
        self.sli_seconds = HistogramFamily(
            "apiserver_request_sli_duration_seconds",
            "Response latency distribution of requests other than watches and dry runs.",
            ("verb", *_RESOURCE, "scope", "component"),
            REQUEST_SECONDS[2:],
        )
        self.body_sizes = HistogramFamily(
            "apiserver_request_body_size_bytes",
            "Apiserver request body size in bytes broken out by resource and verb.",
            ("group", "resource", "verb"),
            BODY_SIZES,
        )
        self.watch_event_sizes = HistogramFamily(
            "apiserver_watch_events_sizes",
            "Watch event size distribution in bytes, each shared frame counted once.",
            ("group", "version", "resource"),
            EVENT_SIZES,
        )
        self.sizes = HistogramFamily(
            "apiserver_response_sizes",
            "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and "
            "component.",
            ("verb", *_RESOURCE, "scope", "component"),
            SIZES,
        )

    def _count_state(self) -> None:
        self.inflight = Family(
            "apiserver_current_inflight_requests",
            "gauge",
            "Number of requests that are being served, per request kind.",
            ("request_kind",),
        )
        self.longrunning = Family(
            "apiserver_longrunning_requests",
            "gauge",
            "Number of open watches broken out by verb, group, version, resource, scope and component.",
            ("verb", *_RESOURCE, "scope", "component"),
        )
        self.watch_events = Family(
            "apiserver_watch_events_total",
            "counter",
            "Number of events sent in watch clients, each shared frame counted once.",
            ("group", "version", "resource"),
        )
        self.terminated = Family(
            "apiserver_request_terminations_total",
            "counter",
            "Number of requests which the server refused in self-defense.",
            ("verb", *_RESOURCE, "scope", "component", "code"),
        )
        self.refused_connections = Family(
            "apiext_connections_refused_total",
            "counter",
            "Number of connections that the server refused because too many file descriptors were open.",
        )
        self.authentications = Family(
            "authentication_attempts", "counter", "Counter of authentication attempts by result.", ("result",)
        )
        self.deprecated = Family(
            "apiserver_requested_deprecated_apis",
            "gauge",
            "Gauge of deprecated APIs that have been requested.",
            ("group", "version", "resource", "subresource", "removed_release"),
        )
        self.resource_objects = Family(
            "apiserver_resource_objects",
            "gauge",
            "Number of stored objects at the time of the scrape.",
            ("group", "resource"),
        )
        self.etcd_seconds = HistogramFamily(
            "etcd_request_duration_seconds",
            "Etcd request latency in seconds for each operation and object type.",
            ("group", "operation", "resource"),
            REQUEST_SECONDS,
        )
        self._more: list[Family | HistogramFamily] = []

    def add(self, family: Family | HistogramFamily) -> None:
        """Add a family to the scrape."""
        self._more.append(family)

    def families(self) -> list[Family | HistogramFamily]:
        """Return all families, in the order of the scrape."""
        return [
            self.requests,
            self.seconds,
            self.sli_seconds,
            self.sizes,
            self.body_sizes,
            self.inflight,
            self.longrunning,
            self.watch_events,
            self.watch_event_sizes,
            self.terminated,
            self.refused_connections,
            self.authentications,
            self.deprecated,
            self.resource_objects,
            self.etcd_seconds,
            *self._more,
            *_process(self.started),
        ]

    def drop_deleted(self, is_deleted: IsDeleted) -> Iterator[None]:
        """Drop the metrics of deleted resources, in steps.

        The caller can yield to the event loop after each step.
        """
        for family in self.families():
            yield from family.drop_deleted(is_deleted)

    def text(self) -> str:
        """Return all families as Prometheus text (MTR-001)."""
        return "\n".join(self.lines()) + "\n"

    def lines(self) -> Iterator[str]:
        """Yield the lines of the Prometheus text.

        Values that are observed during the iteration may be included.
        """
        for fill in self.on_scrape:
            fill(self)
        for family in self.families():
            headed = False
            for line in family.lines():
                if not headed:
                    yield f"# HELP {family.name} {family.text}"
                    yield f"# TYPE {family.name} {family.kind}"
                    headed = True
                yield line


def _process(started: float) -> list[Family]:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    rows = (
        (
            "process_cpu_seconds_total",
            "counter",
            "Total user and system CPU time spent in seconds.",
            usage.ru_utime + usage.ru_stime,
        ),
        ("process_start_time_seconds", "gauge", "Start time of the process since unix epoch in seconds.", started),
        ("process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", _resident()),
        ("process_open_fds", "gauge", "Number of open file descriptors.", _open_files()),
        (
            "process_max_fds",
            "gauge",
            "Maximum number of open file descriptors.",
            float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        ),
    )
    families = []
    for name, kind, text, value in rows:
        family = Family(name, kind, text)
        family.slot().value = value
        families.append(family)
    return families


def _resident() -> float:
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            return float(int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _open_files() -> float:
    try:
        return float(len(os.listdir("/proc/self/fd")))
    except OSError:
        return 0.0
