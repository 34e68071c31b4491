"""From a stored definition to a served resource and back, through all controllers together."""

import asyncio
import re

import orjson
import pytest

from apiext.catalog.served import TERMINATING_VERBS
from apiext.controllers import limits
from apiext.controllers.definitions import DEFINITIONS
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.storage.history import Change
from tests.support.fake_etcd import FakeEtcd
from tests.support.sinks import RecordingSink, watch_group
from tests.unit.controllers.harness import PREFIX, Server, conditions, crd, server, until, widget

NAME = "widgets.example.com"
WIDGETS = GroupResource("example.com", "widgets")


def record_conditions(one: Server, name: str) -> list[dict[str, tuple[str, str, str]]]:
    """Return a list to which the conditions of each state of a definition are added."""
    seen: list[dict[str, tuple[str, str, str]]] = []

    def note(change: Change) -> None:
        if change.entry.name == name:
            seen.append(conditions(orjson.loads(change.entry.raw)))

    one.collection(DEFINITIONS).feed.subscribe(note)
    return seen


@pytest.mark.rows("CND-002", "CND-004", "CND-010")
async def test_definition_gets_names_accepted_then_established() -> None:
    async with server(FakeEtcd()) as one:
        seen = record_conditions(one, NAME)
        await one.define(crd(names={"shortNames": ["wd"], "categories": ["all"]}))
        await one.established(NAME)
        fine = ("True", "NoConflicts", "no conflicts found")
        text = "the initial names have been accepted"
        assert seen == [
            {},
            {"NamesAccepted": fine, "Established": ("False", "Installing", text)},
            {"NamesAccepted": fine, "Established": ("True", "InitialNamesAccepted", text)},
        ]
        document = one.definition(NAME)
        assert document is not None
        assert document["metadata"]["generation"] == 1
        assert document["status"]["acceptedNames"] == {
            "plural": "widgets",
            "singular": "widget",
            "shortNames": ["wd"],
            "kind": "Widget",
            "listKind": "WidgetList",
            "categories": ["all"],
        }


@pytest.mark.rows("CND-004", "CND-005")
async def test_definition_is_served_when_established() -> None:
    async with server(FakeEtcd()) as one:
        served: dict[str, tuple[bool, bool]] = {}

        def note(change: Change) -> None:
            told = conditions(orjson.loads(change.entry.raw)).get("Established", ("", "", ""))[0]
            found = one.served(NAME)
            served[told] = (found is not None, found is not None and found.definition.established)

        one.collection(DEFINITIONS).feed.subscribe(note)
        await one.define(crd())
        await one.established(NAME)
        assert served == {"": (False, False), "False": (False, False), "True": (True, True)}
        assert one.live.current.groups()["example.com"] == ["v1"]


@pytest.mark.rows("CND-001", "CND-002", "CND-003", "CND-005")
async def test_name_conflict_lasts_until_name_is_freed() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd(names={"shortNames": ["wd"]}))
        await one.established(NAME)
        await one.define(crd("things", names={"kind": "Widget", "listKind": "ThingList", "shortNames": ["wd", "t"]}))
        await until(lambda: conditions(one.definition("things.example.com")))
        assert conditions(one.definition("things.example.com")) == {
            "NamesAccepted": ("False", "KindConflict", '"Widget" is already in use'),
            "Established": ("False", "NotAccepted", "not all names are accepted"),
        }
        assert one.served("things.example.com") is None

        def rename(document: Document) -> None:
            document["spec"]["names"]["kind"] = "Thing"
            document["metadata"]["generation"] += 1

        await one.change("things.example.com", rename)
        await until(lambda: conditions(one.definition("things.example.com"))["NamesAccepted"][1] != "KindConflict")
        told = conditions(one.definition("things.example.com"))["NamesAccepted"]
        assert told == ("False", "ShortNamesConflict", '"wd" is already in use')

        def free(document: Document) -> None:
            document["spec"]["names"]["shortNames"] = []
            document["metadata"]["generation"] += 1

        await one.change(NAME, free)
        await one.established("things.example.com")

        def conflict(document: Document) -> None:
            document["spec"]["names"]["singular"] = "widget"
            document["metadata"]["generation"] += 1

        await one.change("things.example.com", conflict)
        await until(lambda: conditions(one.definition("things.example.com"))["NamesAccepted"][0] == "False")
        told_now = conditions(one.definition("things.example.com"))
        assert told_now["NamesAccepted"] == ("False", "SingularConflict", '"widget" is already in use')
        assert told_now["Established"][0] == "True"
        assert one.served("things.example.com") is not None


