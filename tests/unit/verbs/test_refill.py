"""Writes succeed while their collection is read again, as after a change of encryption keys."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from apiext.meta.status import StatusError
from apiext.verbs import api
from apiext.verbs.call import Outcome
from tests.support.fake_etcd import FakeEtcd
from tests.unit.verbs.harness import WIDGETS, Client, widget
from tests.unit.verbs.test_write_loop import served


async def write(client: Client, verb: str, name: str) -> Outcome:
    if verb == "create":
        return await client.create(name)
    if verb == "apply":
        call = client.call("patch", name, {"fieldManager": ["me"]})
        return await api.patch(client.verbs, call, "application/apply-patch+yaml", orjson.dumps(widget(name)))
    if verb == "update":
        found = await client.stored(name)
        told = {"name": name, "resourceVersion": str(found.revision if found else 1)}
        return await client.update({**widget(name, spec={"n": 2}), "metadata": told})
    return await (client.patch(name, {"spec": {"n": 2}}) if verb == "patch" else client.delete(name))


@pytest.mark.rows("RV-019", "WRI-005", "WRI-016")
@pytest.mark.parametrize(
    ("verb", "name", "code"),
    [
        ("create", "b", 201),
        ("create", "a", 409),
        ("apply", "b", 201),
        ("update", "a", 200),
        ("update", "b", 404),
        ("patch", "a", 200),
        ("patch", "b", 404),
        ("delete", "a", 200),
        ("delete", "b", 404),
    ],
)
async def test_write_does_not_wait_for_collection_refill(verb: str, name: str, code: int) -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", spec={"n": 1})
        collection = client.server.collection(WIDGETS)
        collection.unready()
        try:
            told = (await asyncio.wait_for(write(client, verb, name), 20)).code
        except StatusError as refused:
            told = refused.code
        assert told == code
        await client.server.store.fills.fill(collection)
        assert collection.state.get("default", name) == await client.stored(name)
