"""Writes that no client should send.

The server returns upstream's Status, stores nothing, and needs little CPU and memory.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import APPLY, JSON_PATCH, MERGE, Answer, Client
from tests.support.processes import Server

CPU = 1.0  # maximum CPU seconds of the server for a bad input
MEMORY = 50 * 1024  # KiB
SPEC = {
    "type": "object",
    "properties": {
        "replicas": {"type": "integer"},
        "text": {"type": "string"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}
STATUS = {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}
SCHEMA = {"type": "object", "properties": {"spec": SPEC, "status": STATUS}}
SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest) -> Resource:
    """A custom resource with status and scale, and an object that must not change."""
    api = Client(request.getfixturevalue("server").url)
    widgets = serve(api, schema={"openAPIV3Schema": SCHEMA}, subresources={"status": {}, "scale": SCALE})
    widgets.create("a", replicas=1, text="t", list=[1, 2, 3], map={"k": "v"}, free={"x": {"y": 1}})
    return widgets


class Meter:
    """CPU and memory of a server process."""

    def __init__(self, server: Server) -> None:
        self._pid = server.pid if server.process is not None else 0
        self._cpu, self._peak = self._read()

    def _read(self) -> tuple[float, int]:
        if not self._pid:
            return 0.0, 0
        fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        peak = next(
            int(line.split()[1])
            for line in Path(f"/proc/{self._pid}/status").read_text().splitlines()
            if line.startswith("VmHWM:")
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), peak

    def check(self) -> None:
        cpu, peak = self._read()
        assert cpu - self._cpu <= CPU
        assert peak - self._peak <= MEMORY


def check_refused(
    target: Resource, server: Server, send: Callable[[], Answer], code: int, text: str, reason: str
) -> None:
    """Send bad input; check that the response is this Status.

    Check also that the object has not changed.
    """
    before = target.api.get(target.path("a")).expect(200)
    meter = Meter(server)
    answer = send()
    meter.check()
    assert answer.status == code, answer.raw[:500]
    assert answer.json["kind"] == "Status"
    assert text in answer.json["message"], answer.json["message"][:500]
    assert answer.json.get("reason", "") == reason
    assert target.api.get(target.path("a")).expect(200) == before
    assert len(target.api.get(target.path()).expect(200)["items"]) == 1


def op(kind: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": kind, "path": path, **more}


BIG = {"op": "add", "path": "/spec/free/big", "value": "x" * 100_000}
COPIES = [op("copy", "/spec/free/x/" + "ab"[n % 2] * (n + 1), **{"from": "/spec/free"}) for n in range(60)]
UNPROCESSABLE = "the server rejected our request due to an error in our request"
JSON_PATCHES: dict[str, tuple[Any, int, str, str]] = {
    "10,001 operations": ([op("test", "/kind", value="Widget")] * 10_001, 413,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001",
        "RequestEntityTooLarge"),
    "copies that double": ([BIG, *COPIES], 422, UNPROCESSABLE, "Invalid"),
    "move into its own child": ([op("move", "/spec/free/x/y/z", **{"from": "/spec/free/x"})], 422, UNPROCESSABLE,
        "Invalid"),
    "move what is not there": ([op("move", "/spec/free/b", **{"from": "/spec/free/nosuch"})], 422, UNPROCESSABLE,
        "Invalid"),
    "remove what is not there": ([op("remove", "/spec/nosuch")], 422, UNPROCESSABLE, "Invalid"),
    "replace below what is not there": ([op("replace", "/spec/nosuch/x", value=1)], 422, UNPROCESSABLE, "Invalid"),
    "failed test": ([op("test", "/spec/text", value="other")], 422, UNPROCESSABLE, "Invalid"),
    "test of what is not there": ([op("test", "/spec/nosuch", value=1)], 422, UNPROCESSABLE, "Invalid"),
    "huge index": ([op("add", "/spec/list/99999999999999999999", value=1)], 422, UNPROCESSABLE, "Invalid"),
    "index beyond the end": ([op("add", "/spec/list/4", value=1)], 422, UNPROCESSABLE, "Invalid"),
    "index that is a word": ([op("add", "/spec/list/one", value=1)], 422, UNPROCESSABLE, "Invalid"),
    "remove the end": ([op("remove", "/spec/list/-")], 422, UNPROCESSABLE, "Invalid"),
    "into a string": ([op("add", "/spec/text/x", value=1)], 422, UNPROCESSABLE, "Invalid"),
    "no operation": ([{"path": "/spec"}], 422, UNPROCESSABLE, "Invalid"),
    "unknown operation": ([op("increment", "/spec/replicas", value=1)], 422, UNPROCESSABLE, "Invalid"),
    "no list": ({"op": "add"}, 400, "cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        "BadRequest"),
    "list of words": (["add"], 400, "error decoding patch", "BadRequest"),
    "uid": ([op("replace", "/metadata/uid", value="other")], 422,
        'metadata.uid: Invalid value: "other": field is immutable', "Invalid"),
    "name": ([op("replace", "/metadata/name", value="b")], 400,
        "the name of the object (b) does not match the name on the URL (a)", "BadRequest"),
    "namespace": ([op("replace", "/metadata/namespace", value="other")], 400,
        "the namespace of the provided object does not match the namespace sent on the request", "BadRequest"),
    "stale resourceVersion": ([op("replace", "/metadata/resourceVersion", value="1")], 409,
        "the object has been modified", "Conflict"),
    "words for a resourceVersion": ([op("replace", "/metadata/resourceVersion", value="new")], 500,
        'strconv.ParseUint: parsing "new": invalid syntax', ""),
    "apiVersion": ([op("replace", "/apiVersion", value="other.example.com/v1")], 422,
        'apiVersion: Invalid value: "other.example.com/v1": must be', "Invalid"),
    "kind": ([op("replace", "/kind", value="Other")], 422, 'kind: Invalid value: "Other": must be Widget', "Invalid"),
    "no metadata": ([op("remove", "/metadata")], 400, "", "BadRequest"),
    "the whole object": ([op("replace", "", value=[1])], 422, "", "Invalid"),
    "labels of numbers": ([op("add", "/metadata/labels", value={"a": 1})], 422, "", "Invalid"),
    "finalizer that is no name": ([op("add", "/metadata/finalizers", value=["a b"])], 422, "metadata.finalizers",
        "Invalid"),
}  # fmt: skip


@pytest.mark.rows("WRI-007", "WRI-010", "WRI-005")
@pytest.mark.parametrize("case", JSON_PATCHES)
def test_invalid_json_patches_are_refused(target: Resource, server: Server, case: str) -> None:
    patch, code, text, reason = JSON_PATCHES[case]
    body = json.dumps(patch)
    check_refused(target, server, lambda: target.api.patch(target.path("a"), body, JSON_PATCH), code, text, reason)


MERGES: dict[str, tuple[Any, int, str, str]] = {
    "null": (None, 400, "Invalid JSON Patch", "BadRequest"),
    "list": ([1], 400, "cannot unmarshal array into Go value of type map[string]interface {}", "BadRequest"),
    "word": ("x", 400, "cannot unmarshal string into Go value of type map[string]interface {}", "BadRequest"),
    "number": (1, 400, "cannot unmarshal number into Go value of type map[string]interface {}", "BadRequest"),
    "list for an object": ({"spec": [1]}, 422, "", "Invalid"),
    "list for metadata": ({"metadata": [1]}, 422, "", "Invalid"),
    "word for metadata": ({"metadata": "x"}, 422, "", "Invalid"),
    "null for metadata": ({"metadata": None}, 400, "", "BadRequest"),
    "null for the name": ({"metadata": {"name": None}}, 400, "name must be provided", "BadRequest"),
    "null for the kind": ({"kind": None}, 422, "patch: Invalid value", "Invalid"),
    "another kind": ({"kind": "Other"}, 422, 'kind: Invalid value: "Other": must be Widget', "Invalid"),
    "another uid": ({"metadata": {"uid": "x"}}, 422, 'metadata.uid: Invalid value: "x": field is immutable', "Invalid"),
    "a wrong type": ({"spec": {"replicas": "many"}}, 422, "spec.replicas", "Invalid"),
    "a negative scale": ({"spec": {"replicas": -1}}, 422, "should be a non-negative integer", "Invalid"),
    "a label without a name": ({"metadata": {"labels": {"/x": "y"}}}, 422, "metadata.labels", "Invalid"),
    "10,000 owners": ({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "K", "name": "n", "uid": f"u{n}", "controller": True} for n in range(10_000)]}},
        422, "Only one reference can have Controller set to true", "Invalid"),
    "annotations without end": ({"metadata": {"annotations": {"a": "x" * 262_145}}}, 422,
        "may not be more than 262144 bytes", "Invalid"),
}  # fmt: skip


@pytest.mark.rows("WRI-007", "WRI-003")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.differs("every cause is told, with all owners in each"))
        if case == "10,000 owners"
        else case
        for case in MERGES
    ],
)
def test_invalid_merge_patches_are_refused(target: Resource, server: Server, case: str) -> None:
    patch, code, text, reason = MERGES[case]
    body = json.dumps(patch)
    check_refused(target, server, lambda: target.api.patch(target.path("a"), body, MERGE), code, text, reason)


def configuration(target: Resource, **changes: Any) -> dict[str, Any]:
    body = {"apiVersion": f"{target.group}/v1", "kind": "Widget", "metadata": {"name": "a"}, "spec": {"text": "t"}}
    return {name: value for name, value in (body | changes).items() if value is not ...}


FIELDS = {"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1"}
APPLIES: dict[str, tuple[dict[str, Any], dict[str, str], int, str, str]] = {
    "no manager": ({}, {}, 422, "fieldManager: Required value: is required for apply patch", "Invalid"),
    "a long manager": ({}, {"fieldManager": "m" * 129}, 422, "fieldManager: Too long", "Invalid"),
    "an invisible manager": ({}, {"fieldManager": "a\u0007"}, 422, "invalid character U+0007", "Invalid"),
    "another group": ({"apiVersion": "other.example.com/v1"}, {"fieldManager": "m"}, 400, "", "BadRequest"),
    "another version": ({"apiVersion": "v9"}, {"fieldManager": "m"}, 400, "", "BadRequest"),
    "another kind": ({"kind": "Other"}, {"fieldManager": "m"}, 400, "invalid object type", "BadRequest"),
    "no kind": ({"kind": ...}, {"fieldManager": "m"}, 400, "", "BadRequest"),
    "no apiVersion": ({"apiVersion": ...}, {"fieldManager": "m"}, 400, "", "BadRequest"),
    "owners of its own": ({"metadata": {"name": "a", "managedFields": [{**FIELDS, "fieldsV1": {"f:spec": {}}}]}},
        {"fieldManager": "m"}, 400, "metadata.managedFields must be nil", "BadRequest"),
    "owners of its own that cannot be read": ({"metadata": {"name": "a", "managedFields": [{**FIELDS, "manager": 5}]}},
        {"fieldManager": "m"}, 400, ".metadata.managedFields[0].manager: expected string, got", "BadRequest"),
    "another name": ({"metadata": {"name": "b"}}, {"fieldManager": "m"}, 400,
        "the name of the object (b) does not match the name on the URL (a)", "BadRequest"),
    "a wrong type": ({"spec": {"replicas": "many"}}, {"fieldManager": "m"}, 400,
        ".spec.replicas: expected numeric (int or float), got string", "BadRequest"),
    "a list for the spec": ({"spec": [1]}, {"fieldManager": "m"}, 400, ".spec: expected map, got", "BadRequest"),
    "an unknown field": ({"spec": {"nosuch": 1}}, {"fieldManager": "m", "fieldValidation": "Strict"}, 400,
        ".spec.nosuch: field not declared in schema", "BadRequest"),
    "an unknown dry run": ({}, {"fieldManager": "m", "dryRun": "Maybe"}, 422,
        'dryRun: Unsupported value: ["Maybe"]: supported values: "All"', "Invalid"),
}  # fmt: skip


@pytest.mark.rows("SSA-001", "SSA-011", "WRI-011")
@pytest.mark.parametrize("case", APPLIES)
def test_invalid_applies_are_refused(target: Resource, server: Server, case: str) -> None:
    changes, query, code, text, reason = APPLIES[case]
    body = configuration(target, **changes)
    check_refused(target, server, lambda: target.api.patch(target.path("a"), body, APPLY, **query), code, text, reason)


@pytest.mark.rows("SSA-001")
@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"7", b"- a\n- b\n", b"a: [", b"a: 1\n---\nb: 2\n", b"{" * 3000, b"a: &a [*a]"]
)
def test_applies_without_an_object_are_refused(target: Resource, server: Server, body: bytes) -> None:
    def send() -> Answer:
        return target.api.request("PATCH", target.path("a"), body, {"Content-Type": APPLY}, fieldManager="m")

    check_refused(target, server, send, 400, "", "BadRequest")


OWNERS: dict[str, Any] = {
    "no type": {"fieldsType": ""},
    "another type": {"fieldsType": "FieldsV2"},
    "no operation": {"operation": ""},
    "another operation": {"operation": "Delete"},
    "broken fields": {"fieldsV1": {"f:spec": {"xy": {}}}},
    "fields of a kind to come": {"fieldsV1": {"x:y": {}}},
    "a list for fields": {"fieldsV1": []},
    "a key that is no JSON": {"fieldsV1": {"f:spec": {"k:{": {}}}},
    "a value that is no JSON": {"fieldsV1": {"f:spec": {"v:{": {}}}},
    "an index that is no number": {"fieldsV1": {"f:spec": {"i:x": {}}}},
    "an index with two signs": {"fieldsV1": {"f:spec": {"i:--5": {}}}},
    "an index of other digits": {"fieldsV1": {"f:spec": {"i:\u00b2": {}}}},
    "a value nested too deep": {"fieldsV1": {"f:spec": {f"v:{'[' * 300}{']' * 300}": {}}}},
    "an unserved version": {"apiVersion": "other.example.com/v9"},
    "a time that is none": {"time": "yesterday"},
    "a long manager": {"manager": "m" * 129},
    "deep fields": {"fieldsV1": None},
}
ACCEPTED_OWNERS = {"an unserved version", "deep fields", "a value nested too deep"}  # by this server or by all


def deep_fields(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"f:a": found}
    return found


@pytest.mark.rows("SSA-007", "SSA-014")
@pytest.mark.parametrize("case", OWNERS)
def test_invalid_managed_fields_do_not_block_writes(target: Resource, server: Server, case: str) -> None:
    """The server refuses invalid managedFields or keeps the previous owners.

    It never returns a 500, and clients can still write the object.
    """
    entry = {**FIELDS, "apiVersion": f"{target.group}/v1", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}}
    entry |= OWNERS[case]
    if entry["fieldsV1"] is None:
        entry["fieldsV1"] = deep_fields(200)
    name = "owned"
    made = target.create(name, text="x")
    try:
        meter = Meter(server)
        answer = target.api.patch(target.path(name), {"metadata": {"managedFields": [entry]}}, MERGE)
        meter.check()
        assert answer.status in {200, 400, 422}, answer.raw[:500]
        if case == "fields of a kind to come":
            assert "managedFields" not in answer.json["metadata"]
        elif answer.status == 200 and case not in ACCEPTED_OWNERS:
            assert (
                answer.json["metadata"]["managedFields"][0]["manager"]
                == made["metadata"]["managedFields"][0]["manager"]
            )
        body = {**configuration(target), "metadata": {"name": name}}
        target.api.patch(target.path(name), body, APPLY, fieldManager="m", force="true").expect(200)
        target.api.patch(target.path(name), {"spec": {"text": "y"}}, MERGE).expect(200)
    finally:
        target.api.delete(target.path(name)).expect(200)


SCALES: dict[str, tuple[str, Any, int, str]] = {
    "a widget": (MERGE, {"kind": "Widget"}, 422, "patch: Invalid value"),
    "another version": (MERGE, {"apiVersion": "autoscaling/v9"}, 422, "patch: Invalid value"),
    "words": (MERGE, {"spec": {"replicas": "many"}}, 422, ""),
    "a half": (MERGE, {"spec": {"replicas": 1.5}}, 422, ""),
    "negative": (MERGE, {"spec": {"replicas": -1}}, 422, "should be a non-negative integer"),
    "too many": (MERGE, {"spec": {"replicas": 2**31}}, 422, ""),
    "a list": (MERGE, {"spec": [1]}, 422, ""),
    "json patch": (JSON_PATCH, [op("remove", "/spec/nosuch")], 422, UNPROCESSABLE),
    "strategic": ("application/strategic-merge-patch+json", {"spec": {"replicas": 1}}, 415,
        "application/json-patch+json"),
    "yaml": ("application/yaml", {"spec": {"replicas": 1}}, 415, "application/json-patch+json"),
}  # fmt: skip


@pytest.mark.rows("SRV-008", "SRV-009", "SRV-012")
@pytest.mark.parametrize("case", SCALES)
def test_invalid_scale_patches_are_refused(target: Resource, server: Server, case: str) -> None:
    kind, patch, code, text = SCALES[case]
    body = json.dumps(patch)
    reason = {400: "BadRequest", 415: "UnsupportedMediaType", 422: "Invalid"}[code]
    check_refused(target, server, lambda: target.api.patch(target.path("a") + "/scale", body, kind), code, text, reason)


@pytest.mark.rows("SRV-003", "SRV-008")
@pytest.mark.parametrize(
    ("method", "tail", "code"),
    [
        ("GET", "/nosuch/scale", 404), ("PUT", "/nosuch/scale", 404), ("PATCH", "/nosuch/scale", 404),
        ("POST", "/a/scale", 405), ("DELETE", "/a/scale", 405), ("POST", "/a/status", 405),
        ("DELETE", "/a/status", 405), ("GET", "/a/scales", 404), ("GET", "/a/Scale", 404),
        ("GET", "/a/finalize", 404), ("GET", "/a/scale?watch=true", 200),
    ],
)  # fmt: skip
def test_invalid_subresource_requests_get_404_or_405(target: Resource, method: str, tail: str, code: int) -> None:
    body = {"kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": {"name": "nosuch"}, "spec": {"replicas": 1}}
    headers = {"Content-Type": MERGE} if method == "PATCH" else {}
    answer = target.api.request(method, target.path() + tail, None if method == "GET" else body, headers)
    assert answer.status == code, answer.raw[:300]


# --- selectors and Accept headers ---

MANY = 10_000
SELECTORS: dict[str, tuple[dict[str, str], int]] = {
    "10,000 labels": ({"labelSelector": ",".join(f"a{n}" for n in range(MANY))}, 200),
    "10,000 values": ({"labelSelector": f"a in ({','.join(str(n) for n in range(MANY))})"}, 200),
    "10,000 fields": ({"fieldSelector": ",".join(["metadata.name=a"] * (MANY // 3))}, 200),
    "10,000 commas": ({"labelSelector": "," * MANY}, 400),
    "10,000 brackets": ({"labelSelector": "(" * MANY}, 400),
    "10,000 bangs": ({"labelSelector": "!" * MANY}, 400),
    "10,000 escapes": ({"fieldSelector": "metadata.name=" + "\\" * (MANY + 1)}, 400),
    "a value without end": ({"labelSelector": f"a={'x' * 60_000}"}, 400),
    "look-alikes": ({"labelSelector": "ａ=b"}, 400),
    "control characters": ({"fieldSelector": "metadata.name\u0000=a"}, 400),
}


@pytest.mark.rows("SEL-001", "SEL-005")
@pytest.mark.parametrize("case", SELECTORS)
@pytest.mark.parametrize("verb", ["list", "watch", "delete"])
def test_huge_and_malformed_selectors_need_little_cpu(target: Resource, server: Server, case: str, verb: str) -> None:
    query, code = SELECTORS[case]
    meter = Meter(server)
    if verb == "delete":
        answer = target.api.delete(target.path(), **query, dryRun="All")
    elif verb == "watch":
        answer = target.api.get(target.path(), **query, watch="true", timeoutSeconds="1")
    else:
        answer = target.api.get(target.path(), **query)
    meter.check()
    assert answer.status in ({400, 431} if code == 400 else {200, 431}), answer.raw[:300]
    if answer.status >= 400:
        assert answer.json["kind"] == "Status"
    target.api.get(target.path("a")).expect(200)


ACCEPTS: dict[str, tuple[str, int]] = {
    "an unsupported media type": ("image/png", 406),
    "cbor": ("application/cbor", 406),
    "protobuf of a custom object": ("application/vnd.kubernetes.protobuf", 406),
    "1,000 alternatives": (",".join(f"image/x{n};q=0.{n:03}" for n in range(1000)), 406),
    "1,000 alternatives and a supported one": (",".join([*(f"image/x{n};q=1" for n in range(1000)), "*/*;q=0.1"]), 200),
    "q that is no number": ("application/json;q=high", 200),
    "half a type": ("application", 406),
    "slashes": ("a/b/c", 406),
    "quotes": ('application/json;a="', 200),
    "commas": (",,,,", 406),
    "a table of another version": ("application/json;as=Table;v=v9;g=meta.k8s.io", 406),
    "a table of another group": ("application/json;as=Table;v=v1;g=example.com", 406),
    "a table in protobuf": ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", 406),
    "a list that is an object": ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", 500),  # recorded
    "an unknown form": ("application/json;as=Poem;v=v1;g=meta.k8s.io", 406),
    "a stream": ("application/json;stream=watch", 200),
    "another stream": ("application/json;stream=tail", 406),
}


@pytest.mark.rows("NEG-001", "NEG-004", "NEG-009", "ERR-15")
@pytest.mark.parametrize("case", ACCEPTS)
def test_accept_header_selects_media_type_or_gets_406(target: Resource, server: Server, case: str) -> None:
    header, code = ACCEPTS[case]
    meter = Meter(server)
    answer = target.api.get(target.path("a"), {"Accept": header})
    meter.check()
    assert answer.status == code, answer.raw[:300]
    if code == 406 and "protobuf" not in header:
        assert answer.json["reason"] == "NotAcceptable"


@pytest.mark.rows("NEG-001", "NEG-009", "WRI-025")
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("application/cbor", 415), ("text/plain", 415), ("json", 415),
        ("application/json; charset=utf-8", 201), ("APPLICATION/JSON", 201), ("", 201),
        pytest.param("application/vnd.kubernetes.protobuf", 415, marks=pytest.mark.differs("it crashes")),
    ],
)  # fmt: skip
def test_content_type_is_accepted_or_gets_415(target: Resource, kind: str, code: int) -> None:
    body = json.dumps(target.make(f"typed-{random.randrange(10**9)}", text="x")).encode()
    headers = {"Content-Type": kind} if kind else {}
    answer = target.api.request("POST", target.path(), body, headers, dryRun="All")
    assert answer.status == code, answer.raw[:300]
    if code == 415:
        accepted = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
        assert answer.json["message"] in {
            "the body of the request was in an unknown format - accepted media types include: " + one
            for one in (accepted, "application/json, application/yaml")
        }
    cbor_patch = target.api.patch(target.path("a"), b"\xa0", "application/apply-patch+cbor", fieldManager="m")
    assert cbor_patch.status == 415


@pytest.mark.rows("WRI-025", "ERR-16")
@pytest.mark.parametrize(("more", "codes"), [(-1, (201, 500)), (0, (201, 500)), (1, (413,))])
def test_bodies_over_3_mib_get_413(target: Resource, more: int, codes: tuple[int, ...]) -> None:
    body = json.dumps(target.make("limit", map={"k": ""})).encode()
    body += b" " * (3 * 1024 * 1024 + more - len(body))  # white space, so that the stored object is small
    answer = target.api.request("POST", target.path(), body, {"Content-Type": "application/json"}, dryRun="All")
    assert answer.status in codes, answer.raw[:300]
    if answer.status == 413:
        assert answer.json["message"] == "Request entity too large: limit is 3145728"


@pytest.mark.differs("their bytes are read as they are")
@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "chunked, gzip"])
def test_compressed_bodies_get_415(target: Resource, encoding: str) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    answer = target.api.request("POST", target.path(), b"\x1f\x8b\x08" + b"\0" * 1000, headers)
    assert answer.status == 415, answer.raw[:300]
