"""Reads during a change of their definition.

Clients must retry, and then see the new definition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.storage import limits as storage_limits
from apiext.storage.store import Entry
from apiext.verbs import api, watch
from apiext.verbs import limits as verbs_limits
from tests.support.fake_etcd import FakeEtcd
from tests.support.sinks import RecordingSink, Seen, line, watch_group
from tests.unit.controllers.harness import crd, server
from tests.unit.verbs.harness import Client

NAME = "widgets.example.com"


@dataclass(frozen=True)
class Frames:
    """Frames as of a representation."""

    key: str
    frame: Callable[[str, Entry], bytes]
    bookmark: Callable[[int, bool], bytes]
    expired: Callable[[int, int], bytes]
    failed: Callable[[StatusError], bytes]
    first: None = None
    stage: None = None
    second: None = None


def frames() -> Any:
    group = watch_group()
    return Frames("json", group.frame, group.bookmark, group.expired, lambda error: str(error).encode())


@pytest.mark.rows("SRV-015")
@pytest.mark.parametrize("touched", [True, False])
async def test_watch_ends_if_schema_changes_before_open(touched: bool) -> None:
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


@pytest.mark.rows("RV-019")
async def test_reads_of_unfilled_collection_are_429_with_retry_after(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        client = Client(one)
        collection = client.verbs.store.collection(GroupResource("example.com", "widgets"))
        assert collection is not None
        collection.state.ready = False
        monkeypatch.setattr(collection, "wait_ready", asyncio.Event().wait)
        monkeypatch.setattr(storage_limits, "FRESH_WAIT", 0.01)
        for read in (
            api.get(client.verbs, client.call("get", name="a")),
            api.list_objects(client.verbs, client.call("list")),
            api.open_watch(client.verbs, client.call("watch"), frames(), RecordingSink()),
        ):
            with pytest.raises(StatusError) as refused:
                await asyncio.wait_for(read, 20)
            told = refused.value
            assert (told.code, told.message, told.retry_after) == (429, "storage is (re)initializing", 1)


@pytest.mark.rows("RV-019")
@pytest.mark.parametrize("asked", ["", "1"])
async def test_read_of_refilled_collection_is_refused_after_wait(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        client = Client(one)
        collection = client.verbs.store.collection(GroupResource("example.com", "widgets"))
        assert collection is not None
        whole = client.verbs.store._watch.wait_complete

        async def wait() -> int:  # as if encryption keys changed now
            collection.unready()
            return await whole()

        monkeypatch.setattr(client.verbs.store._watch, "wait_complete", wait)
        monkeypatch.setattr(storage_limits, "FRESH_WAIT", 0.01)
        with pytest.raises(StatusError, match="storage is"):
            await api.get(client.verbs, client.call("get", "a", {"resourceVersion": [asked]}))


@pytest.mark.rows("RV-009")
async def test_watch_ends_with_error_if_event_cannot_be_encoded(caplog: pytest.LogCaptureFixture) -> None:
    def stumble(event: str, entry: Entry) -> bytes:
        raise ZeroDivisionError(f"of {event} {entry.name}")

    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        client = Client(one)
        sink, others = RecordingSink(), RecordingSink()
        odd = replace(frames(), key="odd", frame=stumble, failed=lambda error: line("ERROR", error.message, error.code))
        await api.open_watch(client.verbs, client.call("watch"), odd, sink)
        await api.open_watch(client.verbs, client.call("watch"), frames(), others)
        await client.create("a")
        await sink.until(lambda it: it.ended)
        text = "Internal error occurred: an event cannot be encoded, see the log of the server"
        assert sink.seen == [Seen("ERROR", text, 500)]
        await others.until(lambda it: it.events != [])
        assert not others.ended
    assert "ZeroDivisionError: of ADDED a" in caplog.text


@pytest.mark.rows("RV-009")
def test_watch_from_future_revision_skips_events_up_to_it() -> None:
    group = watch_group()
    ahead = watch._from_the_future(group, 10)
    entries = [Entry("d", "a", revision, b"{}") for revision in (9, 10, 11)]
    assert [ahead.frame("ADDED", entry) for entry in entries] == [b"", b"", group.frame("ADDED", entries[2])]
    assert [ahead.bookmark(revision, False) for revision in (9, 11)] == [group.bookmark(it, False) for it in (10, 11)]
    assert len({one.key for one in (group, ahead, watch._from_the_future(group, 11))}) == 3


def watch_call_from(client: Client, start: int) -> Any:
    """Return the call of a watch from a revision."""
    return client.call("watch", query={"resourceVersion": [str(start)]})


def frames_with_error_code() -> Any:
    """Return frames whose errors have a code."""
    return replace(frames(), failed=lambda error: line("ERROR", error.message, error.code))


@pytest.mark.rows("RV-009")
async def test_watch_from_unreached_revision_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs_limits, "AHEAD_WAIT", 0.05)
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        client, sink = Client(one), RecordingSink()
        start = one.store.revision + 1000
        watcher = await api.open_watch(client.verbs, watch_call_from(client, start), frames_with_error_code(), sink)
        assert not sink.ended
        await sink.until(lambda it: it.ended)
        text = f"the resourceVersion for the provided watch is too large: {start}, current: {one.store.revision}"
        assert sink.seen == [Seen("ERROR", text, 410)]
        assert watcher.ended
        assert client.verbs.store.collection(GroupResource("example.com", "widgets")).feed.watchers == 0  # type: ignore[union-attr]


@pytest.mark.rows("RV-009")
async def test_watch_from_reached_revision_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs_limits, "AHEAD_WAIT", 0.3)
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        client, sink = Client(one), RecordingSink()
        start = one.store.revision + 2
        await api.open_watch(client.verbs, watch_call_from(client, start), frames_with_error_code(), sink)
        opened = asyncio.get_running_loop().time()
        for name in ("a", "b", "c", "d"):
            await client.create(name)
        await asyncio.sleep(opened + 0.35 - asyncio.get_running_loop().time())
        await sink.until(lambda it: len(it.seen) == 2)
        assert not sink.ended
        assert [seen.revision for seen in sink.seen] == [start + 1, start + 2]


@pytest.mark.rows("RV-009")
async def test_watch_waits_for_stale_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs_limits, "AHEAD_WAIT", 0.1)
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        await one.established(NAME)
        client, sink = Client(one), RecordingSink()
        etcd.hold()
        start = etcd.put("/registry/elsewhere/a", b"{}")
        assert start > one.store.revision
        await api.open_watch(client.verbs, watch_call_from(client, start), frames_with_error_code(), sink)
        await asyncio.sleep(0.1)
        assert not sink.ended
        etcd.release()
        await client.create("a")
        await sink.until(lambda it: it.seen != [])
        assert not sink.ended


@pytest.mark.rows("RV-009")
async def test_watch_from_lost_history_expires_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs_limits, "AHEAD_WAIT", 60.0)
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        await one.established(NAME)
        client, sink = Client(one), RecordingSink()
        for name in ("a", "b", "c", "d"):
            await client.create(name)
        known, values = one.store.revision, etcd.state("/registry")
        etcd.replace(known - 2, {key.encode(): value for key, (_, value) in values.items()})
        async with asyncio.timeout(10):
            while one.store.revision >= known:  # noqa: ASYNC110 - the store sets no event
                await asyncio.sleep(0.01)
        await one.established(NAME)
        await api.open_watch(client.verbs, watch_call_from(client, known), frames_with_error_code(), sink)
        await sink.until(lambda it: it.ended)
        assert [seen.revision for seen in sink.seen] == [410]
