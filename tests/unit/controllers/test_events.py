"""Events of controllers: each is sent once, in order, within a time limit; lost events are logged."""

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


def about(name: str) -> Document:
    """Return the object of an Event; it is cluster-scoped, as the test server has few namespaces."""
    return {"apiVersion": "other.com/v1", "kind": "Gadget", "namespace": "", "name": name, "uid": f"uid-{name}"}


def made(it: World) -> list[Document]:
    """Return all stored Events."""
    return [orjson.loads(entry.raw) for entry in it.one.collection(EVENTS).state.readable()]


async def test_an_event_is_made_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(limits, "EVENTS_WAITING", 2)
    async with world() as it, asyncio.TaskGroup() as group:
        await until(lambda: it.one.collection(GroupResource("", "namespaces")).state.get("", "default"))
        events = Events(it.garbage._verbs, "tester", SUPERUSER)
        for name in ("a", "a", "b" * 250, "lost"):
            events.warn(about(name), "Tested", "a test")
        assert "event dropped, the queue is full: Tested of lost: a test" in caplog.text
        events.start(group)
        await until(lambda: len(made(it)) == 2)
        events.warn(about("a"), "Tested", "a test")
        events.warn(about("lost"), "Tested", "a test")  # the queue has room again
        await until(lambda: len(made(it)) == 3)
        await events.stop()
        found = {event["involvedObject"]["name"]: event for event in made(it)}
    assert found.keys() == {"a", "b" * 250, "lost"}
    assert found["b" * 250]["metadata"]["name"].startswith("uid-"), "a name may be too long for an Event"
    event = found["a"]
    assert event["metadata"]["namespace"] == "default"
    assert event["involvedObject"] == {field: value for field, value in about("a").items() if value}
    assert (event["firstTimestamp"], event["lastTimestamp"], event["count"]) == (NOW, NOW, 1)
    assert (event["type"], event["source"]) == ("Warning", {"component": "tester"})


async def test_an_event_that_is_refused_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as it, asyncio.TaskGroup() as group:
        events = Events(it.garbage._verbs, "tester", SUPERUSER)
        events.start(group)
        events.warn({**about("A"), "uid": "no/name"}, "Tested", "a test")
        await until(lambda: "event Tested of A could not be created" in caplog.text)
        await events.stop()
        assert made(it) == []
