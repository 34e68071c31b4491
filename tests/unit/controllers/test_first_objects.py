"""The objects that the server creates at its start.

The configmap with the CAs of clients follows a renewed CA.
"""

from __future__ import annotations

import asyncio

import orjson
import pytest

from apiext.controllers import first_objects
from apiext.controllers.authentication_trust import CLIENT_CA, NAME, NAMESPACE
from apiext.controllers.first_objects import CONFIG_MAPS, FirstObjects
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, Server, server, until
from tests.unit.controllers.test_authentication_trust import authority


def configmap_data(one: Server) -> dict[str, str] | None:
    entry = one.collection(CONFIG_MAPS).state.cached(NAMESPACE, NAME)
    return orjson.loads(entry.raw)["data"] if entry is not None else None


@pytest.mark.parametrize("has_ca", [True, False])
async def test_renewed_ca_is_added_to_configmap(has_ca: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_objects, "RECREATE_AFTER", 1000.0)  # so that only the renewal writes the configmap again
    before, after = authority("before"), authority("after")
    trust = {CLIENT_CA: before} if has_ca else {}
    async with server(FakeEtcd()) as one, asyncio.TaskGroup() as group:
        made = FirstObjects(one.store, lambda: NOW, "apiext", lambda: "10.96.0.1", 6443, "", lambda: trust)
        made.start(group)
        await made.create()
        assert configmap_data(one) == (trust or None)
        if has_ca:
            trust[CLIENT_CA] = after
            made.renew()
            await until(lambda: configmap_data(one) == {CLIENT_CA: before + after})
        await made.stop()
