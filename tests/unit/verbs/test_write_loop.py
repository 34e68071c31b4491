"""The write loop: writes of other clients, a stale cache, and deleted definitions."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from apiext.auth.user import SUPERUSER
from apiext.catalog.served import ServedResource
from apiext.documents import json_patch
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.meta.status import StatusError
from apiext.storage import limits
from apiext.storage.cached_store import CachedStore
from apiext.storage.store import Entry, Guard, NotReady, RevisionChanged, UnknownOutcome
from apiext.verbs import api, create, guarded
from apiext.verbs.call import Call
from apiext.verbs.delete import DEFINITIONS
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import server
from tests.unit.verbs.harness import DEFINITION, WIDGETS, Client, body, serving_widgets, widget


@asynccontextmanager
async def served(etcd: FakeEtcd) -> AsyncIterator[Client]:
    async with serving_widgets(etcd) as one:
        yield Client(one)


def not_none(entry: Entry | None) -> Entry:
    assert entry is not None
    return entry


@pytest.mark.rows("WRI-005")
async def test_stale_update_conflicts_but_patch_without_version_succeeds() -> None:
    async with served(FakeEtcd()) as client:
        first = client.shown(await client.create("a", spec={"n": 1}))
        await client.patch("a", {"spec": {"n": 2}})
        with pytest.raises(StatusError) as conflict:
            await client.update(first)
        assert (conflict.value.code, conflict.value.reason) == (409, "Conflict")
        assert client.shown(await client.patch("a", {"spec": {"m": 1}}))["spec"] == {"n": 2, "m": 1}


@pytest.mark.rows("OPS-003")
async def test_buffered_encrypted_events_do_not_block_other_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(FakeEtcd()) as client:
        made = not_none((await client.create("a", spec={"n": 1})).entry)
        store = client.server.store
        secrets = store.add(GroupResource("", "secrets"), namespaced=True)
        await secrets.wait_ready()
        secrets.decryption_buffer = waiting = secrets.new_decryption_buffer(store)
        monkeypatch.setattr(waiting, "_catch_up", lambda turn: asyncio.sleep(0))
        monkeypatch.setattr(limits, "FRESH_WAIT", 0.01)
        waiting.buffer(("d/a", made.revision + 1, b"sealed"))
        with pytest.raises(NotReady):
            await store.fresh()
        assert not_none((await client.patch("a", {})).entry).revision == made.revision  # with the newest definition
        assert await client.verbs.definitions.refresh("example.com", "widgets") is not None
        await client.verbs.definitions.begin_deletion("widgets.example.com", "d1")
        await api.settle(client.verbs)
        waiting.release()


@pytest.mark.rows("WRI-005", "RV-017")
async def test_update_with_stale_cache_reads_etcd_before_conflict() -> None:
    etcd = FakeEtcd()
    async with served(etcd) as one, served(etcd) as other:
        await one.create("a", spec={"n": 1})
        newer = not_none(await one.stored("a"))
        etcd.hold()
        changed = await _put(other, newer, {"n": 2})
        assert one.server.collection(WIDGETS).state.get("default", "a") is not None
        fresh = {**widget("a", spec={"n": 3}), "metadata": {"name": "a", "resourceVersion": str(changed)}}
        async with asyncio.TaskGroup() as group:
            update = group.create_task(one.update(fresh))
            while not_none(await one.stored("a")).revision == changed:  # noqa: ASYNC110 - the fake etcd has no event to await
                await asyncio.sleep(0)
            etcd.release()
        assert one.shown(update.result())["spec"] == {"n": 3}


@pytest.mark.rows("WRI-019", "RV-017")
async def test_delete_with_stale_cache_reads_etcd_before_conflict() -> None:
    etcd = FakeEtcd()
    async with served(etcd) as client:
        await client.create("a")
        entry = not_none(await client.stored("a"))
        etcd.hold()
        store = client.server.store
        await store.delete_key(store.keys.object(WIDGETS, "default", "a"), entry.revision)
        assert client.server.collection(WIDGETS).state.get("default", "a") is not None
        with pytest.raises(StatusError) as gone:
            await client.delete("a", {"preconditions": {"uid": "other"}})
        assert gone.value.code == 404
        etcd.release()


@pytest.mark.rows("WRI-012", "WRI-017", "RV-017")
@pytest.mark.parametrize("what", ["patch", "update", "delete", "delete held", "delete again", "last finalizer"])
async def test_writes_without_transaction_do_not_use_stale_cache(what: str) -> None:
    etcd, dry = FakeEtcd(), {"dryRun": ["All"]}
    async with served(etcd) as client:
        held = what in ("delete held", "delete again", "last finalizer")
        made = client.shown(
            await client.create("a", spec={"n": 1}, metadata={"finalizers": ["x.io/y"] if held else []})
        )
        if what in ("delete again", "last finalizer"):
            await client.delete("a")
        entry, store = not_none(await client.stored("a")), client.server.store
        etcd.hold()
        if what in ("patch", "update"):
            await _put(client, entry, {"n": 2})
        else:
            await store.delete_key(store.keys.object(WIDGETS, "default", "a"), entry.revision)
        assert not_none(client.server.collection(WIDGETS).state.get("default", "a")).revision == entry.revision
        calls = {
            "patch": lambda: client.patch("a", {"spec": {"m": 1}}, dryRun="All"),
            "update": lambda: api.update(client.verbs, client.call("update", "a", dry), body({**made, "spec": {}})),
            "delete": lambda: client.delete("a", dict(dry)),
            "delete held": lambda: client.delete("a", dict(dry)),
            "delete again": lambda: client.delete("a"),
            "last finalizer": lambda: client.patch("a", {"metadata": {"finalizers": None}}, dryRun="All"),
        }
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(_outcome(calls[what]()))
            for _ in range(100):
                await asyncio.sleep(0)
            etcd.release()
        if what == "patch":
            assert client.shown(asked.result())["spec"] == {"n": 2, "m": 1}
        else:
            assert asked.result().code == (409 if what == "update" else 404)


@pytest.mark.rows("NSP-005", "RV-017")
async def test_delete_of_absent_namespace_ignores_stale_cache() -> None:
    etcd = FakeEtcd()
    async with served(etcd) as client:
        store, namespaces = client.server.store, GroupResource("", "namespaces")
        key = store.keys.object(namespaces, "", "n")
        going = {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        held = {"apiVersion": "v1", "kind": "Namespace", "metadata": going, "spec": {"finalizers": ["example.com/x"]}}
        before = await store.put_key(key, orjson.dumps(held), 0)
        await store.fresh()
        etcd.hold()
        await store.delete_key(key, before)
        resource = client.server.live.current.resource("", "namespaces")
        assert resource is not None
        version = resource.versions["v1"]
        call = Call("delete", version, resource, version.endpoints[""], None, "n", {}, SUPERUSER, "test")
        assert (await _outcome(api.delete(client.verbs, call, None))).code == 404
        etcd.release()


async def _outcome(asked: Awaitable[Any]) -> Any:
    """Return the result, or the StatusError."""
    try:
        return await asked
    except StatusError as refused:
        return refused


@pytest.mark.rows("WRI-022")
@pytest.mark.parametrize("raw", [b'{"metadata":5}', b'{"metadata":null}', b"{}"])
async def test_name_of_malformed_stored_object_already_exists(raw: bytes) -> None:
    async with served(FakeEtcd()) as client:
        store = client.server.store
        await store.put_key(store.keys.object(WIDGETS, "default", "a"), raw, 0)
        with pytest.raises(StatusError) as taken:
            await client.create("a")
        assert (taken.value.code, taken.value.reason) == (409, "AlreadyExists")


async def _put(client: Client, entry: Entry, spec: dict[str, int]) -> int:
    """Write directly to the store, like a server whose watch is late."""
    served_version = client.call("get").served
    document = served_version.codec.decode(entry.raw, entry.revision)
    document["metadata"].pop("resourceVersion", None)
    raw = served_version.codec.encode({**document, "spec": spec})
    key = client.server.store.keys.object(WIDGETS, "default", "a")
    return await client.server.store.put_key(key, raw, entry.revision)


@pytest.mark.rows("WRI-005")
async def test_update_writes_same_bytes_after_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(FakeEtcd()) as client:
        before = client.shown(await client.create("a", spec={"n": {"m": 1}}))
        store, attempts = client.server.store, []

        async def late(self: CachedStore, *args: Any) -> Entry:
            attempts.append(args[3])
            if len(attempts) == 1:
                raise RevisionChanged(not_none(await client.stored("a")))
            return await put(self, *args)

        put = CachedStore.update
        monkeypatch.setattr(type(store), "update", late)
        owner = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}
        metadata = {**before["metadata"], "labels": {"a": "1"}, "ownerReferences": [owner, owner]}
        await client.update({**before, "metadata": metadata, "spec": {"n": {"m": 2}}})
        assert attempts[0] == attempts[1]
        assert b'"m":2' in attempts[0]


@pytest.mark.rows("WRI-015")
async def test_retried_patch_warns_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", spec={"n": 1})
        put, attempts = CachedStore.update, 0

        async def late(self: CachedStore, *args: Any) -> Entry:
            nonlocal attempts
            attempts += 1
            if attempts == 1:
                raise RevisionChanged(not_none(await client.stored("a")))
            return await put(self, *args)

        monkeypatch.setattr(CachedStore, "update", late)
        owner = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}
        call = client.call("patch", "a")
        raw = orjson.dumps({"metadata": {"ownerReferences": [owner, owner]}})
        await api.patch(client.verbs, call, "application/merge-patch+json", raw)
        assert (attempts, len(call.warnings)) == (2, 1)


@pytest.mark.rows("WRI-006")
async def test_no_op_patch_keeps_resource_version() -> None:
    async with served(FakeEtcd()) as client:
        before = client.shown(await client.create("a", spec={"n": 1}))
        after = client.shown(await client.patch("a", {"spec": {"n": 1}}))
        assert after == before


@pytest.mark.rows("WRI-012")
async def test_a_dry_run_stores_nothing() -> None:
    async with served(FakeEtcd()) as client:
        call = client.call("create", query={"dryRun": ["All"]})
        outcome = await client.create("a", call=call)
        assert outcome.code == 201
        assert await client.stored("a") is None
        await client.create("a", spec={"n": 1})
        await client.patch("a", {"spec": {"n": 2}}, dryRun="All")
        assert b'"n":1' in not_none(await client.stored("a")).raw


@pytest.mark.rows("WRI-009", "WRI-017")
async def test_removing_last_finalizer_deletes_object() -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", metadata={"finalizers": ["example.com/hold"]})
        held = client.shown(await client.delete("a"))
        assert held["metadata"]["deletionGracePeriodSeconds"] == 0
        again = client.shown(await client.delete("a"))
        assert again == held, "a second delete changes nothing"
        last = client.shown(await client.patch("a", {"metadata": {"finalizers": None}}))
        assert last["metadata"]["resourceVersion"] == held["metadata"]["resourceVersion"]
        assert await client.stored("a") is None


@pytest.mark.rows("WRI-009", "NSP-005")
@pytest.mark.parametrize("spec", [{"finalizers": ["example.com/hold"]}, "text", ["list"]])
async def test_custom_object_of_kind_namespace_is_deleted_normally(spec: Any) -> None:
    names = {**DEFINITION["spec"]["names"], "kind": "Namespace", "listKind": "NamespaceList"}  # type: ignore[index]
    definition = {**DEFINITION, "spec": {**DEFINITION["spec"], "names": names}}  # type: ignore[dict-item]
    async with server(FakeEtcd()) as one:
        await one.define({**definition, "metadata": {"name": "widgets.example.com", "uid": "d1", "generation": 1}})
        await one.established("widgets.example.com")
        client = Client(one)
        await client.create("a", kind="Namespace", spec=spec, metadata={"finalizers": ["example.com/hold"]})
        await client.delete("a")
        await client.patch("a", {"metadata": {"finalizers": None}})
        assert await client.stored("a") is None


@pytest.mark.rows("WRI-003")
async def test_finalizers_cannot_be_added_to_terminating_object() -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", metadata={"finalizers": ["example.com/hold"]})
        await client.delete("a")
        with pytest.raises(StatusError) as refused:
            await client.patch("a", {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}})
        assert refused.value.code == 422
        assert "no new finalizers can be added" in refused.value.message


@pytest.mark.rows("VAL-014")
async def test_metadata_error_is_reported_once_beside_kind_error() -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", metadata={"finalizers": ["example.com/hold"]})
        held = client.shown(await client.delete("a"))
        change = {"finalizers": ["example.com/hold", "example.com/more"]}
        with pytest.raises(StatusError) as refused:
            await client.update({**held, "kind": "Other", "metadata": {**held["metadata"], **change}})
        causes = refused.value.document()["details"]["causes"]
        assert [cause["field"] for cause in causes] == ["metadata.finalizers", "kind"]


@pytest.mark.rows("WRI-022", "ERR-04")
async def test_create_of_existing_name_is_refused() -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", metadata={"finalizers": ["example.com/hold"]})
        with pytest.raises(StatusError) as taken:
            await client.create("a")
        assert taken.value.message == 'widgets.example.com "a" already exists'
        await client.delete("a")
        with pytest.raises(StatusError) as leaving:
            await client.create("a")
        assert leaving.value.message == 'object is being deleted: widgets.example.com "a" already exists'


@pytest.mark.rows("WRI-002")
async def test_generated_names_are_distinct() -> None:
    async with served(FakeEtcd()) as client:
        names = set()
        for _ in range(20):
            call = client.call("create")
            outcome = await client.create("", call=call, metadata={"generateName": "w-"})
            names.add(client.shown(outcome)["metadata"]["name"])
        assert len(names) == 20
        assert all(name.startswith("w-") and len(name) == 7 for name in names)


@pytest.mark.rows("WRI-002")
@pytest.mark.parametrize(("taken", "code"), [(7, 201), (8, 409)])
async def test_generated_name_is_retried_up_to_eight_times(
    monkeypatch: pytest.MonkeyPatch, taken: int, code: int
) -> None:
    async with served(FakeEtcd()) as client:
        tried: list[str] = []
        monkeypatch.setattr(create, "generate_name", lambda prefix: tried.append(prefix) or f"{prefix}{len(tried)}")
        for number in range(taken):
            await client.create(f"w-{number + 1}")
        if code == 201:
            outcome = await client.create("", metadata={"generateName": "w-"})
            assert (outcome.code, client.shown(outcome)["metadata"]["name"]) == (201, "w-8")
        else:
            with pytest.raises(StatusError) as refused:
                await client.create("", metadata={"generateName": "w-"})
            assert (refused.value.code, refused.value.reason) == (409, "AlreadyExists")
            assert 'w-8" already exists, the server was not able to generate' in refused.value.message
        assert len(tried) == 8


@pytest.mark.rows("DEL-004")
async def test_create_before_definition_deletion_is_refused_at_commit() -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", metadata={"finalizers": ["example.com/hold"]})
        dry = {"dryRun": ["All"]}
        creates, patch = (client.call("create"), client.call("create", "", dry)), client.call("patch", "a")
        await client.server.delete_definition("widgets.example.com")
        for create in creates:
            with pytest.raises(StatusError) as refused:
                await client.create("b", call=create)
            assert refused.value.code == 403
            assert refused.value.message.endswith("create not allowed while custom resource definition is terminating")
        went_on = await api.patch(client.verbs, patch, "application/merge-patch+json", b'{"spec":{"n":1}}')
        assert client.shown(went_on)["spec"] == {"n": 1}
        await client.patch("a", {"metadata": {"finalizers": None}})
        await client.server.gone("widgets.example.com")


@pytest.mark.rows("DEL-004")
async def test_abandoned_deletion_of_definition_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = FakeEtcd()
    async with served(etcd) as client:
        serving, guards = type(client.server.controllers.serving), []
        begin = serving.begin_deletion

        async def interrupted(self: Any, name: str, uid: str) -> Guard:
            guards.append(guard := await begin(self, name, uid))
            if len(guards) == 1:
                raw = etcd.state(guard.key)[guard.key][1].replace(b"terminating", b"serving")
                await client.server.store.put_key(guard.key, raw, guard.revision)
            return guard

        monkeypatch.setattr(serving, "begin_deletion", interrupted)
        resource = client.server.live.current.resource(DEFINITIONS.group, DEFINITIONS.resource)
        assert resource is not None
        version = resource.versions["v1"]
        name = "widgets.example.com"
        call = Call("delete", version, resource, version.endpoints[""], None, name, {}, SUPERUSER)
        assert (await api.delete(client.verbs, call, None)).code == 200
        assert guards[0].revision < guards[1].revision
        await client.server.gone(name)


@pytest.mark.rows("WRI-019")
async def test_delete_checks_uid_precondition() -> None:
    async with served(FakeEtcd()) as client:
        uid = client.shown(await client.create("a"))["metadata"]["uid"]
        with pytest.raises(StatusError) as wrong:
            await client.delete("a", {"preconditions": {"uid": "other"}})
        assert wrong.value.code == 409
        assert (await client.delete("a", {"preconditions": {"uid": uid}})).code == 200
        with pytest.raises(StatusError) as gone:
            await client.delete("a")
        assert gone.value.code == 404


@pytest.mark.rows("WRI-005", "RV-017")
@pytest.mark.parametrize("verb", ["update", "delete"])
async def test_write_with_unknown_outcome_is_not_retried(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", spec={"list": [1]})
        really = getattr(CachedStore, verb)

        async def unheard(self: CachedStore, *args: Any) -> Any:
            await really(self, *args)
            raise UnknownOutcome

        monkeypatch.setattr(CachedStore, verb, unheard)
        adds = b'[{"op":"add","path":"/spec/list/-","value":2}]'
        patch = api.patch(client.verbs, client.call("patch", "a"), "application/json-patch+json", adds)
        with pytest.raises(StatusError) as doubt:
            await (patch if verb == "update" else client.delete("a"))
        patch.close()
        assert (doubt.value.code, doubt.value.reason) == (504, "Timeout")
        monkeypatch.undo()
        found = await client.stored("a")
        assert found is None if verb == "delete" else b'"list":[1,2]' in not_none(found).raw


@pytest.mark.rows("DEL-004")
@pytest.mark.parametrize("namespaced", [True, False])
async def test_path_of_former_scope_is_not_found(monkeypatch: pytest.MonkeyPatch, namespaced: bool) -> None:
    async with served(FakeEtcd()) as client:
        call = client.call("create")
        now = replace(call.resource, namespaced=namespaced)

        async def refresh(*_: str) -> ServedResource:
            return now

        monkeypatch.setattr(client.server.controllers.serving, "refresh", refresh)
        call.namespace = None if namespaced else "d"
        with pytest.raises(StatusError) as refused:
            await guarded.refresh(client.verbs, call)
        assert refused.value.code == 404
        call.namespace = "d" if namespaced else None
        await guarded.refresh(client.verbs, call)
        assert call.resource is now


@pytest.mark.rows("WRI-007")
@pytest.mark.parametrize("copies", [True, False])
async def test_json_patch_with_copy_is_applied_in_thread(copies: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    apply, loop = json_patch.apply, threading.get_ident()

    def noted(*of: Any) -> Document:
        seen.append(threading.get_ident() == loop)
        return apply(*of)

    async with served(FakeEtcd()) as client:
        await client.create("a", spec={"l": [[]] * 100})
        monkeypatch.setattr(json_patch, "apply", noted)
        add = {"op": "add", "path": "/spec/n", "value": 1}
        copy = {"op": "copy", "from": "/spec", "path": "/spec/m"}
        raw = orjson.dumps([add, copy] if copies else [add])
        await api.patch(client.verbs, client.call("patch", "a"), "application/json-patch+json", raw)
        assert seen == [not copies]
        assert ("m" in client.shown(await client.patch("a", {}))["spec"]) is copies
