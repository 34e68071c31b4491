"""A migration whose write of an object conflicts with another write.

The other write keeps the object's stored version.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson
import pytest

from apiext.controllers import migrations
from apiext.controllers.migrations import MIGRATIONS, Migrations, _Migration, _Pass
from apiext.storage.collection import Collection
from apiext.storage.store import Entry, Unavailable
from apiext.verbs import api
from apiext.verbs.call import Call, Outcome, Verbs
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import crd, server
from tests.unit.verbs.harness import WIDGETS, Client, widget

V1, V2 = b'{"apiVersion":"example.com/v1"', b'{"apiVersion":"example.com/v2"'


def two_versions() -> dict[str, object]:
    """Return a definition with the storage version v2 and stored objects of v1."""
    wanted = crd()
    old = {**wanted["spec"]["versions"][0], "storage": False}
    wanted["spec"]["versions"] = [old, {**old, "name": "v2", "storage": True}]
    wanted["status"]["storedVersions"] = ["v1", "v2"]
    return wanted


@asynccontextmanager
async def migrating() -> AsyncIterator[tuple[Client, Migrations, _Migration, bytes]]:
    """Run a server with a widget of the old version and a running migration.

    The widget is stored in the old version. Also yield its stored bytes.
    """
    async with server(FakeEtcd()) as one:
        await one.define(two_versions())
        await one.established("widgets.example.com")
        client, store = Client(one), one.store
        stored = orjson.dumps(widget("a", metadata={"namespace": "default", "uid": "u"}))
        assert stored.startswith(V1)
        await store.put_key(store.keys.object(WIDGETS, "default", "a"), stored, 0)
        asked = _Migration(Entry("", "m", 1, b""), "", WIDGETS, str(await store.fresh()), frozenset())
        store.add(MIGRATIONS, namespaced=False)
        migration = Migrations(
            client.verbs, one.controllers.serving, one.collection(MIGRATIONS), one.controllers._definitions.collection
        )
        migration._migrations = {asked.key: {"m": asked}}
        yield client, migration, asked, stored


@pytest.mark.rows("VER-002")
async def test_migration_retries_if_concurrent_write_keeps_old_version(monkeypatch: pytest.MonkeyPatch) -> None:
    async with migrating() as (client, migration, asked, stored):
        store, collection = client.server.store, client.server.collection(WIDGETS)
        key = store.keys.object(WIDGETS, "default", "a")
        patch, late = api.patch, True

        async def beaten(verbs: Verbs, call: Call, kind: str, body: bytes) -> Outcome:
            nonlocal late
            if late:
                late, found = False, collection.state.by_key("default/a")
                assert found is not None
                await store.put_key(key, stored.replace(b'"uid"', b'"generation":1,"uid"'), found.revision)
            return await patch(verbs, call, kind, body)

        monkeypatch.setattr(migrations.api, "patch", beaten)
        for left in (V1, V2):
            work = _Pass(asked, collection, None, V2)
            due = [entry for entry in collection.state.readable() if work.due(entry)]
            await migration._each(work, iter(due))
            now = await client.stored("a")
            assert now is not None
            assert now.raw.startswith(left)
            assert bool(work.temporary) == (left == V1), "it is not over then"
            assert not work.failed
            await store.fresh()
        assert not work.due(now)


@pytest.mark.rows("VER-002")
async def test_migration_pass_raises_error_of_unavailable_store(monkeypatch: pytest.MonkeyPatch) -> None:
    async with migrating() as (client, migration, asked, _):

        async def silent(collection: Collection, namespace: str, name: str) -> Entry | None:
            raise Unavailable("etcd does not answer")

        async def lost(call: Call, uid: str, entry: Entry) -> tuple[int, str]:
            return 409, "it has changed"

        monkeypatch.setattr(migration, "_touch", lost)
        monkeypatch.setattr(client.server.store, "current", silent)
        with pytest.raises(Unavailable, match="etcd does not answer"):
            await migration._run(asked)
