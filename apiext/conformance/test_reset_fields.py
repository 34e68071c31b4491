"""The fields that a write changes, and the fields that its writer then owns.

The tests cover custom objects, namespaces and services, with the endpoints status and scale, by PUT, JSON patch, merge
patch and (except for scale) apply. The expected fields in reset_fields.yaml are those of kube-apiserver.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import APPLY, JSON_PATCH, MERGE, Client

FILE = Path(__file__).with_name("reset_fields.yaml")
CASES: list[dict[str, Any]] = read_yaml(FILE)
SCALE = {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}
SUBRESOURCES: dict[str, Any] = {
    "custom": {},
    "custom with status": {"status": {}},
    "custom with scale": {"scale": SCALE},
    "custom with both": {"status": {}, "scale": SCALE},
}
PART = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}
SCHEMA = {"type": "object", "properties": {"spec": PART, "status": PART, "extra": {"type": "string"}}}
METADATA = {"labels": {"l": "b"}, "annotations": {"a": "b"}, "finalizers": ["example.com/f"]}
BEFORE: dict[str, Any] = {
    "custom": {"spec": {"n": 1, "s": "a"}, "status": {"n": 1, "s": "a"}, "extra": "a"},
    "namespace": {"spec": {"finalizers": ["kubernetes"]}},
    "service": {"spec": {"type": "LoadBalancer", "ports": [{"name": "a", "port": 80}], "selector": {"a": "b"}}},
}
AFTER: dict[str, Any] = {
    "custom": {"spec": {"n": 2, "s": "b"}, "status": {"n": 2, "s": "b"}, "extra": "b"},
    "namespace": {
        "spec": {"finalizers": ["kubernetes", "example.com/y"]},
        "status": {"conditions": [{"type": "B", "status": "True"}]},
    },
    "service": {
        "spec": {"type": "LoadBalancer", "ports": [{"name": "b", "port": 81}], "selector": {"a": "c"}},
        "status": {"loadBalancer": {"ingress": [{"hostname": "b.example.com"}]}},
    },
}
REPLICAS = {"spec": {"replicas": 5}, "status": {"replicas": 9}}


def made(api: Client, kind: str) -> tuple[str, dict[str, Any]]:
    """Create an object.

    Return its path, and the apiVersion, kind and metadata for bodies of writes.
    """
    own = BEFORE[kind.split(maxsplit=1)[0]]
    if kind == "namespace":
        listing, about = "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace"}
        name: dict[str, Any] = {"generateName": "reset-"}
    elif kind == "service":
        listing, about = "/api/v1/namespaces/default/services", {"apiVersion": "v1", "kind": "Service"}
        name = {"generateName": "reset-"}
    else:
        widgets = serve(api, schema={"openAPIV3Schema": SCHEMA}, subresources=SUBRESOURCES[kind])
        listing, about = widgets.path(), {"apiVersion": f"{widgets.group}/v1", "kind": "Widget"}
        name = {"name": "a"}
    found = api.post(f"{listing}?fieldManager=base", {**about, "metadata": name, **own}).expect(201)
    metadata = {"name": found["metadata"]["name"]}
    if "namespace" in found["metadata"]:
        metadata["namespace"] = found["metadata"]["namespace"]
    return f"{listing}/{metadata['name']}", {**about, "metadata": metadata}


def written(api: Client, case: dict[str, Any]) -> dict[str, Any]:
    """Write all fields to an endpoint.

    Return the changed parts (see parts_of), and the parts that the writer owns.
    """
    path, about = made(api, case["of"])
    before = api.get(path).expect(200)
    wanted = AFTER[case["of"].split(maxsplit=1)[0]]
    if case["at"] == "scale":
        wanted, about = REPLICAS, {**about, "apiVersion": "autoscaling/v1", "kind": "Scale"}
    body = {**about, **wanted, "metadata": {**about["metadata"], **METADATA}}
    place = f"{path}/{case['at']}" if case["at"] else path
    if case["by"] == "put":
        body["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        answer = api.put(f"{place}?fieldManager=me", body)
    elif case["by"] == "json":
        parts = [(f"/metadata/{key}", value) for key, value in METADATA.items()]
        parts += [(f"/{key}", value) for key, value in wanted.items()]
        change = [{"op": "add", "path": to, "value": value} for to, value in parts]
        answer = api.patch(f"{place}?fieldManager=me", change, JSON_PATCH)
    else:
        kind = MERGE if case["by"] == "merge" else APPLY
        answer = api.patch(f"{place}?fieldManager=me{'' if kind == MERGE else '&force=true'}", body, kind)
    answer.expect(200)
    after = api.get(path).expect(200)
    owned = [entry["fieldsV1"] for entry in after["metadata"]["managedFields"] if entry["manager"] == "me"]
    found = {
        "changes": [part for part in parts_of(before, after) if at(before, part) != at(after, part)],
        "owns": sorted({part for fields in owned for part in named(fields)}),
    }
    api.patch(path, {"metadata": {"finalizers": None}}, MERGE).expect(200)
    api.delete(path)
    return found


def parts_of(*documents: dict[str, Any]) -> list[str]:
    """Return names of parts, such as metadata.labels, spec.n and extra.

    The parts are the fields of METADATA, metadata.generation, the fields of each other top-level object, and the other
    top-level fields except apiVersion and kind.
    """
    names = {f"metadata.{name}" for name in (*METADATA, "generation")}
    for document in documents:
        for key in document.keys() - {"metadata", "apiVersion", "kind"}:
            below = document[key]
            names |= {f"{key}.{name}" for name in below} if isinstance(below, dict) else {key}
    return sorted(names)


def at(document: dict[str, Any], part: str) -> str:
    """Return a part of a document as JSON."""
    key, _, below = part.partition(".")
    found = document.get(key)
    return json.dumps(found.get(below) if below and isinstance(found, dict) else found, sort_keys=True)


def named(fields: dict[str, Any]) -> list[str]:
    """Return the names of the parts in a set of managed fields."""
    found = []
    for key, below in fields.items():
        inner = [name for name in below if name.startswith("f:")]
        found += [f"{key[2:]}.{name[2:]}" for name in inner] or [key[2:]]
    return found


@pytest.mark.rows("SSA-001", "SRV-006")
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['of']} {case['at']} {case['by']}")
def test_changed_and_owned_fields_of_a_write(api: Client, case: dict[str, Any]) -> None:
    assert written(api, case) == {"changes": case["changes"], "owns": case["owns"]}
