"""Health, metrics, and the headers that every answer has."""

from __future__ import annotations

import re

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, Client
from apiext.conformance.support.waiting import until


@pytest.mark.rows("HLT-001")
@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
def test_ok(api: Client, path: str) -> None:
    answer = api.get(path)
    assert (answer.status, answer.text) == (200, "ok")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    verbose = api.get(f"{path}?verbose")
    assert "[+]ping ok\n" in verbose.text
    assert verbose.text.endswith(f"{path[1:]} check passed\n")
    assert api.get(f"{path}/ping").text == "ok"


HOOKS = {
    f"poststarthook/{name}"
    for name in (
        "generic-apiserver-start-informers",
        "storage-object-count-tracker-hook",
        "start-apiextensions-informers",
        "start-apiextensions-controllers",
        "crd-informer-synced",
    )
}


@pytest.mark.rows("HLT-001", "HLT-002")
@pytest.mark.parametrize(
    ("endpoint", "own"),
    [("healthz", set()), ("livez", set()), ("readyz", {"etcd-readiness", "informer-sync", "shutdown"})],
)
def test_the_list_of_health_checks(api: Client, endpoint: str, own: set[str]) -> None:
    lines = api.get(f"/{endpoint}?verbose").text.splitlines()
    checks = {line.removeprefix("[+]").removesuffix(" ok") for line in lines[:-1]}
    assert {"ping", "log", "etcd", *HOOKS, *own} <= checks
    assert not ({"etcd-readiness", "informer-sync", "shutdown"} - own) & checks
    assert lines[-1] == f"{endpoint} check passed"
    for check in checks:
        answer = api.get(f"/{endpoint}/{check}")
        assert (answer.status, answer.text) == (200, "ok")


@pytest.mark.rows("HLT-002")
@pytest.mark.differs("the check has the name of its filter of API priority and fairness")
def test_the_filter_of_requests_in_flight_is_a_check(api: Client) -> None:
    for endpoint in ("healthz", "livez", "readyz"):
        assert api.get(f"/{endpoint}/poststarthook/max-in-flight-filter").text == "ok"


@pytest.mark.rows("HLT-001", "HLT-002")
def test_health_checks_can_be_excluded_or_requested_alone(api: Client) -> None:
    assert api.get("/readyz/etcd").text == "ok"
    left_out = api.get("/readyz?exclude=etcd&verbose").text
    assert "[+]etcd excluded: ok" in left_out
    unknown = api.get("/livez?exclude=nonsense&verbose")
    assert unknown.status == 200
    assert 'warn: some health checks cannot be excluded: no matches for "nonsense"' in unknown.text
    assert api.get("/readyz/nonsense").status == 404


FAMILIES = {
    "apiserver_request_total": "counter",
    "apiserver_request_duration_seconds": "histogram",
    "apiserver_request_sli_duration_seconds": "histogram",
    "apiserver_response_sizes": "histogram",
    "apiserver_current_inflight_requests": "gauge",
    "apiserver_longrunning_requests": "gauge",
    "apiserver_watch_events_total": "counter",
    "apiserver_watch_events_sizes": "histogram",
    "apiserver_request_body_size_bytes": "histogram",
    "apiserver_requested_deprecated_apis": "gauge",
    "apiserver_resource_objects": "gauge",
    "apiserver_storage_list_total": "counter",
    "apiserver_storage_list_fetched_objects_total": "counter",
    "apiserver_storage_list_evaluated_objects_total": "counter",
    "apiserver_storage_list_returned_objects_total": "counter",
    "apiserver_storage_list_duration_seconds": "histogram",
    "apiserver_watch_cache_initialization_duration_seconds": "histogram",
    "apiserver_watch_events_dispatch_duration_seconds": "histogram",
    "apiextensions_apiserver_validation_ratcheting_seconds": "histogram",
    "etcd_request_duration_seconds": "histogram",
    "authentication_attempts": "counter",
    "apiserver_admission_controller_admission_duration_seconds": "histogram",
    "apiserver_admission_step_admission_duration_seconds": "histogram",
    "process_cpu_seconds_total": "counter",
    "process_resident_memory_bytes": "gauge",
    "process_start_time_seconds": "gauge",
    "process_open_fds": "gauge",
    "process_max_fds": "gauge",
}
RESOURCE = ("verb", "group", "version", "resource", "subresource", "scope", "component")
NAMED = {
    "apiserver_request_total": {*RESOURCE, "dry_run", "code"},
    "apiserver_request_duration_seconds_count": {*RESOURCE, "dry_run"},
    "apiserver_request_sli_duration_seconds_count": {*RESOURCE},
    "apiserver_response_sizes_count": {*RESOURCE},
    "apiserver_longrunning_requests": {*RESOURCE},
    "apiserver_current_inflight_requests": {"request_kind"},
    "apiserver_watch_events_total": {"group", "version", "resource"},
    "apiserver_request_body_size_bytes_count": {"group", "resource", "verb"},
    "apiserver_requested_deprecated_apis": {"group", "version", "resource", "subresource", "removed_release"},
    "apiserver_storage_list_total": {"group", "resource", "storage", "index"},
    "apiserver_storage_list_duration_seconds_count": {"streamed", "group", "resource"},
    "apiserver_watch_cache_initialization_duration_seconds_count": {"group", "resource"},
    "apiserver_watch_events_dispatch_duration_seconds_count": {"group", "resource", "stage"},
}
Sample = tuple[dict[str, str], float]


