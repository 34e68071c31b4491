"""Roles and bindings in the store's cache: large ones, and forms that no client can write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from apiext.auth import limits
from apiext.auth.authorization import Attributes
from apiext.auth.roles import BINDINGS, ROLES, Roles
from apiext.auth.user import authenticated
from tests.support.fake_world import FakeWorld
from tests.support.strain import turns_beside

pytestmark = pytest.mark.rows("AUT-003")

GROUP = "rbac.authorization.k8s.io"
JOE = authenticated("joe")
MAY = Attributes(JOE, "get", "", "", "v1", "pods", "", "ns", "n1")
RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
REFERENCE = {"apiGroup": GROUP, "kind": "Role", "name": "r"}
SUBJECTS = [{"apiGroup": GROUP, "kind": "User", "name": "joe"}]
BINDING = {"metadata": {"name": "b", "namespace": "ns"}, "roleRef": REFERENCE, "subjects": SUBJECTS}


def role(count: int = 1) -> dict[str, Any]:
    """Return a role with ``count`` rules, each for one resource name."""
    return {"rules": [{**RULE, "resourceNames": [f"n{number}"]} for number in range(1, count + 1)]}


@asynccontextmanager
async def following(stored: dict[str, Any]) -> AsyncIterator[tuple[FakeWorld, Roles]]:
    """Run the authorizer with a store that contains these objects: path → object."""
    async with asyncio.TaskGroup() as group:
        world = FakeWorld(group)
        for path, document in stored.items():
            await world.put(f"/registry/{GROUP}/{path}", orjson.dumps(document))
        for resource in ROLES + BINDINGS:
            world.store.add(resource, not resource.resource.startswith("cluster"))
        await world.store.start(group)
        roles = Roles()
        roles.follow(world.store)
        await roles.wait_ready()
        try:
            yield world, roles
        finally:
            await world.store.stop()


@pytest.mark.parametrize("count", [1, 30_000])
async def test_stored_role_applies_when_the_policy_is_ready(count: int) -> None:
    async with following({"roles/ns/r": role(count), "rolebindings/ns/b": BINDING}) as (_, roles):
        assert roles.policy(MAY)


async def test_large_role_change_yields_to_the_event_loop() -> None:
    async with following({"roles/ns/r": {"rules": []}, "rolebindings/ns/b": BINDING}) as (world, roles):

        async def change() -> None:
            await world.put(f"/registry/{GROUP}/roles/ns/r", orjson.dumps(role(30_000)))
            await world.store.fresh()
            await roles.settled()

        assert (await turns_beside(change()))[1] > 5
        assert roles.policy(MAY)


async def test_last_of_several_role_changes_applies() -> None:
    async with following({"rolebindings/ns/b": BINDING}) as (world, roles):
        for document in (role(20_000), {"rules": []}, role(20_000), None, role(1)):
            key = f"/registry/{GROUP}/roles/ns/r"
            await (world.put(key, orjson.dumps(document)) if document is not None else world.remove(key))
            await world.store.fresh()
        await roles.settled()
        assert roles.policy(MAY)
        await world.remove(f"/registry/{GROUP}/roles/ns/r")
        await world.store.fresh()
        await roles.settled()
        assert not roles.policy(MAY)


async def test_many_simultaneous_role_writes_all_apply() -> None:
    many = 20 * limits.FOLLOW_INLINE // len(orjson.dumps(role(50)))
    async with following({}) as (world, roles):
        world.etcd.hold()
        for number in range(many):
            await world.put(f"/registry/{GROUP}/roles/ns/r{number}", orjson.dumps(role(50)))

        async def change() -> None:
            world.etcd.release()
            await world.store.fresh()
            await roles.settled()

        await change()
        assert not roles._pending
        assert len(roles.policy._roles) == many


ODD = [
    [],
    {"rules": 1},
    {"rules": [1]},
    {"rules": [[]]},
    {"rules": [{"verbs": 1}]},
    {"rules": [{"verbs": [[]]}]},
    {"rules": [{**RULE, "resources": [{}]}]},
    {"rules": [{**RULE, "nonResourceURLs": [1]}]},
    {"roleRef": 1},
    {"roleRef": {"kind": [], "name": "r"}},
    {"roleRef": {"kind": "Role", "name": {}}},
    {"roleRef": REFERENCE, "subjects": 1},
    {"roleRef": REFERENCE, "subjects": [1]},
    {"roleRef": REFERENCE, "subjects": [{"kind": [], "name": "joe"}]},
    {"roleRef": REFERENCE, "subjects": [{"kind": "ServiceAccount", "name": 1, "namespace": []}]},
]


@pytest.mark.parametrize("odd", ODD, ids=str)
async def test_malformed_role_or_binding_grants_nothing(odd: Any) -> None:
    paths = ("roles/ns/odd", "clusterroles/odd", "rolebindings/ns/odd", "clusterrolebindings/odd")
    good = {"roles/ns/r": role(), "rolebindings/ns/b": BINDING}
    async with following({**good, **dict.fromkeys(paths, odd)}) as (world, roles):
        assert roles.policy(MAY)
        for path in paths:
            await world.put(f"/registry/{GROUP}/{path}", orjson.dumps({**odd, "more": 1} if odd else [1]))
        await world.store.fresh()
        await roles.settled()
        assert roles.policy(MAY)
        assert not roles.policy(Attributes(JOE, "get", "", "", "v1", "pods", "", "ns", "other"))
