"""Events of controllers: each is sent once, in order and in time; lost events are logged."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from apiext.auth.user import SUPERUSER
from apiext.controllers import limits
from apiext.controllers.events import Events
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from tests.unit.controllers.harness import NOW, until
from tests.unit.controllers.owners import World, world

EVENTS = GroupResource("", "events")


def involved_object(name: str) -> Document:
    """Return the object of an Event.

    It is cluster-scoped, as the test server has few namespaces.
    """
    return {"apiVersion": "other.com/v1", "kind": "Gadget", "namespace": "", "name": name, "uid": f"uid-{name}"}


def stored_events(it: World) -> list[Document]:
    """Return all stored Events."""
    return [orjson.loads(entry.raw) for entry in it.one.collection(EVENTS).state.readable()]


async def test_event_is_created_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(limits, "EVENTS_WAITING", 2)
    async with world() as it, asyncio.TaskGroup() as group:
        await until(lambda: it.one.collection(GroupResource("", "namespaces")).state.get("", "default"))
        events = Events(it.garbage._verbs, "tester", SUPERUSER)
        for name in ("a", "a", "b" * 250, "lost"):
            events.warn(involved_object(name), "Tested", "a test")
        assert "event dropped, the queue is full: Tested of lost: a test" in caplog.text
        events.start(group)
        await until(lambda: len(stored_events(it)) == 2)
        events.warn(involved_object("a"), "Tested", "a test")
        events.warn(involved_object("lost"), "Tested", "a test")  # the queue has room again
        await until(lambda: len(stored_events(it)) == 3)
        await events.stop()
        found = {event["involvedObject"]["name"]: event for event in stored_events(it)}
    assert found.keys() == {"a", "b" * 250, "lost"}
    assert found["b" * 250]["metadata"]["name"].startswith("uid-"), "a name may be too long for an Event"
    event = found["a"]
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == {field: value for field, value in involved_object("a").items() if value}
    assert (event["firstTimestamp"], event["lastTimestamp"], event["count"]) == (NOW, NOW, 1)
    assert (event["type"], event["source"]) == ("Warning", {"component": "tester"})


async def test_refused_event_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as it, asyncio.TaskGroup() as group:
        events = Events(it.garbage._verbs, "tester", SUPERUSER)
        events.start(group)
        events.warn({**involved_object("A"), "uid": "no/name"}, "Tested", "a test")
        await until(lambda: "event Tested of A could not be created" in caplog.text)
        await events.stop()
        assert stored_events(it) == []
