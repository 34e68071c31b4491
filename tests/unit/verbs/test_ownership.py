"""Applies through the write loop, and their managedFields (SSA-001…017)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from apiext.catalog.builtin.definitions import definitions_resource
from apiext.documents.document import Document, clone
from apiext.managedfields import manager
from apiext.managedfields.entries import Manager
from apiext.managedfields.fieldset import FieldSet
from apiext.managedfields.updater import Conflicts
from apiext.meta import limits
from apiext.meta.options import WriteOptions
from apiext.meta.status import StatusError
from apiext.verbs import api, ownership
from apiext.verbs.call import Call, Outcome
from tests.support.fake_etcd import FakeEtcd
from tests.unit.controllers.harness import NOW, server
from tests.unit.http.support import endpoint as endpoint_of
from tests.unit.verbs.harness import DEFINITION, Client, serving_widgets, widget


@asynccontextmanager
async def served(etcd: FakeEtcd) -> AsyncIterator[Client]:
    async with serving_widgets(etcd) as one:
        yield Client(one)


async def apply(client: Client, name: str, manager: str, spec: Document | None = None, **query: str) -> Outcome:
    asked = {"fieldManager": manager, **query}
    call = client.call("patch", name, {key: [value] for key, value in asked.items() if value})
    raw = orjson.dumps(widget(name, **({"spec": spec} if spec is not None else {})))
    return await api.patch(client.verbs, call, ownership.MEDIA_TYPE, raw)


def fields_by_manager(document: Document) -> dict[str, Any]:
    return {entry["manager"]: entry["fieldsV1"] for entry in document["metadata"].get("managedFields", ())}


@pytest.mark.rows("SSA-001", "SSA-015", "SRV-013")
async def test_apply_creates_then_updates_then_is_no_op() -> None:
    async with served(FakeEtcd()) as client:
        created = await apply(client, "a", "m", {"n": 1})
        assert created.code == 201
        changed = await apply(client, "a", "m", {"n": 2})
        assert changed.code == 200
        assert fields_by_manager(client.shown(changed)) == {"m": {"f:spec": {".": {}, "f:n": {}}}}
        again = await apply(client, "a", "m", {"n": 2})
        assert (
            client.shown(again)["metadata"]["resourceVersion"] == client.shown(changed)["metadata"]["resourceVersion"]
        )


@pytest.mark.rows("SSA-001", "SRV-004")
async def test_apply_create_stores_no_status_default() -> None:
    status = {"type": "object", "properties": {"a": {"type": "integer"}}, "default": {"a": 1}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"status": status}}}
    plain: Any = DEFINITION["spec"]
    version = {**plain["versions"][0], "subresources": {"status": {}}, "schema": schema}
    async with server(FakeEtcd()) as one:
        spec = {**plain, "versions": [version]}
        await one.define({**DEFINITION, "metadata": {"name": "widgets.example.com", "uid": "d1"}, "spec": spec})
        await one.established("widgets.example.com")
        client = Client(one)
        await apply(client, "a", "m")
        entry = await client.stored("a")
        assert entry is not None
        assert "status" not in orjson.loads(entry.raw)


@pytest.mark.rows("SSA-008")
async def test_apply_conflict_has_causes() -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", spec={"n": 1, "o": {"p": 1}})
        with pytest.raises(StatusError) as met:
            await apply(client, "a", "m", {"n": 2, "o": {"p": 2}})
        assert met.value.document() == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "reason": "Conflict",
            "message": (
                'Apply failed with 2 conflicts: conflicts with "test" using example.com/v1:\n- .spec.n\n- .spec.o.p'
            ),
            "details": {
                "causes": [
                    {
                        "reason": "FieldManagerConflict",
                        "message": 'conflict with "test" using example.com/v1',
                        "field": field,
                    }
                    for field in (".spec.n", ".spec.o.p")
                ]
            },
            "code": 409,
        }
        forced = await apply(client, "a", "m", {"n": 2}, force="true")
        assert fields_by_manager(client.shown(forced)) == {
            "m": {"f:spec": {".": {}, "f:n": {}}},
            "test": {"f:spec": {".": {}, "f:o": {".": {}, "f:p": {}}}},
        }


NOT_SHOWN = "too many conflicts: the rest is not shown"


@pytest.mark.parametrize(("levels", "leaves", "shown"), [(0, 1_000, 1_000), (0, 1_001, 1_000), (200, 3_000, 10)])
def test_apply_conflict_causes_are_truncated(levels: int, leaves: int, shown: int) -> None:
    paths: Document = {f"f:a{number:04}": {} for number in range(leaves)}
    for _ in range(levels):
        paths = {f"f:{'k' * 500}": paths}
    others = {"f:b": {}}
    met = ownership.conflict(Conflicts({Manager("m", "Apply"): paths, Manager("n", "Apply"): others}))
    causes = (met.details or {})["causes"]
    first = {
        "reason": "FieldManagerConflict",
        "message": 'conflict with "m"',
        "field": f".{'k' * 500}" * levels + ".a0000",
    }
    assert causes[0] == first
    assert causes[-1] == {"message": NOT_SHOWN}
    assert len(causes) == shown + 1
    lines = met.message.split("\n")
    assert lines[0] == f'Apply failed with {leaves + 1} conflicts: conflicts with "m":'
    assert lines[1:-1] == [f"- {cause['field']}" for cause in causes[:-1]]
    assert lines[-1] == NOT_SHOWN


def test_apply_conflict_within_limit_lists_all_causes() -> None:
    paths = {f"f:{number:04}": {} for number in range(limits.MAX_FIELD_ERRORS)}
    met = ownership.conflict(Conflicts({Manager("m", "Apply"): paths}))
    assert len((met.details or {})["causes"]) == limits.MAX_FIELD_ERRORS
    assert met.message.endswith("\n- .0999")
    long = ownership.conflict(
        Conflicts(
            {
                Manager("m", "Apply"): {"f:" + "a" * 1_024: {}},
                Manager("n", "Apply"): {
                    "f:" + "b" * 1_025: {},
                    f'v:"{"c" * 2_000}"': {},
                    f'k:{{"d":"{"d" * 2_000}"}}': {},
                },
            }
        )
    )
    told = [cause["field"] for cause in (long.details or {})["causes"]]
    assert told == [f".{'a' * 1_024}", f".{'b' * 1_024}…", f'[d="{"d" * 1_021}…]', f'[="{"c" * 1_022}…]']


@pytest.mark.rows("SSA-001", "WRI-011")
@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", "invalid object type: /, Kind="),
        (b"[1]", "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array "
                 "into Go value of type map[string]interface {}"),
        (b"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: b}\n",
         "the name of the object (b) does not match the name on the URL (a)"),
        (b"apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a, namespace: other}\n",
         "the namespace of the provided object does not match the namespace sent on the request"),
    ],
)  # fmt: skip
async def test_invalid_apply_body_is_bad_request(raw: bytes, text: str) -> None:
    async with served(FakeEtcd()) as client:
        call = client.call("patch", "a", {"fieldManager": ["m"]})
        with pytest.raises(StatusError) as wrong:
            await api.patch(client.verbs, call, ownership.MEDIA_TYPE, raw)
        assert (wrong.value.code, wrong.value.message) == (400, text)


@pytest.mark.rows("WRI-011")
async def test_apply_without_field_manager_is_refused() -> None:
    async with served(FakeEtcd()) as client:
        with pytest.raises(StatusError) as wrong:
            await apply(client, "a", "", {"n": 1})
        assert wrong.value.code == 422


@pytest.mark.rows("WRI-010")
async def test_apply_with_uid_of_absent_object_conflicts() -> None:
    async with served(FakeEtcd()) as client:
        call = client.call("patch", "a", {"fieldManager": ["m"]})
        raw = orjson.dumps(widget("a", metadata={"uid": "u-1"}))
        with pytest.raises(StatusError) as wrong:
            await api.patch(client.verbs, call, ownership.MEDIA_TYPE, raw)
        assert (wrong.value.code, wrong.value.reason) == (409, "Conflict")
        assert "uid mismatch: the provided object specified uid u-1" in wrong.value.message


@pytest.mark.rows("SSA-001")
async def test_concurrent_applies_of_two_servers_create_one_object() -> None:
    etcd = FakeEtcd()
    async with served(etcd) as one, served(etcd) as other:
        outcomes = await asyncio.gather(apply(one, "a", "m1", {"n": 1}), apply(other, "a", "m2", {"o": 1}))
        assert sorted(outcome.code for outcome in outcomes) == [200, 201]
        entry = await one.stored("a")
        assert entry is not None
        assert set(fields_by_manager(orjson.loads(entry.raw))) == {"m1", "m2"}


@pytest.mark.rows("SSA-005", "SSA-006", "SSA-007")
async def test_managed_fields_track_updates_until_reset() -> None:
    async with served(FakeEtcd()) as client:
        await client.create("a", spec={"n": 1})
        changed = client.shown(await client.patch("a", {"spec": {"m": 1}}, fieldManager="other"))
        assert fields_by_manager(changed) == {
            "other": {"f:spec": {"f:m": {}}},
            "test": {"f:spec": {".": {}, "f:n": {}}},
        }
        reset = client.shown(await client.patch("a", {"metadata": {"managedFields": [{}]}}))
        assert fields_by_manager(reset) == {}
        assert fields_by_manager(client.shown(await client.patch("a", {"spec": {"n": 3}}))) == {}
        assert set(fields_by_manager(client.shown(await apply(client, "a", "m", {"x": 1})))) == {
            "before-first-apply",
            "m",
        }


@pytest.mark.rows("SSA-017")
async def test_managed_fields_broken_by_admission_are_restored() -> None:
    async with served(FakeEtcd()) as client:
        call: Call = client.call("create")
        before = widget("a", metadata={"managedFields": [{"manager": "m"}]})
        after = widget("a", metadata={"managedFields": [{"manager": "x", "operation": "Patch"}]})
        ownership.check_admitted(call, before, after)
        assert after["metadata"]["managedFields"] == before["metadata"]["managedFields"]
        assert call.warnings == [
            ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated "
            "mutating admission controller; please fix your requests: operation must be `Apply` or `Update`"
        ]


@pytest.mark.rows("WRI-006", "SSA-015")
@pytest.mark.parametrize(("spec", "kept"), [({"n": 1}, True), ({"n": 2}, False)])
def test_managed_fields_time_alone_is_no_change(spec: Document, kept: bool) -> None:
    entry = {"manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "fieldsV1": {"f:spec": {}}}
    old = widget("a", spec={"n": 1}, metadata={"managedFields": [{**entry, "time": "2020-01-01T00:00:00Z"}]})
    new = widget("a", spec=spec, metadata={"managedFields": [{**entry, "time": NOW}]})
    ownership.settle(definitions_resource(v1beta1=False).versions["v1"], new, old)
    assert (new["metadata"]["managedFields"] == old["metadata"]["managedFields"]) is kept


OWNED = {"manager": "m", "operation": "Update", "apiVersion": "example.com/v1", "fieldsV1": {"f:metadata": {}}}


def widget_with_time(time: str, labels: Document, **fields: Any) -> Document:
    owners = [{**OWNED, "time": time}]
    return widget("a", metadata={"generation": 1, "managedFields": owners, "labels": labels}, **fields)


@pytest.mark.rows("WRI-006", "SSA-015")
@pytest.mark.parametrize(
    ("label", "more", "kept"),
    [("1", {}, True), ("2", {}, False), ("1", {"additionalPrinterColumns": []}, True)],
    ids=["an unchanged object", "another label", "an empty list of a definition"],
)
def test_managed_fields_time_is_kept_if_object_is_unchanged(label: str, more: Document, kept: bool) -> None:
    version = {"name": "v1", "served": True}
    old = widget_with_time("2020-01-01T00:00:00Z", {"a": "1"}, spec={"versions": [version]})
    new = widget_with_time(NOW, {"a": label}, spec={"versions": [{**version, **more}]})
    ownership.settle(definitions_resource(v1beta1=False).versions["v1"], new, old)
    assert (new["metadata"]["managedFields"] == old["metadata"]["managedFields"]) is kept


@pytest.mark.rows("SSA-005")
@pytest.mark.parametrize(("agent", "name"), [("kubectl", "kubectl"), ("a\tb", "ab"), ("é" * 100, "é" * 64)])
async def test_user_agent_is_truncated_to_manager_name(agent: str, name: str) -> None:
    async with served(FakeEtcd()) as client:
        call = client.call("create")
        call.manager = agent
        created = client.shown(await client.create("a", call=call, spec={"n": 1}))
        assert set(fields_by_manager(created)) == {name}


@pytest.mark.rows("SSA-006")
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"spec": {"a": 1, "l": [1, {"b": None}]}},
        {"status": {"a": 1}},
        {"status": {"a": 1}, "spec": {"b": 1}},
        {"metadata": {"name": "x", "labels": {"a": "b"}, "managedFields": []}},
        {"metadata": {"name": "x", "managedFields": None}},
        {"metadata": {"name": "x", "managedFields": [{}]}},
        {"metadata": {"name": "x", "managedFields": [{"manager": "other", "operation": "Update"}]}},
        {"metadata": {}},
    ],
    ids=repr,
)
async def test_create_fast_path_tracks_managed_fields_like_update(fields: Document) -> None:
    async with served(FakeEtcd()) as client:
        call = client.call("create")
        reset: FieldSet = {"f:status": {}}
        own, of_status = replace(call.endpoint, reset=reset), replace(endpoint_of("status"), reset=reset)
        version = replace(call.served, endpoints={"": own, "status": of_status})
        calls = [replace(call, served=version, endpoint=endpoint) for endpoint in (own, of_status)]
        for made, manager_name in product((*calls, *calls), ("", "m")):
            options = WriteOptions("CreateOptions", field_manager=manager_name)
            document: Document = {**widget("a"), **clone(fields)}
            expected = clone(document)
            who = ownership._writer(made, options, NOW)
            ownership._set(expected, manager.track(who, made.served.model.empty or {}, clone(document), creating=True))
            ownership.claim(made, document, options, NOW)
            assert document == expected
