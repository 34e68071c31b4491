"""Versions that are used in succession read their schemas from one decoded definition."""

from __future__ import annotations

import pytest

from apiext.controllers import limits
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import crd, server, until


async def test_versions_share_one_decoded_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "DECODED_KEPT", 1e6)
    several, one = crd("widgets"), crd("gadgets")
    (version,) = several["spec"]["versions"]
    several["spec"]["versions"] += [{**version, "name": f"v{number}", "storage": False} for number in (2, 3)]
    async with server(FakeEtcd()) as running:
        for document in (several, one):
            await running.define(document)
        await until(lambda: running.served("widgets.example.com") and running.served("gadgets.example.com"))
        widgets, gadgets = running.served("widgets.example.com"), running.served("gadgets.example.com")
        assert widgets is not None
        assert gadgets is not None
        first, second = (widgets.versions[name].model.schema for name in ("v2", "v3"))
        assert first() == second() == {"type": "object", "description": "a thing"}
        assert first() is first()
        assert gadgets.versions["v1"].model.schema() is not gadgets.versions["v1"].model.schema(), (
            "nothing is kept of one version"
        )
