"""Responses of the health endpoints."""

import pytest

from apiext.http.exchange import Reply
from apiext.http.health import Check, Health, version_document

pytestmark = pytest.mark.rows("HLT-001", "HLT-002")


def body(reply: Reply | None, *, guarded: bool = True) -> str:
    assert reply is not None
    assert reply.content_type == "text/plain; charset=utf-8"
    assert reply.headers == [("X-Content-Type-Options", "nosniff")] * guarded
    return b"".join(reply.parts).decode()


def failing_health() -> Health:
    return Health([Check("etcd", lambda: "gone"), Check("informer-sync", lambda: "", ("readyz",))])


def test_healthy_server_reports_ok() -> None:
    health = Health()
    assert body(health.answer("livez", "", {})) == "ok"
    assert body(health.answer("livez", "", {"verbose": [""]})) == "[+]ping ok\n[+]log ok\nlivez check passed\n"


def test_failed_check_makes_readyz_return_500() -> None:
    reply = failing_health().answer("readyz", "", {})
    assert reply is not None
    assert reply.code == 500
    assert body(reply) == (
        "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[+]informer-sync ok\n[+]shutdown ok\n"
        "readyz check failed\n"
    )


def test_excluded_checks_are_ignored() -> None:
    text = body(failing_health().answer("healthz", "", {"exclude": ["etcd", "nope"], "verbose": ["1"]}))
    assert text == (
        "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "nope"\nhealthz check passed\n'
    )
    assert body(failing_health().answer("healthz", "", {"exclude": ["etcd"]})) == "ok"


@pytest.mark.parametrize(
    ("exclude", "names"), [(["b", "a", "b"], '"a","b"'), (["ping,log"], '"ping,log"'), ([""], '""'), (['"'], r'"\""')]
)
def test_unknown_excluded_checks_are_reported(exclude: list[str], names: str) -> None:
    # upstream: a value is one name, whatever is in it
    text = body(Health().answer("livez", "", {"exclude": exclude, "verbose": [""]}))
    warning = f"warn: some health checks cannot be excluded: no matches for {names}\n"
    assert text == f"[+]ping ok\n[+]log ok\n{warning}livez check passed\n"


def test_single_checks_have_their_own_path() -> None:
    # upstream: only texts that may quote a client have X-Content-Type-Options
    assert body(failing_health().answer("livez", "ping", {}), guarded=False) == "ok"
    assert body(failing_health().answer("livez", "etcd", {})) == "internal server error: gone\n"
    assert failing_health().answer("livez", "informer-sync", {}) is None


@pytest.mark.rows("LIM-003")
def test_shutdown_fails_readiness_only() -> None:
    health = Health()
    health.shutting_down = True
    assert "[-]shutdown failed: reason withheld" in body(health.answer("readyz", "", {}))
    assert body(health.answer("livez", "", {})) == "ok"


@pytest.mark.rows("DIS-109")
def test_version_document_fields() -> None:
    document = version_document("v1.35.2")
    assert (document["major"], document["minor"], document["gitVersion"]) == ("1", "35", "v1.35.2")
    assert document["minCompatibilityMinor"] == "34"
