"""Names of definitions: the index makes the same decisions as a scan of the whole group."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.controllers.definitions import Definitions, Facts, group_of, read
from apiext.controllers.naming import Naming
from apiext.controllers.statuses import Statuses
from apiext.crd.conditions import find, same_condition, with_condition, with_status
from apiext.crd.definition import NAMES_ACCEPTED, Names
from apiext.crd.naming import NameIndex, decide_names, distinct_names, is_decided
from apiext.documents.document import Document
from apiext.storage.store import Entry, Unavailable
from apiext.verbs.amendments import Amendment
from tests.support.laws import examples

pytestmark = pytest.mark.rows("CND-001", "CND-002", "CND-003")
NOW = "2026-01-02T03:04:05Z"
GROUP = "g.io"
Event = tuple[Any, ...]
PLURALS = ("as", "bs", "cs", "ds", "es", "fs")


class Scan:
    """The model of the index: it scans all definitions of the group for each decision."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._had: dict[str, Names] = {}

    def record(self, name: str) -> None:
        facts = self._world.get(name)
        if facts is None:
            self._had.pop(name, None)
        elif facts.outline.names == facts.outline.accepted:
            self._had[name] = facts.outline.names
        elif self._had.get(name) != facts.outline.names:
            self._had.pop(name, None)

    async def reconcile(self, group: str) -> None:
        passed: set[str] = set()
        while True:
            undecided = [
                facts for facts in self._of_group(group) if facts.name not in passed and not is_decided(facts.outline)
            ]
            robbed = (facts for facts in undecided if self._had.get(facts.name) == facts.outline.names)
            facts = next(robbed, undecided[0] if undecided else None)
            if facts is None:
                return
            passed.add(facts.name)
            if not await self._decide(facts):
                return

    def _of_group(self, group: str) -> list[Facts]:
        found = (self._world.get(name) for name in self._world.stored if group_of(name) == group)
        return sorted((facts for facts in found if facts is not None), key=lambda facts: facts.revision)

    async def _decide(self, facts: Facts) -> bool:
        taken = set[tuple[bool, str]]()
        for other in self._of_group(facts.outline.group):
            taken |= distinct_names(other.outline.accepted)
        naming = decide_names(facts.outline, taken)
        same = same_condition(find(facts.outline.conditions, NAMES_ACCEPTED), naming.names_condition)
        if same and naming.accepted == facts.outline.accepted:
            return True

        def amend(document: Document) -> Document:
            conditions = (document.get("status") or {}).get("conditions")
            for told in (naming.names_condition, naming.established_condition):
                conditions = with_condition(conditions, told, NOW)
            return with_status(document, acceptedNames=naming.accepted.document(), conditions=conditions)

        return await self._world.amend(self._world.stored[facts.name], amend) is not None


@dataclass
class World:
    """Definitions in memory, in place of Definitions and Statuses.

    ``between`` are the events before each write.
    """

    between: list[list[Event]] = field(default_factory=list)
    stored: dict[str, Entry] = field(default_factory=dict)
    revision: int = 0
    broken: tuple[str, ...] = ()
    history: list[tuple[str, bytes]] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    record: Callable[[str], None] = lambda name: None
    known: dict[str, Facts | None] = field(default_factory=dict)

    @property
    def collection(self) -> World:
        return self

    @property
    def state(self) -> World:
        return self

    def entry(self, name: str) -> Entry | None:
        return self.stored.get(name)

    def get(self, name: str) -> Facts | None:
        return self.known.get(name)

    def names(self) -> list[str]:
        return list(self.stored)

    def groups(self) -> list[str]:
        return list({group_of(name): None for name in self.stored})

    async def amend(self, entry: Entry, amendment: Amendment) -> Entry | None:
        document = amendment(orjson.loads(entry.raw))
        assert document is not None
        events = self.between.pop(0) if self.between else []
        await asyncio.sleep(0)
        for event in events:
            if event[0] == "fail":
                raise Unavailable("etcd is away")
            self.happens(event)
        if self.stored.get(entry.name) is not entry:
            return None
        self.history.append((entry.name, orjson.dumps(document["status"])))
        return self.put(entry.name, document)

    def put(self, name: str, document: Document) -> Entry:
        self.revision += 1
        entry = self.stored[name] = Entry("", name, self.revision, orjson.dumps(document))
        self.known[name] = read(entry)
        self._changed(name)
        return entry

    def _changed(self, name: str) -> None:
        self.record(name)
        self.asked.add(group_of(name))

    def happens(self, event: Event) -> None:
        what, plural, names = event
        name = f"{plural}.{GROUP}"
        before = self.stored.get(name)
        document = orjson.loads(before.raw) if before is not None else definition(plural)
        if what == "delete":
            if before is not None:
                self.revision += 1
                del self.stored[name], self.known[name]
                self._changed(name)
        elif what == "request":
            document["spec"]["names"] = {"plural": plural, **names}
            self.put(name, document)
        elif what == "rob" and before is not None:
            document["status"]["acceptedNames"] = {"plural": "", "kind": ""}
            self.put(name, document)
        elif what == "touch" and before is not None:
            self.put(name, document)

    async def settle(self, reconcile: Callable[[str], Any]) -> None:
        """Reconcile groups until the queue is empty."""
        while self.asked:
            group = self.asked.pop()
            try:
                await reconcile(group)
            except Unavailable:
                self.asked.add(group)