async def test_deleting_a_definition_frees_its_names() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        await one.define(crd("things", names={"kind": "Widget"}))
        await until(lambda: conditions(one.definition("things.example.com")))
        await one.delete_definition(NAME)
        await one.established("things.example.com")


async def test_concurrent_definitions_of_one_group_are_established() -> None:
    async with server(FakeEtcd()) as one:
        names = [f"things{number}" for number in range(40)]
        await asyncio.gather(*(one.define(crd(name, names={"kind": f"K{name}", "singular": ""})) for name in names))
        for name in names:
            await one.established(f"{name}.example.com")


@pytest.mark.rows("SRV-015")
@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ("description", False),
        ("label", False),
        ("schema", True),
        ("version", True),
        ("storage version", True),
        ("short name", True),
    ],
)
async def test_watches_end_only_if_definition_changes_served_objects(change: str, ends: bool) -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        before = await one.established(NAME)
        sink = RecordingSink()
        one.collection(WIDGETS).watch(watch_group(), None, sink)

        def apply(document: Document) -> None:
            version = document["spec"]["versions"][0]
            schema = version["schema"]["openAPIV3Schema"]
            if change == "label":
                document["metadata"]["labels"] = {"a": "b"}
                return
            document["metadata"]["generation"] += 1
            if change == "description":
                schema["description"] = "another thing"
            elif change == "schema":
                schema["properties"] = {"description": {"type": "string"}}
            elif change == "version":
                document["spec"]["versions"].append({**version, "name": "v2", "storage": False})
            elif change == "storage version":
                document["spec"]["versions"].append({**version, "name": "v2"})
                version["storage"] = False
                document["status"]["storedVersions"].append("v2")
            else:
                document["spec"]["names"]["shortNames"] = ["wd"]

        entry = await one.change(NAME, apply)
        await one.controllers.serving.seen(entry.revision)
        await until(lambda: conditions(one.definition(NAME)))
        await until(lambda: sink.ended is ends if ends else one.served(NAME) is not None)
        after = one.served(NAME)
        assert after is not None
        assert (before.versions["v1"].identity != after.versions["v1"].identity) is ends
        assert sink.ended is ends


@pytest.mark.rows("CND-009", "DEL-001", "DEL-003", "DEL-005")
async def test_deletion_removes_objects_then_definition_then_guard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LAST_EVENTS", 60.0)  # for slow machines
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        for number in range(100):
            await one.put(served, widget(f"w{number}", f"ns{number % 3}"))
        sinks = [RecordingSink() for _ in range(500)]
        for sink in sinks:
            one.collection(WIDGETS).watch(watch_group(), None, sink)
        seen = record_conditions(one, NAME)
        await one.delete_definition(NAME)
        await one.gone(NAME)
        assert [told["Terminating"][1] for told in seen] == [
            "InstanceDeletionPending",
            "InstanceDeletionInProgress",
            "InstanceDeletionInProgress",
        ]
        await until(lambda: not etcd.state(f"{PREFIX}/.apiext/guards/"))
        assert not etcd.state(f"{PREFIX}/example.com/")
        await until(lambda: one.store.collection(WIDGETS) is None)
        await until(lambda: all(sink.ended for sink in sinks))
        for sink in sinks:
            assert [seen.type for seen in sink.events] == ["DELETED"] * 100  # they arrive before the watch ends
        await one.define(crd())
        await one.established(NAME)
        await until(lambda: one.collection(WIDGETS).state.ready)
        assert one.collection(WIDGETS).state.count(None) == 0


@pytest.mark.rows("DEL-003", "DEL-004")
async def test_object_finalizers_delay_deletion_of_definition() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        await one.define(crd())
        served = await one.established(NAME)
        await one.put(served, widget("free"))
        await one.put(served, widget("held", finalizers=("example.com/keep",)))
        await one.delete_definition(NAME)
        widgets = one.collection(WIDGETS)
        await until(lambda: widgets.state.get("d", "free") is None)
        await until(lambda: b'"deletionTimestamp"' in widgets.state.get("d", "held").raw)  # type: ignore[union-attr]
        held = widgets.state.get("d", "held")
        assert held is not None
        metadata = orjson.loads(held.raw)["metadata"]
        assert (metadata["generation"], metadata["deletionGracePeriodSeconds"]) == (2, 0)
        await until(lambda: conditions(one.definition(NAME))["Terminating"][1] == "InstanceDeletionInProgress")
        terminating = one.served(NAME)
        assert terminating is not None
        assert terminating.definition.terminating
        assert terminating.versions["v1"].published.verbs == TERMINATING_VERBS
        held = await one.replace(terminating, held, lambda document: document.update(spec={"x": 1}))
        await one.store.delete(widgets, "d", "held", held.revision)
        await one.gone(NAME)


