"""Spliced bytes equal those of the slow path; stored bytes have no resourceVersion."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.catalog.converted import place_of
from apiext.catalog.splices import Splices, splice
from apiext.catalog.viewing import parse
from apiext.documents.document import clone
from apiext.documents.encoding import decode_json
from tests.unit.catalog.samples import CLOSED, HOOK, OPEN, resource, version, widget

pytestmark = pytest.mark.rows("ETC-002", "NUL-005", "VER-003", "DEC-001")
UID = "8c9f7a64-4f0e-4d3a-9a55-1a2b3c4d5e6f"

_text = st.text(max_size=8)
_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)
_owners = st.lists(
    st.fixed_dictionaries(
        {
            "apiVersion": st.just("v1"),
            "kind": st.just("Pod"),
            "name": st.text(min_size=1, max_size=3),
            "uid": st.sampled_from([UID, "other", 'a"}b']),
        }
    ),
    max_size=2,
)
_metadata = st.fixed_dictionaries(
    {},
    optional={
        "labels": st.dictionaries(st.sampled_from(["uid", "a"]), st.sampled_from([UID, "b", '"uid":"x"}']), min_size=1),
        "ownerReferences": _owners,
        "finalizers": st.lists(_text, max_size=2),
        "resourceVersion": st.just("3"),
    },
)
_specs = st.fixed_dictionaries(
    {},
    optional={
        "replicas": st.integers(0, 9),
        "owner": st.just({"uid": UID}),
        "free": st.dictionaries(_text, _json, max_size=3),
        "unknown": _json,
    },
)


@st.composite
def widgets(draw: st.DrawFn) -> dict[str, Any]:
    parts: dict[str, Any] = {"metadata": draw(_metadata)}
    if draw(st.booleans()):
        parts["spec"] = draw(_specs)
    if draw(st.booleans()):
        parts["status"] = draw(st.dictionaries(_text, _json, max_size=2))
    return widget(UID, **parts)


def _one() -> Any:
    return resource(version("v1", CLOSED, subresources={"status": {}})).versions["v1"]


@given(widgets(), st.integers(1, 2**62))
def test_spliced_view_equals_the_slow_path(body: dict[str, Any], revision: int) -> None:
    served, fresh = _one(), _one()
    document, _ = served.model.normalize(body)
    document = served.endpoints[""].prepare(document, None)
    raw = served.codec.encode(document)
    assert raw.endswith(b"\n")
    assert b'"resourceVersion"' not in raw.split(b'"uid"')[0] or b"unknown" in raw or b"free" in raw
    shown = served.codec.view(raw, revision)
    assert shown == fresh.codec.view(raw, revision)
    assert shown == fresh.codec.view(raw, revision), "a second look is the same"
    assert orjson.loads(shown)["metadata"]["resourceVersion"] == str(revision)
    assert served.codec.decode(raw, revision) == fresh.codec.decode(raw, revision) == decode_json(shown)[0]


_entries = st.lists(
    st.fixed_dictionaries(
        {
            "manager": st.sampled_from(["m", '],"name":"', '"managedFields":[']),
            "operation": st.just("Update"),
            "fieldsV1": st.just({"f:metadata": {"f:labels": {"f:],": {}}}, "f:spec": {'v:"],\\"name\\":\\"x"': {}}}),
        },
        optional={"time": st.just("2026-01-01T00:00:00Z")},
    ),
    max_size=2,
)


@given(widgets(), _entries, st.sampled_from([UID, 'a"}b', "{}"]), st.integers(1, 9))
def test_fast_paths_of_normalized_objects_equal_slow_path(
    body: dict[str, Any], entries: list[Any], uid: str, revision: int
) -> None:
    served, fresh = _one(), _one()
    body["metadata"] |= {"managedFields": entries, "uid": uid, "generation": 1}
    document, _ = served.model.normalize(body)
    raw = served.codec.to_store(document)
    assert raw == fresh.codec.encode(document)
    found, whole = served.codec.decode_metadata(raw, revision), served.codec.decode(raw, revision)
    if found is not None:
        whole["metadata"].pop("managedFields", None)
        assert found == {"metadata": whole["metadata"]}
    else:
        assert uid != UID or not served.codec.is_normalized(raw)
    assert _one().codec.decode_metadata(raw, revision) is None


@given(widgets(), st.integers(1, 9))
def test_normalizing_does_not_change_normalized_objects(body: dict[str, Any], revision: int) -> None:
    served = _one()
    raw = served.codec.encode(served.endpoints[""].prepare(served.model.normalize(body)[0], None))
    found = served.codec.decode(raw, revision)
    if served.codec.is_normalized(raw):
        assert served.model.normalize(clone(found)) == (found, [])
    assert not _one().codec.is_normalized(raw)


def test_conversions_and_embedded_resources_are_never_normalized() -> None:
    embedded = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-embedded-resource": True}}}
    hooked = resource(version("v1", CLOSED), version("v2", OPEN), conversion=HOOK).versions["v1"]
    for served in (resource(version("v1", embedded)).versions["v1"], hooked):
        raw = served.codec.encode(widget(UID))
        assert not served.codec.is_normalized(raw)
    assert hooked.codec.decode_metadata(raw, 1) is None


def _two(schema: dict[str, Any]) -> Any:
    return resource(version("v1", CLOSED), version("v2", schema)).versions


NARROW = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}


@given(widgets(), st.sampled_from([CLOSED, OPEN, NARROW]), st.booleans(), st.integers(1, 2**62))
def test_view_in_another_version_equals_the_slow_path(
    body: dict[str, Any], schema: dict[str, Any], known: bool, revision: int
) -> None:
    quick, full = _two(schema), _two(schema)
    document, _ = quick["v1"].model.normalize(body)
    raw = quick["v1"].codec.encode(document) if known else full["v1"].codec.encode(document)
    for one in quick.values():
        one.work.prepare()
    assert quick["v2"].codec.view(raw, revision) == full["v2"].codec.view(raw, revision)
    assert quick["v1"].codec.view(raw, revision) == full["v1"].codec.view(raw, revision)
    assert quick["v2"].codec.view(raw, 7) == full["v2"].codec.view(raw, 7), "what was read in v1 is known now"


def test_view_in_an_equal_version_is_not_reencoded(monkeypatch: pytest.MonkeyPatch) -> None:
    served = _two(CLOSED)
    for one in served.values():
        one.work.prepare()
    raw = served["v1"].codec.encode(widget(UID, spec={"color": "red", "replicas": 2}))
    monkeypatch.setattr("apiext.catalog.viewing.encode_json", None)
    shown = orjson.loads(served["v2"].codec.view(raw, 7))
    assert (shown["apiVersion"], shown["spec"]) == ("example.com/v2", {"color": "red", "replicas": 2})


@given(widgets(), st.integers(1, 9))
def test_stored_bytes_are_read_the_same_twice(body: dict[str, Any], revision: int) -> None:
    served = _one()
    raw = orjson.dumps(body)
    first = served.codec.view(raw, revision)
    assert served.codec.view(raw, revision) == first
    again = _one()
    shown = again.codec.view(first, revision)
    assert shown == first or re.sub(rb"-0([],}])", rb"0\1", first) == shown  # -0.0 becomes -0, as in Go


@given(widgets())
def test_encode_does_not_modify_its_argument(body: dict[str, Any]) -> None:
    served = resource(version("v2", OPEN), version("v1", CLOSED)).versions["v1"]
    document, _ = served.model.normalize(body)
    before = clone(document)
    raw = served.codec.encode(document)
    assert document == before
    assert orjson.loads(raw)["apiVersion"] == "example.com/v2"


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 10**19, 10**25])
def test_integers_beyond_int64_are_read_as_floats(number: int) -> None:
    found = parse(b'{"a":%d}' % number)["a"]
    assert found == (number if -(2**63) <= number < 2**63 else float(number))
    assert isinstance(found, int) is (-(2**63) <= number < 2**63)


@given(st.binary(max_size=20), st.text(max_size=5))
def test_uid_position_is_found_only_if_unique(junk: bytes, uid: str) -> None:
    raw = junk + b'{"metadata":{"uid":%b}}' % orjson.dumps(uid)
    place = place_of(raw, uid)
    if place >= 0:
        assert splice(raw, place, 5).replace(b'"resourceVersion":"5",', b"", 1) == raw
        assert place_of(raw + raw, uid) == -1
    assert place_of(raw, None) == -1


def test_splice_cache_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apiext.catalog.limits.SPLICES", 2)
    splices = Splices()
    raws = [b'{"metadata":{"name":"%d","uid":"u"}}' % number for number in range(3)]
    for raw in raws:
        splices.add(raw, "u")
    assert [splices.has(raw) for raw in raws] == [False, True, True]
    assert splices.view(raws[1], 4) == b'{"metadata":{"name":"1","resourceVersion":"4","uid":"u"}}'
    assert splices.view(raws[0], 4) is None


def test_splices_of_overwritten_objects_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apiext.catalog.limits.SPLICES_REPLACED", 2)
    splices = Splices()
    raws = [b'{"metadata":{"name":"%d","uid":"u"}}' % number for number in range(100)]
    for before, raw in pairwise(raws):
        splices.add(raw, "u")
        splices.evict(before)
    assert [number for number, raw in enumerate(raws) if splices.has(raw)] == [97, 98, 99]
    assert len(splices._order) < 10
    splices.evict(b"never seen")
    assert splices.has(raws[97])
