"""Discovery documents as protobuf of Kubernetes."""

import base64
from typing import Any

import orjson
import pytest

from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.served import Catalog
from apiext.discovery import aggregated, groups, protobuf
from tests.unit.discovery import messages
from tests.unit.discovery.served import GADGETS, GROUP, WIDGETS, catalog

PROTOBUF = "application/vnd.kubernetes.protobuf"


@pytest.fixture
def served() -> Catalog:
    found = catalog(WIDGETS, GADGETS)
    for resource in builtin_resources():
        found = found.with_resource(resource)
    return found


def as_json(message: Any) -> Any:
    """Convert a message to JSON without empty values, which JSON may omit."""
    found = {}
    for field, value in message.ListFields():
        if field.message_type is None:
            shown = list(value) if field.is_repeated else value
        elif field.message_type.name == "Verbs":
            shown = list(value.items)
        else:
            shown = [as_json(each) for each in value] if field.is_repeated else as_json(value)
        if field.name != "generation" and shown not in ("", {}, []):  # Go writes its zero
            found[field.name] = shown
    return found


def bare(value: Any) -> Any:
    """Return JSON without empty values."""
    if isinstance(value, list):
        return [bare(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: inner for key, each in value.items() if (inner := bare(each)) not in ("", {}, [])}


@pytest.mark.rows("DIS-101", "DIS-102")
def test_protobuf_of_legacy_discovery_equals_json(served: Catalog) -> None:
    documents = [
        groups.core_versions(served, "h:1"),
        groups.group_list(served),
        groups.group(served, GROUP),
        groups.resource_list(served, GROUP, "v1"),
        groups.resource_list(served, "", "v1"),
    ]
    for document in documents:
        assert document is not None
        api_version, kind, message = messages.discovery(protobuf.encode(document))
        assert (api_version, kind) == (document.pop("apiVersion", ""), document.pop("kind"))
        assert as_json(message) == bare(document)


@pytest.mark.rows("DIS-106", "DIS-107")
@pytest.mark.parametrize("core", [True, False])
def test_protobuf_of_aggregated_discovery_equals_json(served: Catalog, core: bool) -> None:
    found = aggregated.document(served, core=core, encoding=PROTOBUF)
    json = orjson.loads(aggregated.document(served, core=core).body)
    api_version, kind, message = messages.discovery(found.body)
    assert (api_version, kind) == (json.pop("apiVersion"), json.pop("kind"))
    assert as_json(message) == bare(json)
    assert found.etag == aggregated.document(served, core=core).etag


@pytest.mark.rows("DIS-101")
def test_protobuf_bytes_equal_those_of_go() -> None:
    document = {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": "a.b",
        "versions": [{"groupVersion": "a.b/v1", "version": "v1"}],
        "preferredVersion": {"groupVersion": "a.b/v1", "version": "v1"},
    }
    version = b"\x0a\x06a.b/v1\x12\x02v1"
    message = b"\x0a\x03a.b\x12\x0c" + version + b"\x1a\x0c" + version
    envelope = b"k8s\x00\x0a\x0e\x0a\x02v1\x12\x08APIGroup\x12" + bytes([len(message)]) + message + b"\x1a\x00\x22\x00"
    assert base64.b64encode(protobuf.encode(document)) == base64.b64encode(envelope)


def test_protobuf_of_unknown_kind_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"discovery\.Pod"):
        protobuf.encode({"kind": "Pod"})