@pytest.mark.rows("CND-009")
async def test_never_established_definition_is_deleted_at_once() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        await one.define(crd("things", names={"kind": "Widget"}))
        await until(lambda: conditions(one.definition("things.example.com")))
        await one.delete_definition("things.example.com")
        await one.gone("things.example.com")


@pytest.mark.rows("CND-009")
@pytest.mark.parametrize(
    ("plural", "group", "reason", "message"),
    [
        ("things", "example.com", "NeverEstablished", "resource was never established"),
        (
            "customresourcedefinitions",
            "apiextensions.k8s.io",
            "OverlappingBuiltInResource",
            "instances overlap with built-in resources in storage",
        ),
    ],
)
async def test_terminating_condition_says_why_cleanup_was_skipped(
    plural: str, group: str, reason: str, message: str
) -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        name, document = f"{plural}.{group}", crd(plural, group, names={"kind": "Widget"}, scope="Cluster")
        document["metadata"]["finalizers"] = ["example.com/mine"]
        await one.define(document)
        await until(lambda: conditions(one.definition(name)))
        await one.delete_definition(name)
        await until(lambda: conditions(one.definition(name))["Terminating"][0] == "False")
        left = one.definition(name)
        assert left is not None
        assert left["metadata"]["finalizers"] == ["example.com/mine"]
        assert conditions(left)["Terminating"] == ("False", reason, message)
        assert one.definition(NAME) is not None


@pytest.mark.rows("CND-009")
async def test_other_finalizers_keep_definition_after_cleanup() -> None:
    async with server(FakeEtcd()) as one:
        document = crd()
        document["metadata"]["finalizers"] = ["example.com/mine"]
        await one.define(document)
        served = await one.established(NAME)
        await one.put(served, widget("a"))
        await one.delete_definition(NAME)
        await until(lambda: conditions(one.definition(NAME))["Terminating"][0] == "False")
        left = one.definition(NAME)
        assert left is not None
        assert left["metadata"]["finalizers"] == ["example.com/mine"]
        assert conditions(left)["Terminating"] == ("False", "InstanceDeletionCompleted", "removed all instances")
        assert one.collection(WIDGETS).state.count(None) == 0


@pytest.mark.rows("CND-009")
async def test_deleting_definition_of_built_in_resource_keeps_objects() -> None:
    async with server(FakeEtcd()) as one:
        await one.define(crd())
        await one.established(NAME)
        name = "customresourcedefinitions.apiextensions.k8s.io"
        await one.define(crd("customresourcedefinitions", "apiextensions.k8s.io", scope="Cluster"))
        await until(lambda: conditions(one.definition(name)))
        before = one.served(name)
        assert before is not None
        assert before.builtin
        await one.delete_definition(name)
        await until(lambda: one.definition(name) is None)
        assert one.definition(NAME) is not None
        assert one.served(name) is before


