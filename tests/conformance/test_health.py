"""Health, metrics and what every answer carries."""

from __future__ import annotations

import re

import pytest

from tests.support.definitions import serve
from tests.support.http_client import Client


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


@pytest.mark.rows("HLT-001", "HLT-002")
def test_checks_can_be_left_out_and_asked_alone(api: Client) -> None:
    assert api.get("/readyz/etcd").text == "ok"
    left_out = api.get("/readyz?exclude=etcd&verbose").text
    assert "[+]etcd excluded: ok" in left_out
    unknown = api.get("/livez?exclude=nonsense&verbose")
    assert unknown.status == 200
    assert 'warn: some health checks cannot be excluded: no matches for "nonsense"' in unknown.text
    assert api.get("/readyz/nonsense").status == 404


@pytest.mark.rows("MTR-001", "MTR-002")
def test_metrics_count_requests_under_upstreams_names(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    api.get(widgets.path()).expect(200)
    text = api.get("/metrics").text
    for name in (
        "apiserver_request_total",
        "apiserver_request_duration_seconds_bucket",
        "process_resident_memory_bytes",
    ):
        assert f"\n{name}" in text
    counted = re.findall(rf'^apiserver_request_total{{([^}}]*group="{widgets.group}"[^}}]*)}} ', text, re.M)
    verbs = {re.search(r'verb="(\w+)"', labels)[1] for labels in counted}  # type: ignore[index]
    assert {"POST", "LIST"} <= verbs or {"CREATE", "LIST"} <= verbs


@pytest.mark.rows("AUT-008", "AUT-006")
def test_every_answer_carries_its_audit_id(api: Client) -> None:
    given = api.get("/api/v1/namespaces", {"Audit-Id": "11111111-2222-3333-4444-555555555555"})
    assert given.headers["audit-id"] == "11111111-2222-3333-4444-555555555555"
    ids = {api.get(path).headers["audit-id"] for path in ("/api/v1/namespaces", "/apis", "/api/v1/namespaces/nosuch")}
    assert len(ids) == 3
    assert given.headers["cache-control"] == "no-cache, private"
    assert "date" in given.headers