def scraped(api: Client, name: str, **labels: str) -> list[Sample]:
    """Return the samples of a metric with these labels, from the server's metrics."""
    return samples(api.get("/metrics").text, name, **labels)


def samples(page: str, name: str, **labels: str) -> list[Sample]:
    """Return the samples of a metric with these labels, from the text of /metrics."""
    lines = re.findall(rf"^{name}{{(.*)}} (\S+)$", page, re.M)
    found = [(dict(re.findall(r'(\w+)="([^"]*)"', given)), float(value)) for given, value in lines]
    return [one for one in found if labels.items() <= one[0].items()]


def deprecated(api: Client) -> Resource:
    """Serve widgets in a deprecated version."""
    wanted = definition(fresh_group())
    wanted["spec"]["versions"][0]["deprecated"] = True
    return Resource(api, establish(api, wanted)["spec"]["group"], "widgets", "Widget")


@pytest.mark.has("metrics of one process")
@pytest.mark.rows("MTR-001")
@pytest.mark.needs("/apis/admissionregistration.k8s.io/v1", "/apis/authentication.k8s.io/v1")
def test_metrics_have_upstreams_families(api: Client, foreign: bool) -> None:
    widgets = deprecated(api)
    old = widgets.create("a")["metadata"]["resourceVersion"]
    widgets.create("b")
    with api.watch(widgets.path(), timeoutSeconds=1) as watch:
        assert len(list(watch)) == 2
    api.get(widgets.path(), resourceVersion=old, resourceVersionMatch="Exact").expect(200)
    page = api.get("/metrics").text
    told = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.M))
    assert {name: told.get(name) for name in FAMILIES} == FAMILIES
    for name, labels in NAMED.items():
        assert samples(page, name)[0][0].keys() == labels, name
    own = {"group": widgets.group, "resource": "widgets"}
    assert samples(page, "apiserver_requested_deprecated_apis", **own)[0][1] == 1
    objects = samples(page, "apiserver_resource_objects", **own)
    assert foreign or objects == [(own, 2)]  # kube-apiserver counts the stored objects only once a minute
    assert samples(page, "apiserver_watch_events_total", **own)[0][1] >= 2
    assert samples(page, "apiserver_storage_list_total", **own)[0][1] >= 1
    assert samples(page, "apiserver_storage_list_returned_objects_total", **own)[0][1] >= (0 if foreign else 1)


@pytest.mark.rows("ADM-021", "NSP-003")
@pytest.mark.needs("/api/v1/namespaces")
def test_namespace_lifecycle_is_counted_as_a_mutating_plugin(api: Client) -> None:
    serve(api).create("a")
    family = "apiserver_admission_controller_admission_duration_seconds_count"
    told = [labels for labels, _ in scraped(api, family, operation="CREATE", rejected="false")]
    assert [labels["type"] for labels in told if labels["name"] == "NamespaceLifecycle"] == ["admit"]