@pytest.mark.rows("CND-008")
async def test_protected_group_gets_approval_condition() -> None:
    async with server(FakeEtcd()) as one:
        document = crd("gateways", "gateway.networking.k8s.io")
        document["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
        await one.define(document)
        name = document["metadata"]["name"]
        await one.established(name)
        kind = "KubernetesAPIApprovalPolicyConformant"
        await until(lambda: kind in conditions(one.definition(name)))
        assert conditions(one.definition(name))[kind] == (
            "False",
            "UnapprovedAnnotation",
            'not approved: "unapproved, a test"',
        )

        def approve(document: Document) -> None:
            document["metadata"]["annotations"]["api-approved.kubernetes.io"] = "https://example.com/1"

        await one.change(name, approve)
        await until(lambda: conditions(one.definition(name))[kind][0] == "True")
        assert conditions(one.definition(name))[kind][2] == "approved in https://example.com/1"


@pytest.mark.rows("CND-007")
async def test_stored_non_structural_schema_gets_condition() -> None:
    async with server(FakeEtcd()) as one:
        document = crd(schema={"type": "object", "properties": {"spec": {"properties": {"a": {}}}}})
        document["spec"]["preserveUnknownFields"] = True
        await one.define(document)
        await until(lambda: "NonStructuralSchema" in conditions(one.definition(NAME)))
        status, reason, message = conditions(one.definition(NAME))["NonStructuralSchema"]
        assert (status, reason) == ("True", "Violations")
        assert "spec.preserveUnknownFields: Invalid value: true: must be false" in message
        assert "spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value" in message

        def repair(document: Document) -> None:
            document["spec"]["preserveUnknownFields"] = False
            document["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = {"type": "object"}
            document["metadata"]["generation"] += 1

        await one.change(NAME, repair)
        await until(lambda: "NonStructuralSchema" not in conditions(one.definition(NAME)))


@pytest.mark.rows("CND-007", "STR-012")
async def test_unsupported_schema_sets_non_structural_unknown() -> None:
    async with server(FakeEtcd()) as one:
        document = crd(schema={"type": "object", "$schema": "x"})
        document["spec"]["preserveUnknownFields"] = True
        await one.define(document)
        await until(lambda: "NonStructuralSchema" in conditions(one.definition(NAME)))
        text = "failed to check validation schema for version v1: OpenAPIV3Schema 'schema' is not supported"
        assert conditions(one.definition(NAME))["NonStructuralSchema"] == ("Unknown", "StructuralError", text)


@pytest.mark.rows("CND-007", "CND-011")
async def test_non_structural_condition_is_set_beside_names_accepted() -> None:
    etcd = FakeEtcd()
    key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}"
    async with server(etcd) as one:
        for turn in range(2):
            etcd.put(key, orjson.dumps(crd(schema={"type": "object", "properties": {"a": {}}})))
            await until(lambda: "NonStructuralSchema" in conditions(one.definition(NAME)))
            assert orjson.loads(etcd.state(key)[key][1])["apiVersion"].endswith("/v1beta1"), turn
            etcd.remove(key)
            await one.gone(NAME)


@pytest.mark.rows("CND-007", "CND-011")
async def test_non_structural_condition_is_retried_after_conflict() -> None:
    etcd = FakeEtcd()
    key = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}"
    async with server(etcd) as one:
        await one.define(crd())
        await one.established(NAME)
        await until(lambda: etcd.state(key)[key][0] == one.collection(DEFINITIONS).state.get("", NAME).revision)
        document = orjson.loads(etcd.state(key)[key][1])
        document["spec"]["preserveUnknownFields"] = True
        updates = etcd.calls.count("txn")

        def race(change: Change) -> None:
            if change.entry.revision == first:
                etcd.hold()
                etcd.put(key, orjson.dumps({**document, "metadata": {**document["metadata"], "labels": {"a": "b"}}}))

        one.collection(DEFINITIONS).feed.subscribe(race)
        first = etcd.put(key, orjson.dumps(document))
        await until(lambda: etcd.calls.count("txn") > updates)
        etcd.release()
        await until(lambda: "NonStructuralSchema" in conditions(one.definition(NAME)))


@pytest.mark.rows("ETC-006")
async def test_definitions_written_to_etcd_are_guarded_and_served() -> None:
    etcd = FakeEtcd()
    async with server(etcd) as one:
        document = crd()
        document["status"]["acceptedNames"] = document["spec"]["names"]
        document["status"]["conditions"] = [
            {"type": "Established", "status": "True", "reason": "x", "message": "y", "lastTransitionTime": None}
        ]
        etcd.put(f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}", orjson.dumps(document))
        await until(lambda: one.served(NAME))
        served = one.served(NAME)
        assert served is not None
        assert (
            etcd.state(served.definition.guard_key)[served.definition.guard_key][0] == served.definition.guard_revision
        )
        etcd.remove(f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/{NAME}")
        await one.gone(NAME)
        await until(lambda: not etcd.state(f"{PREFIX}/.apiext/guards/"))


async def test_invalid_stored_definition_does_not_block_start(caplog: pytest.LogCaptureFixture) -> None:
    etcd = FakeEtcd()
    root = f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions"
    etcd.put(f"{root}/bad.example.com", b"no json")
    etcd.put(f"{root}/worse.example.com", b'{"spec": 1}')
    async with server(etcd) as one:
        await one.define(crd())
        await one.established(NAME)
        assert one.controllers.synced()
    assert "worse.example.com cannot be read" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": {"acceptedNames": {"kind": 1}}},
        {"status": {"acceptedNames": {"kind": []}}},
        {"status": {"conditions": [{"type": []}]}},
        {"spec": "x"},
        {"spec": ["names", "group"]},
        {"spec": {**crd("odd")["spec"], "versions": "v1"}},
        {"spec": {**crd("odd")["spec"], "conversion": 1}},
        {"status": {"storedVersions": 1}},
    ],
    ids=str,
)
async def test_malformed_definition_does_not_block_its_group(wrong: Document, caplog: pytest.LogCaptureFixture) -> None:
    etcd = FakeEtcd()
    odd = crd("odd") | wrong
    etcd.put(f"{PREFIX}/apiextensions.k8s.io/customresourcedefinitions/odd.example.com", orjson.dumps(odd))
    async with server(etcd) as one:
        await one.define(crd())
        await one.established(NAME)
    assert re.search(r"the (names of the )?stored definition odd\.example\.com cannot be (read|decided): ", caplog.text)
    assert not [record.getMessage() for record in caplog.records if record.exc_info]
