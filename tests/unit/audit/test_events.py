"""Audit events: exactly the bytes that kube-apiserver writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from apiext.audit import events, truncation
from apiext.audit import events as events_module
from apiext.audit.policy import COMPLETE, METADATA, RECEIVED, REQUEST, REQUEST_RESPONSE
from apiext.auth.user import User
from apiext.config import AuditDelivery
from apiext.http.audit import source_ips
from tests.unit.audit.support import WHEN, event, trail

pytestmark = pytest.mark.rows("AUD-001")


def test_request_received_event() -> None:
    line = trail().event(RECEIVED, 0).line()
    assert line == (
        b'{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id-1",'
        b'"stage":"RequestReceived","requestURI":"/a","verb":"get",'
        b'"user":{"username":"alice","uid":"7","groups":["devs"]},"sourceIPs":["10.0.0.1"],"userAgent":"curl/8",'
        b'"objectRef":{"resource":"widgets","name":"a","apiVersion":"v1"},'
        b'"requestReceivedTimestamp":"2026-01-02T12:00:00.250000Z","stageTimestamp":"2026-01-02T12:00:00.250000Z"}'
    )


def test_response_complete_event_has_upstreams_field_order() -> None:
    found = trail(uri="/a?b=<c>&d=e")
    found.impersonated = events.user_info(User("bob", ("ops",), "", (("k", ("v",)),)))
    found.requested(
        {"metadata": {"name": "other", "uid": "u", "resourceVersion": "5", "namespace": "ns"}, "x": "\u2028"}
    )
    found.constrained("impersonate:user-info")
    found.annotations["b"] = "2"
    found.annotations["a"] = "<1>"
    done = found.event(COMPLETE, WHEN + 1, events.response_status(200), lambda: b'{"kind":"A&B"}')
    line = done.line()
    told = json.loads(line)
    assert list(told) == [
        "kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb", "user", "impersonatedUser",
        "authenticationMetadata", "sourceIPs", "userAgent", "objectRef", "responseStatus", "requestObject",
        "responseObject", "requestReceivedTimestamp", "stageTimestamp", "annotations",
    ]  # fmt: skip
    assert list(told["objectRef"]) == ["resource", "namespace", "name", "uid", "apiVersion", "resourceVersion"]
    assert told["objectRef"]["name"] == "a", "what the path says stays"
    assert told["impersonatedUser"] == {"username": "bob", "groups": ["ops"], "extra": {"k": ["v"]}}
    assert list(told["annotations"]) == ["a", "b"]
    assert told["responseObject"] == {"kind": "A&B"}
    assert told["stageTimestamp"] == "2026-01-02T12:00:01.250000Z"
    assert not set(b"<>&").intersection(line), "as Go escapes JSON"
    assert b'"x":"\\u2028"' in line


@pytest.mark.parametrize(("level", "kept"), [(METADATA, False), (REQUEST, True), (REQUEST_RESPONSE, True)])
def test_level_selects_request_object_and_annotations(level: int, kept: bool) -> None:
    found = trail(level)
    found.requested({"metadata": {"namespace": "ns"}, "spec": {}})
    found.annotations["patch.webhook.admission.k8s.io/round_0_index_0"] = "{}"
    found.annotations["mutation.webhook.admission.k8s.io/round_0_index_0"] = "{}"
    told = json.loads(found.event(COMPLETE, WHEN).line())
    assert ("requestObject" in told) is kept
    assert told["objectRef"]["namespace"] == "ns", "at every level"
    assert len(told["annotations"]) == 1 + kept


def test_an_annotation_keeps_its_first_value() -> None:
    found = trail()
    found.annotations["a"] = "1"
    found.annotations["a"] = "2"
    assert dict(found.annotations) == {"a": "1"}


MANAGED = {"metadata": {"name": "a", "managedFields": [{}]}}
BARE = {"metadata": {"name": "a"}}
TABLE = {"kind": "Table", "apiVersion": "meta.k8s.io/v1"}


@pytest.mark.rows("AUD-002")
@pytest.mark.parametrize(
    ("given", "then"),
    [
        (MANAGED, BARE),
        ({"metadata": {"managedFields": None}}, {"metadata": {}}),
        ({"items": [MANAGED, 5]}, {"items": [BARE, 5]}),
        ({**TABLE, "rows": [{"object": MANAGED}, {"object": None}]},
         {**TABLE, "rows": [{"object": BARE}, {"object": None}]}),
        ({**TABLE, "rows": ["a", {"object": 5}, {}]}, {**TABLE, "rows": ["a", {"object": 5}, {}]}),
        ({"kind": ["Table"], "apiVersion": {}, "rows": [{"object": MANAGED}]},
         {"kind": ["Table"], "apiVersion": {}, "rows": [{"object": MANAGED}]}),
        ({"kind": "Table", "apiVersion": "example.com/v1", "rows": ["a", {"object": MANAGED}]},
         {"kind": "Table", "apiVersion": "example.com/v1", "rows": ["a", {"object": MANAGED}]}),
        ({"kind": "Other", "rows": [{"object": MANAGED}]}, {"kind": "Other", "rows": [{"object": MANAGED}]}),
        ({"metadata": 5}, {"metadata": 5}),
    ],
)  # fmt: skip
def test_managed_fields_are_left_out(given: dict[str, Any], then: dict[str, Any]) -> None:
    before = json.dumps(given)
    assert events.without_managed_fields(given) == then
    assert json.dumps(given) == before


@pytest.mark.parametrize(
    ("raw", "then"),
    [
        (b'{"spec": {"a":  1}}\n', b'{"spec":{"a":1}}'),
        (b'[{"op":"remove","path":"/a"}]', b'[{"op":"remove","path":"/a"}]'),
        (b"kind: A\nspec: {b: c}\n", b'{"kind":"A","spec":{"b":"c"}}'),
        (b"not json", b'"not json"'),
        (b'{"a":1e400}', b'{"a":1e400}'),
        (b'{"a":"\xff"}', b'{"a":"\xef\xbf\xbd"}'),
    ],
)
def test_event_contains_the_patch_body_as_json(raw: bytes, then: bytes) -> None:
    found = trail()
    found.patched(raw)
    request = found.event(COMPLETE, WHEN).request
    assert request is not None
    assert request() == then


def test_event_of_a_delete_contains_its_options() -> None:
    found = trail()
    found.options({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "dryRun": [], "nope": 1})
    request = found.event(COMPLETE, WHEN).request
    assert request is not None
    assert request() == b'{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/__internal","gracePeriodSeconds":0}'


def test_invalid_utf8_is_replaced_in_events() -> None:
    found = trail()
    user = {"username": "joe", "groups": ["a\udcff", "b"], "extra": {"k\udcff": ["v\udcff"]}}
    found.attributes = replace(found.attributes, agent="a\udcffb", user=user)
    told = json.loads(found.event(COMPLETE, WHEN).line())
    assert told["userAgent"] == "a\ufffdb"
    assert told["user"] == {"username": "joe", "groups": ["a\ufffd", "b"], "extra": {"k\ufffd": ["v\ufffd"]}}


def test_legacy_format_of_events() -> None:
    found = trail()
    found.impersonated = {"username": "bob"}
    done = found.event(COMPLETE, WHEN, {"metadata": {}, "code": 404})
    assert done.legacy() == (
        b'2026-01-02T12:00:00.250000Z AUDIT: id="id-1" stage="ResponseComplete" ip="10.0.0.1" method="get" '
        b'user="alice" groups="\\"devs\\"" as="bob" asgroups="<lookup>" user-agent="curl/8" namespace="<none>" '
        b'uri="/a" response="404"'
    )
    assert found.event(RECEIVED, WHEN).legacy().endswith(b'response="<deferred>"')


CUT = AuditDelivery(truncated=True, max_event_bytes=600)


def test_large_event_is_truncated_and_annotated() -> None:
    found = trail()
    found.requested({"x": "y" * 1000})
    line = truncation.fitting(found.event(COMPLETE, WHEN), CUT)
    assert line is not None
    told = json.loads(line)
    assert told["annotations"] == {"audit.k8s.io/truncated": "true"}
    assert "requestObject" not in told


def test_large_event_without_objects_is_dropped() -> None:
    assert truncation.fitting(event(name="n" * 700), CUT) is None
    assert truncation.fitting(event(name="n" * 700, level=METADATA), CUT) is None
    assert truncation.fitting(event(name="n" * 700), AuditDelivery()) is not None


@pytest.mark.parametrize(
    ("forwarded", "real", "peer", "then"),
    [
        ("", "", "127.0.0.1", ["127.0.0.1"]),
        ("10.0.0.1, 10.0.0.2", "", "127.0.0.1", ["10.0.0.1", "10.0.0.2", "127.0.0.1"]),
        ("10.0.0.1,nonsense", "10.0.0.3", "127.0.0.1", ["10.0.0.1", "10.0.0.3", "127.0.0.1"]),
        ("10.0.0.3", "10.0.0.3", "127.0.0.1", ["10.0.0.3", "127.0.0.1"]),
        ("127.0.0.1", "", "127.0.0.1", ["127.0.0.1"]),
        ("127.0.0.1, 10.0.0.1", "", "127.0.0.1", ["127.0.0.1", "10.0.0.1", "127.0.0.1"]),
        ("", "2001:db8::1", "::1", ["2001:db8::1", "::1"]),
        ("", "::ffff:10.0.0.1", "10.0.0.1", ["10.0.0.1"]),
        ("010.0.0.01", "", "", ["10.0.0.1"]),  # upstream: leading zeros are not octal
        ("fe80::1%eth0, 1.2.3, 1.2.3.999", "", "", []),
        ("10.0.0.2," * 99 + "10.0.0.3,10.0.0.4", "", "127.0.0.1", ["10.0.0.2"] * 99 + ["10.0.0.3", "127.0.0.1"]),
        ("," * 60_000 + "10.0.0.4", "", "127.0.0.1", ["127.0.0.1"]),
    ],
)
def test_source_ips_of_forwarded_headers(forwarded: str, real: str, peer: str, then: list[str]) -> None:
    assert source_ips({"X-Forwarded-For": forwarded, "X-Real-Ip": real}, peer) == then  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seconds", "then"), [(0.5012, "501.2ms"), (1.25, "1.25s"), (2.0, "2s"), (61.5, "1m1.5s"), (120, "2m0s")]
)
def test_durations_have_gos_format(seconds: float, then: str) -> None:
    assert events.go_duration(seconds) == then


def test_event_size_counts_request_and_response_bytes() -> None:
    found = trail()
    found.patched(b'{"a":1}')
    size = found.event(COMPLETE, WHEN, None, lambda: b"{}", 100).size
    assert 107 + events_module.AUDIT_EVENT_BYTES <= size < 107 + events_module.AUDIT_EVENT_BYTES + 200


@pytest.mark.parametrize("long", ["uri", "user", "sources", "annotation", "status", "acting"])
def test_event_size_counts_every_long_field(long: str) -> None:
    text, known = "x" * 50_000, trail()
    user = {"username": "u", "groups": [text[:5_000]] * 10 if long == "user" else ["g"]}
    sources = ["10.200.200.200"] * (4_000 if long == "sources" else 1)
    told = replace(known.attributes, uri=f"/x?{text}" if long == "uri" else "/x", user=user, sources=sources)
    found = events.Trail(known.verdict, told, {})
    if long == "annotation":
        found.annotations["patch.webhook.admission.k8s.io/round_0_index_0"] = text
    if long == "acting":
        found.impersonated = {"username": text}
    done = found.event(COMPLETE, WHEN, {"message": text} if long == "status" else None)
    assert 50_000 < len(done.line()) <= done.size + 20_000, "commas and quotes do not count"


def test_unencodable_response_object_is_omitted_from_event() -> None:
    def broken() -> bytes:
        raise TypeError("too deep")

    done = trail().event(COMPLETE, WHEN, events.response_status(200), broken)
    assert "responseObject" not in json.loads(done.line())
