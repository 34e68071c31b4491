"""Definitions are edited five times per second under load.

No request fails, and only affected watches end.
"""

from __future__ import annotations

import http.client
import itertools
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import pause, until
from tests.support.processes import running_server

EVERY = 0.2  # seconds between edits
SHORT, LONG = 30, 1500  # edits
WRITERS = 4
TEXT, SIZE = {"type": "string"}, {"type": "integer"}
LAST = "the-last"


def schema(**properties: Any) -> dict[str, Any]:
    spec = {"type": "object", "properties": {"color": TEXT, "size": SIZE, **properties}}
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}


@dataclass
class Edit:
    """A kind of edit of the versions of a definition.

    It has the change (name → version), and the versions whose watches it ends.
    """

    name: str
    change: Callable[[dict[str, dict[str, Any]], int], None]
    ends: tuple[str, ...] = ()


def _describe(versions: dict[str, dict[str, Any]], count: int) -> None:
    for version in versions.values():
        version["schema"]["openAPIV3Schema"]["description"] = f"edited {count} times"


def _spec(version: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def _column(versions: dict[str, dict[str, Any]], count: int) -> None:
    columns = [{"name": f"Color{count}", "type": "string", "jsonPath": ".spec.color"}]
    versions["v2"]["additionalPrinterColumns"] = columns


def _rule(versions: dict[str, dict[str, Any]], count: int) -> None:
    _spec(versions["v2"])["x-kubernetes-validations"] = [{"rule": f"self.size >= 0 || {count} < 0"}]


def _tighten(versions: dict[str, dict[str, Any]], count: int) -> None:
    _spec(versions["v2"])["properties"]["size"] = {**SIZE, "maximum": 1_000_000 + count}


def _flip(versions: dict[str, dict[str, Any]], count: int) -> None:
    versions["v2"]["served"] = not versions["v2"]["served"]


def _add_or_remove(versions: dict[str, dict[str, Any]], count: int) -> None:
    if "v3" in versions:
        del versions["v3"]
    else:
        versions["v3"] = {"name": "v3", "served": True, "storage": False, "schema": schema(other=TEXT)}


EDITS = (
    Edit("description", _describe),
    Edit("printer column", _column, ("v2",)),
    Edit("rule", _rule, ("v2",)),
    Edit("schema tightening", _tighten, ("v2",)),
    Edit("served flip", _flip, ("v2",)),
    Edit("version added or removed", _add_or_remove, ("v1", "v2", "v3")),
)


@dataclass
class Stream:
    """A client that watches one version, and resumes each time its watch ends."""

    resource: Resource
    ended: int = 0
    opened: int = 0
    events: list[tuple[int, str, str]] = field(default_factory=list)

    def follow(self, since: int, wrong: list[str], over: threading.Event) -> None:
        """Watch until the event of the last object."""
        while True:
            try:
                with self.resource.api.watch(self.resource.path(), resourceVersion=since) as watch:
                    if watch.status == 404 and self.resource.version != "v1" and not over.is_set():
                        pause(0.02)
                        continue
                    if watch.status == 404 and self.resource.version != "v1":
                        return
                    if watch.status != 200:
                        wrong.append(f"watching {self.resource.version}: {watch.status} {watch.read()[:300]!r}")
                        return
                    self.opened += 1
                    for event in watch:
                        if event["type"] == "ERROR":
                            wrong.append(f"watching {self.resource.version}: {event['object']}")
                            return
                        since = int(event["object"]["metadata"]["resourceVersion"])
                        name = event["object"]["metadata"]["name"]
                        self.events.append((since, event["type"], name))
                        if name == LAST:
                            return
                    self.ended += 1
            except (OSError, http.client.HTTPException) as error:
                wrong.append(f"watching {self.resource.version} broke: {error!r}")
                return


class Load:
    """Writers in v1, and one Stream for each version."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        self.over = threading.Event()
        self.wrong: list[str] = []
        self.answers: Counter[int] = Counter()
        self.written: list[tuple[int, str]] = []
        self._lock = threading.Lock()
        self.streams = {
            version: Stream(Resource(resource.api, resource.group, resource.plural, resource.kind, version))
            for version in ("v1", "v2")
        }
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        since = int(self.resource.api.get(self.resource.path()).expect(200)["metadata"]["resourceVersion"])
        for stream in self.streams.values():
            self._run(stream.follow, since, self.wrong, self.over)
        for number in range(WRITERS):
            self._run(self._write, number)

    def _run(self, target: Callable[..., None], *arguments: Any) -> None:
        def guarded() -> None:
            try:
                target(*arguments)
            except Exception as failure:
                self.wrong.append(f"{target.__name__} died of {failure!r}")

        thread = threading.Thread(target=guarded, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _write(self, number: int) -> None:
        widgets, api = self.resource, self.resource.api
        for count in itertools.count():
            if self.over.is_set():
                return
            name = f"w{number}-{count}"
            self._note(api.post(widgets.path(), widgets.make(name, color="red", size=count)), 201, name)
            self._note(api.patch(widgets.path(name), {"spec": {"size": count + 1}}), 200, name)
            read = api.get(widgets.path(name))
            if read.status != 200 or read.json["spec"] != {"color": "red", "size": count + 1}:
                self.wrong.append(f"reading {name}: {read.status} {read.raw[:300]!r}")
            if api.get(widgets.path(), limit=5).status != 200:
                self.wrong.append("a list failed")

    def _note(self, answer: Any, wanted: int, name: str) -> None:
        with self._lock:
            self.answers[answer.status] += 1
            if answer.status != wanted:
                self.wrong.append(f"writing {name}: {answer.status} {answer.raw[:300]!r}")
            else:
                self.written.append((int(answer.json["metadata"]["resourceVersion"]), name))

    def finish(self) -> None:
        self.over.set()
        for thread in self._threads[len(self.streams) :]:
            thread.join(20)
        last = self.resource.create(LAST, color="red", size=0)
        self.written.append((int(last["metadata"]["resourceVersion"]), LAST))
        for thread in self._threads:
            thread.join(20)
        if any(thread.is_alive() for thread in self._threads):
            self.wrong.append("a stream was not sent the last event")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a server for the tests of this module."""
    with running_server(["--insecure", "--port=0"], tmp_path_factory.mktemp("edits")) as server:
        yield Client(server.url)


def begin(api: Client) -> Load:
    """Define widgets in two versions, and start the load."""
    wanted = definition(fresh_group())
    wanted["spec"]["versions"] = [
        {"name": "v1", "served": True, "storage": True, "schema": schema()},
        {"name": "v2", "served": True, "storage": False, "schema": schema(other=TEXT)},
    ]
    group = establish(api, wanted)["spec"]["group"]
    load = Load(Resource(api, group, "widgets", "Widget", "v1"))
    load.start()
    until(lambda: all(stream.events for stream in load.streams.values()), "the streams flow")
    return load


def edit(api: Client, group: str, one: Edit, count: int) -> None:
    """Apply an edit to the current definition."""
    name = f"{DEFINITIONS}/widgets.{group}"

    def written() -> bool:
        stored = api.get(name).expect(200)
        versions = {version["name"]: version for version in stored["spec"]["versions"]}
        one.change(versions, count)
        stored["spec"]["versions"] = list(versions.values())
        answer = api.put(name, stored)
        assert answer.status in (200, 409), answer.text
        return answer.status == 200  # 409: a controller has changed the definition

    until(written, f"{one.name} is written")


def complete(load: Load, version: str) -> None:
    """Check that the stream of a version received every acknowledged write once and in order."""
    events = [event[0] for event in load.streams[version].events]
    assert events == sorted(set(events)), f"{version}: out of order or twice"
    first = events[0]
    missing = {revision for revision, _ in load.written if revision >= first} - set(events)
    assert not missing, f"{version} was not sent {len(missing)} of {len(load.written)} writes"


@pytest.mark.rows("SRV-015")
def test_description_edits_end_no_watch(api: Client) -> None:
    load = begin(api)
    for count in range(25):
        edit(api, load.resource.group, EDITS[0], count)
        pause(EVERY / 4)
    load.finish()
    assert not load.wrong, load.wrong[:5]
    assert [stream.ended for stream in load.streams.values()] == [0, 0]
    for version in load.streams:
        complete(load, version)


def _run(api: Client, edits: int) -> None:
    seed = int(os.environ.get("FAULT_SEED", "0")) or random.randrange(1, 2**31)
    print(f"FAULT_SEED={seed}")
    chance, load = random.Random(seed), begin(api)
    done: Counter[str] = Counter()
    for count in range(edits):
        one = chance.choice(EDITS)
        edit(api, load.resource.group, one, count)
        done[one.name] += 1
        pause(EVERY)
    if done["served flip"] % 2:
        edit(api, load.resource.group, EDITS[4], edits)
    load.finish()
    first, second = load.streams["v1"], load.streams["v2"]
    print(
        f"{dict(done)}; {sum(load.answers.values())} writes, {len(first.events)} events; "
        f"streams of v1 ended {first.ended} times, of v2 {second.ended} times"
    )
    assert not load.wrong, load.wrong[:5]
    assert load.answers.keys() == {200, 201}
    for stream in (first, second):
        touching = sum(done[one.name] for one in EDITS if stream.resource.version in one.ends)
        assert 0 < stream.ended <= touching, stream.resource.version
    complete(load, "v1")


@pytest.mark.rows("SRV-015", "SRV-002", "VER-015")
def test_definition_edits_fail_no_request(api: Client) -> None:
    _run(api, SHORT)


@pytest.mark.long
def test_many_definition_edits_fail_no_request(api: Client) -> None:
    _run(api, LONG)


@pytest.mark.rows("SRV-015", "SRV-002")
@pytest.mark.parametrize("one", EDITS, ids=[one.name.replace(" ", "-") for one in EDITS])
def test_definition_edit_ends_only_affected_watches(api: Client, one: Edit) -> None:
    load = begin(api)
    edit(api, load.resource.group, one, 1)
    touched = [stream for version, stream in load.streams.items() if version in one.ends]
    until(lambda: all(stream.ended for stream in touched), f"{one.name} ends the streams of {one.ends}", within=5)
    if one.name == "served flip":
        edit(api, load.resource.group, one, 2)
    load.finish()
    assert not load.wrong, load.wrong[:5]
    assert [load.streams[version].ended for version in ("v1", "v2")] == [int(it in one.ends) for it in ("v1", "v2")]
    complete(load, "v1")
