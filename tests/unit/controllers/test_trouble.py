"""Controllers with faults: etcd fails, values are unreadable, history is compacted."""

import asyncio
from functools import partial

import orjson
import pytest
from msgspec.structs import replace

from apiext.admission.chain import Chain
from apiext.admission.configured import POLICIES
from apiext.auth.authorization import Attributes
from apiext.auth.roles import CLUSTER_ROLES, Roles
from apiext.auth.user import User
from apiext.catalog.builtin.resources import builtin_resources
from apiext.controllers import limits
from apiext.controllers.definitions import DEFINITIONS
from apiext.controllers.migrations import MIGRATIONS, Migrations
from apiext.documents.document import Document
from apiext.etcd import errors
from apiext.etcd.values import WriteResult
from apiext.meta.names import GroupResource
from apiext.storage.change_feed import ChangeFeed
from apiext.storage.collection import Collection
from apiext.verbs.call import Verbs
from tests.support.fake_etcd import FakeEtcd, Guards
from tests.support.sinks import RecordingSink, watch_group
from tests.unit.controllers.harness import NOW, PREFIX, Server, conditions, crd, server, until, widget

NAME = "widgets.example.com"
WIDGETS = GroupResource("example.com", "widgets")


class MoodyEtcd(FakeEtcd):
    """An etcd that refuses deletions of keys that contain ``refuses``."""

    refuses = b""

    async def _guarded(self, key: bytes, value: bytes | None, expected: int, guards: Guards) -> WriteResult:
        if self.refuses and value is None and self.refuses in key:
            raise errors.Unavailable(14, "not now", sent=False)
        return await super()._guarded(key, value, expected, guards)