@pytest.mark.has("metrics of one process")
@pytest.mark.rows("MTR-001", "MTR-002")
def test_requests_are_counted_by_verb_and_scope(api: Client) -> None:
    widgets = serve(api)
    one, some, every = widgets.path("a"), widgets.path(), f"/apis/{widgets.group}/v1/widgets"
    body = widgets.make("a")
    api.post(some, body).expect(201)
    api.post(f"{some}?dryRun=All", widgets.make("b")).expect(201)
    api.post(f"{some}?dryRun=All&dryRun=no", body).expect(422)
    for path in (one, some, every, f"{some}?fieldSelector=metadata.name%3Da"):
        api.get(path).expect(200)
    api.get(widgets.path("none")).expect(404)
    for path in (some, every):
        with api.watch(path, timeoutSeconds=1) as watch:
            assert list(watch)
    api.patch(one, {"metadata": {"labels": {"a": "b"}}}).expect(200)
    made = api.request("PATCH", f"{one}?fieldManager=x", body, {"Content-Type": APPLY}).expect(200)
    api.put(one, made).expect(200)
    api.delete(one).expect(200)
    api.delete(some).expect(200)
    assert api.get(f"{one}/nothing").status == 404  # the server does not count unknown paths and methods
    assert api.request("OPTIONS", one).status == 405
    page = api.get("/metrics").text
    told = [
        (labels["verb"], labels["scope"], labels["dry_run"], labels["code"], count)
        for labels, count in samples(page, "apiserver_request_total", group=widgets.group)
    ]
    assert sorted(told) == [
        ("APPLY", "resource", "", "200", 1),
        ("DELETE", "namespace", "", "200", 1),  # upstream: the label of a deletecollection is its HTTP method
        ("DELETE", "resource", "", "200", 1),
        # upstream: a list whose field selector names one object is counted as a GET
        ("GET", "resource", "", "200", 2),  # a GET, and a list by metadata.name
        ("GET", "resource", "", "404", 1),
        ("LIST", "cluster", "", "200", 2),  # one is the request of ``serve`` that waits until the definition is served
        ("LIST", "namespace", "", "200", 1),
        ("PATCH", "resource", "", "200", 1),
        ("POST", "resource", "", "201", 1),
        ("POST", "resource", "All", "201", 1),
        ("POST", "resource", "invalid", "422", 1),
        ("PUT", "resource", "", "200", 1),
        ("WATCH", "cluster", "", "200", 1),
        ("WATCH", "namespace", "", "200", 1),
    ]
    timed = samples(page, "apiserver_request_duration_seconds_count", group=widgets.group)
    assert sum(count for _, count in timed) == sum(count for *_, count in told)
    objectives = samples(page, "apiserver_request_sli_duration_seconds_count", group=widgets.group)
    without = 4  # two of each; upstream: dry runs and watches have no service level objective (SLI)
    assert sum(count for _, count in objectives) == sum(count for *_, count in told) - without
    assert {labels["verb"] for labels, _ in samples(page, "apiserver_response_sizes_count", group=widgets.group)} == {
        "GET",
        "LIST",
    }


@pytest.mark.has("metrics of one process")
@pytest.mark.rows("MTR-001")
@pytest.mark.needs("/apis")
def test_non_resource_requests_are_counted_by_path(api: Client) -> None:
    asked = ("/healthz", "/livez", "/readyz", "openapi/v3/")

    def counts() -> list[float]:
        wanted = {"verb": "GET", "component": "", "code": "200"}
        found = scraped(api, "apiserver_request_total", **wanted)  # one request for all paths: the page may be large
        return [sum(count for labels, count in found if labels["subresource"] == path) for path in asked]

    before = counts()
    for path in ("/healthz", "/livez", "/readyz", "/openapi/v3/version", "/nowhere", "/apis/none.example.com/v1/x"):
        api.get(path)
    until(
        lambda: all(after > count for after, count in zip(counts(), before, strict=True)), "each is counted", within=5
    )
    page = api.get("/metrics").text
    assert not samples(page, "apiserver_request_total", code="404", subresource="", resource="")
    assert not samples(page, "apiserver_request_total", subresource="/metrics")


@pytest.mark.rows("AUT-008", "AUT-006")
def test_every_answer_carries_its_audit_id(api: Client) -> None:
    given = api.get("/api/v1/namespaces", {"Audit-Id": "11111111-2222-3333-4444-555555555555"})
    assert given.headers["audit-id"] == "11111111-2222-3333-4444-555555555555"
    ids = {api.get(path).headers["audit-id"] for path in ("/api/v1/namespaces", "/apis", "/api/v1/namespaces/nosuch")}
    assert len(ids) == 3
    assert given.headers["cache-control"] == "no-cache, private"
    assert "date" in given.headers
