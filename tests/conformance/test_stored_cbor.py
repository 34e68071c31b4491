"""Objects that another server stored as CBOR: reads, watches and writes work as with JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import MERGE, Client
from tests.support.processes import Etcd, running_server


@pytest.fixture
def api(own_etcd: Etcd, tmp_path: Path) -> Iterator[Client]:
    flags = ["--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}"]
    with running_server(flags, tmp_path / "server") as server:
        yield Client(server.url)


def encode_cbor(value: Any) -> bytes:
    """Encode a value as CBOR like Kubernetes, with byte strings for strings."""
    if isinstance(value, str):
        return encode_head(2, len(raw := value.encode())) + raw
    if isinstance(value, int):
        return encode_head(0, value)
    if isinstance(value, list):
        return encode_head(4, len(value)) + b"".join(map(encode_cbor, value))
    return encode_head(5, len(value)) + b"".join(encode_cbor(name) + encode_cbor(item) for name, item in value.items())


def encode_head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    return bytes([major << 5 | 26]) + argument.to_bytes(4, "big")


@pytest.mark.rows("NEG-009", "ETC-006")
def test_object_stored_as_cbor_is_read_and_written(api: Client, own_etcd: Etcd, tmp_path: Path) -> None:
    widgets = serve(api)
    made = widgets.create("a", color="red", size=70_000)
    foreign = {**made, "metadata": {**made["metadata"], "name": "b", "uid": "0f9c7a4e-0000-4000-8000-000000000001"}}
    del foreign["metadata"]["resourceVersion"]
    key = f"/{tmp_path.name}/{widgets.group}/widgets/default/b"
    with api.watch(widgets.path(), resourceVersion=made["metadata"]["resourceVersion"]) as watch:
        value = base64.b64encode(b"\xd9\xd9\xf7" + encode_cbor(foreign)).decode()
        own_etcd.call("kv/put", {"key": base64.b64encode(key.encode()).decode(), "value": value})
        event = watch.next("ADDED")
    revision = event["object"]["metadata"].pop("resourceVersion")
    assert event["object"] == foreign
    seen = api.get(widgets.path("b")).expect(200)
    assert (seen["spec"], seen["metadata"]["resourceVersion"]) == (made["spec"], revision)
    changed = api.patch(widgets.path("b"), {"spec": {"color": "blue"}}, MERGE).expect(200)
    assert changed["spec"] == {**made["spec"], "color": "blue"}
    names = [item["metadata"]["name"] for item in api.get(widgets.path()).expect(200)["items"]]
    assert names == ["a", "b"]
