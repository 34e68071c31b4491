"""The k8s envelope and its messages."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.documents import limits
from apiext.documents.errors import DecodeError
from apiext.http import protobuf
from apiext.http.messages import document, encode_message, parse, varint

pytestmark = pytest.mark.rows("NEG-002", "NEG-003")

NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {
        "name": "a",
        "labels": {"kubernetes.io/metadata.name": "a"},
        "creationTimestamp": "2026-11-21T10:00:00Z",
        "deletionGracePeriodSeconds": 0,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": False}],
        "managedFields": [
            {"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {}}}
        ],
    },
    "spec": {"finalizers": ["kubernetes"]},
    "status": {"phase": "Active"},
}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "names": {"plural": "widgets", "kind": "Widget"},
        "scope": "Namespaced",
        "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {"caBundle": "YWJj", "url": "https://x"}}},
        "versions": [
            {
                "name": "v1",
                "served": False,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "any": {},
                            "list": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
                            "tuple": {"items": [{"type": "string"}, {"type": "integer"}]},
                            "open": {"additionalProperties": True},
                            "closed": {"additionalProperties": False},
                            "map": {"additionalProperties": {"type": "string", "minLength": 0}},
                            "deep": {"default": {"x": [1, None]}, "enum": ["a", 1, None], "minimum": 0.0},
                            "ref": {"$ref": "#/x", "$schema": "y", "x-kubernetes-preserve-unknown-fields": True},
                            "needs": {"dependencies": {"a": ["b"], "c": {"type": "object"}}},
                            "rule": {"x-kubernetes-validations": [{"rule": "self > 0", "optionalOldSelf": False}]},
                        },
                    }
                },
            }
        ],
    },
    "status": {"storedVersions": ["v1"], "acceptedNames": {"plural": "", "kind": ""}},
}


@pytest.mark.parametrize("document", [NAMESPACE, DEFINITION], ids=["namespace", "definition"])
def test_objects_survive_encoding_and_decoding(document: dict[str, Any]) -> None:
    raw = protobuf.encode(document)
    assert raw.startswith(b"k8s\x00")
    assert protobuf.decode(raw) == document
    assert orjson.loads(protobuf.to_json(raw)) == document


@pytest.mark.rows("NEG-003")
def test_null_of_a_schema_is_encoded_without_text() -> None:
    schema = {"openAPIV3Schema": {"type": "string", "enum": ["a", None], "default": "a"}}
    spec = {"versions": [{"name": "v1", "schema": schema}]}
    raw = protobuf.encode({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec})
    assert b'"a"' in raw
    assert b"null" not in raw  # upstream: null becomes an empty message
    assert protobuf.decode(raw)["spec"]["versions"][0]["schema"] == schema


@pytest.mark.parametrize("levels", [3, 240, 249, 253, 500, 1_000, 5_000])
def test_embedded_json_has_the_depth_limit_of_bodies(levels: int) -> None:
    text = b'"f:deep":' + b"[" * (levels - 1) + b'"mark"' + b"]" * (levels - 1)
    fields = b"{%b}" % text
    managed = b"\x3a" + varint(len(fields) + 1 + len(varint(len(fields)))) + b"\x0a" + varint(len(fields)) + fields
    metadata = b"\x8a\x01" + varint(len(managed)) + managed
    message = b"\x0a" + varint(len(metadata)) + metadata
    raw = b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Namespace\x12" + varint(len(message)) + message
    if levels + 4 > limits.MAX_DEPTH:
        with pytest.raises(DecodeError, match="exceeded max depth"):
            protobuf.decode(raw)
    else:
        assert protobuf.decode(raw)["metadata"]["managedFields"] == [{"fieldsV1": orjson.loads(fields)}]


@pytest.mark.parametrize(
    ("text", "value"),
    [(b"18446744073709551615", 18446744073709551615.0), (b'"\xff"', "\ufffd"), (b'{"a":1,"a":2}', {"a": 2})],
)
def test_embedded_json_is_decoded_like_bodies(text: bytes, value: Any) -> None:
    schema = {"openAPIV3Schema": {"type": "string", "default": "a" * (len(text) - 2)}}
    spec = {"versions": [{"name": "v1", "schema": schema}]}
    raw = protobuf.encode({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec})
    assert orjson.dumps(schema["openAPIV3Schema"]["default"]) in raw
    raw = raw.replace(orjson.dumps(schema["openAPIV3Schema"]["default"]), text)
    found = protobuf.decode(raw)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["default"]
    assert repr(found) == repr(value)


def test_zero_values_of_gogo_are_dropped() -> None:
    # field 5 (uid) present and empty, 7 (generation) present and 0, 8 (creationTimestamp) an empty message
    metadata = b"\x0a\x01a" + b"\x2a\x00" + b"\x38\x00" + b"\x42\x00"
    message = b"\x0a" + bytes([len(metadata)]) + metadata
    unknown = b"\x0a\x0f" + b"\x0a\x02v1" + b"\x12\x09Namespace" + b"\x12" + bytes([len(message)]) + message
    assert protobuf.decode(b"k8s\x00" + unknown) == {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "a"},
    }


def test_delete_options_are_decoded() -> None:
    empty = b"k8s\x00" + b"\x0a\x13" + b"\x0a\x02v1" + b"\x12\x0dDeleteOptions"
    assert protobuf.decode_delete_options(empty) == {"apiVersion": "v1", "kind": "DeleteOptions"}
    full = empty + b"\x12\x0e" + b"\x08\x00" + b"\x22\x0aBackground"
    assert protobuf.decode_delete_options(full)["gracePeriodSeconds"] == 0
    assert protobuf.decode_delete_options(full)["propagationPolicy"] == "Background"
    nameless = b"k8s\x00" + b"\x0a\x00" + b"\x12\x05\x2a\x03All"
    assert protobuf.decode_delete_options(nameless) == {"apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"]}
    other = b"k8s\x00" + b"\x0a\x0c\x0a\x02v1\x12\x06Status" + b"\x12\x02\xff\xff"
    assert protobuf.decode_delete_options(other) == {"apiVersion": "v1", "kind": "Status"}


@pytest.mark.parametrize("raw", [b"", b"hello", b"k8s\x00\xff\xff", b"k8s\x00\x0a\x02\x12\x00"])
def test_invalid_envelopes_raise_decode_error(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        protobuf.decode(raw)


def test_events_are_framed_by_length() -> None:
    frame = protobuf.encode_event("ADDED", protobuf.encode(NAMESPACE))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert b"ADDED" in frame


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_decoded_or_refused(raw: bytes) -> None:
    try:
        found = protobuf.decode(b"k8s\x00" + raw)
    except DecodeError:
        return
    assert "kind" in found


LABELS = st.dictionaries(st.text(max_size=5), st.text(max_size=5), min_size=1, max_size=3)


@given(LABELS, st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3), st.integers(1, 2**62))
def test_metadata_survives_encoding_and_decoding(
    labels: dict[str, str], finalizers: list[str], generation: int
) -> None:
    metadata = {"name": "n", "labels": labels, "finalizers": finalizers, "generation": generation}
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    assert protobuf.decode(protobuf.encode(document)) == document


@pytest.mark.parametrize(
    ("message", "value", "raw"),
    [
        ("Quantity", "100Mi", b"\x0a\x05100Mi"),
        ("RawExtension", {"a": [1]}, b'\x0a\x09{"a":[1]}'),
        ("JSON", {"a": [1]}, b'\x0a\x09{"a":[1]}'),
        ("IntOrString", "http", b"\x08\x01\x1a\x04http"),
        ("IntOrString", 80, b"\x10\x50"),
        ("ExtraValue", ["a", "b"], b"\x0a\x01a\x0a\x01b"),
        ("Time", "1970-01-01T00:00:05Z", b"\x08\x05"),
        ("MicroTime", "1970-01-01T00:00:05.000001Z", b"\x08\x05\x10\xe8\x07"),
        ("Time", None, b""),  # in status.disruptedPods of a PodDisruptionBudget
        ("MicroTime", None, b""),
    ],
)
def test_scalar_messages_are_encoded_and_decoded(message: str, value: Any, raw: bytes) -> None:
    assert encode_message(message, value) == raw
    assert document(parse(message, raw)) == value
