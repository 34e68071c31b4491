"""The contract tests of a CachedStore, for the fake etcd, real etcds and embedded stores."""

import asyncio
from typing import Protocol

import orjson
import pytest

from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.compaction import Compactor
from apiext.storage.store import (
    Compacted,
    Entry,
    FutureRevision,
    Guard,
    GuardChanged,
    KeyExists,
    Malformed,
    RevisionChanged,
    TooLarge,
)
from tests.support.sinks import RecordingSink, Seen, fold, watch_group

THINGS = GroupResource("example.com", "things")
ROOMS = GroupResource("example.com", "rooms")
SPACES = GroupResource("", "namespaces")
SECRETS = GroupResource("", "secrets")


class World(Protocol):
    """A CachedStore over an etcd, and a second client that writes to this etcd."""

    store: CachedStore

    async def put(self, key: str, value: bytes) -> int:
        """Write a key with the second client; return its revision."""

    async def remove(self, key: str) -> int:
        """Delete a key with the second client; return the revision of the deletion."""

    async def compact(self, revision: int) -> None:
        """Compact with the second client."""

    async def restart(self) -> CachedStore:
        """Replace the store by a new one over the same etcd, as a restart of the server does."""


async def things(world: World) -> Collection:
    """Return the filled collection of the namespaced resource."""
    col = world.store.add(THINGS, True)
    await col.wait_ready()
    return col


def body(**fields: object) -> bytes:
    """Return the JSON of an object with these labels."""
    return orjson.dumps({"metadata": {"labels": {name: str(value) for name, value in fields.items()}}}) + b"\n"


async def history(world: World, col: Collection) -> list[Seen]:
    """Create, update and delete some objects; return the watch events."""
    store = world.store
    a = await store.create(col, "one", "a", body(n=1))
    b = await store.create(col, "two", "b", body(n=1))
    a2 = await store.update(col, "one", "a", body(n=2), a.revision)
    gone = await store.delete(col, "two", "b", b.revision)
    b2 = await store.create(col, "two", "b", body(n=3))
    c = await store.create(col, "one", "c", body(n=4))
    gone_a = await store.delete(col, "one", "a", a2.revision)
    return [
        Seen("ADDED", "one/a", a.revision),
        Seen("ADDED", "two/b", b.revision),
        Seen("MODIFIED", "one/a", a2.revision),
        Seen("DELETED", "two/b", gone.revision),
        Seen("ADDED", "two/b", b2.revision),
        Seen("ADDED", "one/c", c.revision),
        Seen("DELETED", "one/a", gone_a.revision),
    ]


