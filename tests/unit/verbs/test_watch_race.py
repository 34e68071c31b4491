"""A watch that opens while its definition changes ends at once: its client asks again and sees the new meaning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from apiext.documents.document import Document
from apiext.storage.store import Entry
from apiext.verbs import api
from tests.support.fake_etcd import FakeEtcd
from tests.support.sinks import RecordingSink, watch_group
from tests.unit.controllers.harness import crd, server
from tests.unit.verbs.harness import Client

NAME = "widgets.example.com"


@dataclass(frozen=True)
class Frames:
    """Frames as a representation makes them."""

    key: str
    frame: Callable[[str, Entry], bytes]
    bookmark: Callable[[int, bool], bytes]
    expired: Callable[[int, int], bytes]
    failed: Callable[[Exception], bytes]
    first: None = None
    stage: None = None


def frames() -> Any:
    group = watch_group()
    return Frames("json", group.frame, group.bookmark, group.expired, lambda error: str(error).encode())


@pytest.mark.rows("SRV-015")
@pytest.mark.parametrize("touched", [True, False])
async def test_an_edit_between_asking_and_opening(touched: bool) -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        client = Client(one)
        asked = client.call("watch")

        def edit(document: Document) -> None:
            document["metadata"]["generation"] += 1
            schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            schema |= {"properties": {"a": {"type": "string"}}} if touched else {"description": "in words"}

        entry = await one.change(NAME, edit)
        await one.controllers.serving.seen(entry.revision)
        sink = RecordingSink()
        await api.open_watch(client.verbs, asked, frames(), sink)
        assert sink.ended is touched
        again = RecordingSink()
        await api.open_watch(client.verbs, client.call("watch"), frames(), again)
        assert not again.ended
