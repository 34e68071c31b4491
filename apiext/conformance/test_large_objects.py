"""Objects that fit into the store only without their managedFields (WRI-023)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import APPLY, MERGE

pytestmark = pytest.mark.rows("WRI-023")

SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "additionalProperties": {"type": "string"}}},
}
LARGEST = 3 << 19  # maximum size of a request to etcd in bytes
TOO_LARGE = "etcdserver: request is too large"


@pytest.fixture(scope="module")
def wide(request: pytest.FixtureRequest) -> Resource:
    return serve(request.getfixturevalue("server").client(), schema={"openAPIV3Schema": SCHEMA})


def members(count: int) -> dict[str, str]:
    """Return fields with long names.

    managedFields contains these names, so it is about as large as the fields.
    """
    return {f"{number:05}-{'k' * 60}": "v" for number in range(count)}


# Without managedFields, an object with MUCH fields is smaller than 1.5 MiB, the limit of etcd. With managedFields it is
# larger, but smaller than 2 MiB, the limit of gRPC. An object with LITTLE fields keeps its managedFields.
MUCH, LITTLE = 12_000, 4_000


def owners(document: dict[str, Any]) -> list[str]:
    return [entry["manager"] for entry in document["metadata"].get("managedFields", [])]


def test_a_large_create_is_stored_without_managed_fields(wide: Resource) -> None:
    small = wide.create("small", **members(LITTLE))
    assert len(owners(small)) == 1
    large = wide.create("large", **members(MUCH))
    assert owners(large) == []
    assert wide.api.get(wide.path("large")).expect(200) == large


def test_a_large_put_or_patch_is_stored_without_managed_fields(wide: Resource) -> None:
    made = wide.create("growing", **members(LITTLE))
    assert owners(made)
    replaced = wide.api.put(wide.path("growing"), {**made, "spec": members(MUCH)}).expect(200)
    assert owners(replaced) == []
    made = wide.create("patched", **members(LITTLE))
    patched = wide.api.patch(wide.path("patched"), {"spec": members(MUCH)}, MERGE).expect(200)
    assert owners(patched) == []
    assert len(patched["spec"]) == MUCH


@pytest.mark.differs("an apply of so many fields takes minutes, since it computes managedFields first")
def test_a_large_apply_is_refused(wide: Resource) -> None:
    body = wide.make("applied", **members(MUCH))
    for _ in range(2):
        answer = wide.api.patch(wide.path("applied"), body, APPLY, fieldManager="m")
        assert answer.expect(500)["message"] == TOO_LARGE
        assert wide.api.get(wide.path("applied")).status == 404
    made = wide.create("both", **members(LITTLE))
    answer = wide.api.patch(wide.path("both"), {**body, "metadata": {"name": "both"}}, APPLY, fieldManager="m")
    assert answer.expect(500)["message"] == TOO_LARGE
    assert wide.api.get(wide.path("both")).expect(200) == made


def test_objects_up_to_the_limit_of_etcd_are_stored(wide: Resource) -> None:
    made = wide.create("brim", pad="")
    del made["metadata"]["managedFields"], made["metadata"]["resourceVersion"]
    room = LARGEST - len(json.dumps(made, separators=(",", ":"))) - 600  # 600 bytes for the rest of the transaction
    assert len(wide.create("full", pad="x" * room)["spec"]["pad"]) == room
    answer = wide.api.post(wide.path(), wide.make("over", pad="x" * (room + 10_000)))
    assert answer.expect(500)["message"] == TOO_LARGE
