"""Ages in Tables are computed at the time of the request (TAB-003).

They are right despite caches and jumps of the wall clock.
"""

from __future__ import annotations

import gzip
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.cases import Timeless
from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import TABLE, Client
from tests.support.clock import MovedClock, library
from tests.support.processes import ROOT, running_etcd, running_server

HOUR = 3600
MOVES = (3 * HOUR, 0, -3 * HOUR, 0)  # successive errors of the clock in seconds
KINDS = yaml.safe_load((ROOT / "apiext" / "conformance" / "builtin_kinds.yaml").read_text("utf-8"))
SAMPLES = yaml.safe_load((ROOT / "tests" / "reference" / "samples.yaml").read_text("utf-8"))
STAMPS = {
    "Since": "2001-02-03T04:05:06Z",
    "First Seen": "2026-01-02T03:04:05Z",
    "Last Seen": "2026-11-20T00:00:00Z",
    "TimeAdded": "2026-01-02T03:04:05Z",
}
DATED = {"Age", *STAMPS}
COLUMNS = [
    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    {"name": "Since", "type": "date", "jsonPath": ".spec.note"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
]
STREAM = TABLE.replace("application/json", "text/event-stream")
BEGIN = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
OBJECTS = 3
FLAGS = ("--insecure", "--port=0", "--runtime-config=storagemigration.k8s.io/v1beta1=true", "--controllers=*,-svm")

Table = dict[str, Any]
Cells = dict[tuple[str, str], list[Any]]
"""(path, form) → the cells and the object of each row, without ages."""


@dataclass
class World:
    """A server with a changeable clock, and the paths of its collections."""

    api: Client
    clock: MovedClock
    places: list[str]


# --- ways to read the Tables of a collection ---


def _rows(tables: list[Table]) -> list[Table]:
    """Return the rows of Tables, each with its columns."""
    columns = [column["name"] for column in tables[0]["columnDefinitions"]]
    return [{"columns": columns, **row} for table in tables for row in table["rows"] or ()]


def _list(world: World, path: str) -> list[Table]:
    return _rows([world.api.get(path, {"Accept": TABLE}).expect(200)])


def _cached_list(world: World, path: str) -> list[Table]:
    return _rows([world.api.get(path, {"Accept": TABLE}, resourceVersion=0, includeObject="Object").expect(200)])


def _zipped(world: World, path: str) -> list[Table]:
    answer = world.api.get(path, {"Accept": TABLE, "Accept-Encoding": "gzip"})
    packed = answer.headers.get("content-encoding") == "gzip"
    return _rows([json.loads(gzip.decompress(answer.raw) if packed else answer.raw)])


def _indented(world: World, path: str) -> list[Table]:
    return _rows([world.api.get(path, {"Accept": TABLE}, pretty="true").expect(200)])


def _yaml(world: World, path: str) -> list[Table]:
    raw = world.api.get(path, {"Accept": TABLE.replace("json", "yaml")}).raw
    return _rows([yaml.load(raw, Timeless)])


def _pages(world: World, path: str) -> list[Table]:
    tables, token = [], ""
    while not tables or token:
        tables.append(world.api.get(path, {"Accept": TABLE}, limit=2, **{"continue": token}).expect(200))
        token = tables[-1]["metadata"].get("continue", "")
    return _rows(tables)


def _one_by_one(world: World, path: str) -> list[Table]:
    found = []
    for item in world.api.get(path).expect(200)["items"]:
        metadata = item["metadata"]
        place = path
        if metadata.get("namespace") and "/namespaces/" not in path:
            head, _, plural = path.rpartition("/")
            place = f"{head}/namespaces/{metadata['namespace']}/{plural}"
        found.append(world.api.get(f"{place}/{metadata['name']}", {"Accept": TABLE}).expect(200))
    return _rows(found)


def _watch(world: World, path: str, **query: str) -> list[Table]:
    """Return the Tables in the initial events of a watch."""
    count, tables = len(world.api.get(path).expect(200)["items"]), list[Table]()
    with world.api.watch(path, headers={"Accept": TABLE}, **query) as watch:
        while len(tables) < count:
            event = watch.next()
            assert event["type"] == "ADDED", event
            tables.append(event["object"])
    return _rows(tables)


def _initial_events(world: World, path: str) -> list[Table]:
    tables = []
    with world.api.watch(path, headers={"Accept": TABLE}, **BEGIN) as watch:
        while (event := watch.next())["type"] != "BOOKMARK":
            tables.append(event["object"])
    return _rows(tables)


def _events(world: World, path: str) -> list[Table]:
    """Return the Tables in the initial events of a stream of server-sent events.

    The first id ends these events.
    """
    tables = []
    with world.api.watch(path, headers={"Accept": STREAM}) as watch:
        for line in watch.lines():
            if line.startswith(b"id: "):
                break
            if line.startswith(b"data: "):
                tables.append(json.loads(line[6:])["object"])
    return _rows(tables)


FORMS: dict[str, Callable[[World, str], list[Table]]] = {
    "list": _list,
    "list again": _list,
    "list of whole objects, resourceVersion=0": _cached_list,
    "list, gzip": _zipped,
    "list, indented": _indented,
    "list, YAML": _yaml,
    "limit": _pages,
    "get": _one_by_one,
    "watch with initial events": _initial_events,
    "watch with initial events again": _initial_events,
    "watch": _watch,
    "watch from resourceVersion=0": lambda world, path: _watch(world, path, resourceVersion="0"),
    "event stream": _events,
}


# --- the test ---


def human_duration(seconds: float) -> str:
    """Format an age as kubectl does, for the ages of this test."""
    whole, day = int(seconds), 24 * HOUR
    if whole < -1:
        return "<invalid>"
    minutes, hours, days = whole // 60, whole // HOUR, whole // day
    steps = (
        (120, f"{max(whole, 0)}s"), (600, f"{minutes}m{whole % 60}s"), (3 * HOUR, f"{minutes}m"),
        (8 * HOUR, f"{hours}h{minutes % 60}m"), (2 * day, f"{hours}h"), (8 * day, f"{days}d{hours % 24}h"),
        (730 * day, f"{days}d"), (2920 * day, f"{days // 365}y{days % 365}d"),
    )  # fmt: skip
    text = next((text for below, text in steps if whole < below), f"{days // 365}y")
    return re.sub(r"(?<=[a-z])0[a-z]$", "", text)


def _ages(row: Table, since: float, until: float) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return column → age of a row, and column → allowed ages between two times."""
    metadata = row["object"]["metadata"]
    found, right = {}, {}
    for name, cell in zip(row["columns"], row["cells"], strict=True):
        if name in DATED:
            stamp = metadata["creationTimestamp"] if name == "Age" else STAMPS[name]
            then = datetime.fromisoformat(stamp).timestamp()
            found[name] = cell
            right[name] = {human_duration(at - then) for at in (since, until)}
            assert until - since < 30, "the server answers soon"
            right[name] |= {human_duration(at - then) for at in range(int(since) + 1, int(until) + 1)}
    return found, right


def _cells_without_ages(row: Table) -> tuple[list[Any], Any]:
    """Return the cells of a row without ages, and its object."""
    shown = zip(row["columns"], row["cells"], strict=True)
    return [None if name in DATED else cell for name, cell in shown], row["object"]


def _read(world: World) -> Cells:
    """Read all collections in all ways, check each age, and return all other cells."""
    found, wrong = {}, []
    for path in world.places:
        for form, read in FORMS.items():
            since = time.time() + world.clock.wrong_by
            rows = read(world, path)
            until = time.time() + world.clock.wrong_by
            assert rows, f"{path}, {form}: nothing is shown"
            for row in rows:
                told, right = _ages(row, since, until)
                wrong += [
                    f"{path}, {form}: {name} {cell}, not one of {sorted(right[name])}"
                    for name, cell in told.items()
                    if cell not in right[name]
                ]
            found[path, form] = [_cells_without_ages(row) for row in rows]
    assert not wrong, f"{len(wrong)} wrong ages at {world.clock.wrong_by:+d} s:\n" + "\n".join(wrong[:40])
    return found


def _changes(before: Cells, after: Cells) -> list[str]:
    """Return a line for each row that differs."""
    return [
        f"{place}: {row} instead of {old}"
        for place, rows in before.items()
        for old, row in zip_longest(rows, after[place])
        if old != row
    ]


def _collections(api: Client) -> Iterator[str]:
    """Yield the path of each collection of stored objects, across all namespaces."""
    groups = [group["preferredVersion"]["groupVersion"] for group in api.get("/apis").expect(200)["groups"]]
    for place in ["/api/v1", *(f"/apis/{version}" for version in groups)]:
        for resource in api.get(place).expect(200)["resources"]:
            if {"list", "create"} <= set(resource["verbs"]):  # component statuses are computed, and have no age
                yield f"{place}/{resource['name']}"


def _event_times(version: str) -> Table:
    """Return the fields with the times at which an event of a version was first and last seen."""
    first, last = STAMPS["First Seen"], STAMPS["Last Seen"]
    if version == "v1":
        return {"firstTimestamp": first, "lastTimestamp": last}
    first, last = first.replace("Z", ".000000Z"), last.replace("Z", ".000000Z")
    return {"eventTime": first, "series": {"count": 2, "lastObservedTime": last}}


def _fill(api: Client) -> str:
    """Create some objects of each kind; return the path of one object."""
    for kind in KINDS:
        parts = kind["path"].split("/")
        version = parts[2] if parts[1] == "api" else f"{parts[2]}/{parts[3]}"
        for _ in range(OBJECTS):
            name = f"k-{secrets.token_hex(4)}"
            made = {"apiVersion": version, "kind": kind["kind"], "metadata": {"name": name}, **kind["body"]}
            if kind["kind"] == "Event":
                made |= _event_times(version)
            api.post(kind["path"], made).expect(201)
    covered = {kind["path"] for kind in KINDS}
    for sample in SAMPLES:
        if sample["path"] not in covered:
            names = [sample["name"]] if "name" in sample else [f"sample-{number}" for number in range(OBJECTS)]
            for name in names:
                api.post(sample["path"], {"metadata": {"name": name}, **sample["body"]}).expect(201)
    widgets = serve(api, additionalPrinterColumns=COLUMNS)
    gadgets = serve(api, "gadgets", scope="Cluster")
    for number in range(2 * OBJECTS):
        widgets.create(f"w{number}", size=number, note=STAMPS["Since"])
        gadgets.create(f"g{number}")
    return str(widgets.path("w0"))


@pytest.mark.rows("TAB-003", "TAB-005")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.long)])
def test_clock_jump_changes_only_the_ages_of_tables(tmp_path: Path, workers: int) -> None:
    found = library()
    if found is None:
        pytest.skip("faketime is not on this machine: the clock of whole processes cannot be moved")
    clock = MovedClock(found, tmp_path / "clock")
    with ExitStack() as stack:
        etcd = stack.enter_context(running_etcd(tmp_path / "etcd"))
        flags = [*FLAGS, f"--workers={workers}", f"--etcd-servers={etcd.url}"]
        server = stack.enter_context(running_server(flags, tmp_path / "server", env=clock.env))
        api = Client(server.url)
        one = _fill(api)
        world = World(api, clock, list(_collections(api)))
        assert len(world.places) > 20
        watches = {
            path: stack.enter_context(api.watch(path, headers={"Accept": TABLE}, resourceVersion="0"))
            for path in world.places
        }
        before = _read(world)
        for seconds in MOVES:
            clock.move(seconds)
            changed = _changes(before, _read(world))
            assert not changed, f"at {seconds:+d} s:\n" + "\n".join(changed[:10])
        _events_of_open_watches(world, watches, one)
        assert "Traceback" not in server.log_tail()


def _events_of_open_watches(world: World, watches: dict[str, Any], one: str) -> None:
    """Check that an event of an open watch contains the age at the time of the event."""
    path = next(path for path in world.places if path.endswith("/widgets"))
    for number, seconds in enumerate(MOVES):
        world.clock.move(seconds)
        since = time.time() + seconds
        world.api.patch(one, {"spec": {"size": abs(seconds) + number}}).expect(200)
        event = watches[path].next("MODIFIED")
        row = {"columns": [column["name"] for column in COLUMNS], **event["object"]["rows"][0]}
        row["cells"] = row["cells"][1:]
        told, right = _ages(row, since, time.time() + seconds)
        assert told
        assert all(cell in right[name] for name, cell in told.items()), (told, right)