class StoreContract:
    """The tests; subclasses define the fixture ``world``."""

    @pytest.mark.rows("ETC-005", "RV-001")
    async def test_write_returns_an_entry_with_its_revision(self, world: World) -> None:
        col, store = await things(world), world.store
        made = await store.create(col, "one", "a", body(n=1))
        assert (made.namespace, made.name, made.raw) == ("one", "a", body(n=1))
        changed = await store.update(col, "one", "a", body(n=2), made.revision)
        gone = await store.delete(col, "one", "a", changed.revision)
        assert made.revision < changed.revision < gone.revision
        assert gone.raw == body(n=2)

    @pytest.mark.rows("RV-017")
    async def test_a_write_is_read_at_once(self, world: World) -> None:
        col, store = await things(world), world.store
        made = await store.create(col, "one", "a", body(n=1))
        assert col.state.get("one", "a") is made
        changed = await store.update(col, "one", "a", body(n=2), made.revision)
        assert col.state.get("one", "a") is changed
        await store.delete(col, "one", "a", changed.revision)
        assert col.state.get("one", "a") is None
        assert await store.current(col, "one", "a") is None

    async def test_create_of_an_existing_key_fails(self, world: World) -> None:
        col, store = await things(world), world.store
        made = await store.create(col, "one", "a", body(n=1))
        with pytest.raises(KeyExists) as found:
            await store.create(col, "one", "a", body(n=2))
        assert (found.value.current.revision, found.value.current.raw) == (made.revision, body(n=1))

    async def test_update_with_a_stale_revision_fails(self, world: World) -> None:
        col, store = await things(world), world.store
        made = await store.create(col, "one", "a", body(n=1))
        changed = await store.update(col, "one", "a", body(n=2), made.revision)
        with pytest.raises(RevisionChanged) as found:
            await store.update(col, "one", "a", body(n=3), made.revision)
        assert found.value.current is not None
        assert found.value.current.revision == changed.revision
        with pytest.raises(RevisionChanged) as found:
            await store.delete(col, "one", "a", made.revision)
        assert found.value.current is not None
        with pytest.raises(RevisionChanged) as missing:
            await store.update(col, "one", "other", body(n=3), made.revision)
        assert missing.value.current is None

    async def test_changed_guard_fails_a_write(self, world: World) -> None:
        col, store = await things(world), world.store
        key = store.keys.guard("things.example.com")
        first = await store.put_key(key, b"1", 0)
        await store.create(col, "one", "a", body(n=1), Guard(key, first))
        second = await store.put_key(key, b"2", first)
        with pytest.raises(GuardChanged):
            await store.create(col, "one", "b", body(n=1), Guard(key, first))
        assert await store.get_key(key) == (b"2", second)
        with pytest.raises(RevisionChanged):
            await store.put_key(key, b"3", first)
        await store.delete_key(key, second)
        with pytest.raises(GuardChanged):
            await store.create(col, "one", "b", body(n=1), Guard(key, second))
        assert await store.get_key(key) is None

    async def test_too_large_value_is_rejected(self, world: World) -> None:
        col = await things(world)
        with pytest.raises(TooLarge):
            await world.store.create(col, "one", "a", body(n="x" * 1_700_000))

    @pytest.mark.rows("RV-017", "ETC-006")
    async def test_fresh_read_includes_earlier_writes_of_other_clients(self, world: World) -> None:
        col, store = await things(world), world.store
        key = store.keys.object(THINGS, "one", "a")
        revision = await world.put(key, body(n=1))
        assert await store.fresh() >= revision
        entry = col.state.get("one", "a")
        assert entry is not None
        assert entry.revision == revision
        revision = await world.remove(key)
        assert await store.fresh() >= revision
        assert col.state.get("one", "a") is None

    @pytest.mark.rows("ETC-008", "RV-017")
    async def test_foreign_keys_do_not_delay_a_fresh_read(self, world: World) -> None:
        await things(world)
        revision = await world.put("/somewhere/else", b"x")
        assert await world.store.fresh() >= revision
        later = await world.put("/somewhere/else", b"y")
        await world.store.at_least(later)
        col = await things(world)
        pages = [await world.store.at_revision(col, None, at) for at in (revision, later)]
        assert [page.revision for page in pages] == [revision, later]

    @pytest.mark.rows("RV-002")
    async def test_future_revision_raises_an_error(self, world: World) -> None:
        await things(world)
        head = await world.store.fresh()
        with pytest.raises(FutureRevision) as found:
            await world.store.at_least(head + 1000)
        assert (found.value.requested, found.value.current >= head) == (head + 1000, True)

    @pytest.mark.rows("RV-008", "ETC-001")
    async def test_entries_are_in_key_order(self, world: World) -> None:
        col, store = await things(world), world.store
        for namespace, name in (("a-b", "x"), ("a", "y"), ("a", "b"), ("a.b", "x"), ("b", "a")):
            await store.create(col, namespace, name, body(n=1))
        assert [f"{e.namespace}/{e.name}" for e in col.state.entries()] == ["a-b/x", "a.b/x", "a/b", "a/y", "b/a"]
        assert [e.name for e in col.state.entries("a")] == ["b", "y"]
        assert (col.state.count(), col.state.count("a"), col.state.count("c")) == (5, 2, 0)

    @pytest.mark.rows("RV-005", "RV-003")
    async def test_pages_at_a_revision_form_one_list(self, world: World) -> None:
        col, store = await things(world), world.store
        for number in range(7):
            await store.create(col, f"n{number % 2}", f"o{number}", body(n=number))
        revision = await store.fresh()
        whole = [(e.namespace, e.name, e.revision) for e in col.state.entries()]
        page = await store.at_revision(col, None, revision, limit=3)
        walked = [*page.entries]
        assert (len(page.entries), page.remaining) == (3, 4)
        first = col.state.get("n0", "o0")
        assert first is not None
        await store.delete(col, "n0", "o0", first.revision)
        await store.create(col, "n0", "o9", body(n=9))
        left = []
        while page.next:
            page = await store.at_revision(col, None, revision, after=page.next, limit=3)
            walked += page.entries
            left.append(page.remaining)
        assert left == [1, 0]
        assert [(e.namespace, e.name, e.revision) for e in walked] == whole
        inside = await store.at_revision(col, "n1", revision, after="o1\0")
        assert [e.name for e in inside.entries] == ["o3", "o5"]

    @pytest.mark.rows("RV-003", "RV-007")
    async def test_a_compacted_revision_is_not_listed(self, world: World) -> None:
        col, store = await things(world), world.store
        old = (await store.create(col, "one", "a", body(n=1))).revision
        await store.create(col, "one", "b", body(n=1))
        other = await world.put("/somewhere/else", b"x")
        await world.compact(other)
        with pytest.raises(Compacted):
            await store.at_revision(col, None, old)
        with pytest.raises(Compacted):
            await store.at_revision(col, None, old + 1)
        assert len((await store.at_revision(col, None, other)).entries) == 2

    @pytest.mark.rows("RV-009", "RV-011", "RV-017", "SEL-002")
    @pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
    async def test_a_watch_resumes_after_every_revision(self, world: World, restarted: bool) -> None:
        col = await things(world)
        start = (await world.store.create(col, "zero", "z", body(n=0))).revision
        story = await history(world, col)
        if restarted:
            await world.restart()
            col = await things(world)
        for revision in [start, *(event.revision for event in story)]:
            expected = [event for event in story if event.revision > revision]
            sink, inside = RecordingSink(), RecordingSink()
            watcher = await world.store.watch(col, watch_group(), revision, sink)
            other = await world.store.watch(col, watch_group(namespace="two"), revision, inside)
            if expected:
                assert await sink.reached(story[-1].revision) == expected
            assert await _caught_up(world, col, inside) == [e for e in expected if e.key.startswith("two/")]
            watcher.close()
            other.close()
        assert col.feed.watchers == 0

    @pytest.mark.rows("RV-011", "SEL-002")
    @pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
    async def test_delete_event_has_the_last_value_and_its_own_revision(self, world: World, restarted: bool) -> None:
        col = await things(world)
        made = await world.store.create(col, "one", "a", body(n=1))
        changed = await world.store.update(col, "one", "a", body(n=2), made.revision)
        gone = await world.store.delete(col, "one", "a", changed.revision)
        if restarted:
            await world.restart()
            col = await things(world)
        sink = RecordingSink()
        await world.store.watch(col, watch_group(), made.revision, sink)
        await sink.reached(gone.revision)
        assert sink.seen[-1] == Seen("DELETED", "one/a", gone.revision, body(n=2).decode())

    @pytest.mark.rows("SEL-002")
    async def test_selector_turns_updates_into_added_and_deleted_events(self, world: World) -> None:
        col, store = await things(world), world.store
        sink = RecordingSink()
        col.watch(watch_group(selects=lambda entry: entry.labels.get("n") == "1"), None, sink)
        a = await store.create(col, "one", "a", body(n=0))
        a1 = await store.update(col, "one", "a", body(n=1), a.revision)
        a2 = await store.update(col, "one", "a", body(n=1, m=2), a1.revision)
        a3 = await store.update(col, "one", "a", body(n=2), a2.revision)
        await store.delete(col, "one", "a", a3.revision)
        b = await store.create(col, "one", "b", body(n=1))
        await sink.reached(b.revision)
        assert sink.seen == [
            Seen("ADDED", "one/a", a1.revision, body(n=1).decode()),
            Seen("MODIFIED", "one/a", a2.revision, body(n=1, m=2).decode()),
            Seen("DELETED", "one/a", a3.revision, body(n=1, m=2).decode()),
            Seen("ADDED", "one/b", b.revision, body(n=1).decode()),
        ]

    @pytest.mark.rows("RV-009", "RV-010")
    async def test_watch_from_a_compacted_revision_fails(self, world: World) -> None:
        col = await things(world)
        story = await history(world, col)
        await world.compact(story[-2].revision)
        await world.restart()
        col = await things(world)
        with pytest.raises(Compacted):
            await world.store.watch(col, watch_group(), story[0].revision, RecordingSink())
        sink = RecordingSink()
        await world.store.watch(col, watch_group(), story[-2].revision, sink)
        assert await sink.reached(story[-1].revision) == story[-1:]

    @pytest.mark.rows("RV-012", "RV-013")
    async def test_initial_events_end_with_a_bookmark(self, world: World) -> None:
        col, store = await things(world), world.store
        story = fold(await history(world, col))
        revision = await store.fresh()
        sink, plain = RecordingSink(), RecordingSink()
        col.watch(watch_group(), None, sink, initial=True, bookmarks=True)
        col.watch(watch_group(namespace="one"), 1, plain, initial=True, bookmarks=True, announce=False)
        later = await store.create(col, "one", "later", body(n=1))
        await sink.reached(later.revision)
        initial = [Seen("ADDED", key, story[key]) for key in sorted(story)]
        assert [seen._replace(raw="") for seen in sink.seen] == [
            *initial,
            Seen("END", "", revision),
            Seen("ADDED", "one/later", later.revision),
        ]
        await plain.reached(later.revision)
        assert [seen.key for seen in plain.seen] == ["one/c", "one/later"]

    @pytest.mark.rows("RV-020", "ETC-006")
    async def test_invalid_value_fails_reads_and_is_skipped_in_watches(self, world: World) -> None:
        col, store = await things(world), world.store
        made = await store.create(col, "one", "a", body(n=1))
        await store.create(col, "two", "b", body(n=1))
        sink = RecordingSink()
        col.watch(watch_group(), None, sink)
        key = store.keys.object(THINGS, "one", "a")
        bad = await world.put(key, b"[1]")
        await store.fresh()
        for read in (lambda: col.state.get("one", "a"), col.state.entries, lambda: col.state.page("one", "", 0)):
            with pytest.raises(Malformed) as found:
                read()
            assert found.value.revision == bad
        with pytest.raises(Malformed):
            await store.current(col, "one", "a")
        assert [entry.name for entry in col.state.entries("two")] == ["b"]
        assert [col.state.count(namespace) for namespace in (None, "one", "two", "three")] == [2, 1, 1, 0]
        good = await world.put(key, body(n=2))
        await world.put(key, b"{")
        gone = await world.remove(key)
        assert await sink.reached(gone) == [Seen("MODIFIED", "one/a", good), Seen("DELETED", "one/a", gone)]
        assert col.state.get("one", "a") is None
        assert made.revision < bad

    @pytest.mark.rows("ETC-001", "ETC-008")
    async def test_resources_are_separate_and_foreign_keys_ignored(self, world: World) -> None:
        store = world.store
        spaces, rooms = store.add(SPACES, False), store.add(ROOMS, False)
        col = await things(world)
        await spaces.wait_ready()
        await rooms.wait_ready()
        root = store.keys.root
        for key in ("example.com/rooms/x/y", "example.com/things/x", "example.com/things/a/b/c", "what", "example.com"):
            await world.put(root + key, body(n=0))
        await store.create(rooms, "", "attic", body(n=1))
        await store.create(spaces, "", "default", body(n=1))
        await store.create(col, "default", "a", body(n=1))
        await world.restart()
        store = world.store
        for resource, namespaced, names in (
            (SPACES, False, ["default"]),
            (ROOMS, False, ["attic"]),
            (THINGS, True, ["a"]),
        ):
            col = store.add(resource, namespaced)
            await col.wait_ready()
            assert [entry.name for entry in col.state.entries()] == names

    @pytest.mark.rows("ETC-001", "RV-017")
    @pytest.mark.parametrize("resource", [THINGS, ROOMS, SPACES, SECRETS], ids=str)
    @pytest.mark.parametrize("namespace", ["", "one"])
    async def test_watch_delivers_foreign_writes_for_every_key_layout(
        self, world: World, resource: GroupResource, namespace: str
    ) -> None:
        """Keys have different parts before the name: with or without group and namespace."""
        store = world.store
        col = store.add(resource, bool(namespace))
        await col.wait_ready()
        sink = RecordingSink()
        col.watch(watch_group(), None, sink)
        key = store.keys.object(resource, namespace, "a")
        revisions = [await world.put(key, body(n=1)), await world.put(key, body(n=2)), await world.remove(key)]
        await store.fresh()
        assert [seen.revision for seen in await sink.reached(revisions[-1])] == revisions

    async def test_a_dropped_resource_ends_its_watches(self, world: World) -> None:
        col, store = await things(world), world.store
        sink = RecordingSink()
        col.watch(watch_group(), None, sink)
        store.drop(THINGS)
        assert sink.ended
        assert store.collection(THINGS) is None
        again = await things(world)
        assert again is not col
        assert again.state.ready

    async def test_subscribers_receive_changes_in_order(self, world: World) -> None:
        col = await things(world)
        heard: list[Seen] = []
        end = col.feed.subscribe(lambda change: heard.append(_seen(change.kind, change.entry)))
        story = await history(world, col)
        assert heard == story
        end()
        await world.store.create(col, "one", "later", body(n=1))
        assert heard == story

    async def test_collection_filled_during_writes_is_complete(self, world: World) -> None:
        col, store = await things(world), world.store

        async def write(number: int) -> Entry:
            made = await store.create(col, "one", f"o{number:03}", body(n=number))
            return await store.update(col, "one", made.name, body(n=number, m=1), made.revision)

        writes = asyncio.gather(*(write(number) for number in range(120)))
        await store.create(col, "one", "first", body(n=0))
        store.drop(THINGS)
        again = await things(world)
        sink = RecordingSink()
        again.watch(watch_group(), None, sink, initial=True)
        last = max(entry.revision for entry in await writes)
        await store.fresh()
        await sink.reached(last)
        assert fold(sink.seen) == {f"one/{entry.name}": entry.revision for entry in again.state.entries()}
        assert again.state.count() == 121

    @pytest.mark.rows("OPS-002")
    async def test_servers_take_turns_to_compact(self, world: World) -> None:
        col, store = await things(world), world.store
        old = (await store.create(col, "one", "a", body(n=1))).revision
        ours = Compactor(store.etcd)
        await ours.turn()
        await ours.turn()
        await store.create(col, "one", "b", body(n=1))
        head = await store.fresh()
        assert await ours.turn() >= old
        await world.restart()
        theirs = Compactor(world.store.etcd)
        assert await theirs.turn() == 0
        assert await theirs.turn() >= head
        col = await things(world)
        with pytest.raises(Compacted):
            await world.store.at_revision(col, None, old)


def _seen(kind: str, entry: Entry) -> Seen:
    return Seen(kind, f"{entry.namespace}/{entry.name}", entry.revision)


async def _caught_up(world: World, col: Collection, sink: RecordingSink) -> list[Seen]:
    """Return the events of a sink, after a second watch has received its initial events."""
    probe = RecordingSink()
    watcher = col.watch(watch_group(), None, probe, initial=True, bookmarks=True)
    await probe.until(lambda it: any(seen.type == "END" for seen in it.seen))
    watcher.close()
    return sink.events