@pytest.mark.rows("CND-009")
async def test_failed_object_deletions_are_reported_and_retried() -> None:
    etcd = MoodyEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        for name in ("good", "bad"):
            await one.put(served, widget(name))
        etcd.refuses = b"/bad"
        await one.delete_definition(NAME)
        await until(lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionFailed")
        told = conditions(one.definition(NAME))["Terminating"]
        assert told[0] == "True"
        assert told[2].startswith("could not issue all deletes: ")
        assert one.collection(WIDGETS).state.get("d", "good") is None
        etcd.refuses = b""
        await one.gone(NAME)


@pytest.mark.looptime
@pytest.mark.rows("CND-009")
async def test_cleanup_timeout_is_reported_in_condition() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        served = await one.established(NAME)
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.delete_definition(NAME)
        await until(
            lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionCheck",
            limits.CLEANUP_WAIT + 5,
            every=1.0,
        )
        assert conditions(one.definition(NAME))["Terminating"] == (
            "True",
            "InstanceDeletionCheck",
            "could not confirm zero CustomResources remaining: timed out waiting for the condition",
        )
        held = one.collection(WIDGETS).state.get("d", "held")
        assert held is not None
        await one.store.delete(one.collection(WIDGETS), "d", "held", held.revision)
        await one.gone(NAME)


@pytest.mark.rows("CND-009")
async def test_slower_server_drops_sweep_of_deleted_definition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one, server(etcd) as other:
        await one.define(crd())
        served = await one.established(NAME)
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.delete_definition(NAME)
        sweeps = [each.controllers._loops.finalizing._sweeps for each in (one, other)]
        await until(lambda: all(NAME in each for each in sweeps))
        fresh = other.store.fresh

        async def late() -> int:
            await one.gone(NAME)
            return await fresh()

        monkeypatch.setattr(other.store, "fresh", late)
        held = one.collection(WIDGETS).state.get("d", "held")
        while held is None or b"deletionTimestamp" not in held.raw:
            await asyncio.sleep(0)
            held = one.collection(WIDGETS).state.get("d", "held")
        await one.store.delete(one.collection(WIDGETS), "d", "held", held.revision)
        await one.gone(NAME)
        await other.gone(NAME)
        await until(lambda: not any(sweeps))


@pytest.mark.rows("CND-009")
async def test_definition_deleted_at_cleanup_start_leaves_no_sweep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        await one.put(await one.established(NAME), widget("held", finalizers=("example.com/keep",)))
        await one.delete_definition(NAME)
        await until(lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionInProgress")
        await until(lambda: one.controllers._loops.loops["finalizing"].idle)
    wait_ready, followed = Collection.wait_ready, list[Server]()

    async def late(col: Collection) -> None:
        await wait_ready(col)
        if col.resource == WIDGETS:
            await until(lambda: followed)
            etcd.remove(f"{PREFIX}/example.com/widgets/d/held")
            etcd.remove(f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}")
            await until(lambda: followed[0].definition(NAME) is None)

    monkeypatch.setattr(Collection, "wait_ready", late)
    async with server(etcd) as other:
        followed.append(other)
        await other.gone(NAME)
        await until(lambda: other.controllers._loops.loops["finalizing"].idle)
        assert not other.controllers._loops.finalizing._sweeps


@pytest.mark.rows("CND-009", "ETC-006")
async def test_unreadable_object_delays_deletion_of_definition() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        await one.put(served, widget("good"))
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        etcd.put(f"{PREFIX}/example.com/widgets/d/bad", b"no json")
        await one.delete_definition(NAME)
        await until(lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionFailed")
        assert conditions(one.definition(NAME))["Terminating"][2].startswith("could not list instances: ")
        assert [entry.name for entry in one.collection(WIDGETS).state.readable()] == ["held"]
        etcd.remove(f"{PREFIX}/example.com/widgets/d/bad")
        await until(lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionInProgress")
        etcd.remove(f"{PREFIX}/example.com/widgets/d/held")
        await one.gone(NAME)


@pytest.mark.looptime
@pytest.mark.rows("CND-009", "ETC-006")
async def test_waiting_for_an_unreadable_object_causes_no_repeated_writes() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        await one.established(NAME)
        etcd.put(f"{PREFIX}/example.com/widgets/d/bad", b"no json")
        await one.delete_definition(NAME)
        await until(lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionFailed", every=0.1)
        before, tried = etcd.revision, one.controllers._loops.loops["finalizing"]._failures
        again = tried.get(NAME, 0) + 5
        await until(lambda: tried.get(NAME, 0) >= again, 3 * limits.RETRY_LAST, every=0.1)
        written = [event for event in etcd.log_after(before) if NAME.encode() in event.kv.key]
        assert written == []
        etcd.remove(f"{PREFIX}/example.com/widgets/d/bad")
        await until(lambda: one.definition(NAME) is None, 2 * limits.RETRY_LAST, every=0.5)


async def test_migration_keeps_no_collection_of_deleted_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = FakeEtcd()
    builtin = partial(builtin_resources, enabled=lambda version, default: True)
    monkeypatch.setattr("tests.unit.controllers.harness.builtin_resources", builtin)
    async with server(etcd) as one, asyncio.TaskGroup() as group:
        await one.define(crd())
        await one.established(NAME)
        verbs = Verbs(one.live, one.store, Chain([]), one.controllers.serving, lambda: NOW, lambda: 0.0)
        one.controllers.start_migrations(group, verbs)
        at_least = one.store.at_least

        async def late(revision: int, *more: Collection) -> None:
            if revision == 1:  # the checkpoint: the definition is deleted during the migration
                monkeypatch.setattr(one.store, "at_least", at_least)
                await one.delete_definition(NAME)
                await one.gone(NAME)
                await until(lambda: one.store.collection(WIDGETS) is None)
            await at_least(revision, *more)

        monkeypatch.setattr(one.store, "at_least", late)
        document = {
            "apiVersion": f"{MIGRATIONS.group}/v1beta1",
            "kind": "StorageVersionMigration",
            "metadata": {"name": "asked", "creationTimestamp": NOW},
            "spec": {"resource": {"group": WIDGETS.group, "resource": WIDGETS.resource}},
            "status": {"resourceVersion": "1", "conditions": [{"type": "Running", "status": "True"}]},
        }
        etcd.put(f"{PREFIX}/{MIGRATIONS.group}/{MIGRATIONS.resource}/asked", orjson.dumps(document))
        await one.gone(NAME)
        [migrations] = [client for client in one.controllers._clients if isinstance(client, Migrations)]
        await until(lambda: migrations._loop.idle)
        assert one.store.collection(WIDGETS) is None
        await one.controllers.stop()


ODD = ('{"kind":"K"}', '{"metadata":[]}', '{"metadata":{"name":1},"rules":3,"aggregationRule":4,"spec":5,"status":[]}')


@pytest.mark.rows("ETC-006")
@pytest.mark.parametrize("odd", ODD)
async def test_malformed_stored_objects_do_not_block_controllers(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    etcd = FakeEtcd()
    for resource in (CLUSTER_ROLES, POLICIES, MIGRATIONS):
        etcd.put(f"{PREFIX}/{resource.group}/{resource.resource}/odd", odd.encode())
    builtin = partial(builtin_resources, enabled=lambda version, default: True)
    monkeypatch.setattr("tests.unit.controllers.harness.builtin_resources", builtin)
    async with server(etcd) as one, asyncio.TaskGroup() as group:
        verbs = Verbs(one.live, one.store, Chain([]), one.controllers.serving, lambda: NOW, lambda: 0.0)
        one.controllers.start_roles(group, verbs, needed=False)
        one.controllers.start_policies(group, one.store, one.live, "v1")
        one.controllers.start_migrations(group, verbs)
        for name, role in {
            "whole": {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"part": "yes"}}]}},
            "part": {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
        }.items():
            metadata = {"name": name, "uid": name, "labels": {name: "yes"}}
            document = {"apiVersion": f"{CLUSTER_ROLES.group}/v1", "kind": "ClusterRole", "metadata": metadata, **role}
            etcd.put(f"{PREFIX}/{CLUSTER_ROLES.group}/clusterroles/{name}", orjson.dumps(document))
        policy = {"apiVersion": f"{POLICIES.group}/v1", "kind": "ValidatingAdmissionPolicy"}
        metadata = {"name": "policy", "generation": 1}
        etcd.put(
            f"{PREFIX}/{POLICIES.group}/{POLICIES.resource}/policy", orjson.dumps({**policy, "metadata": metadata})
        )
        asked = {"spec": {"resource": {"group": "nobody.com", "resource": "things"}}}
        metadata = {"name": "asked", "creationTimestamp": "2020-01-01T00:00:00Z"}
        document = {"apiVersion": f"{MIGRATIONS.group}/v1beta1", "kind": "StorageVersionMigration", **asked}
        etcd.put(
            f"{PREFIX}/{MIGRATIONS.group}/{MIGRATIONS.resource}/asked", orjson.dumps({**document, "metadata": metadata})
        )

        def raw(resource: GroupResource, name: str) -> bytes:
            entry = one.collection(resource).state.get("", name)
            return entry.raw if entry is not None else b""

        await until(lambda: b"pods" in raw(CLUSTER_ROLES, "whole"))
        await until(lambda: b"observedGeneration" in raw(POLICIES, "policy"))
        await until(lambda: b"does not exist" in raw(MIGRATIONS, "asked"))
        await one.controllers.stop()


async def test_changes_in_compacted_history_are_processed() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one, server(etcd) as other:
        await one.define(crd())
        await one.define(crd("things"))
        await one.established(NAME)
        await one.established("things.example.com")
        watches = list(etcd.watches)
        etcd.hold()
        key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions"
        etcd.remove(f"{key}/things.example.com")
        document = crd("gadgets")
        document["status"]["acceptedNames"] = document["spec"]["names"]
        document["status"]["conditions"] = [{"type": "NamesAccepted", "status": "True", "reason": "a", "message": "b"}]
        etcd.put(f"{key}/gadgets.example.com", orjson.dumps(document))
        etcd.forget_before(etcd.revision)
        etcd.release()
        for each in (one, other):
            await each.established("gadgets.example.com")
            await each.gone("things.example.com")
            assert each.served(NAME) is not None
        assert all(watch.ended for watch in watches)


async def test_controllers_resume_after_etcd_outage() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        etcd.put(f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}", orjson.dumps(crd()))
        etcd.down = True
        await until(lambda: one.definition(NAME) is not None)
        for _ in range(50):
            await asyncio.sleep(0)
        assert one.served(NAME) is None
        etcd.down = False
        await one.established(NAME)


@pytest.mark.rows("SRV-015", "DEL-005")
async def test_watches_end_if_definition_is_recreated_quickly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one, server(etcd) as other:
        await one.define(crd())
        for each in (one, other):
            await each.established(NAME)
        sink, col = RecordingSink(), one.collection(WIDGETS)
        await col.wait_ready()
        col.watch(replace(watch_group(), version="v1"), None, sink)

        async def anew(self: ChangeFeed, patience: float) -> None:
            if self is col.feed:
                await until(lambda: one.served(NAME))

        monkeypatch.setattr(ChangeFeed, "watches_served", anew)
        await other.delete_definition(NAME)
        await other.gone(NAME)
        await other.define(crd())
        await other.established(NAME)
        await until(lambda: one.served(NAME))
        await until(lambda: one.controllers.serving._loop.idle)
        assert sink.ended


@pytest.mark.rows("ETC-006", "AUT-001")
@pytest.mark.parametrize("odd", ['{"rules":3}', '{"rules":[{"verbs":7}]}'])
async def test_malformed_stored_role_grants_nothing(odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def role(name: str) -> bytes:
        rules = [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
        return orjson.dumps({"kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})

    def bound(name: str) -> bytes:
        reference = {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": name}
        subject = {"apiGroup": CLUSTER_ROLES.group, "kind": "User", "name": f"friend of {name}"}
        return orjson.dumps({"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})

    def allowed(name: str) -> bool:
        user = User(f"friend of {name}")
        return roles.policy(Attributes(user, "get", "", version="v1", resource="pods", name="a")).allowed

    etcd = FakeEtcd()
    root = f"{PREFIX}/{CLUSTER_ROLES.group}"
    etcd.put(f"{root}/clusterroles/odd", odd.encode())
    for name in ("good", "fades"):
        etcd.put(f"{root}/clusterroles/{name}", role(name))
        etcd.put(f"{root}/clusterrolebindings/{name}", bound(name))
    etcd.put(f"{root}/clusterrolebindings/odd", b'{"subjects":5}')
    builtin = partial(builtin_resources, enabled=lambda version, default: True)
    monkeypatch.setattr("tests.unit.controllers.harness.builtin_resources", builtin)
    async with server(etcd) as one:
        roles = Roles()
        roles.follow(one.store)
        await roles.wait_ready()
        assert allowed("good")
        assert allowed("fades")
        etcd.put(f"{root}/clusterroles/fades", odd.encode())
        await until(lambda: not allowed("fades"))
        assert allowed("good")


@pytest.mark.parametrize(
    "wrong",
    [
        {"versions": "v1"},
        {"versions": [1]},
        {"versions": [{"name": ["v1"], "served": True, "storage": True}]},
        {"versions": [{"name": "v1", "served": True, "storage": True, "schema": "x"}]},
        {"versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": 1}}}]},
        {"versions": [{"name": "v1", "served": True, "storage": True, "selectableFields": [1]}]},
        {"validation": {"openAPIV3Schema": []}},
        {"conversion": "None"},
    ],
    ids=str,
)
async def test_malformed_served_definition_is_logged_as_warning(
    wrong: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    etcd, key = FakeEtcd(), f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}"
    async with server(etcd) as one:
        await one.define(crd())
        await one.established(NAME)
        definition = one.collection(DEFINITIONS).state.get("", NAME)
        assert definition is not None
        stored = orjson.loads(definition.raw)
        etcd.put(key, orjson.dumps({**stored, "spec": {**stored["spec"], **wrong}}))
        await until(lambda: f"the stored definition {NAME} cannot be served" in caplog.text)
        assert one.served(NAME) is not None, "what is served of it stays until it can be read"
        etcd.put(key, definition.raw)
        await until(lambda: (found := one.collection(DEFINITIONS).state.get("", NAME)) and found.raw == definition.raw)
        await one.established(NAME)
    assert not [record.getMessage() for record in caplog.records if record.exc_info]


@pytest.mark.rows("CRD-037")
async def test_unreadable_ca_bundle_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async with server(FakeEtcd()) as one:
        wanted = crd()
        client = {"url": "https://127.0.0.1:1/x", "caBundle": "Z2FyYmFnZQ=="}
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": client}
        wanted["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
        await one.define(wanted)
        await until(lambda: (it := one.served("widgets.example.com")) is not None and it.definition.unusable)

        def describe(document: Document) -> None:
            document["metadata"]["generation"] += 1
            document["spec"]["names"]["shortNames"] = ["w"]

        await one.change("widgets.example.com", describe)
        await until(lambda: (it := one.served("widgets.example.com")) is not None and it.definition.generation == 2)
    text = "the CA bundle of the conversion webhook of widgets.example.com cannot be read"
    assert sum(text in message for message in caplog.messages) == 1