def definition(plural: str, **names: Any) -> Document:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}", "uid": plural, "generation": 1},
        "spec": {"group": GROUP, "scope": "Cluster", "names": {"plural": plural, **names}, "versions": []},
        "status": {},
    }


few = st.sampled_from(["x", "y", "z"])
kinds = st.sampled_from(["X", "Y", "Z", "A"])
short_names = st.lists(few | st.just("as"), max_size=2)
requests = st.fixed_dictionaries({"kind": kinds, "singular": few, "shortNames": short_names})
ALL = {(False, one) for one in ("x", "y", "z", "", *PLURALS)} | {(True, one) for one in ("X", "Y", "Z", "A", "")}
events = st.one_of(
    st.tuples(st.just("request"), st.sampled_from(PLURALS), requests),
    st.tuples(st.sampled_from(["delete", "rob", "touch"]), st.sampled_from(PLURALS), st.none()),
)
turns = st.lists(st.lists(events, max_size=4), max_size=8)
interruptions = st.lists(st.lists(events | st.just(("fail",)), max_size=2), max_size=12)


def writes_of_names(indexed: bool, rounds: list[list[Event]], between: list[list[Event]]) -> tuple[Any, ...]:
    """Return all writes of names, and the definitions after them."""
    world = World([*between])

    async def live() -> None:
        controller: Naming | Scan
        if indexed:
            controller = Naming(cast("Definitions", world), cast("Statuses", world), lambda: NOW)
        else:
            controller = Scan(world)
        world.record = controller.record
        for happened in rounds:
            for event in happened:
                world.happens(event)
            await world.settle(controller.reconcile)

    asyncio.run(live())
    return world.history, {name: (entry.revision, entry.raw) for name, entry in world.stored.items()}


@examples(80)
@given(turns, interruptions)
def test_name_index_decides_like_scan_of_group(rounds: list[list[Event]], between: list[list[Event]]) -> None:
    assert writes_of_names(True, rounds, between) == writes_of_names(False, rounds, between)


@given(st.lists(st.tuples(st.sampled_from(PLURALS), st.none() | requests, st.none() | requests), max_size=12))
def test_name_index_counts_names_of_all_definitions(changes: list[tuple[str, Any, Any]]) -> None:
    index, stored = NameIndex(), dict[str, Any]()
    for plural, requested, accepted in changes:
        stored.pop(plural, None)
        before = index.taken(GROUP)
        was = {name for name in ALL if name in before}
        if requested is None:
            woken = index.put(plural, GROUP, None)
        else:
            document = definition(plural, **requested)
            document["status"] = {"acceptedNames": {"plural": plural, **(accepted or {})}}
            facts = read(Entry("", f"{plural}.{GROUP}", 1, orjson.dumps(document)))
            assert facts is not None
            stored[plural] = facts.outline
            woken = index.put(plural, GROUP, facts.outline)
        taken = set().union(*(distinct_names(one.accepted) for one in stored.values()))
        assert {name for name in ALL if name in index.taken(GROUP)} == ALL & taken
        turned = was ^ (ALL & taken)
        reached = {one for one, it in stored.items() if one != plural and distinct_names(it.names) & turned}
        assert reached <= set(woken)
